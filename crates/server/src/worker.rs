//! Workers: claim, renew, report. Three calls that any language can make.

use crate::access::Caller;
use crate::input::Body;
use crate::problem::{Answer, BadField, Problem};
use crate::room::Place;
use crate::shapes::{At, text};
use crate::{App, Shared};
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use taskwheel_model::{ExecId, Outcome, Status, TaskId, field, limits};
use taskwheel_store::Label;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Heartbeat, Renewal, Renewed, Report, Reported, Worker};
use utoipa::ToSchema;

/// How long a report waits for what only its span needs.
const LABELS_TIME_MAX: Duration = Duration::from_millis(200);
/// Longest wait of a claim, in milliseconds.
const WAIT_MS_MAX: i64 = 60_000;

/// A worker asks for tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimInput {
    /// New at each start of the worker.
    worker_id: String,
    host: String,
    app: Option<String>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    creator: Option<String>,
    tenant: Option<String>,
    heartbeat_ms: Option<i64>,
    /// Most tasks to hand out.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    max: i64,
    /// How long to wait when there is nothing.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 60000)]
    wait_ms: i64,
}

fn one() -> i64 {
    1
}

/// Tasks in a worker's hands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    tasks: Vec<ClaimedView>,
}

/// A task in a worker's hands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedView {
    #[schema(value_type = i64)]
    id: TaskId,
    #[schema(value_type = uuid::Uuid)]
    exec_id: ExecId,
    tenant: String,
    r#type: String,
    key: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    category: Option<String>,
    creator: Option<String>,
    round: u32,
    attempt: u32,
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
    priority: u8,
    run_at: At,
    started_at: At,
    lease_until: At,
    timeout_ms: i64,
    /// The trace that the task belongs to, where it was submitted with the header of this name.
    traceparent: Option<String>,
    /// Which shard of its run it is, from 0 on.
    shard_index: Option<u32>,
    /// How many shards its run has.
    shard_total: Option<u32>,
    /// The task of its run before it, with its result: `{id, result}`, or a list of them where that had shards.
    parent: Option<serde_json::Value>,
}

impl From<ClaimedTask> for ClaimedView {
    fn from(task: ClaimedTask) -> ClaimedView {
        let value = |text: String| RawValue::from_string(text).ok();
        ClaimedView {
            id: task.id,
            exec_id: task.exec_id,
            tenant: task.tenant,
            r#type: task.task_type,
            key: task.key,
            payload: task.payload.and_then(value),
            category: task.category,
            creator: task.creator,
            round: task.round,
            attempt: task.attempt,
            checkpoint: task.checkpoint.and_then(value),
            priority: task.priority,
            run_at: At(task.run_at),
            started_at: At(task.started_at),
            lease_until: At(task.lease_until),
            timeout_ms: task.timeout_ms,
            traceparent: task.trace_parent,
            shard_index: task.context.shard_index,
            shard_total: task.context.shard_total,
            parent: task.context.parent,
        }
    }
}

/// Takes due tasks: highest priority first, then the earliest due, then the lowest id. Waits when there is nothing.
#[utoipa::path(post, path = "/v1/worker/claim", tag = "worker", request_body = ClaimInput, responses(
    (status = OK, body = ClaimView), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = TOO_MANY_REQUESTS, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn claim(
    State(app): Shared,
    caller: Caller,
    Extension(place): Extension<Place>,
    Body(input): Body<ClaimInput>,
) -> Answer<Json<ClaimView>> {
    field::range("wait_ms", input.wait_ms, 0, WAIT_MS_MAX)?;
    field::range("max", input.max, 1, limits::CLAIM_BATCH_MAX as i64)?;
    let caller = caller.asking_for(input.tenant)?;
    caller.may_claim(&input.types, &input.categories)?;
    let request = ClaimRequest {
        worker_id: input.worker_id,
        host: input.host,
        app: input.app,
        types: input.types,
        categories: input.categories,
        creator: input.creator,
        tenant: caller.tenant(),
        owner: caller.owner(),
        heartbeat_ms: input.heartbeat_ms,
        max: usize::try_from(input.max).unwrap_or(1),
    };
    request.validate()?;
    let waiting = if input.wait_ms > 0 { app.room.wait(&place, caller.token_id()) } else { None };
    let wait = waiting.as_ref().map_or(Duration::ZERO, |_| Duration::from_millis(input.wait_ms.unsigned_abs()));
    let mut tasks = tokio::select! {
        tasks = app.engine.claim(request, wait) => tasks?,
        // A token that is revoked while its claim waits gets nothing any more.
        () = app.gate.ends(&app, &caller) => return Err(Problem::unauthorized()),
    };
    if tasks.is_empty() && input.wait_ms > 0 && waiting.is_none() {
        // An empty answer at once would have a worker ask again at once.
        return Err(Problem::too_often("too many claims wait; come again in a second"));
    }
    tasks.iter_mut().for_each(|task| app.spans.claimed(task));
    Ok(Json(ClaimView { tasks: tasks.into_iter().map(ClaimedView::from).collect() }))
}

