//! Tasks as they are shown, with everything about them in one place.

use taskwheel_model::{ExecId, Outcome, RetryPolicy, Rules, Status, TaskId, Time, TypeSettings};

/// A task as it is shown: what was submitted, what is effective, and how it stands.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the API, described in the contract and in docs/schema.md")]
pub struct Task {
    pub id: TaskId,
    pub tenant: String,
    pub task_type: String,
    pub key: Option<String>,
    pub payload: Option<String>,
    pub status: Status,
    pub priority: u8,
    pub run_at: Time,
    pub expire_at: Option<Time>,
    /// Its own; shown with what its type says where it gives none, so that a shown task has the values that hold for it.
    pub max_attempts: Option<i32>,
    pub retry: Option<RetryPolicy>,
    pub timeout_ms: Option<i64>,
    pub category: Option<String>,
    pub creator: Option<String>,
    pub route_key: Option<String>,
    pub slot: u16,
    pub unique_key: Option<String>,
    pub affinity: Option<String>,
    pub round: u32,
    pub attempts: u32,
    pub error_count: u32,
    pub error_info: Option<String>,
    pub result: Option<String>,
    pub checkpoint: Option<String>,
    pub progress: Option<String>,
    pub host: Option<String>,
    pub worker_id: Option<String>,
    pub exec_id: Option<ExecId>,
    pub lease_until: Option<Time>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub exec_ms: Option<i64>,
    pub created_at: Time,
    pub updated_at: Time,
    pub remark: Option<String>,
    pub schedule_id: Option<i64>,
    pub run_id: Option<i64>,
    pub parent_id: Option<TaskId>,
    pub root_id: Option<TaskId>,
    /// The token it was submitted with.
    pub token_id: Option<i64>,
}

impl Task {
    /// The last line of the log of attempts, which is in the task's own row: an execution that is running, or the one that
    /// ended the task.
    pub(crate) fn last_attempt(&self, outcome: Option<Outcome>) -> Option<Attempt> {
        Some(Attempt {
            round: self.round,
            attempt: self.attempts,
            exec_id: self.exec_id?,
            host: self.host.clone(),
            worker_id: self.worker_id.clone(),
            started_at: self.started_at?,
            finished_at: self.finished_at,
            outcome,
            error: self.error_info.clone().filter(|_| outcome.is_some_and(Outcome::has_error)),
        })
    }

    /// The task with the values that hold for it: its own, else its type's, else the built-in.
    pub(crate) fn effective(mut self, settings: Option<&TypeSettings>) -> Task {
        let rules = Rules::of(self.retry.take(), self.max_attempts, self.timeout_ms, settings);
        self.max_attempts = Some(rules.max_attempts.map_or(-1, |max| i32::try_from(max).unwrap_or(i32::MAX)));
        self.timeout_ms = Some(rules.timeout_ms.unwrap_or(-1));
        self.retry = Some(rules.retry);
        self.category = self.category.take().or_else(|| settings.and_then(|settings| settings.category.clone()));
        self
    }
}

/// One attempt of a task, as its log shows it. The one that is running has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Attempt {
    pub round: u32,
    pub attempt: u32,
    pub exec_id: ExecId,
    pub host: Option<String>,
    pub worker_id: Option<String>,
    pub started_at: Time,
    pub finished_at: Option<Time>,
    pub outcome: Option<Outcome>,
    pub error: Option<String>,
}

/// A task with every attempt it has had.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDetail {
    /// The task.
    pub task: Task,
    /// Its attempts, oldest first, over all rounds.
    pub attempts_log: Vec<Attempt>,
}

/// The answer to one submitted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The task's id; of the existing task where its unique key was already live.
    pub id: TaskId,
    /// Whether it is new.
    pub created: bool,
}
