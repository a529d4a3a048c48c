//! Actions on everything that a filter matches.

use crate::Shared;
use crate::access::Caller;
use crate::input::{Body, shape};
use crate::problem::{Answer, Problem};
use crate::shapes::{At, FilterInput, priority, text};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use taskwheel_store::access::BulkAudit;
use taskwheel_store::people::{Action, Edit};
use taskwheel_store::search::Filter;
use utoipa::ToSchema;

/// An action on many tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkInput {
    filter: FilterInput,
    action: BulkAction,
    /// Must be true when the filter is empty.
    #[serde(default)]
    all: bool,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
    /// For `reschedule`.
    run_at: Option<At>,
    /// For `set_priority`.
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<i64>,
    /// For `resolve`.
    remark: Option<String>,
    /// For `resolve`.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkAction {
    Cancel,
    Retry,
    RunNow,
    Reschedule,
    SetPriority,
    Resolve,
}

impl BulkInput {
    /// What is done, with all that it needs and nothing that it does not.
    fn action(&mut self) -> Answer<Action> {
        let (run_at, priority_given) = (self.run_at.take(), self.priority.take());
        let (remark, result) = (self.remark.take(), self.result.take());
        let given = [
            ("run_at", run_at.is_some(), BulkAction::Reschedule),
            ("priority", priority_given.is_some(), BulkAction::SetPriority),
            ("remark", remark.is_some(), BulkAction::Resolve),
            ("result", result.is_some(), BulkAction::Resolve),
        ];
        if let Some((name, ..)) = given.iter().find(|(_, given, of)| *given && *of != self.action) {
            return Err(Problem::field(name, "does not belong to this action"));
        }
        Ok(match self.action {
            BulkAction::Cancel => Action::Cancel,
            BulkAction::Retry => Action::Retry,
            BulkAction::RunNow => Action::RunNow,
            BulkAction::Resolve => Action::Resolve { remark, result: result.map(text) },
            BulkAction::Reschedule => {
                let At(time) = run_at.ok_or_else(|| Problem::field("run_at", "is needed to reschedule"))?;
                Action::Edit(Edit { run_at: Some(time), ..Edit::default() })
            }
            BulkAction::SetPriority => {
                let value = priority_given.ok_or_else(|| Problem::field("priority", "is needed to set it"))?;
                Action::Edit(Edit { priority: Some(priority(value)), ..Edit::default() })
            }
        })
    }
}

/// What an action on many tasks did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BulkView {
    matched: u64,
    changed: u64,
}

/// Does something to all tasks that a filter matches, among those that exist when it begins.
#[utoipa::path(post, path = "/v1/tasks/bulk", tag = "tasks", request_body = BulkInput, responses(
    (status = OK, body = BulkView), (status = BAD_REQUEST, body = Problem),
    (status = UNPROCESSABLE_ENTITY, body = Problem), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn bulk(State(app): Shared, caller: Caller, Body(call): Body<Value>) -> Answer<Json<BulkView>> {
    let mut input: BulkInput = shape(call.clone())?;
    let action = input.action()?;
    let filter = input.filter.into_filter()?;
    if filter == Filter::default() && !input.all {
        return Err(Problem::field("filter", "must not be empty; to act on all tasks, say so with all:true"));
    }
    let audit = (!input.dry_run).then(|| BulkAudit::new(caller.actor(), call));
    let (matched, changed) = tokio::select! {
        done = app.engine.bulk(caller.tenant(), filter, action, audit) => done?,
        // A token that is revoked meanwhile begins no further chunk. What the others did is in the log.
        () = app.gate.ends(&app, &caller) => return Err(Problem::unauthorized()),
    };
    Ok(Json(BulkView { matched, changed }))
}
