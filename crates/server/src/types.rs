//! Task types: what they settle for their tasks, and whether they are paused.

use crate::Shared;
use crate::access::Caller;
use crate::input::{Body, TypeName};
use crate::problem::{Answer, Problem};
use crate::shapes::{Retry, priority};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use taskwheel_model::{RetryPolicy, TypeSettings, field};
use taskwheel_store::TaskType;
use taskwheel_store::access::TypeChange;
use utoipa::ToSchema;

/// What a type settles for its tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypeInput {
    name: Option<String>,
    category: Option<String>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    max_attempts: Option<i32>,
    timeout_ms: Option<i64>,
    #[serde(default)]
    need_manual: bool,
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<i64>,
}

impl From<TypeInput> for TypeSettings {
    fn from(input: TypeInput) -> TypeSettings {
        TypeSettings {
            name: input.name,
            category: input.category,
            retry: input.retry,
            max_attempts: input.max_attempts,
            timeout_ms: input.timeout_ms,
            need_manual: input.need_manual,
            priority: input.priority.map(priority),
        }
    }
}

/// A task type.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TypeView {
    r#type: String,
    name: Option<String>,
    category: Option<String>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    max_attempts: Option<i32>,
    timeout_ms: Option<i64>,
    need_manual: bool,
    priority: Option<u8>,
    paused: bool,
}

impl From<TaskType> for TypeView {
    fn from(TaskType { task_type, settings, paused }: TaskType) -> TypeView {
        TypeView {
            r#type: task_type,
            name: settings.name,
            category: settings.category,
            retry: settings.retry,
            max_attempts: settings.max_attempts,
            timeout_ms: settings.timeout_ms,
            need_manual: settings.need_manual,
            priority: settings.priority,
            paused,
        }
    }
}

/// All types that have been configured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TypeList {
    items: Vec<TypeView>,
}

/// Lists the types that have been configured.
#[utoipa::path(get, path = "/v1/types", tag = "types", responses((status = OK, body = TypeList)))]
pub(crate) async fn list(State(app): Shared) -> Answer<Json<TypeList>> {
    let items = app.engine.store().types().await?.into_iter().map(TypeView::from).collect();
    Ok(Json(TypeList { items }))
}

/// Shows a type. One that was never configured works with the defaults, and is not found here.
#[utoipa::path(get, path = "/v1/types/{type}", tag = "types", params(("type" = String, Path)), responses(
    (status = OK, body = TypeView), (status = NOT_FOUND, body = Problem), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn show(State(app): Shared, TypeName(task_type): TypeName) -> Answer<Json<TypeView>> {
    field::task_type("type", &task_type)?;
    let types = app.engine.store().types().await?;
    let found = types.into_iter().find(|one| one.task_type == task_type);
    let missing =
        || Problem::not_found(format!("the type {task_type} was never configured; it works with the defaults"));
    Ok(Json(found.ok_or_else(missing)?.into()))
}

/// Creates a type or replaces its settings.
#[utoipa::path(put, path = "/v1/types/{type}", tag = "types", params(("type" = String, Path)), request_body = TypeInput,
    responses((status = OK, body = TypeView), (status = BAD_REQUEST, body = Problem),
        (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn put(
    State(app): Shared,
    caller: Caller,
    TypeName(task_type): TypeName,
    Body(input): Body<TypeInput>,
) -> Answer<Json<TypeView>> {
    let change = TypeChange { task_type, settings: Some(input.into()), paused: None };
    Ok(Json(app.engine.change_type(Some(caller.actor()), change).await?.into()))
}

/// Holds back the tasks of a type.
#[utoipa::path(post, path = "/v1/types/{type}/pause", tag = "types", params(("type" = String, Path)), responses(
    (status = OK, body = TypeView), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn pause(State(app): Shared, caller: Caller, TypeName(task_type): TypeName) -> Answer<Json<TypeView>> {
    let change = TypeChange { task_type, settings: None, paused: Some(true) };
    Ok(Json(app.engine.change_type(Some(caller.actor()), change).await?.into()))
}

/// Hands out the tasks of a type again.
#[utoipa::path(post, path = "/v1/types/{type}/resume", tag = "types", params(("type" = String, Path)), responses(
    (status = OK, body = TypeView), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn resume(
    State(app): Shared,
    caller: Caller,
    TypeName(task_type): TypeName,
) -> Answer<Json<TypeView>> {
    let change = TypeChange { task_type, settings: None, paused: Some(false) };
    Ok(Json(app.engine.change_type(Some(caller.actor()), change).await?.into()))
}
