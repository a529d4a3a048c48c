//! Tests of your handlers: a task in memory, whose time you move.
//!
//! It goes by the same rules as tasks on a server do, without one, and without a database:
//!
//! ```
//! use std::time::Duration;
//! use taskwheel_client::testing::TestTask;
//! use taskwheel_client::{NewTask, Outcome, Status, TaskContext, TaskError};
//!
//! async fn charge(ctx: TaskContext, cents: u32) -> Result<u32, TaskError> {
//!     if ctx.attempt() == 1 {
//!         return Err(TaskError::new("the bank is closed"));
//!     }
//!     Ok(cents)
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mut task = TestTask::new(NewTask::new("charge", &250));
//!
//! let ran = task.run(charge).await;
//! assert_eq!(ran.outcome, Some(Outcome::Error));
//! assert_eq!(ran.error.as_deref(), Some("the bank is closed"));
//! assert_eq!(task.due_in(), Some(Duration::from_secs(10))); // as the built-in policy says
//!
//! task.advance(Duration::from_secs(10));
//! let ran = task.run(charge).await;
//! assert_eq!(ran.result_as::<u32>().unwrap(), 250);
//! assert_eq!(task.status(), Status::Success);
//! # });
//! ```

#[cfg(test)]
mod tests;

use crate::backend::{Claimed, Report, ReportedOutcome};
use crate::context::TaskContext;
use crate::execution::{Bell, Execution};
use crate::handler::{Handler, TaskError, erase, run};
use crate::new_task::{NewTask, milliseconds};
use crate::worker::{Worker, report_of};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{Event, ExecId, Life, Outcome, Rules, State, Status, TaskId, Time, TypeSettings, decide};
use tokio::time::sleep;
use uuid::Uuid;

/// A task in memory.
pub struct TestTask {
    task: taskwheel_model::NewTask,
    settings: TypeSettings,
    life: Life,
    now: Time,
    checkpoint: Option<Box<RawValue>>,
    progress: Option<Box<RawValue>>,
    shard: Option<(u32, u32)>,
    parent: Option<Value>,
}

/// How a handler ended in a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// What would be reported; `None` where the task was cancelled or timed out meanwhile, so that its result is dropped.
    pub outcome: Option<Outcome>,
    /// What it produced.
    pub result: Option<Value>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Ran {
    /// Its result as a type of yours.
    pub fn result_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(self.result.as_ref().unwrap_or(&Value::Null))
    }
}

impl TestTask {
    /// When the time of a test starts: 2030-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp::constant(1_893_456_000, 0);

    /// A task that was just submitted, of a type without settings.
    ///
    /// # Panics
    /// When a server would refuse it.
    #[must_use]
    pub fn new(task: NewTask) -> TestTask {
        TestTask::of_type(task, TypeSettings::default())
    }

    /// A task that was just submitted, of a type with settings.
    ///
    /// # Panics
    /// When a server would refuse it.
    #[must_use]
    pub fn of_type(task: NewTask, settings: TypeSettings) -> TestTask {
        let task = task.checked(None).unwrap_or_else(|error| panic!("the task would be refused: {error}"));
        let now = Time(TestTask::START.as_millisecond());
        let due = match task.run_at {
            RunAt::Now => now,
            RunAt::At(time) => time.max(now),
            RunAt::After(ms) => now.plus_ms(ms),
        };
        let life = Life::new(due, task.expire_at);
        TestTask { task, settings, life, now, checkpoint: None, progress: None, shard: None, parent: None }
    }

    /// The same task with a checkpoint of an earlier attempt, for its handler to go on from.
    ///
    /// # Panics
    /// When the state is no JSON.
    #[must_use]
    pub fn with_checkpoint(self, state: &impl Serialize) -> TestTask {
        let checkpoint = to_raw_value(state).unwrap_or_else(|error| panic!("the checkpoint is no JSON: {error}"));
        TestTask { checkpoint: Some(checkpoint), ..self }
    }

    /// The same task as one shard of several, the first of which is 0.
    #[must_use]
    pub fn as_shard(self, index: u32, total: u32) -> TestTask {
        TestTask { shard: Some((index, total)), ..self }
    }

