//! The verbs of the store: what can be done with tasks, one sentence each.
//!
//! Each verb is one transaction and answers after its commit. Verbs take batches, because batches are what makes a
//! database fast. A verb whose future is dropped still ends, one way or the other: it never leaves a transaction open.

use crate::Result;
use crate::access::{Actor, AuditEntry, AuditQuery, Credential, NewToken, Quota, Token, TypeChange};
use crate::meter::Readings;
use crate::people::{Acted, Action, BulkChunk, BulkRequest};
use crate::schedule::Schedules;
use crate::search::{Listing, Page};
use crate::task::{Submitted, Task, TaskDetail};
use crate::worker::{ClaimRequest, ClaimedTask, Heartbeat, Renewal, Renewed, Report, Reported, Worker};
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use taskwheel_model::{ExecId, NewTask, Outcome, Status, Tally, TaskId, Time, TypeSettings};

/// A task store.
#[async_trait]
pub trait Store: Access + Schedules + 'static {
    /// Stores tasks, all or none. A task whose unique key is already live answers the existing task's id.
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>>;

    /// Stores a task, and shows it as it is then without reading it again; `None` where its unique key was already live.
    ///
    /// A claim that waits for the task may be handed what is due in the same transaction: where it got nothing, it looks itself.
    async fn submit_and_show(
        &self,
        task: NewTask,
        waits: Option<Arc<ClaimRequest>>,
    ) -> Result<(Submitted, Option<Task>, Vec<ClaimedTask>)>;

    /// Stores a task for a call with an idempotency key of its tenant. The same key answers the same for 24 hours, whatever
    /// became of the task, and is refused for a task with another [fingerprint](NewTask::fingerprint).
    async fn submit_once(&self, key: String, task: NewTask) -> Result<Submitted>;

    /// Forgets some answers to calls with an idempotency key that are older than that, and says how many.
    async fn forget_answers(&self) -> Result<u64>;

    /// What a call with an idempotency key was answered, if it was. Refused where it was for a task with another fingerprint.
    async fn answer(&self, tenant: String, key: String, fingerprint: i64) -> Result<Option<Submitted>>;

    /// Hands due tasks to workers: highest priority first, then the earliest due, then the lowest id. One answer for each
    /// request, in their order.
    async fn claim(&self, requests: Vec<ClaimRequest>) -> Result<Vec<Vec<ClaimedTask>>>;

    /// Whether there is something due for a claim, as far as others have not taken it in hand. Nothing is claimed.
    async fn is_due(&self, request: ClaimRequest) -> Result<bool>;

    /// Keeps executions alive, with their checkpoints and progress. `workers` are those that called: any call counts.
    async fn renew(&self, workers: Vec<Heartbeat>, items: Vec<Renewal>) -> Result<Vec<Renewed>>;

    /// Takes the reports of workers on how executions ended.
    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Reported>>;

    /// Notes that somebody looks at the clocks. Where nobody has for a while, workers had nobody to call: then those that may
    /// have missed a heartbeat count as having called just now, and the answer is true. `is_unbroken` says that the caller
    /// itself has looked all the time.
    async fn watch(&self, is_unbroken: bool) -> Result<bool>;

    /// Looks at the clocks: ends executions whose time limit or lease ran out and waiting tasks that expired.
    async fn rescue(&self) -> Result<Rescued>;

    /// What falls due of these types within so many milliseconds from now, earliest first.
    async fn upcoming(&self, types: Vec<String>, within_ms: i64, max: usize) -> Result<Ahead>;

    /// Waits for the next word that something is due which this store was not told of: by plain SQL, or through another node.
    /// A hint: some words are lost, and where the database cannot say there are none. A caller that goes away loses nothing.
    async fn news(&self) -> Upcoming;

    /// Does something to tasks of a tenant (`None`: of any), each decided by itself.
    async fn act(&self, tenant: Option<String>, ids: Vec<TaskId>, action: Action) -> Result<Vec<Acted>>;

    /// Does something to the next chunk of what a filter matches.
    async fn bulk(&self, request: BulkRequest) -> Result<BulkChunk>;

    /// One task with its attempts.
    async fn get(&self, tenant: Option<String>, id: TaskId) -> Result<Option<TaskDetail>>;

    /// A page of tasks, live and finished alike.
    async fn list(&self, listing: Listing) -> Result<Page>;

    /// How many tasks there are by type and status.
    async fn counts(&self, tenant: Option<String>) -> Result<Vec<Count>>;

    /// The highest id that was handed out so far.
    async fn highest_id(&self) -> Result<TaskId>;

    /// Creates a task type or replaces its settings.
    async fn put_type(&self, task_type: String, settings: TypeSettings) -> Result<TaskType>;

    /// Stops or starts handing out tasks of a type.
    async fn pause_type(&self, task_type: String, paused: bool) -> Result<TaskType>;

    /// All task types that have been configured.
    async fn types(&self) -> Result<Vec<TaskType>>;

    /// The workers that have called and are not yet forgotten.
    async fn workers(&self) -> Result<Vec<Worker>>;

    /// How many executions are under way, by worker. Who has none is left out.
    async fn executing(&self) -> Result<HashMap<String, u64>>;

    /// Finished tasks that are past their retention, oldest first, at most a chunk of them.
    async fn outlived(&self, retention: Retention) -> Result<Vec<Outlived>>;

    /// Removes finished tasks for good. What has changed since it was seen stays.
    async fn purge(&self, tasks: Vec<Outlived>) -> Result<u64>;

    /// Writes what was counted of the executions that ended through this store. To be called every few seconds.
    async fn write_statistics(&self) -> Result<()>;

    /// How executions went, by minute, tenant and type.
    async fn statistics(&self, wanted: StatisticsRange) -> Result<Vec<Statistics>>;

    /// How much is due and since when, by type, at a cost that does not grow with it. Of a lot it says that it is at least so much.
    async fn backlog(&self) -> Result<Backlog>;

    /// What this store measured of itself since it was opened.
    fn readings(&self) -> Readings;

    /// How the database stands: its version and its durability.
    async fn inspect(&self) -> Result<Inspection>;

    /// How many tasks are in two places at once or in none: always 0, unless somebody wrote into our tables. It reads every
    /// task there is.
    async fn contradictions(&self) -> Result<u64>;
}

