//! Tasks: submit, look, and step in.

use crate::access::Caller;
use crate::input::{Body, Id, MaybeBody, Query};
use crate::problem::{Answer, BadField, Problem};
use crate::shapes::{EditInput, FilterInput, Origin, TaskInput, TaskView, text};
use crate::spans::Submitting;
use crate::{App, Shared};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use taskwheel_model::{FieldError, NewTask, TaskId, limits};
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::search::{Filter, Listing, Sort};
use taskwheel_store::task::{Submitted, TaskDetail};
use utoipa::ToSchema;

/// Tasks on a page where nothing else is said.
const PAGE_ROWS_DEFAULT: usize = 50;

/// What is said of a key whose task is not for the caller to see.
const KEY_OF_ANOTHER: &str = "the key was used by another token, whose task this one may not see";

/// Submits a task. A `unique_key` that is already live answers the task that has it. The same `Idempotency-Key` is answered
/// with the same task for 24 hours, and refused for another task.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks", request_body = TaskInput,
    params(("Idempotency-Key" = Option<String>, Header), ("traceparent" = Option<String>, Header)), responses(
    (status = CREATED, body = TaskView), (status = OK, body = TaskView, description = "its unique_key is already live"),
    (status = BAD_REQUEST, body = Problem), (status = UNPROCESSABLE_ENTITY, body = Problem),
    (status = PAYLOAD_TOO_LARGE, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn submit(
    State(app): Shared,
    caller: Caller,
    headers: HeaderMap,
    Body(input): Body<TaskInput>,
) -> Answer<(StatusCode, Json<TaskView>)> {
    let bad = |errors: Vec<_>| Problem::fields(errors.into_iter().map(|error| BadField::of(None, error)).collect());
    let (origin, submitting) = origin(&app, &caller, &headers);
    let task = input.into_task(&origin).map_err(bad)?;
    let key = headers.get("idempotency-key").map(idempotency_key).transpose()?;
    let store = app.engine.store();
    let answered = match &key {
        Some(key) => store.answer(task.tenant.clone(), key.clone(), task.fingerprint()).await?,
        None => None,
    };
    let (submitted, shown) = match (answered, key) {
        // A repeated call is no new submit, and none of the tenant's quota.
        (Some(answer), _) => (answer, None),
        (None, key) => {
            app.quotas.admit(&app, &task.tenant, "tasks", 1).await?;
            match key {
                Some(key) => (app.engine.submit_once(key, task).await?, None),
                None => app.engine.submit_and_show(task).await?,
            }
        }
    };
    app.spans.submitted(submitting, 1);
    let status = if submitted.created { StatusCode::CREATED } else { StatusCode::OK };
    let view = match shown {
        Some(task) => TaskView::from(TaskDetail { task, attempts_log: Vec::new() }),
        None => answered_task(&app, &caller, submitted.id).await?,
    };
    Ok((status, Json(view)))
}

/// Where tasks come from, and the submit as a part of their trace.
fn origin(app: &App, caller: &Caller, headers: &HeaderMap) -> (Origin, Option<Submitting>) {
    let header = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let (trace_parent, submitting) = app.spans.submits(header);
    (Origin { tenant: caller.submits_for(), token_id: caller.token_id(), trace_parent }, submitting)
}

/// The task that a key answers: it may be gone by now, or be another token's and not for this one to see.
async fn answered_task(app: &App, caller: &Caller, id: TaskId) -> Answer<TaskView> {
    if let Some(found) = find(app, caller, id).await? {
        return Ok(found);
    }
    match app.engine.store().get(caller.tenant(), id).await? {
        Some(_) => Err(Problem::conflict(KEY_OF_ANOTHER)),
        None => Err(Problem::not_found(format!("the key was answered with task {id}, which is gone"))),
    }
}

fn idempotency_key(value: &HeaderValue) -> Answer<String> {
    let message = format!("must have 1 to {} visible ASCII characters", limits::KEY_CHARS_MAX);
    let key = value.to_str().ok().filter(|key| (1..=limits::KEY_CHARS_MAX).contains(&key.len()));
    key.map(str::to_owned).ok_or_else(|| Problem::field("Idempotency-Key", message))
}

/// Tasks to submit together.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchInput {
    #[schema(min_items = 1, max_items = 10000)]
    tasks: Vec<TaskInput>,
    /// Whether the good ones are stored when some are bad; otherwise all or none.
    #[serde(default)]
    partial: bool,
}

/// What became of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchView {
    items: Vec<BatchItem>,
    errors: Vec<BadField>,
}

/// What became of one task of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchItem {
    index: usize,
    #[schema(value_type = i64)]
    id: TaskId,
    created: bool,
}

