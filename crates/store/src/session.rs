//! What a database must be able to do for the verbs: statements inside one open transaction.
//!
//! The verbs are written once, in `verb/`, over this trait; a dialect supplies the statements and nothing else. Whoever
//! implements it takes no decision: those come from the model, by way of the verbs.

use crate::plain::{Kind, Plain, PlainRow};
use crate::rows::{Change, Record};
use crate::search::Statement;
use crate::task::{Task, TaskDetail};
use crate::verbs::{Count, Inspection, Outlived, Upcoming};
use crate::worker::Worker;
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use taskwheel_model::{ExecId, NewTask, Outcome, RetryPolicy, Status, TaskId, Time};

/// Why a statement failed, by what can be done about it.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The transaction was rolled back or never began, and may go through if it is run again: deadlock, serialization
    /// failure, lock time-out.
    Again(String),
    /// The connection was lost: nothing was committed, unless a commit was under way.
    Lost(String),
    /// A unique key is live already.
    UniqueKey,
    /// It will not go through.
    Final(StoreError),
}

impl Fault {
    /// What is left of it when nothing more is tried.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Fault::Again(reason) | Fault::Lost(reason) => StoreError::Unavailable(reason),
            Fault::UniqueKey => {
                StoreError::Unavailable("a unique key was taken by another transaction just now".into())
            }
            Fault::Final(error) => error,
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Final(error)
    }
}

pub(crate) type Attempted<T> = std::result::Result<T, Fault>;

/// A piece of work inside a transaction.
pub(crate) type Work<'s, T> = Pin<Box<dyn Future<Output = Attempted<T>> + Send + 's>>;

/// An execution that ended its task well.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub id: TaskId,
    /// Its worker, where that has a heartbeat.
    pub worker_id: Option<String>,
    pub tenant: String,
    pub task_type: String,
    pub attempt: u32,
    pub due: Time,
    pub started_at: Time,
    /// The run of a schedule that it is part of.
    pub run_id: Option<i64>,
    /// Where it ran, for a task of a run.
    pub host: Option<String>,
}

/// A task to insert, with all that submit settles.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub task: Arc<NewTask>,
    pub priority: u8,
    pub run_at: Time,
    pub slot: Option<u16>,
    pub created_at: Time,
    /// Where it comes from, if a schedule fired it.
    pub origin: Option<Origin>,
}

impl Insert {
    /// The task as a claim finds it right after.
    pub(crate) fn picked(&self, id: TaskId, lane: &str) -> Picked {
        let task = &self.task;
        Picked {
            id,
            tenant: task.tenant.clone(),
            task_type: task.task_type.clone(),
            lane: lane.to_owned(),
            rank: 9 - i16::from(self.priority),
            due: self.run_at,
            expire_at: task.expire_at,
            round: 1,
            attempts: 0,
            error_count: 0,
            checkpoint: None,
            key: task.key.clone(),
            payload: task.payload.clone(),
            category: task.category.clone(),
            creator: task.creator.clone(),
            retry: task.retry.as_ref().map(policy),
            max_attempts: task.max_attempts,
            timeout_ms: task.timeout_ms,
            trace_parent: task.trace_parent.clone(),
            context: self.origin.as_ref().and_then(|origin| origin.context.clone()),
        }
    }
}

/// A policy as it is stored.
pub(crate) fn policy(policy: &RetryPolicy) -> String {
    serde_json::to_string(policy).expect("a policy is plain JSON")
}

/// Where a task of a run comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub schedule_id: i64,
    pub run_id: Option<i64>,
    pub parent_id: Option<TaskId>,
    pub root_id: Option<TaskId>,
    /// What its worker is told about it, as JSON.
    pub context: Option<String>,
}

/// Where a claim looks.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    /// Only this tenant's tasks.
    pub tenant: Option<String>,
    /// Only this creator's tasks.
    pub creator: Option<String>,
    /// The lanes to look into, each with the due time below which, by rank, nothing is left.
    pub lanes: Vec<PickLane>,
    /// Tasks that name one of these categories themselves, of whatever type…
    pub categories: Vec<String>,
    /// …except these types, which are paused…
    pub paused: Vec<String>,
    /// …and except tasks kept for another host than this one.
    pub host: String,
    /// Most tasks.
    pub max: usize,
}

impl Pick {
    /// The lanes of which every task is wanted: there a category finds nothing more.
    pub(crate) fn whole_lanes(&self) -> Vec<&str> {
        self.lanes.iter().filter(|lane| !lane.plain_only).map(|lane| lane.lane.as_str()).collect()
    }
}

/// Before all tasks.
pub(crate) const FROM_THE_START: [(i64, i64); 9] = [(i64::MIN, i64::MIN); 9];

/// One lane of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PickLane {
    /// A type, or `type@host`.
    pub lane: String,
    /// Whether only tasks without a category of their own are wanted: the lane was asked for by its type's category.
    pub plain_only: bool,
    /// By rank: the scan starts behind the task that is due then and has this id. Where a dialect knows no such pairs, at that time.
    pub marks: [(i64, i64); 9],
}