/// Who may do what, and who did what.
#[async_trait]
pub trait Access: Send + Sync {
    /// Makes a token, and answers it with what its holder shows: kept nowhere, shown once.
    async fn create_token(&self, by: Actor, new: NewToken) -> Result<(Token, String)>;

    /// All tokens, oldest first.
    async fn tokens(&self) -> Result<Vec<Token>>;

    /// A token, to check a caller against.
    async fn credential(&self, id: i64) -> Result<Option<Credential>>;

    /// Makes a token worth nothing. One that was revoked before stays as it is.
    async fn revoke_token(&self, by: Actor, id: i64) -> Result<Option<Token>>;

    /// Whether there has ever been a token.
    async fn has_tokens(&self) -> Result<bool>;

    /// Notes that a token was used just now.
    async fn token_used(&self, id: i64) -> Result<()>;

    /// Sets what a tenant may have.
    async fn put_quota(&self, by: Actor, tenant: String, quota: Quota) -> Result<()>;

    /// What tenants may have, where that is limited.
    async fn quotas(&self) -> Result<Vec<(String, Quota)>>;

    /// How many tasks of a tenant live.
    async fn live_tasks(&self, tenant: String) -> Result<u64>;

    /// What tasks go by. Unknown ids are left out.
    async fn labels_of(&self, ids: Vec<TaskId>) -> Result<HashMap<TaskId, Label>>;

    /// Which of these unique keys (type, key) of a tenant are live in tasks that were not submitted with a token, by their places.
    async fn keys_of_others(&self, tenant: String, token_id: i64, keys: Vec<(String, String)>) -> Result<Vec<usize>>;

    /// Does something to a task, with a line in the log.
    async fn act_as(&self, by: Actor, tenant: Option<String>, id: TaskId, action: Action) -> Result<Acted>;

    /// Changes a type, with a line in the log where somebody is named.
    async fn change_type(&self, by: Option<Actor>, change: TypeChange) -> Result<TaskType>;

    /// Lines of the log, newest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>>;
    /// Removes some lines of the log that are older than this, oldest first, and says how many.
    async fn purge_audit(&self, keep_ms: i64) -> Result<u64>;
}

/// What a task goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Whose it is.
    pub tenant: String,
    /// Its type.
    pub task_type: String,
    /// The trace that it belongs to.
    pub trace_parent: Option<String>,
}

