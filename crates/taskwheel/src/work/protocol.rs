//! What a worker and the server tell each other.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A worker asks for tasks.
#[derive(Serialize)]
pub(super) struct ClaimRequest {
    pub(super) worker_id: String,
    pub(super) host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) app: Option<String>,
    pub(super) types: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) heartbeat_ms: i64,
    pub(super) max: usize,
    pub(super) wait_ms: i64,
}

#[derive(Deserialize)]
pub(super) struct Claimed {
    pub(super) tasks: Vec<Task>,
}

/// A task in the worker's hands.
#[derive(Deserialize)]
pub(super) struct Task {
    pub(super) id: u64,
    pub(super) exec_id: String,
    #[serde(rename = "type")]
    pub(super) task_type: String,
    pub(super) key: Option<String>,
    pub(super) payload: Option<Box<RawValue>>,
    pub(super) attempt: u32,
    /// The hard limit of this execution; none where it is not above 0.
    #[serde(default)]
    pub(super) timeout_ms: i64,
    pub(super) checkpoint: Option<Box<RawValue>>,
    pub(super) shard_index: Option<u32>,
    pub(super) shard_total: Option<u32>,
    pub(super) parent: Option<Box<RawValue>>,
    pub(super) traceparent: Option<String>,
}

/// A worker names the tasks that it is working on.
#[derive(Serialize)]
pub(super) struct RenewRequest {
    pub(super) worker_id: String,
    pub(super) items: Vec<Renewal>,
}

#[derive(Serialize)]
pub(super) struct Renewal {
    pub(super) id: u64,
    pub(super) exec_id: String,
}

#[derive(Deserialize)]
pub(super) struct Renewed {
    pub(super) items: Vec<RenewedItem>,
}

#[derive(Deserialize)]
pub(super) struct RenewedItem {
    pub(super) id: u64,
    pub(super) state: String,
}

impl RenewedItem {
    /// Whether the task is still the worker's.
    pub(super) fn is_ours(&self) -> bool {
        self.state == "ok"
    }
}

/// A worker tells how its tasks ended.
#[derive(Serialize)]
pub(super) struct ReportRequest<'a> {
    pub(super) items: &'a [Report],
}

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) id: u64,
    pub(super) exec_id: String,
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    /// Its result is the start of a longer one.
    #[serde(skip)]
    pub(super) is_cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Report {
    /// About how large it is on its way.
    pub(super) fn bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |result| result.get().len()) + self.error.as_ref().map_or(0, String::len)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Success,
    Error,
    Release,
}

#[derive(Deserialize)]
pub(super) struct Reported {
    pub(super) items: Vec<ReportedItem>,
}

#[derive(Deserialize)]
pub(super) struct ReportedItem {
    pub(super) state: String,
    pub(super) status: Option<String>,
}