/// A worker says that it lives, and names tasks that it has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewInput {
    worker_id: String,
    #[serde(default)]
    items: Vec<RenewItem>,
}

/// A task that a worker has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewItem {
    #[schema(value_type = i64)]
    id: TaskId,
    #[schema(value_type = uuid::Uuid)]
    exec_id: ExecId,
    /// Where a next attempt shall go on from.
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
    progress: Option<ProgressInput>,
}

/// How far an execution is.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressInput {
    done: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Whether a worker still has the tasks it named.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenewView {
    items: Vec<RenewedView>,
}

/// Whether a worker still has a task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenewedView {
    #[schema(value_type = i64)]
    id: TaskId,
    /// `ok`, `cancelled` or `superseded`.
    state: &'static str,
    lease_until: Option<At>,
}

/// Keeps tasks, with their checkpoints and progress. Without items it says that the worker lives.
#[utoipa::path(post, path = "/v1/worker/renew", tag = "worker", request_body = RenewInput, responses(
    (status = OK, body = RenewView), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn renew(
    State(app): Shared,
    caller: Caller,
    Body(input): Body<RenewInput>,
) -> Answer<Json<RenewView>> {
    field::name("worker_id", &input.worker_id, limits::NAME_CHARS_MAX)?;
    let (ids, tenant): (Vec<_>, _) = (input.items.iter().map(|item| item.id).collect(), caller.tenant());
    let renewal = |item: RenewItem| Renewal {
        id: item.id,
        exec_id: item.exec_id,
        tenant: tenant.clone(),
        checkpoint: item.checkpoint.map(text),
        progress: item.progress.and_then(|progress| serde_json::to_string(&progress).ok()),
    };
    let mut items: Vec<_> = input.items.into_iter().map(renewal).collect();
    check(&items, Renewal::validate)?;
    let foreign = foreign(&app, &caller, &ids).await?;
    items.retain(|item| !foreign.contains(&item.id));
    let renewed = app.engine.renew(Heartbeat { worker_id: input.worker_id, owner: caller.owner() }, items).await?;
    let view = |(id, renewed)| match renewed {
        Renewed::Ok(until) => RenewedView { id, state: "ok", lease_until: Some(At(until)) },
        Renewed::Cancelled => RenewedView { id, state: "cancelled", lease_until: None },
        Renewed::Superseded => RenewedView { id, state: "superseded", lease_until: None },
    };
    Ok(Json(RenewView { items: answers(ids, &foreign, renewed, Renewed::Superseded).map(view).collect() }))
}

/// A worker reports how executions ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportInput {
    items: Vec<ReportItem>,
}

/// How an execution ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportItem {
    #[schema(value_type = i64)]
    id: TaskId,
    #[schema(value_type = uuid::Uuid)]
    exec_id: ExecId,
    outcome: OutcomeInput,
    /// What it produced.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// What went wrong.
    error: Option<String>,
    /// With `retry`: after how long.
    #[schema(minimum = 0)]
    retry_after_ms: Option<i64>,
    /// Where a next attempt shall go on from.
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
}

