//! The worker: claims tasks, runs their handlers, reports how they ended.
//!
//! ```text
//!            claim (2)      slot (concurrency)      report (2)
//!  server --> tasks --> queue --> handlers --> reports --> server
//!                         \__________|___________/
//!                               renew (1)
//! ```
//!
//! Four kinds of loops share what is in hand ([`hands`]). The server is the authority on whose a task is: what it says to a
//! renew or a report is passed on to the handler, and a result that came too late is dropped. Loops that call the server
//! go on calling while it is away; only a refusal that no later call can mend ends the worker.

mod claim;
mod hands;
mod renew;
mod report;
mod slot;
mod stop;

use crate::client::Client;
use crate::context::TaskContext;
use crate::error::{Error, Result};
use crate::handler::{Handler, TaskError, erase};
use hands::Hands;
use serde::Serialize;
use serde::de::DeserializeOwned;
pub(crate) use slot::report as report_of;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::limits;
use uuid::Uuid;

/// Runs handlers for tasks.
///
/// ```no_run
/// use taskwheel_client::{Client, TaskContext, Worker};
///
/// #[derive(serde::Deserialize)]
/// struct Mail {
///     to: String,
/// }
///
/// async fn send(ctx: TaskContext, mail: Mail) -> Result<(), std::io::Error> {
///     println!("task {}, attempt {}: a mail to {}", ctx.task_id(), ctx.attempt(), mail.to);
///     Ok(())
/// }
///
/// # async fn example() -> taskwheel_client::Result<()> {
/// let client = Client::connect("http://127.0.0.1:9222")?;
/// Worker::new(&client).handle("mail", send).concurrency(8).run().await?; // until SIGTERM or Ctrl-C
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    client: Client,
    handlers: BTreeMap<String, Handler>,
    settings: Settings,
}

#[derive(Clone, Debug)]
struct Settings {
    concurrency: usize,
    queue: usize,
    heartbeat: Duration,
    save_every: Duration,
    grace: Duration,
    host: Option<String>,
    app: Option<String>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("Worker").field("types", &types).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Worker {
    /// Handlers that run at once where nothing else is said.
    pub const CONCURRENCY_DEFAULT: usize = 16;

    /// How long handlers may go on where nothing else is said.
    pub(crate) const GRACE_DEFAULT: Duration = Duration::from_secs(30);

    /// A worker that can do nothing yet.
    pub fn new(client: &Client) -> Worker {
        let settings = Settings {
            concurrency: Worker::CONCURRENCY_DEFAULT,
            queue: Worker::CONCURRENCY_DEFAULT,
            heartbeat: Duration::from_secs(5),
            save_every: Duration::from_secs(5),
            grace: Worker::GRACE_DEFAULT,
            host: None,
            app: None,
        };
        Worker { client: client.clone(), handlers: BTreeMap::new(), settings }
    }

    /// Runs tasks of a type with a handler: an `async fn(TaskContext, T) -> Result<R, E>`, or a closure like it. `T` is read
    /// from the payload, `R` is stored as the result. An error is tried again by the task's policy; a [`TaskError`] says what
    /// else shall happen. A panic is an error of that task alone.
    pub fn handle<F, Fut, T, R, E>(mut self, task_type: impl Into<String>, handler: F) -> Worker
    where
        F: Fn(TaskContext, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<TaskError> + Send + 'static,
    {
        self.handlers.insert(task_type.into(), erase(handler));
        self
    }

    /// How many handlers run at once.
    pub fn concurrency(mut self, handlers: usize) -> Worker {
        self.settings.concurrency = handlers.max(1);
        self
    }

    /// How many tasks may be claimed ahead, so that a handler that ends finds the next one here. Short work gets faster by a
    /// long queue: a few times as many as are done in a hundredth of a second. For long work say 0: what waits here could run
    /// elsewhere, and the time limit of a task counts from its claim.
    pub fn queue(mut self, tasks: usize) -> Worker {
        self.settings.queue = tasks;
        self
    }

    /// How often the worker tells that it lives. After three that are missed, its tasks are given to others.
    pub fn heartbeat(mut self, every: Duration) -> Worker {
        self.settings.heartbeat = every;
        self
    }

    /// How often noted checkpoints and progress are saved.
    pub fn save_every(mut self, every: Duration) -> Worker {
        self.settings.save_every = every.max(Duration::from_millis(1));
        self
    }

    /// How long handlers may go on when the worker stops. What has not ended then is given back.
    pub fn grace(mut self, period: Duration) -> Worker {
        self.settings.grace = period;
        self
    }

    /// The name of this host; the machine's unless given.
    pub fn host(mut self, host: impl Into<String>) -> Worker {
        self.settings.host = Some(host.into());
        self
    }

    /// The application that the worker belongs to.
    pub fn app(mut self, app: impl Into<String>) -> Worker {
        self.settings.app = Some(app.into());
        self
    }

    /// Works until SIGTERM or Ctrl-C. Then it claims no more, gives back what has not been started, lets handlers end within
    /// the grace period, and gives back the rest with their checkpoints. A second signal ends the grace period.
    pub async fn run(self) -> Result<()> {
        let mut signals = stop::Signals::listen()?;
        let mut again = stop::Signals::listen()?;
        let twice = async {
            again.next().await;
            again.next().await;
        };
        self.work(Until::Told, signals.next(), twice).await
    }

    /// Works until a future resolves, and then stops as [`Worker::run`] does at a signal.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        self.work(Until::Told, stop, std::future::pending()).await
    }

    /// Works until nothing is due and everything is reported.
    pub async fn run_until_idle(self) -> Result<()> {
        self.work(Until::Idle, std::future::pending(), std::future::pending()).await
    }

    async fn work(self, until: Until, stop: impl Future<Output = ()>, now: impl Future<Output = ()>) -> Result<()> {
        if self.handlers.is_empty() {
            return Err(Error::field("handlers", "a worker needs at least one"));
        }
        let host = self.settings.host.clone().unwrap_or_else(stop::host_name);
        let shop = Arc::new(Shop {
            worker_id: worker_id(&host),
            hands: Hands::new(self.settings.concurrency, self.settings.queue),
            host,
            client: self.client,
            handlers: self.handlers,
            settings: self.settings,
            until,
        });
        stop::run(shop, stop, now).await
    }
}

/// When a worker ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Told,
    Idle,
}

/// What all loops of a worker have at hand.
struct Shop {
    client: Client,
    worker_id: String,
    host: String,
    handlers: BTreeMap<String, Handler>,
    settings: Settings,
    hands: Hands,
    until: Until,
}

/// New at each start, and telling a person where it runs.
fn worker_id(host: &str) -> String {
    let random = Uuid::new_v4().simple().to_string();
    let rest = format!("-{}-{}", std::process::id(), &random[..8]);
    host.chars().take(limits::NAME_CHARS_MAX - rest.len()).collect::<String>() + &rest
}
