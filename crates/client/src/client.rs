//! The client: submit, look, step in.

use crate::backend::{Action, Backend};
use crate::error::{BadField, Error, Result};
use crate::new_task::NewTask;
use crate::people::{Bulk, BulkDone, Edit, Resolution};
use crate::remote::{Remote, shown};
use crate::search::Listing;
use crate::task::{Page, Submitted, Task, TaskType};
use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{TaskId, TypeSettings, field, limits};

/// The server where nothing else is said.
const SERVER_DEFAULT: &str = "http://127.0.0.1:9222";
const ANSWER_TIME_DEFAULT: Duration = Duration::from_secs(15);

/// Submits tasks, shows them and steps in, on a server or in this process. It is cheap to clone.
///
/// ```no_run
/// use taskwheel_client::{Client, NewTask};
///
/// # async fn example() -> taskwheel_client::Result<()> {
/// let client = Client::connect("http://127.0.0.1:9222")?;
/// let submitted = client.submit(NewTask::new("mail", "a@b.c").key("order-7")).await?;
/// let task = client.get(submitted.id).await?;
/// println!("task {} is {}", task.id, task.status);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) backend: Arc<dyn Backend>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What became of tasks that were submitted one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The good ones, each with its place in the batch.
    pub items: Vec<(usize, Submitted)>,
    /// What is wrong with the others.
    pub errors: Vec<BadField>,
}

impl Client {
    /// A client of one server, with the token of `TASKWHEEL_TOKEN` if there is one. It connects when it is first used.
    pub fn connect(server: impl Into<String>) -> Result<Client> {
        Client::builder().server(server).build()
    }