/// How an execution ended, by the word of its worker.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeInput {
    /// Done, no callback.
    Success,
    /// Done, callback as the type says.
    Completed,
    /// Gone wrong: try again by policy.
    Error,
    /// Gone wrong for good.
    Failure,
    /// Not now: try again later, without counting an error.
    Retry,
    /// Given back: the attempt does not count.
    Release,
}

impl From<OutcomeInput> for Outcome {
    fn from(outcome: OutcomeInput) -> Outcome {
        match outcome {
            OutcomeInput::Success => Outcome::Success,
            OutcomeInput::Completed => Outcome::Completed,
            OutcomeInput::Error => Outcome::Error,
            OutcomeInput::Failure => Outcome::Failure,
            OutcomeInput::Retry => Outcome::Retry,
            OutcomeInput::Release => Outcome::Release,
        }
    }
}

/// The answers to reports.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportView {
    items: Vec<ReportedView>,
}

/// The answer to a report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportedView {
    #[schema(value_type = i64)]
    id: TaskId,
    /// `accepted` or `superseded`.
    state: &'static str,
    /// The task's status now; null where the task is not known.
    #[schema(value_type = Option<String>)]
    status: Option<Status>,
}

/// Takes results. Repeating an accepted report is accepted again and changes nothing.
#[utoipa::path(post, path = "/v1/worker/report", tag = "worker", request_body = ReportInput, responses(
    (status = OK, body = ReportView), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = PAYLOAD_TOO_LARGE, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn report(
    State(app): Shared,
    caller: Caller,
    Body(input): Body<ReportInput>,
) -> Answer<Json<ReportView>> {
    let (ids, tenant): (Vec<_>, _) = (input.items.iter().map(|item| item.id).collect(), caller.tenant());
    let report = |item: ReportItem| Report {
        id: item.id,
        exec_id: item.exec_id,
        tenant: tenant.clone(),
        outcome: item.outcome.into(),
        result: item.result.map(text),
        error: item.error,
        retry_after_ms: item.retry_after_ms,
        checkpoint: item.checkpoint.map(text),
    };
    let mut reports: Vec<_> = input.items.into_iter().map(report).collect();
    check(&reports, Report::validate)?;
    let foreign = foreign(&app, &caller, &ids).await?;
    reports.retain(|report| !foreign.contains(&report.id));
    let elsewhere = handed_out_elsewhere(&app, &reports).await;
    let said: Vec<_> = reports.iter().map(|report| (report.id, report.exec_id, report.outcome)).collect();
    let reported = app.engine.report(reports).await?;
    for ((id, exec_id, outcome), answer) in said.into_iter().zip(&reported) {
        log(id, exec_id, outcome, answer);
        if let (Reported::Accepted(_), Some(label)) = (answer, elsewhere.get(&id)) {
            app.spans.handed_out_elsewhere(id, exec_id, label);
        }
        let is_bad = matches!(outcome, Outcome::Error | Outcome::Failure);
        match answer {
            Reported::Accepted(_) => app.spans.reported(exec_id, outcome.word(), is_bad),
            // It ran in vain, whatever its worker says of it.
            Reported::Superseded(Some(_)) => app.spans.reported(exec_id, "superseded", true),
            // Of a task that is not there for the caller nothing is told.
            Reported::Superseded(None) => {}
        }
    }
    let view = |(id, reported)| match reported {
        Reported::Accepted(status) => ReportedView { id, state: "accepted", status: Some(status) },
        Reported::Superseded(status) => ReportedView { id, state: "superseded", status },
    };
    Ok(Json(ReportView { items: answers(ids, &foreign, reported, Reported::Superseded(None)).map(view).collect() }))
}

/// Those tasks that are of a type which the caller's token is not for. Without such a limit nothing is looked up.
async fn foreign(app: &App, caller: &Caller, ids: &[TaskId]) -> Answer<HashSet<TaskId>> {
    let Some(own) = caller.types().filter(|_| !ids.is_empty()) else { return Ok(HashSet::new()) };
    let labels = app.engine.store().labels_of(ids.to_vec()).await?;
    Ok(labels.into_iter().filter(|(_, label)| !own.contains(&label.task_type)).map(|(id, _)| id).collect())
}

