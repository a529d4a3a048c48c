//! The interface of the scheduling centre: the same calls as `/v1/schedules`, in other words.
//!
//! A task there is a schedule here. Every answer is `{code, msg, data}`: code 200, or the HTTP status of an error, with what is wrong in
//! `msg`. The errors of the way here, as those of tokens and roles, are put into that shape by [`answer`].

mod meant;
mod task;

use super::{changed, removed, started, switched};
use crate::access::Caller;
use crate::input::Body;
use crate::problem::{Answer, BadField, Problem};
use crate::{App, Shared};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use meant::{CentreTarget, Meant};
use serde::Serialize;
use serde_json::{Value, json};
use task::CentreInput;
use taskwheel_model::ScheduleStatus;
use taskwheel_store::schedule::{NewSchedule, ScheduleEdit};
use utoipa::ToSchema;

/// What stands before all its paths.
pub(crate) const PATH: &str = "/task-scheduler/";

/// An answer of the centre.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CentreAnswer {
    /// 200, or the HTTP status of an error.
    code: u16,
    /// What is wrong; else empty.
    msg: String,
    data: Option<CentreData>,
}

/// What a call of the centre was about.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CentreData {
    task_id: i64,
    /// The run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<i64>,
}

type Answered = Answer<Json<CentreAnswer>>;

fn well(task_id: i64, run_id: Option<i64>) -> Json<CentreAnswer> {
    Json(CentreAnswer { code: StatusCode::OK.as_u16(), msg: String::new(), data: Some(CentreData { task_id, run_id }) })
}

/// An error in the centre's shape, with the status and the headers it has.
pub(crate) fn answer(refused: Response) -> Response {
    let Some(problem) = refused.extensions().get::<Problem>() else { return refused };
    let answer = CentreAnswer { code: refused.status().as_u16(), msg: problem.detail().to_owned(), data: None };
    let (parts, _) = refused.into_parts();
    let mut response = (parts.status, Json(answer)).into_response();
    for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Makes a task, or changes the one whose id is given.
#[utoipa::path(post, path = "/task-scheduler/task/submitTimerTask", tag = "scheduling centre", request_body = CentreInput,
    responses((status = OK, body = CentreAnswer), (status = BAD_REQUEST, body = CentreAnswer),
        (status = NOT_FOUND, body = CentreAnswer), (status = UNPROCESSABLE_ENTITY, body = CentreAnswer),
        (status = PAYLOAD_TOO_LARGE, body = CentreAnswer), (status = SERVICE_UNAVAILABLE, body = CentreAnswer)))]
pub(crate) async fn submit(State(app): Shared, caller: Caller, Body(input): Body<CentreInput>) -> Answered {
    Ok(well(store(&app, &caller, input).await.map_err(in_its_words)?, None))
}

async fn store(app: &App, caller: &Caller, input: CentreInput) -> Answer<i64> {
    let CentreInput { task_info_conf: task, task_schedule_conf: schedule } = input;
    let status = task.status.map(|status| task::is_on("status", status)).transpose()?.map(|is_on| match is_on {
        true => ScheduleStatus::Online,
        false => ScheduleStatus::Offline,
    });
    let definition = task::definition(&task)?;
    let timers = task::timers(&schedule.timer_list, &app.timezone)?;
    let Some(id) = task.task_id else {
        let timers = timers.into_iter().map(|(_, timer)| timer).collect();
        let (status, tenant) = (status.unwrap_or_default(), caller.submits_for());
        let new = NewSchedule { tenant, definition, timers, status };
        return Ok(app.engine.store().create_schedule(caller.actor(), new).await?.id);
    };
    // What it has no word for stays as it is.
    let fields = json!({"name": definition.name, "type": definition.task_type, "timeout_ms": definition.timeout_ms,
        "children": definition.children});
    let Value::Object(fields) = fields else { return Ok(id) };
    changed(app, caller, id, ScheduleEdit { fields, timers: Some(timers), status }).await.map(|schedule| schedule.id)
}

