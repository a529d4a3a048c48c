//! The store's types as the client's, and the other way.

use crate::backend::{self, Claimed, Renewed, Reported, ReportedOutcome};
use crate::people::{BulkAction, Resolution};
use crate::search::{Filter, Sort};
use crate::task::{Attempt, Submitted, Task, TaskType};
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use taskwheel_model::{Outcome, Time};
use taskwheel_store::{people, search, task, worker};

/// Every time that the store has is one: it stores none beyond the year 2999.
fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or(Timestamp::MAX)
}

fn time(timestamp: Timestamp) -> Time {
    Time(timestamp.as_millisecond())
}

/// A JSON value that was stored as text.
fn value(text: String) -> Option<Value> {
    serde_json::from_str(&text).ok()
}

fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

fn text(value: &RawValue) -> String {
    value.get().to_owned()
}

/// A JSON value as it is stored. A null is none, as to a server.
fn stored(value: Option<&Value>) -> Option<String> {
    value.filter(|value| !value.is_null()).map(Value::to_string)
}

impl From<task::Submitted> for Submitted {
    fn from(task::Submitted { id, created }: task::Submitted) -> Submitted {
        Submitted { id, created }
    }
}

impl From<task::Task> for Task {
    fn from(task: task::Task) -> Task {
        Task {
            id: task.id,
            tenant: task.tenant,
            task_type: task.task_type,
            key: task.key,
            payload: task.payload.and_then(value),
            status: task.status,
            priority: task.priority,
            run_at: timestamp(task.run_at),
            expire_at: task.expire_at.map(timestamp),
            max_attempts: task.max_attempts,
            retry: task.retry,
            timeout_ms: task.timeout_ms,
            category: task.category,
            creator: task.creator,
            route_key: task.route_key,
            unique_key: task.unique_key,
            affinity: task.affinity,
            round: task.round,
            attempts: task.attempts,
            error_count: task.error_count,
            error_info: task.error_info,
            result: task.result.and_then(value),
            checkpoint: task.checkpoint.and_then(value),
            progress: task.progress.and_then(value),
            host: task.host,
            worker_id: task.worker_id,
            exec_id: task.exec_id,
            lease_until: task.lease_until.map(timestamp),
            started_at: task.started_at.map(timestamp),
            finished_at: task.finished_at.map(timestamp),
            exec_ms: task.exec_ms,
            created_at: timestamp(task.created_at),
            updated_at: timestamp(task.updated_at),
            remark: task.remark,
            attempts_log: Vec::new(),
        }
    }
}

impl From<task::TaskDetail> for Task {
    fn from(detail: task::TaskDetail) -> Task {
        let attempts_log = detail.attempts_log.into_iter().map(Attempt::from).collect();
        Task { attempts_log, ..Task::from(detail.task) }
    }
}

impl From<task::Attempt> for Attempt {
    fn from(attempt: task::Attempt) -> Attempt {
        Attempt {
            round: attempt.round,
            attempt: attempt.attempt,
            exec_id: attempt.exec_id,
            host: attempt.host,
            worker_id: attempt.worker_id,
            started_at: timestamp(attempt.started_at),
            finished_at: attempt.finished_at.map(timestamp),
            outcome: attempt.outcome,
            error: attempt.error,
        }
    }
}

impl From<taskwheel_store::TaskType> for TaskType {
    fn from(stored: taskwheel_store::TaskType) -> TaskType {
        TaskType { task_type: stored.task_type, settings: stored.settings, paused: stored.paused }
    }
}

impl From<Filter> for search::Filter {
    fn from(filter: Filter) -> search::Filter {
        search::Filter {
            statuses: filter.statuses,
            task_type: filter.task_type,
            category: filter.category,
            key: filter.key,
            creator: filter.creator,
            host: filter.host,
            priority: filter.priority,
            run_at_from: filter.run_at_from.map(time),
            run_at_to: filter.run_at_to.map(time),
            created_from: filter.created_from.map(time),
            created_to: filter.created_to.map(time),
            schedule_id: None,
            token_id: None,
            text: filter.text,
        }
    }
}

impl From<Sort> for search::Sort {
    fn from(sort: Sort) -> search::Sort {
        match sort {
            Sort::NewestFirst => search::Sort::IdDescending,
            Sort::OldestFirst => search::Sort::IdAscending,
            Sort::EarliestDueFirst => search::Sort::RunAtAscending,
            Sort::LatestDueFirst => search::Sort::RunAtDescending,
        }
    }
}