/// Submits many tasks, all or none unless `partial`.
#[utoipa::path(post, path = "/v1/tasks/batch", tag = "tasks", request_body = BatchInput,
    params(("traceparent" = Option<String>, Header)), responses(
    (status = CREATED, body = BatchView), (status = BAD_REQUEST, body = Problem), (status = CONFLICT, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = PAYLOAD_TOO_LARGE, body = Problem),
    (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn submit_batch(
    State(app): Shared,
    caller: Caller,
    headers: HeaderMap,
    Body(input): Body<BatchInput>,
) -> Answer<(StatusCode, Json<BatchView>)> {
    if input.tasks.is_empty() {
        return Err(Problem::field("tasks", "must not be empty"));
    }
    if input.tasks.len() > limits::SUBMIT_BATCH_MAX {
        let message = format!("must have at most {} items, has {}", limits::SUBMIT_BATCH_MAX, input.tasks.len());
        return Err(Problem::field("tasks", message));
    }
    let (origin, submitting) = origin(&app, &caller, &headers);
    let (mut tasks, mut errors) = (Vec::new(), Vec::new());
    for (index, task) in input.tasks.into_iter().enumerate() {
        match task.into_task(&origin) {
            Ok(task) => tasks.push((index, task)),
            Err(bad) => errors.extend(bad.into_iter().map(|error| BadField::of(Some(index), error))),
        }
    }
    if !errors.is_empty() && !input.partial {
        return Err(Problem::fields(errors));
    }
    let taken = keys_of_others(&app, &caller, &tasks).await?;
    if let (Some(index), false) = (taken.first(), input.partial) {
        return Err(Problem::conflict(format!("item {index}: {KEY_OF_ANOTHER}")));
    }
    tasks.retain(|(index, _)| !taken.contains(index));
    let refused = |index| BadField::of(Some(index), FieldError::new("unique_key", KEY_OF_ANOTHER));
    errors.extend(taken.iter().copied().map(refused));
    errors.sort_by_key(|error| error.index);
    let (indexes, tasks): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
    app.quotas.admit(&app, &origin.tenant, "tasks", tasks.len()).await?;
    let submitted = if tasks.is_empty() { Vec::new() } else { app.engine.submit(tasks).await? };
    app.spans.submitted(submitting, submitted.len());
    let item = |(index, Submitted { id, created })| BatchItem { index, id, created };
    let items = indexes.into_iter().zip(submitted).map(item).collect();
    Ok((StatusCode::CREATED, Json(BatchView { items, errors })))
}

/// Those of a batch whose unique key is live in a task that the caller may not see, by their indexes.
async fn keys_of_others(app: &App, caller: &Caller, tasks: &[(usize, NewTask)]) -> Answer<BTreeSet<usize>> {
    let unique =
        |(index, task): &(usize, NewTask)| task.unique_key.clone().map(|key| (*index, (task.task_type.clone(), key)));
    let (indexes, keys): (Vec<_>, Vec<_>) = tasks.iter().filter_map(unique).unzip();
    let Some(token_id) = caller.reads_only().filter(|_| !keys.is_empty()) else { return Ok(BTreeSet::new()) };
    let places = app.engine.store().keys_of_others(caller.submits_for(), token_id, keys).await?;
    Ok(places.into_iter().map(|place| indexes[place]).collect())
}

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskPage {
    items: Vec<TaskView>,
    /// Where the next page starts; null at the end.
    next_cursor: Option<String>,
}

/// Lists tasks, live and finished alike. A page whose filter has no index of its own may be short while there is a next one.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks", params(
    ("status" = Option<String>, Query, description = "statuses with commas between them, `live`, `finished`"),
    ("type" = Option<String>, Query), ("category" = Option<String>, Query), ("key" = Option<String>, Query),
    ("creator" = Option<String>, Query), ("host" = Option<String>, Query), ("priority" = Option<i64>, Query),
    ("run_at_from" = Option<String>, Query), ("run_at_to" = Option<String>, Query),
    ("created_from" = Option<String>, Query), ("created_to" = Option<String>, Query),
    ("schedule_id" = Option<i64>, Query), ("text" = Option<String>, Query),
    ("sort" = Option<String>, Query, description = "`-id` (default), `id`, `run_at`, `-run_at`"),
    ("limit" = Option<i64>, Query, description = "1 to 500, default 50"), ("cursor" = Option<String>, Query)),
    responses((status = OK, body = TaskPage), (status = UNPROCESSABLE_ENTITY, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn list(State(app): Shared, caller: Caller, mut query: Query) -> Answer<Json<TaskPage>> {
    let sort = match query.take("sort").as_deref() {
        None | Some("-id") => Sort::IdDescending,
        Some("id") => Sort::IdAscending,
        Some("run_at") => Sort::RunAtAscending,
        Some("-run_at") => Sort::RunAtDescending,
        Some(_) => return Err(Problem::field("sort", "must be -id, id, run_at or -run_at")),
    };
    let number = |text: String| text.parse().map_err(|_| Problem::field("limit", "must be a whole number"));
    let limit = query.take("limit").map_or(Ok(PAGE_ROWS_DEFAULT), number)?;
    let cursor = query.take("cursor").map(|cursor| cursor.parse()).transpose()?;
    let filter = Filter { token_id: caller.reads_only(), ..query.into::<FilterInput>()?.into_filter()? };
    let listing = Listing { tenant: caller.tenant(), filter, sort, limit, cursor };
    let page = app.engine.store().list(listing).await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    Ok(Json(TaskPage { items: page.items.into_iter().map(TaskView::from).collect(), next_cursor }))
}

/// Shows a task with every attempt it has had.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = i64, Path)), responses(
    (status = OK, body = TaskView), (status = NOT_FOUND, body = Problem)))]
