//! Tasks as they are shown.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use taskwheel_model::{ExecId, Outcome, RetryPolicy, Status, TaskId, TypeSettings};

/// The answer to one submitted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Submitted {
    /// The task's id; of the existing task where its unique key was already live.
    pub id: TaskId,
    /// Whether it is new.
    pub created: bool,
}

/// A task: what was submitted, what holds for it, and how it stands.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Whose it is.
    pub tenant: String,
    /// Its type: which handler runs it.
    #[serde(rename = "type")]
    pub task_type: String,
    /// A business key to find it by.
    pub key: Option<String>,
    /// What the handler gets.
    pub payload: Option<Value>,
    /// How it stands.
    pub status: Status,
    /// 9 first, 1 last.
    pub priority: u8,
    /// When it is due, or was.
    pub run_at: Timestamp,
    /// After this time it is not started any more.
    pub expire_at: Option<Timestamp>,
    /// How many attempts it has; −1 is unlimited.
    pub max_attempts: Option<i32>,
    /// When it is tried again.
    pub retry: Option<RetryPolicy>,
    /// The hard time limit of one attempt in milliseconds; −1 is none.
    pub timeout_ms: Option<i64>,
    /// A group of types.
    pub category: Option<String>,
    /// Who submitted it.
    pub creator: Option<String>,
    /// What its routing slot was computed from.
    pub route_key: Option<String>,
    /// At most one live task of its type has this key.
    pub unique_key: Option<String>,
    /// The host that has it first.
    pub affinity: Option<String>,
    /// Which round it is in: one more with each retry by a person.
    pub round: u32,
    /// Executions started in this round, less those given back.
    pub attempts: u32,
    /// Those that ended by error, time limit or lost lease.
    pub error_count: u32,
    /// What went wrong last.
    pub error_info: Option<String>,
    /// What it produced.
    pub result: Option<Value>,
    /// Where a next attempt goes on from.
    pub checkpoint: Option<Value>,
    /// How far its execution is.
    pub progress: Option<Value>,
    /// The host of its last execution.
    pub host: Option<String>,
    /// The worker of its last execution.
    pub worker_id: Option<String>,
    /// Its last execution.
    pub exec_id: Option<ExecId>,
    /// Until when its execution counts as alive.
    pub lease_until: Option<Timestamp>,
    /// When its last execution began.
    pub started_at: Option<Timestamp>,
    /// When it finished.
    pub finished_at: Option<Timestamp>,
    /// How long its last execution took.
    pub exec_ms: Option<i64>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// What a person said about it.
    pub remark: Option<String>,
    /// Every attempt, oldest first; empty on a page of a list.
    #[serde(default)]
    pub attempts_log: Vec<Attempt>,
}

impl Task {
    /// Its result as a type of yours.
    pub fn result_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(self.result.as_ref().unwrap_or(&Value::Null))
    }
}

/// One attempt of a task. The one that is running has no end yet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// In which round.
    pub round: u32,
    /// The how-many-eth of that round.
    pub attempt: u32,
    /// The execution.
    pub exec_id: ExecId,
    /// The host that ran it.
    pub host: Option<String>,
    /// The worker that ran it.
    pub worker_id: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    #[serde(deserialize_with = "outcome")]
    pub outcome: Option<Outcome>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A word that this version does not know is none.
fn outcome<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Outcome>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.and_then(|word| Outcome::ALL.into_iter().find(|outcome| outcome.word() == word)))
}

/// A page of tasks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Page {
    /// The tasks. There may be fewer than asked for while there is a next page.
    pub items: Vec<Task>,
    /// Where the next page starts; `None` at the end.
    pub next_cursor: Option<String>,
}

/// A task type.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct TaskType {
    /// Its name in tasks.
    #[serde(rename = "type")]
    pub task_type: String,
    /// What it settles for its tasks.
    #[serde(flatten)]
    pub settings: TypeSettings,
    /// Whether its tasks are held back.
    pub paused: bool,
}
