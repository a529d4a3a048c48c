//! The log of who changed what.

use crate::Shared;
use crate::access::Caller;
use crate::input::Query;
use crate::problem::{Answer, Problem};
use crate::shapes::At;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taskwheel_store::access::{AuditEntry, AuditQuery};
use utoipa::ToSchema;

/// Lines on a page where nothing else is said.
const LINES_DEFAULT: usize = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditInput {
    action: Option<String>,
    target: Option<String>,
    cursor: Option<String>,
}

/// A page of the log, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    items: Vec<AuditView>,
    /// Where the next page starts; null at the end.
    next_cursor: Option<String>,
}

/// A change that somebody made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditView {
    id: String,
    at: At,
    /// The token that was shown; null where there was none.
    token_id: Option<i64>,
    /// The role of the token, `command line`, or `no token`.
    actor: String,
    tenant: Option<String>,
    /// What was done, as `task.cancel`.
    action: String,
    /// To what: the id of a task, the name of a type, the number of a token.
    target: String,
    /// What was so before and is otherwise now.
    before: Value,
    /// How it is now.
    after: Value,
    /// Filter and counts of an action on many tasks.
    detail: Value,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> AuditView {
        AuditView {
            id: entry.id,
            at: At(entry.at),
            token_id: entry.actor.token_id,
            actor: entry.actor.name,
            tenant: entry.tenant,
            action: entry.action,
            target: entry.target,
            before: entry.before,
            after: entry.after,
            detail: entry.detail,
        }
    }
}

/// Shows who changed what: tasks, types, tokens, quotas.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(("action" = Option<String>, Query),
    ("target" = Option<String>, Query), ("limit" = Option<i64>, Query, description = "1 to 500, default 50"),
    ("cursor" = Option<String>, Query)),
    responses((status = OK, body = AuditPage), (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn audit(State(app): Shared, caller: Caller, mut query: Query) -> Answer<Json<AuditPage>> {
    let number = |text: String| text.parse().map_err(|_| Problem::field("limit", "must be a whole number"));
    let limit = query.take("limit").map_or(Ok(LINES_DEFAULT), number)?;
    let AuditInput { action, target, cursor } = query.into()?;
    // Without tokens there is one tenant, and what is nobody's is shown as well.
    let tenant = caller.tenant().filter(|_| caller.token_id().is_some());
    let query = AuditQuery { tenant, action, target, before: cursor, limit };
    let items: Vec<_> = app.engine.store().audit(query).await?.into_iter().map(AuditView::from).collect();
    let next_cursor = items.last().filter(|_| items.len() == limit).map(|last| last.id.clone());
    Ok(Json(AuditPage { items, next_cursor }))
}