pub(crate) async fn show(State(app): Shared, caller: Caller, Id(id): Id) -> Answer<Json<TaskView>> {
    Ok(Json(found(&app, &caller, id).await?))
}

/// Changes a task. While it runs, the change counts from its next attempt on.
#[utoipa::path(patch, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = i64, Path)), request_body = EditInput,
    responses((status = OK, body = TaskView), (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn edit(
    State(app): Shared,
    caller: Caller,
    Id(id): Id,
    Body(input): Body<EditInput>,
) -> Answer<Json<TaskView>> {
    act(&app, &caller, id, Action::Edit(input.into())).await
}

/// Removes a finished task for good.
#[utoipa::path(delete, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = i64, Path)), responses(
    (status = NO_CONTENT), (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem)))]
pub(crate) async fn delete(State(app): Shared, caller: Caller, Id(id): Id) -> Answer<StatusCode> {
    change(&app, &caller, id, Action::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Calls a task off.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", params(("id" = i64, Path)), responses(
    (status = OK, body = TaskView), (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem)))]
pub(crate) async fn cancel(State(app): Shared, caller: Caller, Id(id): Id) -> Answer<Json<TaskView>> {
    act(&app, &caller, id, Action::Cancel).await
}

/// Runs a task again from the start.
#[utoipa::path(post, path = "/v1/tasks/{id}/retry", tag = "tasks", params(("id" = i64, Path)), responses(
    (status = OK, body = TaskView), (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem)))]
pub(crate) async fn retry(State(app): Shared, caller: Caller, Id(id): Id) -> Answer<Json<TaskView>> {
    act(&app, &caller, id, Action::Retry).await
}

/// Makes a task due now.
#[utoipa::path(post, path = "/v1/tasks/{id}/run-now", tag = "tasks", params(("id" = i64, Path)), responses(
    (status = OK, body = TaskView), (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem)))]
pub(crate) async fn run_now(State(app): Shared, caller: Caller, Id(id): Id) -> Answer<Json<TaskView>> {
    act(&app, &caller, id, Action::RunNow).await
}

/// What a person says about a task that was dealt with.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ResolveInput {
    remark: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// Marks a task as dealt with by a person.
#[utoipa::path(post, path = "/v1/tasks/{id}/resolve", tag = "tasks", params(("id" = i64, Path)),
    request_body = ResolveInput, responses((status = OK, body = TaskView), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem), (status = CONFLICT, body = Problem),
        (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn resolve(
    State(app): Shared,
    caller: Caller,
    Id(id): Id,
    MaybeBody(input): MaybeBody<ResolveInput>,
) -> Answer<Json<TaskView>> {
    act(&app, &caller, id, Action::Resolve { remark: input.remark, result: input.result.map(text) }).await
}

/// Does something to a task, and shows it as it is then.
async fn act(app: &App, caller: &Caller, id: TaskId, action: Action) -> Answer<Json<TaskView>> {
    change(app, caller, id, action).await?;
    Ok(Json(found(app, caller, id).await?))
}

async fn change(app: &App, caller: &Caller, id: TaskId, action: Action) -> Answer<()> {
    let word = action.word();
    match app.engine.act(caller.actor(), caller.tenant(), id, action).await? {
        Acted::Changed(_) => {
            tracing::info!(task_id = id.0, action = word, token_id = caller.token_id(), "a task was changed");
            Ok(())
        }
        Acted::Unchanged(_) => Ok(()),
        Acted::Conflict(status) => {
            Err(Problem::conflict(format!("{word} is not possible while task {id} is {status}")))
        }
        Acted::UniqueKeyTaken(_) => {
            Err(Problem::conflict(format!("the unique_key of task {id} is live in another task")))
        }
        Acted::NotFound => Err(no_task(id)),
    }
}

async fn found(app: &App, caller: &Caller, id: TaskId) -> Answer<TaskView> {
    find(app, caller, id).await?.ok_or_else(|| no_task(id))
}

/// A task, if it is for the caller to see.
async fn find(app: &App, caller: &Caller, id: TaskId) -> Answer<Option<TaskView>> {
    let detail = app.engine.store().get(caller.tenant(), id).await?;
    let own = caller.reads_only();
    Ok(detail.filter(|detail| own.is_none() || detail.task.token_id == own).map(TaskView::from))
}

fn no_task(id: TaskId) -> Problem {
    Problem::not_found(format!("there is no task {id}"))
}