impl From<&backend::Action> for people::Action {
    fn from(action: &backend::Action) -> people::Action {
        match action {
            backend::Action::Cancel => people::Action::Cancel,
            backend::Action::Retry => people::Action::Retry,
            backend::Action::RunNow => people::Action::RunNow,
            backend::Action::Resolve(resolution) => resolve(resolution),
            backend::Action::Edit(edit) => people::Action::Edit(people::Edit {
                run_at: edit.run_at.map(time),
                priority: edit.priority,
                payload: edit.payload.as_ref().map(|payload| stored(payload.as_ref())),
                expire_at: edit.expire_at.map(|expiry| expiry.map(time)),
                max_attempts: edit.max_attempts,
                retry: edit.retry.clone(),
                timeout_ms: edit.timeout_ms,
                remark: edit.remark.clone(),
            }),
        }
    }
}

fn resolve(resolution: &Resolution) -> people::Action {
    people::Action::Resolve { remark: resolution.remark.clone(), result: stored(resolution.result.as_ref()) }
}

impl From<&BulkAction> for people::Action {
    fn from(action: &BulkAction) -> people::Action {
        let edit = people::Edit::default();
        match action {
            BulkAction::Cancel => people::Action::Cancel,
            BulkAction::Retry => people::Action::Retry,
            BulkAction::RunNow => people::Action::RunNow,
            BulkAction::Reschedule(at) => people::Action::Edit(people::Edit { run_at: Some(time(*at)), ..edit }),
            BulkAction::SetPriority(priority) => {
                people::Action::Edit(people::Edit { priority: Some(*priority), ..edit })
            }
            BulkAction::Resolve(resolution) => resolve(resolution),
        }
    }
}

impl From<worker::ClaimedTask> for Claimed {
    fn from(task: worker::ClaimedTask) -> Claimed {
        Claimed {
            id: task.id,
            exec_id: task.exec_id,
            tenant: task.tenant,
            task_type: task.task_type,
            key: task.key,
            payload: task.payload.and_then(raw),
            round: task.round,
            attempt: task.attempt,
            checkpoint: task.checkpoint.and_then(raw),
            run_at: timestamp(task.run_at),
            traceparent: task.trace_parent,
            shard_index: task.context.shard_index,
            shard_total: task.context.shard_total,
            parent: task.context.parent,
        }
    }
}

// The id of an execution says whose task it is: it was claimed of the one tenant that there is.

pub(super) fn renewal(item: &backend::Renewal) -> worker::Renewal {
    worker::Renewal {
        id: item.id,
        exec_id: item.exec_id,
        tenant: None,
        checkpoint: item.checkpoint.as_deref().map(text),
        progress: item.progress.as_deref().map(text),
    }
}

impl From<worker::Renewed> for Renewed {
    fn from(renewed: worker::Renewed) -> Renewed {
        match renewed {
            worker::Renewed::Ok(_) => Renewed::Ok,
            worker::Renewed::Cancelled => Renewed::Cancelled,
            worker::Renewed::Superseded => Renewed::Superseded,
        }
    }
}

pub(super) fn report(report: &backend::Report) -> worker::Report {
    worker::Report {
        id: report.id,
        exec_id: report.exec_id,
        tenant: None,
        outcome: report.outcome.into(),
        result: report.result.as_deref().map(text),
        error: report.error.clone(),
        retry_after_ms: report.retry_after_ms,
        checkpoint: report.checkpoint.as_deref().map(text),
    }
}

impl From<worker::Reported> for Reported {
    fn from(reported: worker::Reported) -> Reported {
        match reported {
            worker::Reported::Accepted(status) => Reported::Accepted(status),
            worker::Reported::Superseded(_) => Reported::Superseded,
        }
    }
}

impl From<ReportedOutcome> for Outcome {
    fn from(outcome: ReportedOutcome) -> Outcome {
        match outcome {
            ReportedOutcome::Success => Outcome::Success,
            ReportedOutcome::Error => Outcome::Error,
            ReportedOutcome::Failure => Outcome::Failure,
            ReportedOutcome::Retry => Outcome::Retry,
            ReportedOutcome::Release => Outcome::Release,
        }
    }
}