/// The same errors, with the fields named as the centre names them.
fn in_its_words(problem: Problem) -> Problem {
    if problem.errors().is_empty() {
        return problem;
    }
    let renamed = |error: &BadField| BadField { field: its_name(&error.field), ..error.clone() };
    Problem::fields(problem.errors().iter().map(renamed).collect())
}

fn its_name(field: &str) -> String {
    let part = |part: &str| {
        let (name, index) = part.split_at(part.find('[').unwrap_or(part.len()));
        let name = match name {
            "timers" => "taskScheduleConf.timerList",
            "children" => "subTaskList",
            "name" => "taskName",
            "timeout_ms" => "timeout",
            "app" => "appServiceName",
            "service" => "apiServiceName",
            "method" => "apiMethodName",
            "period_ms" => "period",
            "initial_delay_ms" => "initDelay",
            "delay_ms" => "delay",
            "start_at" => "startDateTime",
            "end_at" => "endDateTime",
            name => name,
        };
        format!("{name}{index}")
    };
    let named = field.split('.').map(part).collect::<Vec<_>>().join(".");
    if field.starts_with("timers") { named } else { format!("taskInfoConf.{named}") }
}

/// Removes a task. Runs that have begun go on.
#[utoipa::path(post, path = "/task-scheduler/task/timerTaskDel", tag = "scheduling centre", request_body = CentreTarget,
    params(("taskId" = Option<i64>, Query)), responses((status = OK, body = CentreAnswer),
        (status = BAD_REQUEST, body = CentreAnswer), (status = NOT_FOUND, body = CentreAnswer),
        (status = UNPROCESSABLE_ENTITY, body = CentreAnswer), (status = SERVICE_UNAVAILABLE, body = CentreAnswer)))]
pub(crate) async fn delete(State(app): Shared, caller: Caller, Meant(id): Meant) -> Answered {
    removed(&app, &caller, id).await?;
    Ok(well(id, None))
}

/// Keeps a task from firing.
#[utoipa::path(post, path = "/task-scheduler/task/disableTask", tag = "scheduling centre", request_body = CentreTarget,
    params(("taskId" = Option<i64>, Query)), responses((status = OK, body = CentreAnswer),
        (status = BAD_REQUEST, body = CentreAnswer), (status = NOT_FOUND, body = CentreAnswer),
        (status = UNPROCESSABLE_ENTITY, body = CentreAnswer), (status = SERVICE_UNAVAILABLE, body = CentreAnswer)))]
pub(crate) async fn disable(State(app): Shared, caller: Caller, Meant(id): Meant) -> Answered {
    switched(&app, &caller, id, ScheduleStatus::Offline).await?;
    Ok(well(id, None))
}

/// Lets a task fire.
#[utoipa::path(post, path = "/task-scheduler/task/enableTask", tag = "scheduling centre", request_body = CentreTarget,
    params(("taskId" = Option<i64>, Query)), responses((status = OK, body = CentreAnswer),
        (status = BAD_REQUEST, body = CentreAnswer), (status = NOT_FOUND, body = CentreAnswer),
        (status = UNPROCESSABLE_ENTITY, body = CentreAnswer), (status = SERVICE_UNAVAILABLE, body = CentreAnswer)))]
pub(crate) async fn enable(State(app): Shared, caller: Caller, Meant(id): Meant) -> Answered {
    switched(&app, &caller, id, ScheduleStatus::Online).await?;
    Ok(well(id, None))
}

/// Runs a task now.
#[utoipa::path(post, path = "/task-scheduler/task/execTaskImmediately", tag = "scheduling centre",
    request_body = CentreTarget, params(("taskId" = Option<i64>, Query)), responses((status = OK, body = CentreAnswer),
        (status = BAD_REQUEST, body = CentreAnswer), (status = NOT_FOUND, body = CentreAnswer),
        (status = CONFLICT, body = CentreAnswer), (status = UNPROCESSABLE_ENTITY, body = CentreAnswer),
        (status = SERVICE_UNAVAILABLE, body = CentreAnswer)))]
pub(crate) async fn run(State(app): Shared, caller: Caller, Meant(id): Meant) -> Answered {
    let run = started(&app, &caller, id).await?;
    Ok(well(id, Some(run.id)))
}
