//! A server, or several nodes of one, over HTTP.

mod nodes;
mod wire;

use crate::backend::{Action, Backend, Claim, Claimed, Renewal, Renewed, Report, Reported};
use crate::error::{Error, Result};
use crate::execution::Bell;
use crate::people::{Bulk, BulkDone};
use crate::search::Listing;
use crate::task::{Page, Submitted, Task, TaskType};
use async_trait::async_trait;
use nodes::{Call, Repeat};
pub(crate) use nodes::{Nodes as Remote, shown};
use reqwest::Method;
use serde::Serialize;
use std::time::Duration;
use taskwheel_model::{NewTask, TaskId, TypeSettings};
use uuid::Uuid;
use wire::{Answered, Batch, BulkBody, ClaimedTasks, RenewBody, RenewedItem, ReportBody, ReportedItem, TaskBody};

#[async_trait]
impl Backend for Remote {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        if let [task] = tasks.as_slice() {
            // A unique key would not do: it is free again when the first submit's task has ended meanwhile. Without
            // another node nothing is repeated, and to keep a key would be work in vain.
            let key = self.are_several().then(|| Uuid::new_v4().to_string());
            return Ok(vec![self.submit_one(key.as_deref(), task).await?]);
        }
        let batch = Batch { tasks: tasks.iter().map(TaskBody::from).collect() };
        // Servers keep keys for single tasks alone.
        let call = self.call(Method::POST, &["tasks", "batch"]).repeat(Repeat::IfUndone).body(&batch)?;
        let call = traced(call, tasks.first())?;
        complete(call.send::<Answered<Submitted>>().await?.items, tasks.len())
    }

    async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted> {
        self.submit_one(Some(key), &task).await
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
        let call = self.worker_call("claim", claim, wait.saturating_add(self.answer_time_max))?;
        Ok(call.send::<ClaimedTasks>().await?.tasks)
    }

    async fn renew(&self, worker_id: &str, items: &[Renewal], time_max: Duration) -> Result<Vec<Renewed>> {
        let call = self.worker_call("renew", &RenewBody { worker_id, items }, time_max)?;
        let answer = call.send::<Answered<RenewedItem>>().await?;
        complete(answer.items.into_iter().map(|item| item.state).collect(), items.len())
    }

    async fn report(&self, reports: &[Report], worker: &Bell) -> Result<Vec<Reported>> {
        let call = self.worker_call("report", &ReportBody { items: reports }, self.answer_time_max)?;
        let answer = call.of_worker(worker).send::<Answered<ReportedItem>>().await?;
        complete(answer.items.into_iter().map(Reported::from).collect(), reports.len())
    }

    async fn close(&self) {}
}

impl Remote {
    /// Submits a task, which may be repeated where there is a key for it.
    async fn submit_one(&self, key: Option<&str>, task: &NewTask) -> Result<Submitted> {
        let call = traced(self.call(Method::POST, &["tasks"]).body(&TaskBody::from(task))?, Some(task))?;
        let call = match key {
            Some(key) => call.header("Idempotency-Key", key)?,
            None => call.repeat(Repeat::IfUndone),
        };
        call.submitted().await
    }

    fn worker_call(&self, verb: &str, body: &impl Serialize, time_max: Duration) -> Result<Call<'_>> {
        self.call(Method::POST, &["worker", verb]).time_max(time_max).body(body)
    }
}

/// A submit with the trace that its tasks belong to.
fn traced<'n>(call: Call<'n>, task: Option<&NewTask>) -> Result<Call<'n>> {
    match task.and_then(|task| task.trace_parent.as_deref()) {
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
