//! An engine in this process, on a database of the application.

mod shapes;
pub(crate) mod transactions;

use crate::backend::{Action, Backend, Claim, Claimed, Renewal, Renewed, Report, Reported};
use crate::client::{Client, no_task};
use crate::error::{BadField, Error, Result};
use crate::execution::Bell;
use crate::people::{Bulk, BulkDone};
use crate::search::{Filter, Listing};
use crate::task::{Page, Submitted, Task, TaskType};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_model::{NewTask, TaskId, TypeSettings};
use taskwheel_store::access::{Actor, BulkAudit, TypeChange};
use taskwheel_store::people::{self, Acted};
use taskwheel_store::worker::ClaimRequest;
use taskwheel_store::{Options, StoreError, search};

/// Whose tasks they are: those of an application that knows no tenants.
const TENANT: &str = NewTask::TENANT_DEFAULT;

pub(crate) struct Embedded(Arc<Engine>);

impl Client {
    /// A client of a database, with an engine in this process and no server: `sqlite://tasks.db`, `postgres://…` or
    /// `mysql://…`. The schema is brought up to date. Several processes may do this on one PostgreSQL or MySQL database. On
    /// an SQLite file let one do it: nothing keeps a second one from it, but there is one writer at a time.
    ///
    /// ```
    /// use taskwheel_client::{Client, NewTask, TaskContext, Worker};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
    /// let client = Client::embedded(url).await?;
    /// let task = client.submit(NewTask::new("greet", "you")).await?;
    ///
    /// let greet = async |_: TaskContext, name: String| anyhow::Ok(format!("hello {name}"));
    /// Worker::new(&client).handle("greet", greet).run_until_idle().await?;
    ///
    /// assert_eq!(client.get(task.id).await?.result_as::<String>().unwrap(), "hello you");
    /// # Ok::<(), taskwheel_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn embedded(database: impl Into<String>) -> Result<Client> {
        let store = taskwheel_store::open(Options::new(database)).await.map_err(undone)?;
        Ok(Client::on_engine(Arc::new(Engine::start(store, EngineOptions::default()))))
    }

    /// A client of an engine that you have started, with options of your own.
    #[must_use]
    pub fn on_engine(engine: Arc<Engine>) -> Client {
        Client { backend: Arc::new(Embedded(engine)) }
    }
}

