//! What a handler knows of its task, and tells about it while it runs.

use crate::backend::{Claimed, Renewal};
use crate::error::{Error, Result};
use crate::execution::Execution;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;
use std::sync::Arc;
use taskwheel_model::{ExecId, TaskId, field, limits};

/// A handler's own execution of a task. It is cheap to clone.
///
/// A long handler says how far it is, and goes on from there when it is run again:
///
/// ```
/// use taskwheel_client::{TaskContext, TaskError};
///
/// async fn import(ctx: TaskContext, rows: u64) -> Result<u64, TaskError> {
///     let first: u64 = ctx.restore()?.unwrap_or(0);
///     for row in first..rows {
///         // … one row …
///         ctx.checkpoint(&(row + 1))?;
///         ctx.progress((row + 1, rows));
///         if ctx.is_cancelled() || ctx.is_stopping() {
///             return Err(TaskError::release());
///         }
///     }
///     Ok(rows)
/// }
/// ```
#[derive(Clone)]
pub struct TaskContext(pub(crate) Arc<Execution>);

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TaskContext");
        shown.field("task_id", &self.task_id()).field("exec_id", &self.exec_id()).field("attempt", &self.attempt());
        shown.finish_non_exhaustive()
    }
}

impl TaskContext {
    /// The task's id: the same at every attempt. What a handler does under this id, it does once.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.task().id
    }

    /// This execution's id: another one at every attempt.
    #[must_use]
    pub fn exec_id(&self) -> ExecId {
        self.task().exec_id
    }

    /// The how-many-eth attempt of its round this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.task().attempt
    }

    /// Which round it is: 1, and one more with each retry by a person.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.task().round
    }

    /// Whose task it is: a worker for all tenants gets the tasks of each.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.task().tenant
    }

    /// The task's type.
    #[must_use]
    pub fn task_type(&self) -> &str {
        &self.task().task_type
    }

    /// The task's business key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.task().key.as_deref()
    }

    /// The time the task was due.
    #[must_use]
    pub fn run_at(&self) -> Timestamp {
        self.task().run_at
    }

    /// Which shard of its run it is, from 0 on; `None` where it is the only task of its place in the run, or of no run.
    #[must_use]
    pub fn shard_index(&self) -> Option<u32> {
        self.task().shard_index
    }

    /// How many shards there are.
    #[must_use]
    pub fn shard_total(&self) -> Option<u32> {
        self.task().shard_total
    }

    /// The tasks before it in its run, with their results: one, or as many as that had shards. A task that begins a run, or is of none,
    /// has none before it.
    pub fn parents<R: DeserializeOwned>(&self) -> Result<Vec<Parent<R>>> {
        let parents = match &self.task().parent {
            None => Vec::new(),
            Some(Value::Array(shards)) => shards.iter().collect(),
            Some(one) => vec![one],
        };
        let read = parents.into_iter().map(Parent::deserialize).collect::<serde_json::Result<_>>();
        read.map_err(|error| Error::field("parent", format!("is not what the handler takes: {error}")))
    }

    /// The trace that the task belongs to, as the header `traceparent` of W3C names it: continue it for what the handler does.
    #[must_use]
    pub fn trace_parent(&self) -> Option<&str> {
        self.task().traceparent.as_deref()
    }

    /// The state that was last saved or noted: by this execution, or by one before it. `None` at the very start.
    pub fn restore<S: DeserializeOwned>(&self) -> Result<Option<S>> {
        let Some(state) = self.0.checkpoint() else { return Ok(None) };
        let state = serde_json::from_str(state.get());
        state.map(Some).map_err(|error| Error::field("checkpoint", format!("is not what the handler takes: {error}")))
    }

    /// Notes a state to go on from, 256 KB of JSON at most. This costs no call: it is saved at an interval, when the worker
    /// stops, and with the end of the execution. To have it saved at once, [`TaskContext::save`] it.
    pub fn checkpoint<S: Serialize + ?Sized>(&self, state: &S) -> Result<()> {
        let json = raw("checkpoint", state)?;
        field::json("checkpoint", json.get(), limits::CHECKPOINT_BYTES_MAX)
            .map_err(|error| Error::field("checkpoint", error.message))?;
        if json.get() == "null" {
            return Err(Error::field("checkpoint", "must not be null, which stands for the last one"));
        }
        self.0.note_checkpoint(json);
        Ok(())
    }

    /// Waits until what was noted is stored. An error means that this execution has lost its task.
    pub async fn save(&self) -> Result<()> {
        if self.0.saved().await {
            Ok(())
        } else {
            Err(Error::Conflict("the task is not this execution's any more".into()))
        }
    }

    /// Says how far it is, for people who look at the task: `(3, 10)`, or a [`Progress`] with words. It is saved
    /// when checkpoints are; at the end of the execution that is tried once, for no result waits for it.
    pub fn progress(&self, progress: impl Into<Progress>) {
        // What cannot be kept would have the heartbeat of all tasks refused.
        let mut progress = progress.into();
        if !progress.done.is_finite() {
            return;
        }
        progress.total = progress.total.filter(|total| total.is_finite());
        progress.message = progress.message.map(|message| field::cut(&message, Progress::MESSAGE_BYTES_MAX));
        if let Ok(json) = to_raw_value(&progress) {
            self.0.note_progress(json);
        }
    }

    /// Resolves when the task is not this execution's any more: it was cancelled, or its time limit or lease ran out. Whatever
    /// the handler returns then is dropped. One that does not return is dropped itself after the worker's grace period.
    pub async fn cancelled(&self) {
        self.0.lost().await;
    }

    /// Whether [`TaskContext::cancelled`] would resolve at once.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_lost()
    }

    /// Resolves when the worker stops. A handler that does not return within the grace period is dropped, and its task given
    /// back with its last checkpoint.
    pub async fn stopping(&self) {
        self.0.stopping().await;
    }

    /// Whether [`TaskContext::stopping`] would resolve at once.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.is_stopping()
    }

    pub(crate) fn payload<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.task().payload.as_ref().map_or("null", |payload| payload.get()))
    }

    fn task(&self) -> &Claimed {
        &self.0.task
    }
}

/// A task that came before another one in a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Parent<R> {
    /// Its id.
    pub id: TaskId,
    /// What it produced.
    pub result: R,
}

/// How far an execution is.
///
/// ```
/// use taskwheel_client::Progress;
///
/// let progress = Progress { message: Some("page 3".into()), ..Progress::from((3, 10)) };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// So much is done.
    pub done: f64,
    /// Of so much, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Progress {
    /// What is longer is cut. With its escapes it stays below what the platform stores.
    pub const MESSAGE_BYTES_MAX: usize = 512;
}

impl From<u64> for Progress {
    fn from(done: u64) -> Progress {
        Progress { done: done as f64, ..Progress::default() }
    }
}

impl From<(u64, u64)> for Progress {
    fn from((done, total): (u64, u64)) -> Progress {
        Progress { done: done as f64, total: Some(total as f64), message: None }
    }
}

fn raw<S: Serialize + ?Sized>(what: &str, value: &S) -> Result<Box<RawValue>> {
    to_raw_value(value).map_err(|error| Error::field(what, format!("is no JSON: {error}")))
}

/// The renewal of an execution that tells nothing new.
pub(crate) fn renewal(task: &Claimed) -> Renewal {
    Renewal { id: task.id, exec_id: task.exec_id, checkpoint: None, progress: None }
}