    /// The same task as a child in a run, after a task with this result.
    ///
    /// # Panics
    /// When the result is no JSON.
    #[must_use]
    pub fn after(self, result: impl Serialize) -> TestTask {
        TestTask { parent: Some(serde_json::json!({"id": 2, "result": result})), ..self }
    }

    /// The time of the test.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now.0).unwrap_or(Timestamp::MAX)
    }

    /// Lets time pass.
    pub fn advance(&mut self, duration: Duration) {
        self.now = self.now.plus_ms(milliseconds(duration));
        // What expires, expires.
        self.happen(&Event::Clock { worker_seen_at: None });
    }

    /// How the task stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.life.status()
    }

    /// How many attempts it has had in this round.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.life.attempts
    }

    /// How long until it is due: zero when it is, `None` when it waits for nothing.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        let ms = self.life.due.ms_since(self.now).max(0);
        self.status().is_waiting().then(|| Duration::from_millis(ms.unsigned_abs()))
    }

    /// The checkpoint that a next attempt goes on from, as a type of yours.
    pub fn checkpoint<S: DeserializeOwned>(&self) -> serde_json::Result<Option<S>> {
        self.checkpoint.as_ref().map(|checkpoint| serde_json::from_str(checkpoint.get())).transpose()
    }

    /// The progress that was told last, as JSON.
    #[must_use]
    pub fn progress(&self) -> Option<Value> {
        self.progress.as_ref().and_then(|progress| serde_json::from_str(progress.get()).ok())
    }

    /// Calls the task off.
    pub fn cancel(&mut self) {
        self.happen(&Event::Cancel { worker_seen_at: None });
    }

    /// Runs it again from the start, as a person would.
    pub fn retry(&mut self) {
        self.happen(&Event::Retry);
    }

    /// Runs a handler as a worker would, to its end.
    ///
    /// # Panics
    /// When the task is not due.
    pub async fn run<F, Fut, T, R, E>(&mut self, handler: F) -> Ran
    where
        F: Fn(TaskContext, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<TaskError> + Send + 'static,
    {
        self.start(handler).finish().await
    }

    /// Claims the task as a worker would. The handler does not run yet: what happens to it meanwhile can be said first, and
    /// [`finish`](TestRun::finish) runs it.
    ///
    /// # Panics
    /// When the task is not due.
    pub fn start<F, Fut, T, R, E>(&mut self, handler: F) -> TestRun<'_>
    where
        F: Fn(TaskContext, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<TaskError> + Send + 'static,
    {
        let exec_id = ExecId::new(self.now, random());
        self.happen(&Event::Claim { exec_id, heartbeat_ms: None });
        assert!(
            matches!(self.life.state, State::Executing(_)),
            "the task cannot be run: it is {}, due in {:?}",
            self.status(),
            self.due_in()
        );
        let claimed = Claimed {
            id: TaskId(1),
            exec_id,
            tenant: self.task.tenant.clone(),
            task_type: self.task.task_type.clone(),
            key: self.task.key.clone(),
            payload: self.task.payload.clone().and_then(|payload| RawValue::from_string(payload).ok()),
            round: self.life.round,
            attempt: self.life.attempts,
            checkpoint: self.checkpoint.clone(),
            run_at: Timestamp::from_millisecond(self.life.due.0).unwrap_or(Timestamp::MAX),
            traceparent: self.task.trace_parent.clone(),
            shard_index: self.shard.map(|(index, _)| index),
            shard_total: self.shard.map(|(_, total)| total),
            parent: self.parent.clone(),
        };
        let bell = Arc::new(Bell::default());
        let execution = Arc::new(Execution::new(claimed, bell.clone()));
        TestRun { task: self, execution, bell, handler: erase(handler), grace: Worker::GRACE_DEFAULT }
    }

    /// Saves what is given.
    fn keep(&mut self, checkpoint: Option<Box<RawValue>>, progress: Option<Box<RawValue>>) {
        self.checkpoint = checkpoint.or(self.checkpoint.take());
        self.progress = progress.or(self.progress.take());
    }

    fn rules(&self) -> Rules {
        let task = &self.task;
        Rules::of(task.retry.clone(), task.max_attempts, task.timeout_ms, Some(&self.settings))
    }

    /// What a server would decide. What it would refuse changes nothing.
    fn happen(&mut self, event: &Event) {
        if let Ok(step) = decide(&self.life, &self.rules(), event, self.now) {
            self.life = step.life;
        }
    }
}

fn random() -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&Uuid::new_v4().as_bytes()[..10]);
    bytes
}

