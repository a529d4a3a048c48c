//! What workers ask and are answered: claim, renew, report.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{ExecId, Outcome, Status, TaskId, Time, limits};

/// A worker asks for tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The worker, by an id that is new at each of its starts.
    pub worker_id: String,
    /// The host it runs on.
    pub host: String,
    /// The application it belongs to.
    pub app: Option<String>,
    /// Tasks of these types…
    pub types: Vec<String>,
    /// …or of these categories.
    pub categories: Vec<String>,
    /// Only tasks of this creator.
    pub creator: Option<String>,
    /// Only tasks of this tenant; `None` is all tenants.
    pub tenant: Option<String>,
    /// Whose worker it is; `None` is nobody's in particular. A worker's id belongs to who took it first.
    pub owner: Option<String>,
    /// How often the worker will call at least.
    pub heartbeat_ms: Option<i64>,
    /// Most tasks to hand out.
    pub max: usize,
}

impl ClaimRequest {
    /// Whether another claim asks for the very same tasks.
    pub(crate) fn wants_the_same(&self, other: &ClaimRequest) -> bool {
        (&self.host, &self.tenant, &self.creator) == (&other.host, &other.tenant, &other.creator)
            && (&self.types, &self.categories) == (&other.types, &other.categories)
    }

    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        field::name("worker_id", &self.worker_id, limits::NAME_CHARS_MAX)?;
        field::name("host", &self.host, limits::NAME_CHARS_MAX)?;
        if let Some(app) = &self.app {
            field::name("app", app, limits::NAME_CHARS_MAX)?;
        }
        if self.types.is_empty() && self.categories.is_empty() {
            return Err(FieldError::new("types", "give at least one type or category"));
        }
        for (name, list) in [("types", &self.types), ("categories", &self.categories)] {
            if list.len() > limits::CLAIM_LANES_MAX {
                return Err(FieldError::new(name, format!("must have at most {}", limits::CLAIM_LANES_MAX)));
            }
        }
        self.types.iter().try_for_each(|name| field::task_type("types", name))?;
        self.categories.iter().try_for_each(|name| field::name("categories", name, limits::KEY_CHARS_MAX))?;
        let chars: usize = self.types.iter().chain(&self.categories).map(String::len).sum();
        if chars > limits::CLAIM_NAMES_BYTES_MAX {
            let message = format!("must have at most {} bytes with the categories", limits::CLAIM_NAMES_BYTES_MAX);
            return Err(FieldError::new("types", message));
        }
        if let Some(creator) = &self.creator {
            field::name("creator", creator, limits::NAME_CHARS_MAX)?;
        }
        if let Some(ms) = self.heartbeat_ms {
            field::range("heartbeat_ms", ms, limits::HEARTBEAT_MS_MIN, limits::HEARTBEAT_MS_MAX)?;
        }
        field::range("max", i64::try_from(self.max).unwrap_or(i64::MAX), 1, limits::CLAIM_BATCH_MAX as i64)
    }
}

/// A worker says that it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The worker.
    pub worker_id: String,
    /// Whose worker it is.
    pub owner: Option<String>,
}

impl Heartbeat {
    /// Checks the worker's id.
    pub fn validate(&self) -> Result<(), FieldError> {
        field::name("worker_id", &self.worker_id, limits::NAME_CHARS_MAX)
    }
}

impl From<&str> for Heartbeat {
    fn from(worker_id: &str) -> Heartbeat {
        Heartbeat { worker_id: worker_id.to_owned(), owner: None }
    }
}

impl From<String> for Heartbeat {
    fn from(worker_id: String) -> Heartbeat {
        Heartbeat { worker_id, owner: None }
    }
}

