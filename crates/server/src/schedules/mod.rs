//! Schedules: what fires when. `runs` is what came of it, `centre` the same in the words of the scheduling centre.

pub(crate) mod centre;
mod input;
pub(crate) mod runs;
mod target;
mod timers;
mod view;

use crate::access::Caller;
use crate::input::{Body, Number, Query};
use crate::problem::{Answer, Problem};
use crate::{App, Shared};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use input::{ScheduleEditInput, ScheduleInput};
use runs::{PAGE_ROWS_DEFAULT, cursor};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use taskwheel_model::schedule::Shards;
use taskwheel_model::{Cron, ScheduleStatus, Time, field, limits, zone};
use taskwheel_store::clock::here;
use taskwheel_store::schedule::{NewSchedule, RunNow, Schedule, ScheduleEdit, ScheduleQuery};
use taskwheel_store::worker::Worker;
use timers::Firings;
use utoipa::ToSchema;
use view::{RunView, ScheduleView};

/// Coming firings where nothing else is said.
const FIRINGS_DEFAULT: i64 = 10;

/// Makes a schedule. It is online unless it says otherwise.
#[utoipa::path(post, path = "/v1/schedules", tag = "schedules", request_body = ScheduleInput, responses(
    (status = CREATED, body = ScheduleView), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = PAYLOAD_TOO_LARGE, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn create(
    State(app): Shared,
    caller: Caller,
    Body(mut input): Body<ScheduleInput>,
) -> Answer<(StatusCode, Json<ScheduleView>)> {
    let timers = timers::read(std::mem::take(&mut input.timers), &app.timezone)?;
    if let Some(place) = timers.iter().position(|(id, _)| id.is_some()) {
        return Err(Problem::field(&format!("timers[{place}].id"), "is given by the server"));
    }
    let timers = timers.into_iter().map(|(_, timer)| timer).collect();
    let (status, tenant) = (input.status, caller.submits_for());
    let new = NewSchedule { tenant, definition: input.definition()?, timers, status };
    let schedule = app.engine.store().create_schedule(caller.actor(), new).await?;
    tracing::info!(schedule_id = schedule.id, token_id = caller.token_id(), "a schedule was made");
    Ok((StatusCode::CREATED, Json(schedule.into())))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleFilter {
    name: Option<String>,
    status: Option<String>,
    r#type: Option<String>,
}

/// A page of schedules, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchedulePage {
    items: Vec<ScheduleView>,
    /// Where the next page starts; null at the end.
    next_cursor: Option<String>,
}

