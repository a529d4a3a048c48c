//! Schedules as they come in.

use super::target::{TargetInput, parts};
use super::timers::{RawTimer, TimerInput};
use crate::shapes::{Retry, given, priority, text};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use taskwheel_model::schedule::{Child, Log, Overlap, Shards};
use taskwheel_model::{Definition, FieldError, Misfire, RetryPolicy, ScheduleStatus};
use utoipa::ToSchema;

/// A schedule to make. It fires a `type`, or the `method` of an `app`'s `service`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleInput {
    name: String,
    r#type: Option<String>,
    app: Option<String>,
    service: Option<String>,
    method: Option<String>,
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    key: Option<String>,
    creator: Option<String>,
    category: Option<String>,
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<i64>,
    max_attempts: Option<i32>,
    #[schema(value_type = Option<Retry>)]
    retry: Option<RetryPolicy>,
    timeout_ms: Option<i64>,
    #[serde(default)]
    #[schema(value_type = Vec<TimerInput>)]
    pub(super) timers: Vec<RawTimer>,
    #[serde(default)]
    #[schema(value_type = ScheduleState)]
    pub(super) status: ScheduleStatus,
    #[serde(default)]
    #[schema(value_type = LogMode)]
    log: Log,
    #[serde(default)]
    #[schema(value_type = MisfireRule)]
    misfire: Misfire,
    #[serde(default)]
    #[schema(value_type = OverlapRule)]
    overlap: Overlap,
    #[serde(default, deserialize_with = "shards")]
    #[schema(value_type = Option<ShardCount>)]
    shards: Option<Shards>,
    #[serde(default)]
    children: Vec<ChildInput>,
}

/// A task that starts when its parent ended well.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildInput {
    name: Option<String>,
    r#type: Option<String>,
    /// With `method`: of the schedule's own app.
    service: Option<String>,
    method: Option<String>,
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    timeout_ms: Option<i64>,
    /// Whether it starts at all; without it true.
    #[serde(default = "on")]
    enabled: bool,
    #[serde(default)]
    #[schema(no_recursion)]
    children: Vec<ChildInput>,
}

fn on() -> bool {
    true
}

/// Whether a schedule fires.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum ScheduleState {
    New,
    Online,
    Offline,
}

/// What is recorded of firings.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum LogMode {
    /// Nothing beyond the tasks.
    None,
    /// Each firing.
    TriggerLog,
    /// Each firing, and how its run ended.
    TransLog,
}

/// What is done about due times that nobody saw in time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) struct MisfireRule {
    policy: MisfireWord,
    /// With catch_up: how many fire at most.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    max: Option<u32>,
}

/// Which missed due times fire: none, the latest, or the newest ones.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum MisfireWord {
    Skip,
    FireOnce,
    CatchUp,
}

/// What is done when a run is due while another still goes on.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum OverlapRule {
    Allow,
    Skip,
    Queue,
    Replace,
}

/// How many tasks a firing has: `per_worker`, or so many.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum ShardCount {
    Word(ShardWord),
    Count(u32),
}

/// One for each live worker of the type.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum ShardWord {
    PerWorker,
}

/// Reads shards, with an error that says what they can be.
fn shards<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Shards>, D::Error> {
    let message = || serde::de::Error::custom("must be null, per_worker, or a number from 1 to 1000");
    let value = Value::deserialize(deserializer).map_err(|_| message())?;
    serde_json::from_value(value).map_err(|_| message())
}

/// Tells shards that are null from those that are not there.
fn given_shards<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Shards>>, D::Error> {
    shards(deserializer).map(Some)
}

impl ScheduleInput {
    /// What it fires.
    pub(super) fn definition(self) -> Result<Definition, FieldError> {
        let target = TargetInput {
            task_type: self.r#type.as_deref(),
            app: self.app.as_deref(),
            service: self.service.as_deref(),
            method: self.method.as_deref(),
        };
        let task_type = target.resolve("")?;
        Ok(Definition {
            name: self.name,
            children: children(self.children, &task_type, "children")?,
            task_type,
            payload: self.payload.map(text),
            key: self.key,
            creator: self.creator,
            category: self.category,
            priority: self.priority.map(priority),
            max_attempts: self.max_attempts,
            retry: self.retry,
            timeout_ms: self.timeout_ms,
            log: self.log,
            misfire: self.misfire,
            overlap: self.overlap,
            shards: self.shards,
        })
    }
}

