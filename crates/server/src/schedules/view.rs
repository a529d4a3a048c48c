//! Schedules and runs as they are shown.

use super::input::{LogMode, MisfireRule, OverlapRule, ScheduleState, ShardCount};
use super::target::parts;
use super::timers::{self, TimerView};
use crate::shapes::{At, Retry, value};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use taskwheel_model::schedule::{Child, Log, Overlap, Shards};
use taskwheel_model::{Misfire, RetryPolicy, ScheduleStatus, Status, TaskId};
use taskwheel_store::schedule::{Run, RunTask, Schedule};
use utoipa::ToSchema;

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleView {
    pub(super) id: i64,
    tenant: String,
    name: String,
    r#type: String,
    /// Where the type is that of an app's service: its three parts.
    app: Option<String>,
    service: Option<String>,
    method: Option<String>,
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    key: Option<String>,
    creator: Option<String>,
    category: Option<String>,
    priority: Option<u8>,
    max_attempts: Option<i32>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    timeout_ms: Option<i64>,
    #[schema(value_type = Vec<TimerView>)]
    timers: Vec<Value>,
    #[schema(value_type = ScheduleState)]
    status: ScheduleStatus,
    #[schema(value_type = LogMode)]
    log: Log,
    #[schema(value_type = MisfireRule)]
    misfire: Misfire,
    #[schema(value_type = OverlapRule)]
    overlap: Overlap,
    #[schema(value_type = Option<ShardCount>)]
    shards: Option<Shards>,
    children: Vec<ChildView>,
    created_at: At,
    updated_at: At,
}

impl From<Schedule> for ScheduleView {
    fn from(schedule: Schedule) -> ScheduleView {
        let definition = schedule.definition;
        let [app, service, method] = named(&definition.task_type);
        ScheduleView {
            id: schedule.id,
            tenant: schedule.tenant,
            name: definition.name,
            children: definition.children.into_iter().map(|child| ChildView::of(child, app.as_deref())).collect(),
            app,
            service,
            method,
            r#type: definition.task_type,
            payload: definition.payload.and_then(value),
            key: definition.key,
            creator: definition.creator,
            category: definition.category,
            priority: definition.priority,
            max_attempts: definition.max_attempts,
            retry: definition.retry,
            timeout_ms: definition.timeout_ms,
            timers: schedule.timers.iter().map(timers::shown).collect(),
            status: schedule.status,
            log: definition.log,
            misfire: definition.misfire,
            overlap: definition.overlap,
            shards: definition.shards,
            created_at: At(schedule.created_at),
            updated_at: At(schedule.updated_at),
        }
    }
}

/// The three parts of a type, where it has them.
fn named(task_type: &str) -> [Option<String>; 3] {
    parts(task_type).map_or([None, None, None], |parts| parts.map(|part| Some(part.to_owned())))
}

/// A task that starts when its parent ended well.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChildView {
    name: Option<String>,
    r#type: String,
    /// Where it is a method of the schedule's own app.
    service: Option<String>,
    method: Option<String>,
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    timeout_ms: Option<i64>,
    enabled: bool,
    #[schema(no_recursion)]
    children: Vec<ChildView>,
}

impl ChildView {
    fn of(child: Child, root_app: Option<&str>) -> ChildView {
        let [app, service, method] = named(&child.task_type);
        let is_own = app.is_some() && app.as_deref() == root_app;
        ChildView {
            name: child.name,
            r#type: child.task_type,
            service: service.filter(|_| is_own),
            method: method.filter(|_| is_own),
            payload: child.payload.and_then(value),
            timeout_ms: child.timeout_ms,
            enabled: child.enabled,
            children: child.children.into_iter().map(|child| ChildView::of(child, root_app)).collect(),
        }
    }
}

/// A run: one firing of a schedule, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    pub(super) id: i64,
    tenant: String,
    schedule_id: i64,
    /// The timer that fired; null where somebody asked for the run.
    timer_id: Option<i64>,
    due_at: At,
    /// `queued`, `running`, `done`, `failed`, `timed_out`, `skipped` or `cancelled`.
    #[schema(example = "done")]
    status: &'static str,
    /// Why it was skipped or called off, in a word.
    reason: Option<String>,
    started_at: Option<At>,
    finished_at: Option<At>,
    error: Option<String>,
    host: Option<String>,
    /// The whole tree, in the order in which it starts.
    tasks: Vec<RunTaskView>,
}

/// A task of a run, or one that has not started: its id and status are null then.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunTaskView {
    #[schema(value_type = Option<i64>)]
    id: Option<TaskId>,
    name: Option<String>,
    r#type: Option<String>,
    #[schema(value_type = Option<String>, example = "Success")]
    status: Option<Status>,
    #[schema(value_type = Option<i64>)]
    parent_id: Option<TaskId>,
    shard_index: Option<i64>,
    /// Whether it may start at all.
    enabled: bool,
}

impl From<Run> for RunView {
    fn from(run: Run) -> RunView {
        RunView {
            id: run.id,
            tenant: run.tenant,
            schedule_id: run.schedule_id,
            timer_id: run.timer_id,
            due_at: At(run.due_at),
            status: run.status.word(),
            reason: run.reason,
            started_at: run.started_at.map(At),
            finished_at: run.finished_at.map(At),
            error: run.error,
            host: run.host,
            tasks: run.tasks.into_iter().map(RunTaskView::from).collect(),
        }
    }
}

impl From<RunTask> for RunTaskView {
    fn from(task: RunTask) -> RunTaskView {
        RunTaskView {
            id: task.id,
            name: task.name,
            r#type: task.task_type,
            status: task.status,
            parent_id: task.parent_id,
            shard_index: task.shard_index,
            enabled: task.enabled,
        }
    }
}