/// Lists schedules, newest first.
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", params(
    ("name" = Option<String>, Query), ("type" = Option<String>, Query),
    ("status" = Option<String>, Query, description = "`new`, `online` or `offline`"),
    ("limit" = Option<i64>, Query, description = "1 to 500, default 50"), ("cursor" = Option<String>, Query)),
    responses((status = OK, body = SchedulePage), (status = UNPROCESSABLE_ENTITY, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn list(State(app): Shared, caller: Caller, mut query: Query) -> Answer<Json<SchedulePage>> {
    let (limit, before) = (query.limit("limit", PAGE_ROWS_DEFAULT, limits::PAGE_ROWS_MAX)?, cursor(&mut query)?);
    let ScheduleFilter { name, status, r#type } = query.into()?;
    let word = |word: &str| ScheduleStatus::from_word(word);
    let unknown = || Problem::field("status", "must be new, online or offline");
    let status = status.map(|text| word(&text).ok_or_else(unknown)).transpose()?;
    let query = ScheduleQuery { tenant: caller.tenant(), name, status, task_type: r#type, before, limit };
    let items: Vec<_> = app.engine.store().schedules(query).await?.into_iter().map(ScheduleView::from).collect();
    let next_cursor = items.last().filter(|_| items.len() == limit).map(|last| last.id.to_string());
    Ok(Json(SchedulePage { items, next_cursor }))
}

/// Shows a schedule with its timers and when they fire next.
#[utoipa::path(get, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = OK, body = ScheduleView), (status = NOT_FOUND, body = Problem)))]
pub(crate) async fn show(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<Json<ScheduleView>> {
    Ok(Json(found(&app, &caller, id).await?.0.into()))
}

/// Changes a schedule, from its next firing on. Runs that have begun stay as they are.
#[utoipa::path(patch, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = i64, Path)),
    request_body = ScheduleEditInput, responses((status = OK, body = ScheduleView), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem), (status = UNPROCESSABLE_ENTITY, body = Problem),
        (status = PAYLOAD_TOO_LARGE, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn edit(
    State(app): Shared,
    caller: Caller,
    Number(id): Number,
    Body(mut input): Body<ScheduleEditInput>,
) -> Answer<Json<ScheduleView>> {
    let stored_type =
        if input.needs_stored_app() { found(&app, &caller, id).await?.0.definition.task_type } else { String::new() };
    let timers = input.timers.take().map(|timers| timers::read(timers, &app.timezone)).transpose()?;
    let status = input.status;
    let change = ScheduleEdit { fields: input.fields(&stored_type)?, timers, status };
    Ok(Json(changed(&app, &caller, id, change).await?.into()))
}

/// Removes a schedule. Runs that have begun go on.
#[utoipa::path(delete, path = "/v1/schedules/{id}", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = NO_CONTENT), (status = NOT_FOUND, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn delete(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<StatusCode> {
    removed(&app, &caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a schedule fire. What was due while it did not is not made up for.
#[utoipa::path(post, path = "/v1/schedules/{id}/online", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = OK, body = ScheduleView), (status = NOT_FOUND, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn online(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<Json<ScheduleView>> {
    Ok(Json(switched(&app, &caller, id, ScheduleStatus::Online).await?.into()))
}

/// Keeps a schedule from firing. Runs that have begun go on.
#[utoipa::path(post, path = "/v1/schedules/{id}/offline", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = OK, body = ScheduleView), (status = NOT_FOUND, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn offline(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<Json<ScheduleView>> {
    Ok(Json(switched(&app, &caller, id, ScheduleStatus::Offline).await?.into()))
}

/// Runs a schedule now, online or not. Refused where it would overlap and the schedule does not let it.
#[utoipa::path(post, path = "/v1/schedules/{id}/run", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = CREATED, body = RunView), (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn run(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<(StatusCode, Json<RunView>)> {
    Ok((StatusCode::CREATED, Json(started(&app, &caller, id).await?)))
}

/// Shows when a schedule fires next. One that is not online: as if it came online now.
#[utoipa::path(get, path = "/v1/schedules/{id}/next", tag = "schedules", params(("id" = i64, Path),
    ("count" = Option<i64>, Query, description = "1 to 1000, default 10")), responses((status = OK, body = Firings),
    (status = NOT_FOUND, body = Problem), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn next(
    State(app): Shared,
    caller: Caller,
    Number(id): Number,
    mut query: Query,
) -> Answer<Json<Firings>> {
    let count = query.limit("count", FIRINGS_DEFAULT as usize, limits::PREVIEW_MAX)?;
    let (schedule, now) = found(&app, &caller, id).await?;
    Ok(Json(timers::firings(&schedule, now, count)?))
}

/// An expression to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewInput {
    cron: String,
    /// The zone's name; without it the server's.
    timezone: Option<String>,
    #[serde(default = "firings_default")]
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    count: i64,
    /// From this time on; without it from now.
    from: Option<crate::shapes::At>,
}

fn firings_default() -> i64 {
    FIRINGS_DEFAULT
}

/// When an expression fires.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    firings: Vec<crate::shapes::At>,
}

/// Shows when an expression would fire.
#[utoipa::path(post, path = "/v1/cron/preview", tag = "schedules", request_body = PreviewInput, responses(
    (status = OK, body = Preview), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn preview(State(app): Shared, Body(input): Body<PreviewInput>) -> Answer<Json<Preview>> {
    let cron = Cron::parse(&input.cron)?;
    let zone = zone::find("timezone", input.timezone.as_deref().unwrap_or(&app.timezone))?;
    field::range("count", input.count, 1, limits::PREVIEW_MAX as i64)?;
    let from = input.from.map_or_else(here, |at| at.0);
    field::time("from", from)?;
    let first = cron.next_from(from, &zone);
    let firings = std::iter::successors(first, |due| cron.next_after(*due, &zone));
    let is_known = |due: &Time| due.0 <= limits::TIME_MS_MAX;
    let count = usize::try_from(input.count).unwrap_or(1);
    Ok(Json(Preview { firings: firings.take_while(is_known).take(count).map(crate::shapes::At).collect() }))
}

/// A schedule that the caller may see, with the database's time.
async fn found(app: &App, caller: &Caller, id: i64) -> Answer<(Schedule, Time)> {
    app.engine.store().schedule(caller.tenant(), id).await?.ok_or_else(|| no_schedule(id))
}

async fn changed(app: &App, caller: &Caller, id: i64, change: ScheduleEdit) -> Answer<Schedule> {
    let changed = app.engine.store().edit_schedule(caller.actor(), caller.tenant(), id, change).await?;
    changed.ok_or_else(|| no_schedule(id))
}

async fn switched(app: &App, caller: &Caller, id: i64, status: ScheduleStatus) -> Answer<Schedule> {
    changed(app, caller, id, ScheduleEdit { status: Some(status), ..ScheduleEdit::default() }).await
}

async fn removed(app: &App, caller: &Caller, id: i64) -> Answer<()> {
    let is_removed = app.engine.store().delete_schedule(caller.actor(), caller.tenant(), id).await?;
    if is_removed { Ok(()) } else { Err(no_schedule(id)) }
}

/// Runs a schedule now.
async fn started(app: &Arc<App>, caller: &Caller, id: i64) -> Answer<RunView> {
    let refused = |why: &str| Err(Problem::conflict(format!("schedule {id} was not run: {why}")));
    let (schedule, now) = found(app, caller, id).await?;
    let store = app.engine.store();
    let tasks = match schedule.definition.shards {
        None => 1,
        Some(Shards::Fixed(total)) => total as usize,
        Some(Shards::PerWorker(_)) => {
            let Schedule { tenant, definition, .. } = &schedule;
            let types = store.types().await?;
            let of_type = types.iter().find(|one| one.task_type == definition.task_type);
            let category = of_type.and_then(|one| one.settings.category.as_deref());
            let serves = |worker: &&Worker| worker.serves(definition, category, tenant, now);
            store.workers().await?.iter().filter(serves).count().min(limits::SHARDS_MAX as usize)
        }
    };
    app.quotas.admit(app, &schedule.tenant, "shards", tasks.max(1)).await?;
    match store.run_schedule(caller.actor(), caller.tenant(), id).await? {
        None => Err(no_schedule(id)),
        Some(RunNow::Run(run)) => Ok(run.into()),
        Some(RunNow::Overlaps) => refused("another run of it goes on, and its overlap is skip"),
        Some(RunNow::QueueFull) => {
            refused(&format!("its queue is full: {} runs wait already", limits::RUNS_QUEUED_MAX))
        }
        Some(RunNow::NoWorkers) => refused("no worker of its type is alive, and it has one task for each"),
    }
}

fn no_schedule(id: i64) -> Problem {
    Problem::not_found(format!("there is no schedule {id}"))
}