/// A due task, locked for its claim.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub id: TaskId,
    pub tenant: String,
    pub task_type: String,
    pub lane: String,
    pub rank: i16,
    pub due: Time,
    pub expire_at: Option<Time>,
    pub round: u32,
    pub attempts: u32,
    pub error_count: u32,
    pub checkpoint: Option<String>,
    pub key: Option<String>,
    pub payload: Option<String>,
    pub category: Option<String>,
    pub creator: Option<String>,
    pub retry: Option<String>,
    pub max_attempts: Option<i32>,
    pub timeout_ms: Option<i64>,
    pub trace_parent: Option<String>,
    pub context: Option<String>,
}

/// What time it is for some work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub time: Time,
    /// Counted on from a reading of the database's clock, which may be a little ahead.
    pub lags: bool,
}

/// A task that was inserted and started by one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub id: TaskId,
    /// So much later than now, by the database's clock, the execution and all its times began.
    pub lag_ms: i64,
}

/// A task to hand out: what its claim writes.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub id: TaskId,
    pub exec_id: ExecId,
    pub deadline: Option<Time>,
    pub lease_until: Option<Time>,
    pub check_at: Time,
}

/// What all tasks of one claim have in common.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    pub worker_id: String,
    pub host: String,
    pub heartbeat_ms: Option<i64>,
}

/// A successful execution: what its end writes.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub id: TaskId,
    pub exec_id: ExecId,
    pub tenant: Option<String>,
    pub outcome: Outcome,
    pub result: Option<String>,
}

/// How successful tasks end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Succeed {
    /// Whether they are kept.
    pub keep: bool,
    /// Whether those of runs are left alone: what follows from their end takes a transaction. Only asked where one statement ends them
    /// all.
    pub leaves_runs: bool,
}

/// All that a statement in an open transaction can do. The time is the database's, read when the transaction began.
#[async_trait]
pub(crate) trait Session: Send {
    fn now(&self) -> Time;
    /// What the database's own clock shows now, in microseconds since 1970.
    async fn clock_us(&mut self) -> Attempted<i64>;

    /// Inserts tasks and answers their ids, in order.
    async fn insert(&mut self, tasks: &[Insert]) -> Attempted<Vec<TaskId>>;
    /// Inserts a task and starts it, where one statement can. The task is due, in one of the lanes of the claim, and has no unique key; the
    /// claim asks for types alone. `None` where something else is due in those lanes: then nothing was done.
    async fn insert_begun(&mut self, _: &Insert, _: &Starter, _: &Start, _: &Pick) -> Attempted<Option<Begun>> {
        Ok(None)
    }
    /// The live tasks that have these unique keys (tenant, type, key), in order.
    async fn live_unique(&mut self, keys: &[(&str, &str, &str)]) -> Attempted<Vec<Option<TaskId>>>;

    /// Runs a plain statement, and says how many rows it changed.
    async fn execute(&mut self, statement: &Plain) -> Attempted<u64>;

    /// Runs plain statements none of which needs what another does, in one go where the database can.
    async fn execute_all(&mut self, statements: &[Plain]) -> Attempted<()> {
        for statement in statements {
            self.execute(statement).await?;
        }
        Ok(())
    }

    /// Reads the rows of a plain statement.
    async fn rows(&mut self, statement: &Plain, kinds: &[Kind]) -> Attempted<Vec<PlainRow>>;

    /// Locks due tasks for a claim, in the order of claims, skipping what others have locked.
    async fn pick(&mut self, pick: &Pick) -> Attempted<Vec<Picked>>;
    /// Marks picked tasks as executing.
    async fn start(&mut self, starter: &Starter, starts: &[Start]) -> Attempted<()>;
    /// Moves tasks whose execution is still the one named to history as Success, or removes them where `keep` is false.
    /// Answers those that were, each with its worker where that one promised a heartbeat.
    async fn succeed(&mut self, done: &[Done], how: Succeed) -> Attempted<Vec<Ended>>;

    /// Loads and locks tasks, live or finished, in the order of their ids. Unknown ids are left out.
    async fn load(&mut self, ids: &[TaskId]) -> Attempted<Vec<Record>>;
    /// Writes decisions about loaded tasks.
    async fn write(&mut self, changes: &[Change]) -> Attempted<()>;
    /// How these executions ended, where they are in the log of attempts.
    async fn logged(&mut self, executions: &[(TaskId, ExecId)]) -> Attempted<Vec<(TaskId, ExecId, Outcome)>>;