/// The nodes below one, whose names of services are those of the schedule's app.
fn children(inputs: Vec<ChildInput>, root_type: &str, place: &str) -> Result<Vec<Child>, FieldError> {
    let child = |(index, input): (usize, ChildInput)| {
        let place = format!("{place}[{index}]");
        let is_named = input.r#type.is_none() && (input.service.is_some() || input.method.is_some());
        let app = parts(root_type).map(|[app, ..]| app);
        if is_named && app.is_none() {
            let message = "needs a schedule that has an app, service and method itself: give a type";
            return Err(FieldError::new(format!("{place}.service"), message));
        }
        let target = TargetInput {
            task_type: input.r#type.as_deref(),
            app: app.filter(|_| is_named),
            service: input.service.as_deref(),
            method: input.method.as_deref(),
        };
        Ok(Child {
            task_type: target.resolve(&format!("{place}."))?,
            name: input.name,
            payload: input.payload.map(text),
            timeout_ms: input.timeout_ms,
            enabled: input.enabled,
            children: children(input.children, root_type, &format!("{place}.children"))?,
        })
    };
    inputs.into_iter().enumerate().map(child).collect()
}

/// What shall change about a schedule. A field that is not given stays; null clears what can be empty.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScheduleEditInput {
    #[serde(deserialize_with = "given")]
    name: Option<String>,
    r#type: Option<String>,
    app: Option<String>,
    service: Option<String>,
    method: Option<String>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    payload: Option<Option<Box<RawValue>>>,
    #[serde(deserialize_with = "given")]
    key: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    creator: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    category: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    #[schema(minimum = 1, maximum = 9)]
    priority: Option<Option<i64>>,
    #[serde(deserialize_with = "given")]
    max_attempts: Option<Option<i32>>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<Retry>)]
    retry: Option<Option<RetryPolicy>>,
    #[serde(deserialize_with = "given")]
    timeout_ms: Option<Option<i64>>,
    /// All timers, in place of those that it has.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<Vec<TimerInput>>)]
    pub(super) timers: Option<Vec<RawTimer>>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<ScheduleState>)]
    pub(super) status: Option<ScheduleStatus>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<LogMode>)]
    log: Option<Log>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<MisfireRule>)]
    misfire: Option<Misfire>,
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<OverlapRule>)]
    overlap: Option<Overlap>,
    #[serde(deserialize_with = "given_shards")]
    #[schema(value_type = Option<ShardCount>)]
    shards: Option<Option<Shards>>,
    /// All children, in place of those that it has.
    #[serde(deserialize_with = "given")]
    children: Option<Vec<ChildInput>>,
}

impl ScheduleEditInput {
    /// Whether its children may be named by services of an app that only the stored schedule names.
    pub(super) fn needs_stored_app(&self) -> bool {
        self.children.is_some() && !self.target().is_given()
    }

    fn target(&self) -> TargetInput<'_> {
        TargetInput {
            task_type: self.r#type.as_deref(),
            app: self.app.as_deref(),
            service: self.service.as_deref(),
            method: self.method.as_deref(),
        }
    }

    /// The fields of the definition that change, by the names they have in it.
    pub(super) fn fields(self, stored_type: &str) -> Result<Map<String, Value>, FieldError> {
        let new_type = if self.target().is_given() { Some(self.target().resolve("")?) } else { None };
        let root_type = new_type.as_deref().unwrap_or(stored_type);
        let children = self.children.map(|list| children(list, root_type, "children")).transpose()?;
        let fields = [
            ("name", self.name.map(|name| json!(name))),
            ("payload", self.payload.map(|payload| json!(payload.map(text)))),
            ("key", self.key.map(|key| json!(key))),
            ("creator", self.creator.map(|creator| json!(creator))),
            ("category", self.category.map(|category| json!(category))),
            ("priority", self.priority.map(|value| json!(value.map(priority)))),
            ("max_attempts", self.max_attempts.map(|attempts| json!(attempts))),
            ("retry", self.retry.map(|retry| json!(retry))),
            ("timeout_ms", self.timeout_ms.map(|ms| json!(ms))),
            ("log", self.log.map(|log| json!(log))),
            ("misfire", self.misfire.map(|misfire| json!(misfire))),
            ("overlap", self.overlap.map(|overlap| json!(overlap))),
            ("shards", self.shards.map(|shards| json!(shards))),
            ("children", children.map(|children| json!(children))),
            ("type", new_type.map(|task_type| json!(task_type))),
        ];
        Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }
}
