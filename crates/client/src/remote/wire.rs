//! The JSON of the API, as far as a client writes or reads it in another shape than its own types.

use crate::backend::{Claimed, Renewal, Renewed, Report, Reported};
use crate::error::{BadField, Error};
use crate::people::{Bulk, BulkAction, Resolution};
use crate::search::Filter;
use jiff::Timestamp;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, RetryPolicy, Status, Time};

/// A task to submit.
#[derive(Serialize)]
pub(super) struct TaskBody<'t> {
    r#type: &'t str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'t RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<&'t RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creator: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_key: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<&'t str>,
}

impl<'t> From<&'t NewTask> for TaskBody<'t> {
    fn from(task: &'t NewTask) -> TaskBody<'t> {
        let (run_at, delay_ms) = match task.run_at {
            RunAt::Now => (None, None),
            RunAt::At(time) => (timestamp(time), None),
            RunAt::After(ms) => (None, Some(ms)),
        };
        TaskBody {
            r#type: &task.task_type,
            key: task.key.as_deref(),
            payload: task.payload.as_deref().and_then(|payload| serde_json::from_str(payload).ok()),
            priority: task.priority,
            run_at,
            delay_ms,
            expire_at: task.expire_at.and_then(timestamp),
            max_attempts: task.max_attempts,
            retry: task.retry.as_ref(),
            timeout_ms: task.timeout_ms,
            category: task.category.as_deref(),
            creator: task.creator.as_deref(),
            route_key: task.route_key.as_deref(),
            unique_key: task.unique_key.as_deref(),
            affinity: task.affinity.as_deref(),
        }
    }
}

/// Any time that a checked task can have is one.
fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_millisecond(time.0).ok()
}

/// Tasks to submit together.
#[derive(Serialize)]
pub(super) struct Batch<T> {
    pub(super) tasks: Vec<T>,
}

/// An answer that is a list.
#[derive(Deserialize)]
pub(super) struct Answered<T> {
    pub(super) items: Vec<T>,
}

/// An action on many tasks.
#[derive(Serialize)]
pub(super) struct BulkBody<'b> {
    filter: &'b Filter,
    action: &'static str,
    all: bool,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(flatten)]
    resolution: Option<&'b Resolution>,
}

impl<'b> From<&'b Bulk> for BulkBody<'b> {
    fn from(bulk: &'b Bulk) -> BulkBody<'b> {
        let (mut run_at, mut priority, mut resolution) = (None, None, None);
        let action = match &bulk.action {
            BulkAction::Cancel => "cancel",
            BulkAction::Retry => "retry",
            BulkAction::RunNow => "run_now",
            BulkAction::Reschedule(time) => {
                run_at = Some(*time);
                "reschedule"
            }
            BulkAction::SetPriority(given) => {
                priority = Some(*given);
                "set_priority"
            }
            BulkAction::Resolve(given) => {
                resolution = Some(given);
                "resolve"
            }
        };
        BulkBody { filter: &bulk.filter, action, all: bulk.all, dry_run: bulk.dry_run, run_at, priority, resolution }
    }
}

#[derive(Deserialize)]
pub(super) struct ClaimedTasks {
    pub(super) tasks: Vec<Claimed>,
}

#[derive(Serialize)]
pub(super) struct RenewBody<'w> {
    pub(super) worker_id: &'w str,
    pub(super) items: &'w [Renewal],
}

#[derive(Deserialize)]
pub(super) struct RenewedItem {
    pub(super) state: Renewed,
}

#[derive(Serialize)]
pub(super) struct ReportBody<'w> {
    pub(super) items: &'w [Report],
}

#[derive(Deserialize)]
pub(super) struct ReportedItem {
    state: ReportState,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReportState {
    Accepted,
    Superseded,
}

impl From<ReportedItem> for Reported {
    fn from(item: ReportedItem) -> Reported {
        match (item.state, item.status) {
            (ReportState::Accepted, Some(status)) => Reported::Accepted(status),
            _ => Reported::Superseded,
        }
    }
}

/// A refusal as `application/problem+json`.
#[derive(Deserialize)]
pub(super) struct Problem {
    detail: Option<String>,
    code: Option<String>,
    #[serde(default)]
    errors: Vec<BadField>,
}

impl Problem {
    /// What an answer that is no success means.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Error {
        // A proxy in between has no problem+json, but its status says the same.
        let problem = serde_json::from_slice::<Problem>(body).ok();
        let (detail, code, errors) =
            problem.map_or((None, None, Vec::new()), |problem| (problem.detail, problem.code, problem.errors));
        let detail = detail.unwrap_or_else(|| format!("the server answers {status}"));
        match status {
            StatusCode::UNPROCESSABLE_ENTITY if !errors.is_empty() => Error::Invalid(errors),
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::BAD_REQUEST => Error::field("body", detail),
            StatusCode::NOT_FOUND => Error::NotFound(detail),
            StatusCode::CONFLICT => Error::Conflict(detail),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Denied(detail),
            StatusCode::TOO_MANY_REQUESTS => Error::Unavailable(detail),
            StatusCode::SERVICE_UNAVAILABLE if code.as_deref() == Some("unavailable") => Error::Unavailable(detail),
            status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
                Error::OutcomeUnknown(detail)
            }
            _ => Error::Unexpected(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart_by_what_can_be_done() {
        let read = |status: u16, body: &str| Problem::read(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        let bad =
            r#"{"detail":"x","code":"invalid_field","errors":[{"index":2,"field":"priority","message":"too high"}]}"#;
        assert_eq!(read(422, bad).to_string(), "item 2, priority: too high");
        assert!(matches!(read(401, "{}"), Error::Denied(_)));
        assert!(
            matches!(read(409, r#"{"detail":"task 7 is Success"}"#), Error::Conflict(detail) if detail.contains("7"))
        );
        assert!(matches!(read(503, r#"{"code":"unavailable"}"#), Error::Unavailable(_)), "nothing was changed");
        assert!(matches!(read(503, r#"{"code":"outcome_unknown"}"#), Error::OutcomeUnknown(_)));
        assert!(matches!(read(502, "<html>"), Error::OutcomeUnknown(_)), "a proxy in between");
    }

    #[test]
    fn a_resolution_is_written_flat() {
        let bulk = Bulk::new(Filter::of_type("mail"), BulkAction::Resolve(Resolution::remark("done by hand")));
        let body = serde_json::to_value(BulkBody::from(&bulk)).unwrap();
        assert_eq!(body["remark"], "done by hand");
        assert_eq!(body["filter"]["type"], "mail");
        assert!(body.get("resolution").is_none());
    }
}