    /// Tasks whose clocks must be looked at by now.
    async fn clocks_run_out(&mut self, max: usize) -> Attempted<Vec<TaskId>>;
    /// Workers with a heartbeat that have been silent for too long, locked.
    async fn silent_workers(&mut self) -> Attempted<Vec<String>>;
    /// Tasks that these workers are executing.
    async fn executions_of(&mut self, worker_ids: &[String], max: usize) -> Attempted<Vec<TaskId>>;
    /// Forgets workers.
    async fn forget_workers(&mut self, worker_ids: &[String]) -> Attempted<()>;
    /// Writes down who a worker is and that it called.
    async fn register(&mut self, worker: &Worker) -> Attempted<()>;
    /// Writes down that workers called, and says how many of them are known.
    async fn seen(&mut self, worker_ids: &[String]) -> Attempted<usize>;
    /// When a look at the clocks was last noted, locked.
    async fn watched_at(&mut self) -> Attempted<Time>;
    /// Notes a look at the clocks, unless one was just noted or there is no worker with a heartbeat.
    async fn note_watch(&mut self) -> Attempted<()>;
    /// Lets workers whose heartbeat is not longer than so many milliseconds count as having called now, and gives them time
    /// to name what they got.
    async fn welcome_workers(&mut self, away_ms: i64) -> Attempted<()>;
    /// All workers.
    async fn workers(&mut self) -> Attempted<Vec<Worker>>;

    /// The next due times in lanes of these types.
    async fn upcoming(&mut self, types: &[String], until: Time, max: usize) -> Attempted<Vec<Upcoming>>;

    /// One task, as it is shown.
    async fn show(&mut self, id: TaskId) -> Attempted<Option<TaskDetail>>;
    /// The tasks that a statement of a search yields, as they are shown.
    async fn select_tasks(&mut self, statement: &Statement) -> Attempted<Vec<Task>>;
    /// The ids and due times that a statement of a search yields.
    async fn select_keys(&mut self, statement: &Statement) -> Attempted<Vec<(TaskId, Time)>>;
    /// How many tasks there are.
    async fn counts(&mut self, tenant: Option<&str>) -> Attempted<Vec<Count>>;
    /// The highest id in the table.
    async fn highest_id(&mut self) -> Attempted<TaskId>;

    /// Finished tasks of a status that ended before a time.
    async fn outlived(&mut self, status: Status, before: Time, max: usize) -> Attempted<Vec<Outlived>>;
    /// How the database stands.
    async fn inspect(&mut self) -> Attempted<Inspection>;
    /// How many tasks are in two places at once, or in none.
    async fn contradictions(&mut self) -> Attempted<u64>;
}

/// How much is inserted, or can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    pub(crate) tasks: usize,
    /// Of their texts.
    pub(crate) bytes: usize,
}

impl Inserted {
    pub(crate) const ANY: Inserted = Inserted { tasks: usize::MAX, bytes: usize::MAX };
    pub(crate) const NOTHING: Inserted = Inserted { tasks: 0, bytes: 0 };

    pub(crate) fn of(tasks: &[Arc<NewTask>]) -> Inserted {
        Inserted { tasks: tasks.len(), bytes: tasks.iter().map(|task| Inserted::bytes(task)).sum() }
    }

    /// Of the texts of a task.
    pub(crate) fn bytes(task: &NewTask) -> usize {
        let NewTask { key, payload, category, creator, route_key, unique_key, affinity, .. } = task;
        let texts = [key, payload, category, creator, route_key, unique_key, affinity];
        texts.into_iter().flatten().map(String::len).sum()
    }

    pub(crate) fn fits(self, most: Inserted) -> bool {
        self.tasks <= most.tasks && self.bytes <= most.bytes
    }
}

/// What may be done when the reply to a commit is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Running it again changes nothing more: run it again.
    Harmless,
    /// It would be done twice: tell the caller that the outcome is unknown.
    Harmful,
}

/// Word of what is due, between nodes that share a database. It is a hint: what is not heard is found by the next look.
#[async_trait]
pub(crate) trait News: Send + Sync + 'static {
    /// These types have something due, each from a time on, by a verb of this node that is committed.
    fn tell(&self, dues: &mut dyn Iterator<Item = (&str, Time)>);

    /// What became due next by plain SQL or through another node. Never, where the database cannot say.
    async fn next(&self) -> Upcoming;
}

/// A database that can run work in a transaction.
#[async_trait]
pub(crate) trait Database: Send + Sync + 'static {
    type News: News;

    /// Word to and from other nodes.
    fn news(&self) -> &Self::News;

    /// Connections for work on tasks that are in use, and most of them.
    fn connections(&self) -> (usize, usize);

    /// Runs work in a transaction, and again while that can help, and answers after the commit. It runs to its end even
    /// when the caller goes away.
    async fn transact<T, F>(&self, repeat: Repeat, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static;

    /// The same for work that reads what it likes and then inserts so many tasks, which is its only change. Where the server
    /// can insert them by one statement, that is the transaction.
    async fn insert<T, F>(&self, repeat: Repeat, size: Inserted, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static;

    /// Whether one statement ends successful tasks: then it needs no transaction around it.
    const SUCCEEDS_AT_ONCE: bool = false;

    /// Whether one statement inserts a task and starts it.
    const BEGINS_AT_ONCE: bool = false;

    /// The same for work that makes one change by one statement, and may make it again.
    async fn lone<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        self.insert(Repeat::Harmless, Inserted::NOTHING, work).await
    }

    /// Runs work that only reads, apart from the work on tasks.
    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static;
}