/// What a look at the clocks did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rescued {
    /// Executions whose time limit ran out.
    pub timed_out: u64,
    /// Executions whose worker went silent.
    pub lost: u64,
    /// Executions that never reached their worker, given back.
    pub released: u64,
    /// Waiting tasks that expired.
    pub expired: u64,
    /// Which tasks these were.
    pub tasks: Vec<RanOut>,
    /// Whether there may be more: look again at once.
    pub more: bool,
}

/// A task whose clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanOut {
    /// The task.
    pub id: TaskId,
    /// Its execution; none where it waited, and expired.
    pub exec_id: Option<ExecId>,
    /// How the execution ended.
    pub outcome: Option<Outcome>,
}

/// What lies ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// What falls due, earliest first.
    pub dues: Vec<Upcoming>,
    /// What the database's own clock shows, in microseconds since 1970.
    pub clock_us: i64,
    /// When that was known. It is not before the clock was read: by it nothing is expected too early.
    pub read_at: Instant,
}

/// A time at which a task of a type falls due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// The type.
    pub task_type: String,
    /// The time.
    pub due: Time,
}

/// Which statistics are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsRange {
    /// From this time on…
    pub from: Time,
    /// …and before this one.
    pub to: Time,
    /// Of this tenant; `None` is of all.
    pub tenant: Option<String>,
    /// Of this type; `None` is of all.
    pub task_type: Option<String>,
}

/// How executions of a tenant's tasks of a type went in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The start of the minute.
    pub minute: Time,
    /// The tenant.
    pub tenant: String,
    /// The type.
    pub task_type: String,
    /// What was counted.
    pub tally: Tally,
}

/// How much is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The database's time when it was counted.
    pub now: Time,
    /// The types of which something is due; where there are too many, one named `(other)` stands for the rest.
    pub types: Vec<TypeBacklog>,
    /// There may be more than was counted.
    pub is_cut_off: bool,
}

/// How much of a type is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeBacklog {
    /// The type.
    pub task_type: String,
    /// Tasks that are due and that no worker has; of each priority at most 1,000 are counted.
    pub due: u64,
    /// For how long the one that waits longest has been due, in milliseconds.
    pub oldest_ms: i64,
}

/// A number of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Of this type.
    pub task_type: String,
    /// In this status.
    pub status: Status,
    /// So many.
    pub tasks: u64,
}

/// A task type and whether it is paused.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskType {
    /// Its name in tasks.
    pub task_type: String,
    /// What it settles for its tasks.
    pub settings: TypeSettings,
    /// Whether its tasks are held back.
    pub paused: bool,
}

/// A finished task that is past its retention, as it was when that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the task")]
pub struct Outlived {
    pub id: TaskId,
    pub round: u32,
    pub updated_at: Time,
}

impl Outlived {
    /// Whether a task is still as it was then.
    pub(crate) fn is(&self, task: &Task) -> bool {
        (self.id, self.round, self.updated_at) == (task.id, task.round, task.updated_at)
    }
}

/// How long finished tasks are kept, by status, in milliseconds. `None` is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is a status")]
pub struct Retention {
    pub success_ms: Option<i64>,
    pub failure_ms: Option<i64>,
    pub manually_processed_ms: Option<i64>,
    pub cancelled_ms: Option<i64>,
}

impl Retention {
    /// The retention of each finished status that has one.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (Status, i64)> {
        [
            (Status::Success, self.success_ms),
            (Status::Failure, self.failure_ms),
            (Status::ManuallyProcessed, self.manually_processed_ms),
            (Status::Cancelled, self.cancelled_ms),
        ]
        .into_iter()
        .filter_map(|(status, ms)| ms.map(|ms| (status, ms)))
    }
}

/// How a database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Name and version of the database.
    pub database: String,
    /// The version of our schema in it.
    pub schema_version: i32,
    /// Settings that make it less durable than an acknowledged task deserves; none is good.
    pub weak_settings: Vec<WeakSetting>,
    /// The database's time.
    pub now: Time,
    /// What else is wrong, each with how to mend it.
    pub findings: Vec<String>,
    /// What could not be looked at, and is no fault.
    pub notes: Vec<String>,
}

/// A setting that may lose acknowledged work in a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeakSetting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub wanted: String,
}