/// A task in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct ClaimedTask {
    pub id: TaskId,
    pub exec_id: ExecId,
    pub tenant: String,
    pub task_type: String,
    pub key: Option<String>,
    pub payload: Option<String>,
    pub category: Option<String>,
    pub creator: Option<String>,
    pub priority: u8,
    pub run_at: Time,
    pub round: u32,
    pub attempt: u32,
    pub checkpoint: Option<String>,
    pub lease_until: Time,
    pub timeout_ms: i64,
    pub started_at: Time,
    /// The trace that it belongs to, as the header `traceparent` of W3C names it.
    pub trace_parent: Option<String>,
    /// What it is told about the run that it is part of.
    pub context: Context,
}

/// What a task of a run is told about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Which shard it is, from 0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_index: Option<u32>,
    /// How many shards there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_total: Option<u32>,
    /// The task before it, with its result: `{id, result}`, or a list of them where that had shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Value>,
}

impl Context {
    /// As it is stored. What cannot be read says nothing.
    pub(crate) fn read(text: &str) -> Context {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// As it is stored, where it says anything.
    pub(crate) fn text(&self) -> Option<String> {
        (*self != Context::default()).then(|| serde_json::to_string(self).expect("a context is plain JSON"))
    }
}

/// A worker names a task that it has, to keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The task.
    pub id: TaskId,
    /// The worker's execution of it.
    pub exec_id: ExecId,
    /// Only if the task is this tenant's; `None` is any.
    pub tenant: Option<String>,
    /// Where a next attempt shall go on from, as JSON text.
    pub checkpoint: Option<String>,
    /// How far it is, as JSON text.
    pub progress: Option<String>,
}

impl Renewal {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        if let Some(checkpoint) = &self.checkpoint {
            field::json("checkpoint", checkpoint, limits::CHECKPOINT_BYTES_MAX)?;
        }
        if let Some(progress) = &self.progress {
            field::json("progress", progress, limits::PROGRESS_BYTES_MAX)?;
        }
        Ok(())
    }
}

/// Whether a worker still has the task it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It has it, until then.
    Ok(Time),
    /// The task was cancelled: stop.
    Cancelled,
    /// Another execution has it, or it has ended: stop.
    Superseded,
}

/// A worker reports how an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The task.
    pub id: TaskId,
    /// The execution that ended.
    pub exec_id: ExecId,
    /// Only if the task is this tenant's; `None` is any.
    pub tenant: Option<String>,
    /// How it ended: one of the outcomes that workers may report.
    pub outcome: Outcome,
    /// What it produced, as JSON text.
    pub result: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// With [`Outcome::Retry`]: after how long to try again.
    pub retry_after_ms: Option<i64>,
    /// Where a next attempt shall go on from, as JSON text.
    pub checkpoint: Option<String>,
}

impl Report {
    /// A report of an outcome, all else empty.
    #[must_use]
    pub fn new(id: TaskId, exec_id: ExecId, outcome: Outcome) -> Report {
        Report { id, exec_id, tenant: None, outcome, result: None, error: None, retry_after_ms: None, checkpoint: None }
    }

    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        if !self.outcome.is_reportable() {
            let message = "must be success, completed, error, failure, retry or release";
            return Err(FieldError::new("outcome", message));
        }
        if let Some(result) = &self.result {
            field::json("result", result, limits::RESULT_BYTES_MAX)?;
        }
        if let Some(checkpoint) = &self.checkpoint {
            field::json("checkpoint", checkpoint, limits::CHECKPOINT_BYTES_MAX)?;
        }
        if let Some(ms) = self.retry_after_ms {
            field::range("retry_after_ms", ms, 0, limits::RETRY_DELAY_MS_MAX)?;
        }
        Ok(())
    }
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It counts, or the same report counted before. The task's status now.
    Accepted(Status),
    /// It changes nothing: that execution is not the current one. The task's status, where the task is known.
    Superseded(Option<Status>),
}

/// A worker as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Worker {
    pub worker_id: String,
    pub host: String,
    pub app: Option<String>,
    pub types: Vec<String>,
    pub categories: Vec<String>,
    pub heartbeat_ms: Option<i64>,
    pub started_at: Time,
    pub seen_at: Time,
    /// Whose worker it is; `None` is nobody's in particular.
    pub tenant: Option<String>,
}
