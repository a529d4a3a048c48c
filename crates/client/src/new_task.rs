//! A task to submit.

use crate::error::{BadField, Error, Result};
use jiff::Timestamp;
use serde::Serialize;
use std::time::Duration;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{RetryPolicy, Time, trace_parent};

/// A task to submit. What is not given is as its type says.
///
/// ```
/// use std::time::Duration;
/// use taskwheel_client::{NewTask, RetryPolicy};
///
/// #[derive(serde::Serialize)]
/// struct Mail<'a> {
///     to: &'a str,
/// }
///
/// let task = NewTask::new("mail", &Mail { to: "a@b.c" })
///     .key("order-7")
///     .delay(Duration::from_secs(60))
///     .retry(RetryPolicy::Fixed { delay_ms: 1_000 })
///     .max_attempts(5);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a task does nothing until it is submitted"]
pub struct NewTask {
    task: taskwheel_model::NewTask,
    /// Why the payload is no JSON; told when it is submitted, so that building one needs no `?`.
    unreadable: Option<String>,
}

impl NewTask {
    /// A task of a type with what its handler gets. With `&()` it has no payload.
    pub fn new<T: Serialize + ?Sized>(task_type: impl Into<String>, payload: &T) -> NewTask {
        let mut task = taskwheel_model::NewTask::new(task_type);
        let mut unreadable = None;
        match serde_json::to_string(payload) {
            Ok(json) => task.payload = Some(json).filter(|json| json != "null"),
            Err(error) => unreadable = Some(error.to_string()),
        }
        NewTask { task, unreadable }
    }

    /// A business key to find it by.
    pub fn key(mut self, key: impl Into<String>) -> NewTask {
        self.task.key = Some(key.into());
        self
    }

    /// At most one live task of a type has this key: while there is one, a submit answers that one.
    pub fn unique_key(mut self, key: impl Into<String>) -> NewTask {
        self.task.unique_key = Some(key.into());
        self
    }

    /// 9 first, 1 last.
    pub fn priority(mut self, priority: u8) -> NewTask {
        self.task.priority = Some(priority);
        self
    }

    /// Not before this time.
    pub fn run_at(mut self, time: Timestamp) -> NewTask {
        self.task.run_at = RunAt::At(Time(time.as_millisecond()));
        self
    }

    /// Not before so long from now, by the clock of the database.
    pub fn delay(mut self, delay: Duration) -> NewTask {
        self.task.run_at = RunAt::After(milliseconds(delay));
        self
    }

    /// After this time it is not started any more.
    pub fn expire_at(mut self, time: Timestamp) -> NewTask {
        self.task.expire_at = Some(Time(time.as_millisecond()));
        self
    }

    /// How many attempts it has; −1 is unlimited.
    pub fn max_attempts(mut self, attempts: i32) -> NewTask {
        self.task.max_attempts = Some(attempts);
        self
    }

    /// When it is tried again after an error.
    pub fn retry(mut self, policy: RetryPolicy) -> NewTask {
        self.task.retry = Some(policy);
        self
    }

    /// The hard time limit of one attempt, counted from its claim.
    pub fn timeout(mut self, limit: Duration) -> NewTask {
        self.task.timeout_ms = Some(milliseconds(limit));
        self
    }

    /// A group of types that workers can ask for.
    pub fn category(mut self, category: impl Into<String>) -> NewTask {
        self.task.category = Some(category.into());
        self
    }

    /// Who submits it.
    pub fn creator(mut self, creator: impl Into<String>) -> NewTask {
        self.task.creator = Some(creator.into());
        self
    }

    /// What its routing slot is computed from.
    pub fn route_key(mut self, key: impl Into<String>) -> NewTask {
        self.task.route_key = Some(key.into());
        self
    }

    /// The host that shall have it first.
    pub fn affinity(mut self, host: impl Into<String>) -> NewTask {
        self.task.affinity = Some(host.into());
        self
    }

    /// The trace that it belongs to, as the header `traceparent` of W3C names it: its handler finds it in
    /// [`TaskContext::trace_parent`](crate::TaskContext::trace_parent). The tasks of a batch have the same one. A text
    /// that is none is ignored, as by a server: a caller's odd header is no reason not to do the work.
    pub fn trace_parent(mut self, trace: impl Into<String>) -> NewTask {
        self.task.trace_parent = trace_parent(&trace.into());
        self
    }

    /// The task, or what is wrong with it.
    pub(crate) fn checked(self, index: Option<usize>) -> Result<taskwheel_model::NewTask> {
        if let Some(message) = self.unreadable {
            let message = format!("is no JSON: {message}");
            return Err(Error::Invalid(vec![BadField { index, field: "payload".into(), message }]));
        }
        match self.task.validate() {
            Ok(()) => Ok(self.task),
            Err(errors) => Err(Error::Invalid(errors.into_iter().map(|error| BadField::of(index, error)).collect())),
        }
    }

    /// All tasks, or everything that is wrong with any of them.
    pub(crate) fn all_checked(tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<taskwheel_model::NewTask>> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (index, task) in tasks.into_iter().enumerate() {
            match task.checked(Some(index)) {
                Ok(task) => good.push(task),
                Err(Error::Invalid(fields)) => bad.extend(fields),
                Err(error) => return Err(error),
            }
        }
        if bad.is_empty() { Ok(good) } else { Err(Error::Invalid(bad)) }
    }
}

/// A duration as the platform counts them; what is beyond all of them stays too long, so that it is refused by its name.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_unit_is_no_payload() {
        assert_eq!(NewTask::new("mail", &()).checked(None).unwrap().payload, None);
        assert_eq!(NewTask::new("mail", &7).checked(None).unwrap().payload.as_deref(), Some("7"));
    }

    #[test]
    fn everything_that_is_wrong_is_named_with_its_place() {
        let no_json = HashMap::from([(vec![1], 1)]);
        let tasks = [NewTask::new("mail", &()), NewTask::new("", &()).priority(0), NewTask::new("mail", &no_json)];
        let Err(Error::Invalid(fields)) = NewTask::all_checked(tasks) else { panic!("they are wrong") };
        let named: Vec<_> = fields.iter().map(|bad| (bad.index, bad.field.as_str())).collect();
        assert_eq!(named, [(Some(1), "type"), (Some(1), "priority"), (Some(2), "payload")]);
    }
}
