//! What a client needs of whoever keeps the tasks: a server over HTTP, or an engine in this process.

use crate::error::Result;
use crate::execution::Bell;
use crate::people::{Bulk, BulkDone, Edit, Resolution};
use crate::search::Listing;
use crate::task::{Page, Submitted, Task, TaskType};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;
use taskwheel_model::{ExecId, NewTask, Status, TaskId, TypeSettings};

/// How long a worker that stops waits for an answer, before somebody else is asked.
pub(crate) const HURRIED_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Keeps the tasks.
#[async_trait]
pub(crate) trait Backend: Send + Sync + 'static {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>>;
    async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted>;
    async fn get(&self, id: TaskId) -> Result<Option<Task>>;
    async fn list(&self, listing: &Listing) -> Result<Page>;
    async fn act(&self, id: TaskId, action: &Action) -> Result<Task>;
    async fn delete(&self, id: TaskId) -> Result<()>;
    async fn bulk(&self, bulk: &Bulk) -> Result<BulkDone>;
    async fn types(&self) -> Result<Vec<TaskType>>;
    async fn put_type(&self, task_type: &str, settings: &TypeSettings) -> Result<TaskType>;
    async fn pause_type(&self, task_type: &str, paused: bool) -> Result<TaskType>;

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>>;
    async fn renew(&self, worker_id: &str, items: &[Renewal], time_max: Duration) -> Result<Vec<Renewed>>;
    async fn report(&self, reports: &[Report], worker: &Bell) -> Result<Vec<Reported>>;

    /// Ends what runs in this process.
    async fn close(&self);
}

/// What is done to one task and shows it afterwards.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Cancel,
    Retry,
    RunNow,
    Resolve(Resolution),
    Edit(Edit),
}

/// A worker asks for tasks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) worker_id: String,
    pub(crate) host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app: Option<String>,
    pub(crate) types: Vec<String>,
    pub(crate) heartbeat_ms: i64,
    pub(crate) max: usize,
    pub(crate) wait_ms: i64,
}

/// A task in a worker's hands.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Claimed {
    pub(crate) id: TaskId,
    pub(crate) exec_id: ExecId,
    pub(crate) tenant: String,
    #[serde(rename = "type")]
    pub(crate) task_type: String,
    pub(crate) key: Option<String>,
    pub(crate) payload: Option<Box<RawValue>>,
    pub(crate) round: u32,
    pub(crate) attempt: u32,
    pub(crate) checkpoint: Option<Box<RawValue>>,
    pub(crate) run_at: Timestamp,
    pub(crate) traceparent: Option<String>,
    pub(crate) shard_index: Option<u32>,
    pub(crate) shard_total: Option<u32>,
    pub(crate) parent: Option<Value>,
}

/// A worker names a task that it has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Renewal {
    pub(crate) id: TaskId,
    pub(crate) exec_id: ExecId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Box<RawValue>>,
}

/// Whether a worker still has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Renewed {
    Ok,
    Cancelled,
    Superseded,
}

/// A worker tells how an execution ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) id: TaskId,
    pub(crate) exec_id: ExecId,
    pub(crate) outcome: ReportedOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Box<RawValue>>,
    /// What is not saved yet. No report says it: a renewal before it does.
    #[serde(skip)]
    pub(crate) progress: Option<Box<RawValue>>,
}

impl Report {
    /// About how large it is on its way.
    pub(crate) fn bytes(&self) -> usize {
        let json = |value: &Option<Box<RawValue>>| value.as_ref().map_or(0, |value| value.get().len());
        128 + json(&self.result) + json(&self.checkpoint) + self.error.as_ref().map_or(0, String::len)
    }
}

/// How an execution ended, by the word of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportedOutcome {
    Success,
    Error,
    Failure,
    Retry,
    Release,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Accepted(Status),
    Superseded,
}
