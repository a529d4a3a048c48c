//! A server, or several nodes of one, over HTTP.

mod nodes;
mod together;
mod wire;

use crate::backend::{Action, Backend, Claim, Claimed, Renewal, Renewed, Report, Reported};
use crate::error::{Error, Result};
use crate::execution::Bell;
use crate::people::{Bulk, BulkDone};
use crate::search::Listing;
use crate::task::{Page, Submitted, Task, TaskType};
use async_trait::async_trait;
pub(crate) use nodes::shown;
use nodes::{Call, Nodes, Repeat, json};
use reqwest::Method;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{NewTask, TaskId, TypeSettings};
use together::Together;
use uuid::Uuid;
use wire::{Answered, Batch, BulkBody, ClaimedTasks, RenewBody, RenewedItem, ReportBody, ReportedItem, TaskBody};

/// A server.
pub(crate) struct Remote {
    nodes: Arc<Nodes>,
    together: Together,
}

#[async_trait]
impl Backend for Remote {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        if let [task] = tasks.as_slice() {
            return Ok(vec![self.submit_alone(task).await?]);
        }
        let batch = Batch { tasks: tasks.iter().map(TaskBody::from).collect() };
        // Servers keep keys for single tasks alone.
        let call = self.call(Method::POST, &["tasks", "batch"]).repeat(Repeat::IfUndone).body(&batch)?;
        let call = traced(call, tasks.first().and_then(trace))?;
        complete(call.send::<Answered<Submitted>>().await?.items, tasks.len())
    }

    async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted> {
        submit_one(&self.nodes, &TaskBody::from(&task), Some(key), trace(&task)).await
    }

    async fn get(&self, id: TaskId) -> Result<Option<Task>> {
        match self.call(Method::GET, &["tasks", &id.to_string()]).send().await {
            Ok(task) => Ok(Some(task)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        self.call(Method::GET, &["tasks"]).query(listing)?.send().await
    }

    async fn act(&self, id: TaskId, action: &Action) -> Result<Task> {
        let id = id.to_string();
        let post = |verb| self.call(Method::POST, &["tasks", &id, verb]);
        match action {
            Action::Cancel => post("cancel").send().await,
            // Repeated, it could begin another round, or bring forward a next attempt, when the first had already run.
            Action::Retry => post("retry").repeat(Repeat::IfUndone).send().await,
            Action::RunNow => post("run-now").repeat(Repeat::IfUndone).send().await,
            Action::Resolve(resolution) => post("resolve").body(resolution)?.send().await,
            Action::Edit(edit) => self.call(Method::PATCH, &["tasks", &id]).body(edit)?.send().await,
        }
    }

    async fn delete(&self, id: TaskId) -> Result<()> {
        // Repeated, it would say that there is no such task.
        self.call(Method::DELETE, &["tasks", &id.to_string()]).repeat(Repeat::IfUndone).done().await
    }

    async fn bulk(&self, bulk: &Bulk) -> Result<BulkDone> {
        // Repeated, it would count only what the first call had left.
        let call = self.call(Method::POST, &["tasks", "bulk"]).repeat(Repeat::IfUndone);
        call.time_max(Duration::from_secs(600)).body(&BulkBody::from(bulk))?.send().await
    }

    async fn types(&self) -> Result<Vec<TaskType>> {
        Ok(self.call(Method::GET, &["types"]).send::<Answered<TaskType>>().await?.items)
    }

    async fn put_type(&self, task_type: &str, settings: &TypeSettings) -> Result<TaskType> {
        self.call(Method::PUT, &["types", task_type]).body(settings)?.send().await
    }

    async fn pause_type(&self, task_type: &str, paused: bool) -> Result<TaskType> {
        let verb = if paused { "pause" } else { "resume" };
        self.call(Method::POST, &["types", task_type, verb]).send().await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        let wait = Duration::from_millis(claim.wait_ms.unsigned_abs());
        let call = self.worker_call("claim", claim, wait.saturating_add(self.nodes.answer_time_max))?;
        Ok(call.send::<ClaimedTasks>().await?.tasks)
    }

    async fn renew(&self, worker_id: &str, items: &[Renewal], time_max: Duration) -> Result<Vec<Renewed>> {
        let call = self.worker_call("renew", &RenewBody { worker_id, items }, time_max)?;
        let answer = call.send::<Answered<RenewedItem>>().await?;
        complete(answer.items.into_iter().map(|item| item.state).collect(), items.len())
    }

    async fn report(&self, reports: &[Report], worker: &Bell) -> Result<Vec<Reported>> {
        let call = self.worker_call("report", &ReportBody { items: reports }, self.nodes.answer_time_max)?;
        let answer = call.of_worker(worker).send::<Answered<ReportedItem>>().await?;
        complete(answer.items.into_iter().map(Reported::from).collect(), reports.len())
    }

    async fn close(&self) {}
}

impl Remote {
    pub(crate) fn new(
        servers: &[String],
        token: Option<&str>,
        tenant: Option<String>,
        answer_time_max: Duration,
    ) -> Result<Remote> {
        let nodes = Arc::new(Nodes::new(servers, token, tenant, answer_time_max)?);
        Ok(Remote { together: Together::new(nodes.clone()), nodes })
    }

    /// Submits a task that comes by itself.
    async fn submit_alone(&self, task: &NewTask) -> Result<Submitted> {
        let body = TaskBody::from(task);
        if self.nodes.are_several() {
            // With a key it can be repeated on another node. A unique key would not do: it is free again when the first submit's task
            // has ended meanwhile.
            return submit_one(&self.nodes, &body, Some(&Uuid::new_v4().to_string()), trace(task)).await;
        }
        match trace(task) {
            // A call belongs to one trace.
            Some(trace) => submit_one(&self.nodes, &body, None, Some(trace)).await,
            None => self.together.submit(json(&body)?).await,
        }
    }

    fn call(&self, method: Method, path: &[&str]) -> Call<'_> {
        self.nodes.call(method, path)
    }

    fn worker_call(&self, verb: &str, body: &impl Serialize, time_max: Duration) -> Result<Call<'_>> {
        self.call(Method::POST, &["worker", verb]).time_max(time_max).body(body)
    }
}

/// Submits a task, which may be repeated where there is a key for it.
async fn submit_one(nodes: &Nodes, task: &impl Serialize, key: Option<&str>, trace: Option<&str>) -> Result<Submitted> {
    let call = traced(nodes.call(Method::POST, &["tasks"]).body(task)?, trace)?;
    let call = match key {
        Some(key) => call.header("Idempotency-Key", key)?,
        None => call.repeat(Repeat::IfUndone),
    };
    call.submitted().await
}

/// The trace that a task belongs to.
fn trace(task: &NewTask) -> Option<&str> {
    task.trace_parent.as_deref()
}

/// A submit with the trace that its tasks belong to.
fn traced<'n>(call: Call<'n>, trace: Option<&str>) -> Result<Call<'n>> {
    match trace {
        Some(trace) => call.header("traceparent", trace),
        None => Ok(call),
    }
}

/// An answer to each item, or none that can be used.
fn complete<T>(items: Vec<T>, asked: usize) -> Result<Vec<T>> {
    if items.len() == asked {
        return Ok(items);
    }
    Err(Error::Unexpected(format!("the server gave {} answers to {asked} items", items.len())))
}