/// What those tasks go by whose runs another node handed out. Asked before a report: afterwards they may be gone. Without an answer their
/// spans are missing, and nothing else.
async fn handed_out_elsewhere(app: &App, reports: &[Report]) -> HashMap<TaskId, Label> {
    let unknown = reports.iter().filter(|report| app.spans.wants(report.exec_id));
    let ids: Vec<_> = unknown.map(|report| report.id).collect();
    if ids.is_empty() {
        return HashMap::new();
    }
    let labels = tokio::time::timeout(LABELS_TIME_MAX, app.engine.store().labels_of(ids)).await;
    labels.ok().and_then(Result::ok).unwrap_or_default()
}

/// The answer for each task: what the store said, and of foreign ones that they are not the caller's.
fn answers<T: Copy>(
    ids: Vec<TaskId>,
    foreign: &HashSet<TaskId>,
    said: Vec<T>,
    not_yours: T,
) -> impl Iterator<Item = (TaskId, T)> {
    let mut said = said.into_iter();
    ids.into_iter().map(move |id| {
        let answer = if foreign.contains(&id) { None } else { said.next() };
        (id, answer.unwrap_or(not_yours))
    })
}

/// What did not simply go well is in the log.
fn log(id: TaskId, exec_id: ExecId, outcome: Outcome, answer: &Reported) {
    let (task_id, outcome) = (id.0, outcome.word());
    match answer {
        Reported::Superseded(_) => tracing::info!(task_id, %exec_id, outcome, "a report came too late"),
        Reported::Accepted(Status::Success) => tracing::debug!(task_id, %exec_id, outcome, "a task is done"),
        Reported::Accepted(status) => tracing::info!(task_id, %exec_id, outcome, %status, "an execution ended"),
    }
}

/// Checks each item of a call, and names those that are bad.
fn check<T>(items: &[T], check: impl Fn(&T) -> Result<(), taskwheel_model::FieldError>) -> Answer<()> {
    if items.len() > limits::REPORT_BATCH_MAX {
        let message = format!("must have at most {} items, has {}", limits::REPORT_BATCH_MAX, items.len());
        return Err(Problem::field("items", message));
    }
    let bad = |(index, item)| check(item).err().map(|error| BadField::of(Some(index), error));
    let errors: Vec<_> = items.iter().enumerate().filter_map(bad).collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::fields(errors)) }
}

/// Workers that have called and are not yet forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerList {
    items: Vec<WorkerView>,
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerView {
    worker_id: String,
    host: String,
    app: Option<String>,
    types: Vec<String>,
    categories: Vec<String>,
    heartbeat_ms: Option<i64>,
    /// Whose worker it is; null is one for all tenants.
    tenant: Option<String>,
    started_at: At,
    /// Its last call.
    seen_at: At,
    /// How many tasks it is running.
    running: u64,
}

impl WorkerView {
    fn of(worker: Worker, running: u64) -> WorkerView {
        WorkerView {
            worker_id: worker.worker_id,
            host: worker.host,
            app: worker.app,
            types: worker.types,
            categories: worker.categories,
            heartbeat_ms: worker.heartbeat_ms,
            tenant: worker.tenant,
            started_at: At(worker.started_at),
            seen_at: At(worker.seen_at),
            running,
        }
    }
}

/// Lists the workers that have called lately.
#[utoipa::path(get, path = "/v1/workers", tag = "worker", responses((status = OK, body = WorkerList)))]
pub(crate) async fn workers(State(app): Shared, caller: Caller) -> Answer<Json<WorkerList>> {
    let is_seen = |worker: &Worker| caller.sees_worker(worker.tenant.as_deref());
    let workers = app.engine.store().workers().await?;
    let mut executing = app.engine.store().executing().await?;
    let view = |worker: Worker| {
        let running = executing.remove(&worker.worker_id).unwrap_or_default();
        WorkerView::of(worker, running)
    };
    let items = workers.into_iter().filter(is_seen).map(view).collect();
    Ok(Json(WorkerList { items }))
}
