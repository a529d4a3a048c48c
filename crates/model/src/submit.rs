//! A task to be submitted, and the checks it must pass.

use crate::field::{self, FieldError};
use crate::policy::validate_attempts;
use crate::{RetryPolicy, Time, limits};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// When a submitted task shall run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunAt {
    /// As soon as possible.
    #[default]
    Now,
    /// At a time; a past one is due now.
    At(Time),
    /// After so many milliseconds, added to the database's clock.
    After(i64),
}

/// A task to be submitted. What is `None` is "as its type says", or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTask {
    /// The tenant it belongs to.
    pub tenant: String,
    /// Its type: which handler runs it.
    pub task_type: String,
    /// A business key to find it by.
    pub key: Option<String>,
    /// What the handler gets, as JSON text.
    pub payload: Option<String>,
    /// 9 first, 1 last.
    pub priority: Option<u8>,
    /// When it shall run.
    pub run_at: RunAt,
    /// After this time it is not started any more.
    pub expire_at: Option<Time>,
    /// How many attempts it has; −1 is unlimited.
    pub max_attempts: Option<i32>,
    /// When it is tried again.
    pub retry: Option<RetryPolicy>,
    /// The hard time limit of one attempt in milliseconds; −1 is none.
    pub timeout_ms: Option<i64>,
    /// A group of types that workers can ask for.
    pub category: Option<String>,
    /// Who submitted it.
    pub creator: Option<String>,
    /// What its routing slot is computed from.
    pub route_key: Option<String>,
    /// At most one live task of its tenant and type has this key.
    pub unique_key: Option<String>,
    /// The host that shall have it first.
    pub affinity: Option<String>,
    /// The token it was submitted with.
    pub token_id: Option<i64>,
    /// The trace that it belongs to, as the header `traceparent` of W3C names it.
    pub trace_parent: Option<String>,
}

impl NewTask {
    /// The tenant of tasks that name none.
    pub const TENANT_DEFAULT: &'static str = "default";

    /// A task of the default tenant with nothing but its type.
    pub fn new(task_type: impl Into<String>) -> NewTask {
        NewTask { tenant: NewTask::TENANT_DEFAULT.to_owned(), task_type: task_type.into(), ..NewTask::default() }
    }

    /// Checks every field, and reports all that are wrong.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let key = |name: &str, value: &Option<String>| match value {
            Some(value) => field::text(name, value, limits::KEY_CHARS_MAX),
            None => Ok(()),
        };
        let name = |name: &str, value: &Option<String>, chars_max: usize| match value {
            Some(value) => field::name(name, value, chars_max),
            None => Ok(()),
        };
        let checks = [
            field::name("tenant", &self.tenant, limits::NAME_CHARS_MAX),
            field::task_type("type", &self.task_type),
            key("key", &self.key),
            self.payload.as_ref().map_or(Ok(()), |payload| field::json("payload", payload, limits::PAYLOAD_BYTES_MAX)),
            self.priority.map_or(Ok(()), priority),
            self.validate_run_at(),
            self.expire_at.map_or(Ok(()), |time| field::time("expire_at", time)),
            validate_attempts(self.retry.as_ref(), self.max_attempts, self.timeout_ms),
            name("category", &self.category, limits::KEY_CHARS_MAX),
            name("creator", &self.creator, limits::NAME_CHARS_MAX),
            key("route_key", &self.route_key),
            name("unique_key", &self.unique_key, limits::KEY_CHARS_MAX),
            name("affinity", &self.affinity, limits::NAME_CHARS_MAX),
        ];
        let errors: Vec<_> = checks.into_iter().filter_map(Result::err).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// A number that tells a task from others: two calls that ask for the same have the same one, whoever makes them, in
    /// whichever trace, and however their JSON is written. The rule is stable for ever: it is in rows that are stored.
    #[must_use]
    pub fn fingerprint(&self) -> i64 {
        // Each by its name, so that a field that is added here is decided upon.
        let NewTask {
            tenant: _,
            task_type,
            key,
            payload,
            priority,
            run_at,
            expire_at,
            max_attempts,
            retry,
            timeout_ms,
            category,
            creator,
            route_key,
            unique_key,
            affinity,
            token_id: _,
            trace_parent: _,
        } = self;
        let fields = [
            ("type", json!(task_type)),
            ("key", json!(key)),
            ("payload", payload.as_deref().map_or(Value::Null, json_or_text)),
            ("priority", json!(priority)),
            ("run_at", if let RunAt::At(time) = run_at { json!(time.0) } else { Value::Null }),
            ("delay_ms", if let RunAt::After(ms) = run_at { json!(ms) } else { Value::Null }),
            ("expire_at", json!(expire_at.map(|time| time.0))),
            ("max_attempts", json!(max_attempts)),
            ("retry", json!(retry)),
            ("timeout_ms", json!(timeout_ms)),
            ("category", json!(category)),
            ("creator", json!(creator)),
            ("route_key", json!(route_key)),
            ("unique_key", json!(unique_key)),
            ("affinity", json!(affinity)),
        ];
        // Without what is not given: fields that later versions add change nothing for tasks that do not have them.
        let mut given: Value = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
        // An application that embeds an engine may have built the JSON library so that it keeps their order.
        given.sort_all_objects();
        let hash = Sha256::digest(given.to_string());
        i64::from_be_bytes(hash[..8].try_into().expect("a SHA-256 has 32 bytes"))
    }

    fn validate_run_at(&self) -> Result<(), FieldError> {
        match self.run_at {
            RunAt::Now => Ok(()),
            RunAt::At(time) => field::time("run_at", time),
            RunAt::After(ms) => field::range("delay_ms", ms, 0, limits::TIME_MS_MAX),
        }
    }
}

