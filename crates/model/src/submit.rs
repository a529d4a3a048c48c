//! A task to be submitted, and the checks it must pass.

use crate::field::{self, FieldError};
use crate::policy::validate_attempts;
use crate::{RetryPolicy, Time, limits};

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

    fn validate_run_at(&self) -> Result<(), FieldError> {
        match self.run_at {
            RunAt::Now => Ok(()),
            RunAt::At(time) => field::time("run_at", time),
            RunAt::After(ms) => field::range("delay_ms", ms, 0, limits::TIME_MS_MAX),
        }
    }
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

    #[test]
    fn all_bad_fields_are_named_at_once() {
        let fields = bad(|task| {
            task.task_type = "no spaces".into();
            task.priority = Some(10);
        });
        assert_eq!(fields, ["type", "priority"]);
    }
}
