//! Stepping in: what can be done to tasks from outside.

use crate::new_task::milliseconds;
use crate::search::Filter;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use taskwheel_model::RetryPolicy;

/// What shall change about a task. What is not given stays; `None` is again as the type says, or nothing.
///
/// ```
/// use taskwheel_client::Edit;
///
/// let edit = Edit::new().priority(9).expire_at(None).remark("asked for by the customer".to_owned());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[must_use = "an edit does nothing until it is made"]
pub struct Edit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<Option<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expire_at: Option<Option<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<Option<i32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<Option<RetryPolicy>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<Option<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remark: Option<Option<String>>,
}

impl Edit {
    /// Changes nothing yet.
    pub fn new() -> Edit {
        Edit::default()
    }

    /// Due at this time.
    pub fn run_at(mut self, time: Timestamp) -> Edit {
        self.run_at = Some(time);
        self
    }

    /// 9 first, 1 last.
    pub fn priority(mut self, priority: u8) -> Edit {
        self.priority = Some(priority);
        self
    }

    /// What the handler gets.
    pub fn payload(mut self, payload: impl Into<Option<Value>>) -> Edit {
        self.payload = Some(payload.into());
        self
    }

    /// After this time it is not started any more.
    pub fn expire_at(mut self, time: impl Into<Option<Timestamp>>) -> Edit {
        self.expire_at = Some(time.into());
        self
    }

    /// How many attempts it has; −1 is unlimited.
    pub fn max_attempts(mut self, attempts: impl Into<Option<i32>>) -> Edit {
        self.max_attempts = Some(attempts.into());
        self
    }

    /// When it is tried again.
    pub fn retry(mut self, policy: impl Into<Option<RetryPolicy>>) -> Edit {
        self.retry = Some(policy.into());
        self
    }

    /// The hard time limit of one attempt.
    pub fn timeout(mut self, limit: impl Into<Option<Duration>>) -> Edit {
        self.timeout_ms = Some(limit.into().map(milliseconds));
        self
    }

    /// What is said about it. Allowed in every status.
    pub fn remark(mut self, remark: impl Into<Option<String>>) -> Edit {
        self.remark = Some(remark.into());
        self
    }
}

/// Something to do to many tasks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BulkAction {
    /// Call them off.
    Cancel,
    /// Run them again from the start.
    Retry,
    /// Make them due now.
    RunNow,
    /// Make them due at a time.
    Reschedule(Timestamp),
    /// Change their priority.
    SetPriority(u8),
    /// Mark them as dealt with by a person.
    Resolve(Resolution),
}

/// What a person says about tasks that were dealt with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resolution {
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// A result given by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

impl Resolution {
    /// A remark alone.
    #[must_use]
    pub fn remark(remark: impl Into<String>) -> Resolution {
        Resolution { remark: Some(remark.into()), result: None }
    }
}

/// An action on everything that a filter matches among the tasks that exist when it begins.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "nothing is done until it is sent"]
pub struct Bulk {
    pub(crate) filter: Filter,
    pub(crate) action: BulkAction,
    pub(crate) all: bool,
    pub(crate) dry_run: bool,
}

impl Bulk {
    /// An action on what a filter matches. An empty filter is refused; see [`Bulk::all`].
    pub fn new(filter: Filter, action: BulkAction) -> Bulk {
        Bulk { filter, action, all: false, dry_run: false }
    }

    /// An action on all tasks.
    pub fn all(action: BulkAction) -> Bulk {
        Bulk { filter: Filter::default(), action, all: true, dry_run: false }
    }

    /// Only counts.
    pub fn dry_run(mut self) -> Bulk {
        self.dry_run = true;
        self
    }
}

/// What an action on many tasks did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct BulkDone {
    /// Tasks that matched.
    pub matched: u64,
    /// Tasks that changed.
    pub changed: u64,
}
