//! Runs: what came of the firings of schedules.

use super::view::RunView;
use crate::access::Caller;
use crate::input::{Number, Query};
use crate::problem::{Answer, Problem};
use crate::{App, Shared};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use taskwheel_model::{RunStatus, limits};
use taskwheel_store::schedule::RunQuery;
use utoipa::ToSchema;

/// Schedules or runs on a page where nothing else is said.
pub(super) const PAGE_ROWS_DEFAULT: usize = 50;

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    items: Vec<RunView>,
    /// Where the next page starts; null at the end.
    next_cursor: Option<String>,
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/v1/runs", tag = "schedules", params(("schedule_id" = Option<i64>, Query),
    ("status" = Option<String>, Query, description = "one of the words for how a run stands"),
    ("limit" = Option<i64>, Query, description = "1 to 500, default 50"), ("cursor" = Option<String>, Query)),
    responses((status = OK, body = RunPage), (status = UNPROCESSABLE_ENTITY, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn list(State(app): Shared, caller: Caller, mut query: Query) -> Answer<Json<RunPage>> {
    let number = |text: String| text.parse().map_err(|_| Problem::field("schedule_id", "must be a whole number"));
    let schedule_id = query.take("schedule_id").map(number).transpose()?;
    page(&app, &caller, schedule_id, query).await
}

/// Lists the runs of a schedule, newest first.
#[utoipa::path(get, path = "/v1/schedules/{id}/runs", tag = "schedules", params(("id" = i64, Path),
    ("status" = Option<String>, Query, description = "one of the words for how a run stands"),
    ("limit" = Option<i64>, Query, description = "1 to 500, default 50"), ("cursor" = Option<String>, Query)),
    responses((status = OK, body = RunPage), (status = NOT_FOUND, body = Problem),
        (status = UNPROCESSABLE_ENTITY, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn of_schedule(
    State(app): Shared,
    caller: Caller,
    Number(id): Number,
    query: Query,
) -> Answer<Json<RunPage>> {
    super::found(&app, &caller, id).await?;
    page(&app, &caller, Some(id), query).await
}

async fn page(app: &App, caller: &Caller, schedule_id: Option<i64>, mut query: Query) -> Answer<Json<RunPage>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Filter {
        status: Option<String>,
    }
    let (limit, before) = (query.limit("limit", PAGE_ROWS_DEFAULT, limits::PAGE_ROWS_MAX)?, cursor(&mut query)?);
    let Filter { status } = query.into()?;
    let unknown = || Problem::field("status", "must be queued, running, done, failed, timed_out, skipped or cancelled");
    let status = status.map(|text| RunStatus::from_word(&text).ok_or_else(unknown)).transpose()?;
    let query = RunQuery { tenant: caller.tenant(), schedule_id, status, before, limit };
    let items: Vec<_> = app.engine.store().runs(query).await?.into_iter().map(RunView::from).collect();
    let next_cursor = items.last().filter(|_| items.len() == limit).map(|last| last.id.to_string());
    Ok(Json(RunPage { items, next_cursor }))
}

/// Where a page starts: after the id that the last one ended with.
pub(super) fn cursor(query: &mut Query) -> Answer<Option<i64>> {
    let read = |text: String| text.parse().map_err(|_| Problem::field("cursor", "is not one that a page ended with"));
    query.take("cursor").map(read).transpose()
}

/// Shows a run with its whole tree.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = OK, body = RunView), (status = NOT_FOUND, body = Problem)))]
pub(crate) async fn show(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<Json<RunView>> {
    let run = app.engine.store().run(caller.tenant(), id).await?;
    Ok(Json(run.ok_or_else(|| no_run(id))?.into()))
}

/// Calls off what has not ended of a run. One that has ended stays as it is.
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", tag = "schedules", params(("id" = i64, Path)), responses(
    (status = OK, body = RunView), (status = NOT_FOUND, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn cancel(State(app): Shared, caller: Caller, Number(id): Number) -> Answer<Json<RunView>> {
    let run = app.engine.store().cancel_run(caller.actor(), caller.tenant(), id).await?;
    Ok(Json(run.ok_or_else(|| no_run(id))?.into()))
}

fn no_run(id: i64) -> Problem {
    Problem::not_found(format!("there is no run {id}"))
}
