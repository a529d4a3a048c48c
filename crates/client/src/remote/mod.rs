//! A server, or several nodes of one, over HTTP.

mod nodes;
mod wire;

use crate::backend::{Action, Backend, Claim, Claimed, Renewal, Renewed, Report, Reported};
use crate::error::{Error, Result};
use crate::people::{Bulk, BulkDone};
use crate::search::Listing;
use crate::task::{Page, Submitted, Task, TaskType};
use async_trait::async_trait;
pub(crate) use nodes::Nodes as Remote;
use nodes::Repeat;
use reqwest::Method;
use serde::Serialize;
use std::time::Duration;
use taskwheel_model::{NewTask, TaskId, TypeSettings};
use wire::{Answered, Batch, BulkBody, ClaimedTasks, RenewBody, RenewedItem, ReportBody, ReportedItem, TaskBody};

/// How long a call may take, on top of what it waits for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

#[async_trait]
impl Backend for Remote {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        // With unique keys a second submit finds the first.
        let repeat = if tasks.iter().all(|task| task.unique_key.is_some()) { Repeat::Always } else { Repeat::IfUndone };
        if let [task] = tasks.as_slice() {
            let call = self.call(Method::POST, &["tasks"]).repeat(repeat).body(&TaskBody::from(task))?;
            return Ok(vec![call.submitted().await?]);
        }
        let batch = Batch { tasks: tasks.iter().map(TaskBody::from).collect() };
        let answer = self.call(Method::POST, &["tasks", "batch"]).repeat(repeat).body(&batch)?;
        let Answered { items } = answer.send::<Answered<Submitted>>().await?;
        complete(items, tasks.len())
    }

    async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted> {
        let call = self.call(Method::POST, &["tasks"]).header("Idempotency-Key", key)?;
        call.body(&TaskBody::from(&task))?.submitted().await
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
            Action::Retry => post("retry").send().await,
            Action::RunNow => post("run-now").send().await,
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
        let call = self.worker_call("claim", claim, wait + ANSWER_TIME_MAX)?;
        Ok(call.send::<ClaimedTasks>().await?.tasks)
    }

    async fn renew(&self, worker_id: &str, items: &[Renewal], time_max: Duration) -> Result<Vec<Renewed>> {
        let call = self.worker_call("renew", &RenewBody { worker_id, items }, time_max)?;
        let answer = call.send::<Answered<RenewedItem>>().await?;
        complete(answer.items.into_iter().map(|item| item.state).collect(), items.len())
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<Reported>> {
        let call = self.worker_call("report", &ReportBody { items: reports }, ANSWER_TIME_MAX)?;
        let answer = call.send::<Answered<ReportedItem>>().await?;
        complete(answer.items.into_iter().map(Reported::from).collect(), reports.len())
    }

    async fn close(&self) {}
}

impl Remote {
    fn worker_call(&self, verb: &str, body: &impl Serialize, time_max: Duration) -> Result<nodes::Call<'_>> {
        self.call(Method::POST, &["worker", verb]).time_max(time_max).body(body)
    }
}

/// An answer to each item, or none that can be used.
fn complete<T>(items: Vec<T>, asked: usize) -> Result<Vec<T>> {
    if items.len() == asked {
        return Ok(items);
    }
    Err(Error::Unexpected(format!("the server gave {} answers to {asked} items", items.len())))
}