/// A JSON text as a value; one with a number that is too large for any type stays a text.
fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// Checks a priority.
pub fn priority(value: u8) -> Result<(), FieldError> {
    field::range("priority", value.into(), limits::PRIORITY_MIN.into(), limits::PRIORITY_MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(change: impl Fn(&mut NewTask)) -> Vec<String> {
        let mut task = NewTask::new("mail");
        change(&mut task);
        task.validate().unwrap_err().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_type_alone_is_a_whole_task() {
        assert_eq!(NewTask::new("mail").validate(), Ok(()));
    }

    #[test]
    fn bad_fields_are_named() {
        assert_eq!(bad(|task| task.task_type.clear()), ["type"]);
        assert_eq!(bad(|task| task.tenant.clear()), ["tenant"]);
        assert_eq!(bad(|task| task.payload = Some(format!("\"{}\"", "x".repeat(300 * 1024)))), ["payload"]);
        assert_eq!(bad(|task| task.priority = Some(0)), ["priority"]);
        assert_eq!(bad(|task| task.priority = Some(10)), ["priority"]);
        assert_eq!(bad(|task| task.run_at = RunAt::After(-1)), ["delay_ms"]);
        assert_eq!(bad(|task| task.run_at = RunAt::At(Time(253_402_300_799_000))), ["run_at"]);
        assert_eq!(bad(|task| task.key = Some("a\0".into())), ["key"]);
        assert_eq!(bad(|task| task.max_attempts = Some(0)), ["max_attempts"]);
        assert_eq!(bad(|task| task.timeout_ms = Some(0)), ["timeout_ms"]);
        assert_eq!(bad(|task| task.unique_key = Some(String::new())), ["unique_key"]);
    }

    fn changed(change: impl Fn(&mut NewTask)) -> i64 {
        let mut task = NewTask::new("mail");
        change(&mut task);
        task.fingerprint()
    }

    /// These values are in stored rows: after a change here, calls that are repeated during an upgrade are refused.
    #[test]
    fn fingerprints_never_change() {
        // printf '{"type":"mail"}' | sha256sum begins with f92a1ef0025d6264.
        assert_eq!(changed(|_| ()), -492_547_193_062_989_212);
        let all = NewTask {
            tenant: "acme".into(),
            task_type: "mail".into(),
            key: Some("order-7".into()),
            payload: Some(r#"{"to": "a@b.c", "copies": [1, 2.5]}"#.into()),
            priority: Some(9),
            run_at: RunAt::At(Time(7)),
            expire_at: Some(Time(8)),
            max_attempts: Some(-1),
            retry: Some(RetryPolicy::Exponential { delay_ms: 1, multiplier: 1.5, max_delay_ms: 2 }),
            timeout_ms: Some(3),
            category: Some("post".into()),
            creator: Some("shop".into()),
            route_key: Some("r".into()),
            unique_key: Some("u".into()),
            affinity: Some("here".into()),
            token_id: Some(4),
            trace_parent: Some("trace".into()),
        };
        assert_eq!(all.fingerprint(), -656_678_080_146_232_279);
    }

    #[test]
    fn every_field_that_is_asked_for_counts() {
        let retry = |delay_ms| Some(RetryPolicy::Fixed { delay_ms });
        let fingerprints = [
            changed(|_| ()),
            changed(|task| task.task_type = "fax".into()),
            changed(|task| task.key = Some("a".into())),
            changed(|task| task.key = Some(String::new())),
            changed(|task| task.payload = Some("1".into())),
            changed(|task| task.payload = Some("\"1\"".into())),
            changed(|task| task.payload = Some("[1e999]".into())),
            changed(|task| task.payload = Some("[1e998]".into())),
            changed(|task| task.priority = Some(1)),
            changed(|task| task.run_at = RunAt::At(Time(1))),
            changed(|task| task.run_at = RunAt::After(1)),
            changed(|task| task.expire_at = Some(Time(1))),
            changed(|task| task.max_attempts = Some(1)),
            changed(|task| task.retry = retry(1)),
            changed(|task| task.retry = retry(2)),
            changed(|task| task.timeout_ms = Some(1)),
            changed(|task| task.category = Some("a".into())),
            changed(|task| task.creator = Some("a".into())),
            changed(|task| task.route_key = Some("a".into())),
            changed(|task| task.unique_key = Some("a".into())),
            changed(|task| task.affinity = Some("a".into())),
        ];
        let distinct: std::collections::BTreeSet<_> = fingerprints.iter().collect();
        assert_eq!(distinct.len(), fingerprints.len(), "{fingerprints:?}");
    }

    #[test]
    fn who_asks_and_how_the_json_is_written_does_not_count() {
        let payload = |text: &str| changed(|task| task.payload = Some(text.into()));
        assert_eq!(payload(r#"{"a":{"c":1,"b":2},"d":"é"}"#), payload(r#" {"d": "\u00e9", "a": {"b": 2, "c": 1}}"#));
        let mut other = NewTask::new("mail");
        other.tenant = "acme".into();
        other.token_id = Some(7);
        other.trace_parent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        assert_eq!(other.fingerprint(), NewTask::new("mail").fingerprint());
    }

    #[test]
    fn all_bad_fields_are_named_at_once() {
        let fields = bad(|task| {
            task.task_type = "no spaces".into();
            task.priority = Some(10);
        });
        assert_eq!(fields, ["type", "priority"]);
    }
}
