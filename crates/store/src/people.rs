//! What people and programs do to tasks from outside: the actions, alone or over everything a filter matches.

use crate::access::{BulkAudit, BulkLine};
use crate::search::Filter;
use std::collections::BTreeMap;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{RetryPolicy, Status, TaskId, Time, limits, submit};

/// Something to do to tasks.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Call it off.
    Cancel,
    /// Run it again from the start.
    Retry,
    /// Make it due now.
    RunNow,
    /// Mark it as dealt with by a person.
    Resolve {
        /// What the person says about it.
        remark: Option<String>,
        /// A result given by hand, as JSON text.
        result: Option<String>,
    },
    /// Change some of its settings.
    Edit(Edit),
    /// Remove a finished task for good.
    Delete,
}

/// What shall change about a task. The outer `None` leaves a field as it is; an inner one clears it.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Edit {
    pub run_at: Option<Time>,
    pub priority: Option<u8>,
    pub payload: Option<Option<String>>,
    pub expire_at: Option<Option<Time>>,
    pub max_attempts: Option<Option<i32>>,
    pub retry: Option<Option<RetryPolicy>>,
    pub timeout_ms: Option<Option<i64>>,
    pub remark: Option<Option<String>>,
}

impl Edit {
    /// Whether nothing but the remark shall change: that is allowed in every status.
    #[must_use]
    pub fn is_remark_only(&self) -> bool {
        Edit { remark: None, ..self.clone() } == Edit::default()
    }

    fn validate(&self) -> Result<(), FieldError> {
        if let Some(time) = self.run_at {
            field::time("run_at", time)?;
        }
        if let Some(priority) = self.priority {
            submit::priority(priority)?;
        }
        if let Some(Some(payload)) = &self.payload {
            field::json("payload", payload, limits::PAYLOAD_BYTES_MAX)?;
        }
        if let Some(Some(time)) = self.expire_at {
            field::time("expire_at", time)?;
        }
        if let Some(Some(attempts)) = self.max_attempts {
            field::range_or_unlimited("max_attempts", attempts.into(), 1, limits::ATTEMPTS_MAX.into())?;
        }
        if let Some(Some(policy)) = &self.retry {
            policy.validate("retry")?;
        }
        if let Some(Some(ms)) = self.timeout_ms {
            field::range_or_unlimited("timeout_ms", ms, 1, limits::TIMEOUT_MS_MAX)?;
        }
        validate_remark(self.remark.as_ref().and_then(Option::as_ref))
    }
}

fn validate_remark(remark: Option<&String>) -> Result<(), FieldError> {
    remark.map_or(Ok(()), |remark| field::text("remark", remark, limits::REMARK_CHARS_MAX))
}

impl Action {
    /// It in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Action::Cancel => "cancel",
            Action::Retry => "retry",
            Action::RunNow => "run_now",
            Action::Resolve { .. } => "resolve",
            Action::Edit(_) => "edit",
            Action::Delete => "delete",
        }
    }

    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        match self {
            Action::Edit(edit) => edit.validate(),
            Action::Resolve { remark, result } => {
                validate_remark(remark.as_ref())?;
                result.as_ref().map_or(Ok(()), |result| field::json("result", result, limits::RESULT_BYTES_MAX))
            }
            Action::Cancel | Action::Retry | Action::RunNow | Action::Delete => Ok(()),
        }
    }
}

/// What an action did to one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// It changed the task, which has this status now.
    Changed(Status),
    /// The task already was what was asked for.
    Unchanged(Status),
    /// The task's status does not allow it.
    Conflict(Status),
    /// The task's unique key is live elsewhere, so that it cannot live again.
    UniqueKeyTaken(Status),
    /// There is no such task, or it is another tenant's.
    NotFound,
}

/// One chunk of a bulk action.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkRequest {
    /// The tenant whose tasks it is about; `None` is all tenants.
    pub tenant: Option<String>,
    /// Which tasks.
    pub filter: Filter,
    /// What to do to them.
    pub action: Action,
    /// Only tasks above this id: where the last chunk ended.
    pub after: TaskId,
    /// Only tasks up to this id: the highest when the bulk action began, so that it ends.
    pub up_to: TaskId,
    /// Only count.
    pub dry_run: bool,
    /// The lines of the log that it writes, where somebody is named.
    pub audit: Option<BulkAudit>,
}

/// What one chunk of a bulk action did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkChunk {
    /// Tasks that matched.
    pub matched: u64,
    /// Tasks that changed.
    pub changed: u64,
    /// Where the next chunk starts; `None` when there is none.
    pub next: Option<TaskId>,
    /// The lines of the log that it wrote, by tenant.
    pub lines: BTreeMap<String, BulkLine>,
}