#[async_trait]
impl Backend for Embedded {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        Ok(self.0.submit(tasks).await?.into_iter().map(Submitted::from).collect())
    }

    async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted> {
        Ok(self.0.submit_once(key.to_owned(), task).await?.into())
    }

    async fn get(&self, id: TaskId) -> Result<Option<Task>> {
        Ok(self.0.store().get(Some(TENANT.to_owned()), id).await?.map(Task::from))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let cursor = listing.cursor.as_ref().map(|cursor| cursor.parse()).transpose();
        let listing = search::Listing {
            tenant: Some(TENANT.to_owned()),
            filter: listing.filter.clone().into(),
            sort: listing.sort.into(),
            limit: listing.limit,
            cursor: cursor.map_err(StoreError::field)?,
        };
        let page = self.0.store().list(listing).await?;
        let items = page.items.into_iter().map(Task::from).collect();
        Ok(Page { items, next_cursor: page.next.map(|cursor| cursor.to_string()) })
    }

    async fn act(&self, id: TaskId, action: &Action) -> Result<Task> {
        self.change(id, action.into()).await?;
        self.get(id).await?.ok_or_else(|| no_task(id))
    }

    async fn delete(&self, id: TaskId) -> Result<()> {
        self.change(id, people::Action::Delete).await
    }

    async fn bulk(&self, bulk: &Bulk) -> Result<BulkDone> {
        if bulk.filter == Filter::default() && !bulk.all {
            return Err(Error::field("filter", "must not be empty; to act on all tasks, say so"));
        }
        let (filter, action) = (bulk.filter.clone().into(), (&bulk.action).into());
        let action: people::Action = action;
        let call = serde_json::json!({"action": action.word(), "filter": format!("{:?}", bulk.filter)});
        let audit = (!bulk.dry_run).then(|| BulkAudit::new(Actor::application(), call));
        let (matched, changed) = self.0.bulk(Some(TENANT.to_owned()), filter, action, audit).await?;
        Ok(BulkDone { matched, changed })
    }

    async fn types(&self) -> Result<Vec<TaskType>> {
        Ok(self.0.store().types().await?.into_iter().map(TaskType::from).collect())
    }

    async fn put_type(&self, task_type: &str, settings: &TypeSettings) -> Result<TaskType> {
        let change = TypeChange { task_type: task_type.to_owned(), settings: Some(settings.clone()), paused: None };
        Ok(self.0.change_type(Some(Actor::application()), change).await?.into())
    }

    async fn pause_type(&self, task_type: &str, paused: bool) -> Result<TaskType> {
        let change = TypeChange { task_type: task_type.to_owned(), settings: None, paused: Some(paused) };
        Ok(self.0.change_type(Some(Actor::application()), change).await?.into())
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        let request = ClaimRequest {
            worker_id: claim.worker_id.clone(),
            host: claim.host.clone(),
            app: claim.app.clone(),
            types: claim.types.clone(),
            tenant: Some(TENANT.to_owned()),
            heartbeat_ms: Some(claim.heartbeat_ms),
            max: claim.max,
            ..ClaimRequest::default()
        };
        let wait = Duration::from_millis(claim.wait_ms.unsigned_abs());
        Ok(self.0.claim(request, wait).await?.into_iter().map(Claimed::from).collect())
    }

    async fn renew(&self, worker_id: &str, items: &[Renewal], _time_max: Duration) -> Result<Vec<Renewed>> {
        let items = items.iter().map(shapes::renewal).collect();
        Ok(self.0.renew(worker_id.into(), items).await?.into_iter().map(Renewed::from).collect())
    }

    async fn report(&self, reports: &[Report], _worker: &Bell) -> Result<Vec<Reported>> {
        let reports = reports.iter().map(shapes::report).collect();
        Ok(self.0.report(reports).await?.into_iter().map(Reported::from).collect())
    }

    async fn close(&self) {
        self.0.stop().await;
    }
}

impl Embedded {
    async fn change(&self, id: TaskId, action: people::Action) -> Result<()> {
        let word = action.word();
        match self.0.act(Actor::application(), Some(TENANT.to_owned()), id, action).await? {
            Acted::Changed(_) | Acted::Unchanged(_) => Ok(()),
            Acted::Conflict(status) => {
                Err(Error::Conflict(format!("{word} is not possible while task {id} is {status}")))
            }
            Acted::UniqueKeyTaken(_) => {
                Err(Error::Conflict(format!("the unique_key of task {id} is live in another task")))
            }
            Acted::NotFound => Err(no_task(id)),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        match error {
            StoreError::Invalid { index, errors } => {
                // A lone task has no place.
                let place = Some(index).filter(|index| *index > 0);
                Error::Invalid(errors.into_iter().map(|error| BadField::of(place, error)).collect())
            }
            StoreError::Unavailable(_) => Error::Unavailable(error.to_string()),
            StoreError::OutcomeUnknown(cause) => Error::OutcomeUnknown(cause),
            // As of a server: a statement that was cancelled, or a database that takes no writes for now, passes.
            StoreError::Database(_) => Error::OutcomeUnknown(error.to_string()),
            StoreError::Schema(_) | StoreError::Configuration(_) => Error::Unexpected(error.to_string()),
        }
    }
}

/// The error of a call that can have changed nothing by itself: what the database refused did not happen.
fn undone(error: StoreError) -> Error {
    match error {
        StoreError::Database(_) => Error::Unexpected(error.to_string()),
        error => error.into(),
    }
}
