//! Schedules, their timers and their runs, as the store takes and shows them.

use crate::Result;
use crate::access::Actor;
use crate::worker::{ClaimRequest, ClaimedTask};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use taskwheel_model::{Definition, RunStatus, ScheduleStatus, Status, TaskId, Time, Timer};

/// A schedule to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// The tenant it belongs to.
    pub tenant: String,
    /// What it fires.
    pub definition: Definition,
    /// When. Every expression names its time zone.
    pub timers: Vec<Timer>,
    /// Whether it fires.
    pub status: ScheduleStatus,
}

/// A schedule as it is shown.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Schedule {
    pub id: i64,
    pub tenant: String,
    pub definition: Definition,
    pub timers: Vec<TimerState>,
    pub status: ScheduleStatus,
    pub created_at: Time,
    pub updated_at: Time,
}

/// A timer and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerState {
    /// Its id.
    pub id: i64,
    /// When it fires.
    pub timer: Timer,
    /// Whether it has ever been online since it was made or edited.
    pub has_begun: bool,
    /// The due time that comes next, whether or not the timer can fire now.
    pub cursor: Option<Time>,
    /// The due time at which it fires next. None while the schedule is not online, after the last one, and while a fixed delay waits
    /// for its run.
    pub next_due: Option<Time>,
}

/// What to change of a schedule. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleEdit {
    /// Fields of the definition, by the names they have in it.
    pub fields: Map<String, Value>,
    /// All of its timers. One with the id of a timer that it has, and equal to it, keeps its cursor.
    pub timers: Option<Vec<(Option<i64>, Timer)>>,
    /// Whether it fires.
    pub status: Option<ScheduleStatus>,
}

/// Which schedules are wanted, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleQuery {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only those of this name.
    pub name: Option<String>,
    /// Only those of this status.
    pub status: Option<ScheduleStatus>,
    /// Only those that fire this type.
    pub task_type: Option<String>,
    /// Only those with a lower id.
    pub before: Option<i64>,
    /// Most of them.
    pub limit: usize,
}

/// Which runs are wanted, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only those of this schedule.
    pub schedule_id: Option<i64>,
    /// Only those of this status.
    pub status: Option<RunStatus>,
    /// Only those with a lower id.
    pub before: Option<i64>,
    /// Most of them.
    pub limit: usize,
}

/// A run: one firing of a schedule, and what became of it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Run {
    pub id: i64,
    pub tenant: String,
    pub schedule_id: i64,
    pub timer_id: Option<i64>,
    pub due_at: Time,
    pub status: RunStatus,
    pub reason: Option<String>,
    pub error: Option<String>,
    pub host: Option<String>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub tasks: Vec<RunTask>,
}

/// A node of a run: a task of it, or one that has not started.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct RunTask {
    /// None while it has not started.
    pub id: Option<TaskId>,
    pub name: Option<String>,
    pub task_type: Option<String>,
    /// None while it has not started.
    pub status: Option<Status>,
    pub parent_id: Option<TaskId>,
    pub shard_index: Option<i64>,
    /// Whether it may start at all.
    pub enabled: bool,
}

/// What came of a request to run a schedule now.
#[derive(Clone, Debug, PartialEq)]
pub enum RunNow {
    /// There is a run, begun or queued.
    Run(Run),
    /// Another run goes on, and the schedule does not let two.
    Overlaps,
    /// So many wait already.
    QueueFull,
    /// No worker of its type is alive to have a shard.
    NoWorkers,
}

/// What a look at the timers did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// How many runs it began, queued or skipped.
    pub runs: usize,
    /// The first types of what it began, a few.
    pub types: Vec<String>,
    /// Whether more may be due now.
    pub more: bool,
    /// The database's time.
    pub now: Time,
    /// The due time that comes next of all, where nothing was due now.
    pub next_due: Option<Time>,
}

/// Schedules: what fires when, and what came of it.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Makes a schedule.
    async fn create_schedule(&self, by: Actor, new: NewSchedule) -> Result<Schedule>;

    /// Changes a schedule of a tenant (`None`: of any). Runs that have begun stay as they are.
    async fn edit_schedule(
        &self,
        by: Actor,
        tenant: Option<String>,
        id: i64,
        edit: ScheduleEdit,
    ) -> Result<Option<Schedule>>;

    /// Removes a schedule. Runs that have begun go on; those that are queued are cancelled.
    async fn delete_schedule(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<bool>;

    /// A schedule, with the database's time.
    async fn schedule(&self, tenant: Option<String>, id: i64) -> Result<Option<(Schedule, Time)>>;

    /// A page of schedules.
    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>>;

    /// Runs a schedule now, whether or not it is online.
    async fn run_schedule(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<Option<RunNow>>;

    /// A page of runs.
    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>>;

    /// A run with its whole tree.
    async fn run(&self, tenant: Option<String>, id: i64) -> Result<Option<Run>>;

    /// Cancels what has not ended of a run. One that has ended stays as it is.
    async fn cancel_run(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<Option<Run>>;

    /// Fires what is due, at most so many timers.
    async fn fire(&self, max: usize) -> Result<Fired> {
        Ok(self.fire_and_claim(max, Vec::new()).await?.0)
    }

    /// The same, and hands out to claims that wait what is due then, in the same transaction. Where much is due they get nothing:
    /// firing comes first.
    async fn fire_and_claim(
        &self,
        max: usize,
        claims: Vec<Arc<ClaimRequest>>,
    ) -> Result<(Fired, Vec<Vec<ClaimedTask>>)>;

    /// Waits until runs begin tasks through this store, and says how many of which types. A caller that goes away loses nothing.
    async fn launched(&self) -> HashMap<String, usize>;

    /// Waits until timers of this store may be due earlier than they were, by an edit or because a run ended. A hint, as `news` is.
    async fn timers_moved(&self);

    /// Removes some runs that ended longer ago than this, oldest first, and says how many.
    async fn purge_runs(&self, keep_ms: i64) -> Result<u64>;
}