/// A handler that has its task, and runs when it is told to [`finish`](TestRun::finish).
#[must_use = "the handler runs when it is told to finish"]
pub struct TestRun<'t> {
    task: &'t mut TestTask,
    execution: Arc<Execution>,
    bell: Arc<Bell>,
    handler: Handler,
    grace: Duration,
}

impl TestRun<'_> {
    /// Calls the task off, so that [`TaskContext::cancelled`] resolves.
    pub fn cancel(self) -> Self {
        self.task.cancel();
        self.execution.lose();
        self
    }

    /// Lets the time limit of the attempt run out, so that [`TaskContext::cancelled`] resolves.
    ///
    /// # Panics
    /// When the task has no time limit.
    pub fn time_out(self) -> Self {
        let limit = self.task.rules().timeout_ms.unwrap_or_else(|| panic!("the task has no time limit"));
        self.task.advance(Duration::from_millis(limit.unsigned_abs()));
        self.execution.lose();
        self
    }

    /// Stops the worker, so that [`TaskContext::stopping`] resolves.
    pub fn stop(self) -> Self {
        self.bell.stop();
        self
    }

    /// How long the handler may go on after that: 30 seconds unless given, as with [`Worker::grace`]. They pass by the clock of
    /// tokio: at once in a test with `#[tokio::test(start_paused = true)]`.
    pub fn grace(self, period: Duration) -> Self {
        TestRun { grace: period, ..self }
    }

    /// Runs the handler to its end, and does to the task what a server would. One that goes on for too long after it was
    /// cancelled or stopped is dropped where it waits, as by a worker; a task that was not cancelled is then given back with its
    /// last checkpoint.
    pub async fn finish(self) -> Ran {
        let TestRun { task, execution, bell, handler, grace } = self;
        let saving = async {
            loop {
                bell.save.notified().await;
                // Of a lost execution a server takes nothing more.
                if !execution.is_lost() {
                    let (noted, revision) = execution.renewal();
                    task.keep(noted.checkpoint, noted.progress);
                    execution.was_saved(revision);
                }
            }
        };
        let over = async {
            tokio::select! {
                () = bell.stopping() => {}
                () = execution.lost() => {}
            }
            sleep(grace).await;
        };
        let ended = tokio::select! {
            biased;
            ended = run(&handler, &execution) => ended,
            () = saving => Err(TaskError::release()),
            () = over => {
                task.advance(grace);
                if task.status() != Status::Executing {
                    execution.lose();
                }
                Err(TaskError::release())
            }
        };
        if execution.is_lost() {
            return Ran { outcome: None, result: None, error: None };
        }
        let report = report_of(&execution, ended);
        let Report { exec_id, outcome, result, error, retry_after_ms, checkpoint, progress, .. } = report;
        task.keep(checkpoint, progress);
        let outcome = outcome_of(outcome);
        task.happen(&Event::Report { exec_id, outcome, retry_after_ms });
        let result = result.and_then(|result| serde_json::from_str(result.get()).ok());
        Ran { outcome: Some(outcome), result, error }
    }
}

fn outcome_of(outcome: ReportedOutcome) -> Outcome {
    match outcome {
        ReportedOutcome::Success => Outcome::Success,
        ReportedOutcome::Error => Outcome::Error,
        ReportedOutcome::Failure => Outcome::Failure,
        ReportedOutcome::Retry => Outcome::Retry,
        ReportedOutcome::Release => Outcome::Release,
    }
}
