//! Submit: new tasks, in the store's transaction or in the user's own.

use super::{NO_TABLES, Types};
use crate::StoreError;
use crate::plain::{Kind, plain};
use crate::session::{Attempted, Fault, Insert, Session};
use crate::task::{Submitted, Task};
use std::collections::HashMap;
use std::sync::Arc;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{FieldError, NewTask, Slot, Status, TaskId, Time, limits};

/// An idempotency key, as the API names it.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// Inserts tasks in an open transaction. A task whose unique key is live answers the task that has it; of two tasks in
/// the batch with the same key the first is inserted.
pub(crate) async fn submit_on(
    session: &mut dyn Session,
    tasks: &[Arc<NewTask>],
    types: &Types,
) -> Attempted<Vec<Submitted>> {
    let keys = unique_keys(tasks);
    let live = if keys.is_empty() { Vec::new() } else { session.live_unique(&keys).await? };
    let plan = Plan::of(tasks, &keys, live, types, session.now());
    let ids = session.insert(&plan.inserts).await?;
    Ok(plan.answers(&ids))
}

/// Tasks of a caller who keeps them.
pub(crate) fn shared(tasks: &[NewTask]) -> Vec<Arc<NewTask>> {
    tasks.iter().cloned().map(Arc::new).collect()
}

/// Why a submit on somebody's own connection failed. Nobody has looked before whether the tables are there.
pub(crate) fn undone(fault: Fault) -> StoreError {
    match fault.into_error() {
        StoreError::Database(text) if is_missing(&text) => StoreError::Schema(NO_TABLES.into()),
        error => error,
    }
}

/// Whether a database says that the first table that is read is not there: SQLite, PostgreSQL, MySQL.
fn is_missing(text: &str) -> bool {
    text.contains("task_type")
        && ["no such table", "does not exist", "doesn't exist"].iter().any(|no| text.contains(no))
}

/// Inserts a task for a call with an idempotency key, unless the key has an answer already. Says whether it was inserted now.
pub(super) async fn submit_once(
    session: &mut dyn Session,
    key: &str,
    task: &Arc<NewTask>,
    types: &Types,
) -> Attempted<(Submitted, bool)> {
    let call = Call { tenant: &task.tenant, key, fingerprint: task.fingerprint() };
    if let Some(answer) = answered(session, &call).await? {
        return Ok((answer, false));
    }
    let submitted = submit_on(session, std::slice::from_ref(task), types).await?;
    let answer = submitted.first().copied().ok_or_else(|| StoreError::Database("a task was not stored".into()))?;
    remember(session, &call, answer).await?;
    Ok((answer, answer.created))
}

/// A call with an idempotency key of its tenant.
pub(super) struct Call<'c> {
    pub(super) tenant: &'c str,
    pub(super) key: &'c str,
    /// Of the task that it asks for.
    pub(super) fingerprint: i64,
}

/// Forgets answers that nobody may ask for any more.
pub(super) async fn forget_answers(session: &mut dyn Session) -> Attempted<u64> {
    let before = session.now().plus_ms(-limits::IDEMPOTENCY_MS);
    let oldest = session.rows(&plain(OLDEST_ANSWER), &[Kind::Number]).await?.into_iter().next();
    match oldest.map(|mut row| row.maybe_number()).transpose()?.flatten() {
        Some(oldest) => session.execute(&plain(FORGET_ANSWERS).bind(before.0).bind(oldest + FORGOTTEN_MS)).await,
        None => Ok(0),
    }
}

const ANSWERED: &str =
    "SELECT id, created, fingerprint FROM task_answer WHERE tenant = ? AND idempotency_key = ? AND answered_at >= ?";
const FORGET: &str = "DELETE FROM task_answer WHERE tenant = ? AND idempotency_key = ? AND answered_at < ?";
const REMEMBER: &str = "INSERT INTO task_answer (tenant, idempotency_key, id, created, answered_at, fingerprint)
     VALUES (?, ?, ?, ?, ?, ?)";
const OLDEST_ANSWER: &str = "SELECT MIN(answered_at) FROM task_answer";
const FORGET_ANSWERS: &str = "DELETE FROM task_answer WHERE answered_at < ? AND answered_at <= ?";
/// So much time's answers are forgotten at once.
const FORGOTTEN_MS: i64 = 1_000;

/// What a call was answered, unless that is too long ago. A key that was used for another task is refused.
pub(super) async fn answered(session: &mut dyn Session, call: &Call<'_>) -> Attempted<Option<Submitted>> {
    let query = plain(ANSWERED).bind(call.tenant).bind(call.key).bind(session.now().plus_ms(-limits::IDEMPOTENCY_MS).0);
    let found = session.rows(&query, &[Kind::Number, Kind::Flag, Kind::Number]).await?.into_iter().next();
    let Some(mut row) = found else { return Ok(None) };
    let answer = Submitted { id: TaskId(row.number()?), created: row.flag()? };
    if row.number()? != call.fingerprint {
        let message = "was used for another task: use a new key for each call";
        return Err(StoreError::field(FieldError::new(IDEMPOTENCY_KEY, message)).into());
    }
    Ok(Some(answer))
}

