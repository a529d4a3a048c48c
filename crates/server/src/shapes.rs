//! The JSON of the API: what comes in and what goes out.

use crate::problem::Problem;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{ExecId, NewTask, RetryPolicy, Status, TaskId, Time, limits};
use taskwheel_store::people::Edit;
use taskwheel_store::search::Filter;
use taskwheel_store::task::{Attempt, Task, TaskDetail};
use utoipa::ToSchema;

/// A point in time, as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
pub(crate) struct At(pub(crate) Time);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let timestamp = jiff::Timestamp::from_millisecond(self.0.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{timestamp:.3}"))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let message = || serde::de::Error::custom("must be a time as in 2026-01-31T12:00:00Z");
        let timestamp: jiff::Timestamp = text.parse().map_err(|_| message())?;
        Ok(At(Time(timestamp.as_millisecond())))
    }
}

/// When a task is tried again after an error.
#[derive(ToSchema)]
#[serde(tag = "strategy", rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum Retry {
    /// One attempt.
    None,
    /// The same pause each time.
    Fixed { delay_ms: i64 },
    /// A pause that grows with each error.
    Exponential {
        delay_ms: i64,
        #[schema(required = false)]
        multiplier: f64,
        #[schema(required = false)]
        max_delay_ms: i64,
    },
    /// One pause after the other; the last repeats.
    Sequence { intervals_ms: Vec<i64> },
}

/// A task to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskInput {
    r#type: String,
    key: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<i64>,
    run_at: Option<At>,
    #[schema(minimum = 0)]
    delay_ms: Option<i64>,
    expire_at: Option<At>,
    max_attempts: Option<i32>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    timeout_ms: Option<i64>,
    category: Option<String>,
    creator: Option<String>,
    route_key: Option<String>,
    unique_key: Option<String>,
    affinity: Option<String>,
}

impl TaskInput {
    pub(crate) fn into_task(self, from: &Origin) -> Result<NewTask, Vec<taskwheel_model::FieldError>> {
        let both = || taskwheel_model::FieldError::new("delay_ms", "must not be given together with run_at");
        let run_at = match (self.run_at, self.delay_ms) {
            (Some(_), Some(_)) => return Err(vec![both()]),
            (Some(At(time)), None) => RunAt::At(time),
            (None, Some(ms)) => RunAt::After(ms),
            (None, None) => RunAt::Now,
        };
        let task = NewTask {
            tenant: from.tenant.clone(),
            task_type: self.r#type,
            key: self.key,
            payload: self.payload.map(text),
            priority: self.priority.map(priority),
            run_at,
            expire_at: self.expire_at.map(|at| at.0),
            max_attempts: self.max_attempts,
            retry: self.retry,
            timeout_ms: self.timeout_ms,
            category: self.category,
            creator: self.creator,
            route_key: self.route_key,
            unique_key: self.unique_key,
            affinity: self.affinity,
            token_id: from.token_id,
            trace_parent: from.trace_parent.clone(),
        };
        task.validate()?;
        Ok(task)
    }
}

/// Where submitted tasks come from.
pub(crate) struct Origin {
    pub(crate) tenant: String,
    pub(crate) token_id: Option<i64>,
    /// The trace that they belong to.
    pub(crate) trace_parent: Option<String>,
}

/// A priority as it came; what is out of reach stays out of bounds, so that it is refused by its name.
pub(crate) fn priority(value: i64) -> u8 {
    u8::try_from(value).unwrap_or(0)
}

/// The text of a JSON value, as it came.
pub(crate) fn text(value: Box<RawValue>) -> String {
    Box::<str>::from(value).into_string()
}

/// A JSON value that was stored as text.
pub(crate) fn value(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// What shall change about a task. A field that is not given stays; null clears it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EditInput {
    run_at: Option<At>,
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<i64>,
    #[serde(deserialize_with = "given")]
    max_attempts: Option<Option<i32>>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Option<Box<RawValue>>>,
    #[serde(deserialize_with = "given")]
    expire_at: Option<Option<At>>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<Retry>)]
    retry: Option<Option<RetryPolicy>>,
    #[serde(deserialize_with = "given")]
    timeout_ms: Option<Option<i64>>,
    #[serde(deserialize_with = "given")]
    remark: Option<Option<String>>,
}

/// Tells a field that is null from one that is not there.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl From<EditInput> for Edit {
    fn from(input: EditInput) -> Edit {
        Edit {
            run_at: input.run_at.map(|at| at.0),
            priority: input.priority.map(priority),
            payload: input.payload.map(|payload| payload.map(text)),
            expire_at: input.expire_at.map(|at| at.map(|at| at.0)),
            max_attempts: input.max_attempts,
            retry: input.retry,
            timeout_ms: input.timeout_ms,
            remark: input.remark,
        }
    }
}

/// Which tasks are wanted.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FilterInput {
    /// Words with commas between them: statuses, `live`, `finished`.
    status: Option<String>,
    r#type: Option<String>,
    category: Option<String>,
    key: Option<String>,
    creator: Option<String>,
    host: Option<String>,
    #[serde(deserialize_with = "number")]
    priority: Option<i64>,
    run_at_from: Option<At>,
    run_at_to: Option<At>,
    created_from: Option<At>,
    created_to: Option<At>,
    #[serde(deserialize_with = "number")]
    schedule_id: Option<i64>,
    /// A part of the key, the payload, the error or the remark.
    text: Option<String>,
}