    /// A client with more to say: several nodes, a token, a tenant.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { servers: Vec::new(), token: None, tenant: None, answer_time: ANSWER_TIME_DEFAULT }
    }

    /// Submits a task. Where its unique key is already live, the answer is the task that has it.
    pub async fn submit(&self, task: NewTask) -> Result<Submitted> {
        let task = task.checked(None)?;
        one(self.backend.submit(vec![task]).await?)
    }

    /// Submits a task once: the same key is answered the same for 24 hours, whatever becomes of the task. So the call may be
    /// repeated when its answer is lost. For another task the key is refused. It has 1 to 200 visible ASCII characters.
    pub async fn submit_once(&self, key: &str, task: NewTask) -> Result<Submitted> {
        let task = task.checked(None)?;
        // To a server it goes in a header, which can have no others.
        let is_visible = |byte: u8| matches!(byte, b' '..=b'~');
        if !(1..=limits::KEY_CHARS_MAX).contains(&key.len()) || !key.bytes().all(is_visible) {
            let message = format!("must have 1 to {} visible ASCII characters", limits::KEY_CHARS_MAX);
            return Err(Error::field("Idempotency-Key", message));
        }
        self.backend.submit_once(key, task).await
    }

    /// Submits many tasks, all or none, 10,000 at most.
    pub async fn submit_batch(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<Submitted>> {
        self.submit_all(NewTask::all_checked(tasks)?).await
    }

    /// Submits those of many tasks that are good, and says what is wrong with the others.
    pub async fn submit_partial(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Partial> {
        let (mut places, mut good, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (place, task) in tasks.into_iter().enumerate() {
            match task.checked(Some(place)) {
                Ok(task) => {
                    places.push(place);
                    good.push(task);
                }
                Err(Error::Invalid(fields)) => errors.extend(fields),
                Err(error) => return Err(error),
            }
        }
        let submitted = self.submit_all(good).await?;
        Ok(Partial { items: places.into_iter().zip(submitted).collect(), errors })
    }

    async fn submit_all(&self, tasks: Vec<taskwheel_model::NewTask>) -> Result<Vec<Submitted>> {
        let Some(first) = tasks.first() else { return Ok(Vec::new()) };
        // A call has one trace.
        if tasks.iter().any(|task| task.trace_parent != first.trace_parent) {
            return Err(Error::field("trace_parent", "must be the same for all tasks of a batch"));
        }
        self.backend.submit(tasks).await
    }

    /// A task with every attempt it has had.
    pub async fn get(&self, id: TaskId) -> Result<Task> {
        self.find(id).await?.ok_or_else(|| no_task(id))
    }

    /// A task, if there is one.
    pub async fn find(&self, id: TaskId) -> Result<Option<Task>> {
        self.backend.get(id).await
    }

    /// A page of tasks, live and finished alike. A [`crate::Filter`] alone asks for the first one.
    pub async fn list(&self, listing: impl Into<Listing>) -> Result<Page> {
        self.backend.list(&listing.into()).await
    }

    /// Calls a task off. Its handler is told so if it runs.
    pub async fn cancel(&self, id: TaskId) -> Result<Task> {
        self.backend.act(id, &Action::Cancel).await
    }

    /// Runs a task again that failed, was cancelled or waits for a person: from the start, with its checkpoint.
    pub async fn retry(&self, id: TaskId) -> Result<Task> {
        self.backend.act(id, &Action::Retry).await
    }

    /// Makes a waiting task due now.
    pub async fn run_now(&self, id: TaskId) -> Result<Task> {
        self.backend.act(id, &Action::RunNow).await
    }

    /// Marks a task that failed or waits for a person as dealt with.
    pub async fn resolve(&self, id: TaskId, resolution: Resolution) -> Result<Task> {
        self.backend.act(id, &Action::Resolve(resolution)).await
    }

    /// Changes a task. While it runs, the change counts from its next attempt on.
    pub async fn edit(&self, id: TaskId, edit: Edit) -> Result<Task> {
        self.backend.act(id, &Action::Edit(edit)).await
    }

    /// Removes a finished task for good.
    pub async fn delete(&self, id: TaskId) -> Result<()> {
        self.backend.delete(id).await
    }

    /// Does something to everything that a filter matches.
    pub async fn bulk(&self, bulk: Bulk) -> Result<BulkDone> {
        self.backend.bulk(&bulk).await
    }

    /// The types that have been configured. One that never was works with the defaults.
    pub async fn types(&self) -> Result<Vec<TaskType>> {
        self.backend.types().await
    }

    /// Creates a type or replaces its settings.
    pub async fn put_type(&self, task_type: &str, settings: TypeSettings) -> Result<TaskType> {
        self.backend.put_type(task_type, &settings).await
    }

    /// Holds back the tasks of a type. Those that run go on.
    pub async fn pause_type(&self, task_type: &str) -> Result<TaskType> {
        self.backend.pause_type(task_type, true).await
    }

    /// Hands out the tasks of a type again.
    pub async fn resume_type(&self, task_type: &str) -> Result<TaskType> {
        self.backend.pause_type(task_type, false).await
    }

    /// Ends what an embedded client runs in this process, and writes what it has counted. Dropping it ends it as well.
    pub async fn close(self) {
        self.backend.close().await;
    }
}

/// The only answer to a call about one task.
pub(crate) fn one(mut answers: Vec<Submitted>) -> Result<Submitted> {
    answers.pop().ok_or_else(|| Error::Unexpected("a submit without an answer".into()))
}

pub(crate) fn no_task(id: TaskId) -> Error {
    Error::NotFound(format!("there is no task {id}"))
}

/// How a [`Client`] of servers is made.
#[derive(Clone)]
#[must_use = "it is no client yet"]
pub struct ClientBuilder {
    servers: Vec<String>,
    token: Option<String>,
    tenant: Option<String>,
    answer_time: Duration,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token and a password belong into no log.
        let servers: Vec<_> = self.servers.iter().map(|server| shown(server)).collect();
        let mut builder = f.debug_struct("ClientBuilder");
        builder.field("servers", &servers).field("tenant", &self.tenant).field("answer_time", &self.answer_time);
        builder.finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Adds a node. While one does not answer, the next one is called. Without any, those that `TASKWHEEL_SERVER` names, with
    /// commas between them, or the one at `http://127.0.0.1:9222`.
    pub fn server(mut self, url: impl Into<String>) -> ClientBuilder {
        self.servers.push(url.into());
        self
    }

    /// Says who calls. Without it, the token of `TASKWHEEL_TOKEN`.
    pub fn token(mut self, token: impl Into<String>) -> ClientBuilder {
        self.token = Some(token.into());
        self
    }

    /// Whose tasks it submits, sees and claims, where its token is for all tenants. Without it, it sees and claims
    /// those of all, and submits for `default`.
    pub fn tenant(mut self, tenant: impl Into<String>) -> ClientBuilder {
        self.tenant = Some(tenant.into());
        self
    }

    /// How long a node may take to answer, before the next one is called: 15 seconds unless given. What a claim waits
    /// for is on top.
    pub fn answer_time(mut self, time: Duration) -> ClientBuilder {
        self.answer_time = time;
        self
    }

    /// The client. It connects when it is first used.
    pub fn build(self) -> Result<Client> {
        if let Some(tenant) = &self.tenant {
            let checked = field::name("tenant", tenant, limits::NAME_CHARS_MAX);
            checked.map_err(|error| Error::Invalid(vec![BadField::of(None, error)]))?;
        }
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let servers = if self.servers.is_empty() {
            let named = variable("TASKWHEEL_SERVER").unwrap_or_else(|| SERVER_DEFAULT.into());
            named.split(',').map(|server| server.trim().to_owned()).collect()
        } else {
            self.servers
        };
        let token = self.token.or_else(|| variable("TASKWHEEL_TOKEN"));
        let remote = Remote::new(&servers, token.as_deref(), self.tenant, self.answer_time)?;
        Ok(Client { backend: Arc::new(remote) })
    }
}