/// Remembers what a call is answered, in the place of an answer that is too old. Where another call with the key was faster, the
/// next try finds its answer.
async fn remember(session: &mut dyn Session, call: &Call<'_>, answer: Submitted) -> Attempted<()> {
    let (now, key) = (session.now(), |sql| plain(sql).bind(call.tenant).bind(call.key));
    session.execute(&key(FORGET).bind(now.plus_ms(-limits::IDEMPOTENCY_MS).0)).await?;
    let remember = key(REMEMBER).bind(answer.id.0).bind(answer.created).bind(now.0).bind(call.fingerprint);
    session.execute(&remember).await.map(drop)
}

/// The unique keys of tasks that have one, as (tenant, type, key).
pub(crate) fn unique_keys(tasks: &[Arc<NewTask>]) -> Vec<(&str, &str, &str)> {
    tasks.iter().filter_map(|task| unique(task)).collect()
}

/// What a submit does, once it is known which unique keys are live.
pub(crate) struct Plan {
    /// The tasks to insert.
    pub(crate) inserts: Vec<Insert>,
    /// For each task that was submitted, who answers for it.
    holders: Vec<Holder>,
}

impl Plan {
    pub(crate) fn of(
        tasks: &[Arc<NewTask>],
        keys: &[(&str, &str, &str)],
        live: Vec<Option<TaskId>>,
        types: &Types,
        now: Time,
    ) -> Plan {
        let mut known: HashMap<_, _> =
            keys.iter().copied().zip(live).filter_map(|(key, id)| id.map(|id| (key, Holder::Live(id)))).collect();
        let mut inserts = Vec::with_capacity(tasks.len());
        let mut holders = Vec::with_capacity(tasks.len());
        for task in tasks {
            let holder = unique(task).and_then(|key| known.get(&key).copied());
            holders.push(holder.unwrap_or(Holder::New(inserts.len())));
            if holder.is_none() {
                if let Some(key) = unique(task) {
                    known.insert(key, Holder::Batch(inserts.len()));
                }
                inserts.push(settle(task.clone(), types, now));
            }
        }
        Plan { inserts, holders }
    }

    /// The answers, with the ids that the inserts got.
    pub(crate) fn answers(self, ids: &[TaskId]) -> Vec<Submitted> {
        let answer = |holder: Holder| match holder {
            Holder::Live(id) => Submitted { id, created: false },
            Holder::Batch(index) => Submitted { id: ids[index], created: false },
            Holder::New(index) => Submitted { id: ids[index], created: true },
        };
        self.holders.into_iter().map(answer).collect()
    }
}

/// Who has a unique key: a task that was live before, an earlier one of the batch, or the task itself.
#[derive(Clone, Copy)]
enum Holder {
    Live(TaskId),
    Batch(usize),
    New(usize),
}

fn unique(task: &NewTask) -> Option<(&str, &str, &str)> {
    task.unique_key.as_deref().map(|key| (task.tenant.as_str(), task.task_type.as_str(), key))
}

pub(super) fn settle(task: Arc<NewTask>, types: &Types, now: Time) -> Insert {
    let of_type = types.settings(&task.task_type).and_then(|settings| settings.priority);
    Insert {
        priority: task.priority.or(of_type).unwrap_or(limits::PRIORITY_MIN),
        run_at: due(&task, now),
        slot: task.route_key.as_deref().map(|key| Slot::of_route_key(key).get()),
        created_at: now,
        task,
        origin: None,
    }
}

/// A task as it is shown when it has just been stored.
pub(super) fn shown(task: Arc<NewTask>, id: TaskId, created_at: Time, types: &Types) -> Task {
    let Insert { task, priority, run_at, slot, .. } = settle(task, types, created_at);
    let task = Arc::unwrap_or_clone(task);
    let settings = types.settings(&task.task_type);
    let shown = Task {
        id,
        tenant: task.tenant,
        task_type: task.task_type.clone(),
        key: task.key,
        payload: task.payload,
        status: Status::New,
        priority,
        run_at,
        expire_at: task.expire_at,
        max_attempts: task.max_attempts,
        retry: task.retry,
        timeout_ms: task.timeout_ms,
        category: task.category,
        creator: task.creator,
        route_key: task.route_key,
        slot: slot.unwrap_or(Slot::of_id(id).get()),
        unique_key: task.unique_key,
        affinity: task.affinity,
        round: 1,
        attempts: 0,
        error_count: 0,
        error_info: None,
        result: None,
        checkpoint: None,
        progress: None,
        host: None,
        worker_id: None,
        exec_id: None,
        lease_until: None,
        started_at: None,
        finished_at: None,
        exec_ms: None,
        created_at,
        updated_at: created_at,
        remark: None,
        schedule_id: None,
        run_id: None,
        parent_id: None,
        root_id: None,
        token_id: task.token_id,
    };
    shown.effective(settings)
}

/// When a task is due.
pub(super) fn due(task: &NewTask, now: Time) -> Time {
    match task.run_at {
        RunAt::Now => now,
        RunAt::At(time) => time,
        RunAt::After(ms) => Time(now.plus_ms(ms).0.min(limits::TIME_MS_MAX)),
    }
}