/// A number, or the text of one: in a query everything is text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    let message = || serde::de::Error::custom("must be a whole number");
    Ok(match Option::<Either>::deserialize(deserializer).map_err(|_| message())? {
        None => None,
        Some(Either::Number(number)) => Some(number),
        Some(Either::Text(text)) => Some(text.parse().map_err(|_| message())?),
    })
}

impl FilterInput {
    pub(crate) fn into_filter(self) -> Result<Filter, Problem> {
        let statuses = self.status.as_deref().map_or(Ok(Vec::new()), statuses)?;
        if let Some(priority) = self.priority {
            taskwheel_model::field::range(
                "priority",
                priority,
                limits::PRIORITY_MIN.into(),
                limits::PRIORITY_MAX.into(),
            )?;
        }
        Ok(Filter {
            statuses,
            task_type: self.r#type,
            category: self.category,
            key: self.key,
            creator: self.creator,
            host: self.host,
            priority: self.priority.map(priority),
            run_at_from: self.run_at_from.map(|at| at.0),
            run_at_to: self.run_at_to.map(|at| at.0),
            created_from: self.created_from.map(|at| at.0),
            created_to: self.created_to.map(|at| at.0),
            schedule_id: self.schedule_id,
            token_id: None,
            text: self.text,
        })
    }
}

/// Statuses from a list of words.
fn statuses(words: &str) -> Result<Vec<Status>, Problem> {
    let mut statuses = Vec::new();
    for word in words.split(',').map(str::trim) {
        match word {
            "live" => statuses.extend(Status::ALL.into_iter().filter(|status| status.is_live())),
            "finished" => statuses.extend(Status::ALL.into_iter().filter(|status| status.is_finished())),
            word => statuses.push(word.parse().map_err(|()| {
                let words = Status::ALL.map(Status::word).join(", ");
                Problem::field("status", format!("`{word}` is none of {words}, live, finished"))
            })?),
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    Ok(statuses)
}

/// A task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskView {
    #[schema(value_type = i64)]
    id: TaskId,
    tenant: String,
    r#type: String,
    key: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(value_type = String, example = "New")]
    status: Status,
    priority: u8,
    run_at: At,
    expire_at: Option<At>,
    max_attempts: Option<i32>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    timeout_ms: Option<i64>,
    category: Option<String>,
    creator: Option<String>,
    route_key: Option<String>,
    slot: u16,
    unique_key: Option<String>,
    affinity: Option<String>,
    round: u32,
    attempts: u32,
    error_count: u32,
    error_info: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
    #[schema(value_type = Option<serde_json::Value>)]
    progress: Option<Box<RawValue>>,
    host: Option<String>,
    worker_id: Option<String>,
    #[schema(value_type = Option<uuid::Uuid>)]
    exec_id: Option<ExecId>,
    lease_until: Option<At>,
    started_at: Option<At>,
    finished_at: Option<At>,
    exec_ms: Option<i64>,
    created_at: At,
    updated_at: At,
    remark: Option<String>,
    schedule_id: Option<i64>,
    run_id: Option<i64>,
    #[schema(value_type = Option<i64>)]
    parent_id: Option<TaskId>,
    #[schema(value_type = Option<i64>)]
    root_id: Option<TaskId>,
    /// Every attempt, oldest first; only where one task is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_log: Option<Vec<AttemptView>>,
}

impl From<Task> for TaskView {
    fn from(task: Task) -> TaskView {
        TaskView {
            id: task.id,
            tenant: task.tenant,
            r#type: task.task_type,
            key: task.key,
            payload: task.payload.and_then(value),
            status: task.status,
            priority: task.priority,
            run_at: At(task.run_at),
            expire_at: task.expire_at.map(At),
            max_attempts: task.max_attempts,
            retry: task.retry,
            timeout_ms: task.timeout_ms,
            category: task.category,
            creator: task.creator,
            route_key: task.route_key,
            slot: task.slot,
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
            lease_until: task.lease_until.map(At),
            started_at: task.started_at.map(At),
            finished_at: task.finished_at.map(At),
            exec_ms: task.exec_ms,
            created_at: At(task.created_at),
            updated_at: At(task.updated_at),
            remark: task.remark,
            schedule_id: task.schedule_id,
            run_id: task.run_id,
            parent_id: task.parent_id,
            root_id: task.root_id,
            attempts_log: None,
        }
    }
}

impl From<TaskDetail> for TaskView {
    fn from(detail: TaskDetail) -> TaskView {
        let log = detail.attempts_log.into_iter().map(AttemptView::from).collect();
        TaskView { attempts_log: Some(log), ..TaskView::from(detail.task) }
    }
}

/// One attempt of a task. The one that is running has no end yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    round: u32,
    attempt: u32,
    #[schema(value_type = uuid::Uuid)]
    exec_id: ExecId,
    host: Option<String>,
    worker_id: Option<String>,
    started_at: At,
    finished_at: Option<At>,
    #[schema(value_type = Option<String>, example = "success")]
    outcome: Option<&'static str>,
    error: Option<String>,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> AttemptView {
        AttemptView {
            round: attempt.round,
            attempt: attempt.attempt,
            exec_id: attempt.exec_id,
            host: attempt.host,
            worker_id: attempt.worker_id,
            started_at: At(attempt.started_at),
            finished_at: attempt.finished_at.map(At),
            outcome: attempt.outcome.map(taskwheel_model::Outcome::word),
            error: attempt.error,
        }
    }
}
