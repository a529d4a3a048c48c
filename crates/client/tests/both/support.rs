//! A platform of its own for each test: an engine in this process, or a server over HTTP in front of one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_client::engine::{Engine, EngineOptions};
use taskwheel_client::store::Options;
use taskwheel_client::{Client, NewTask, Task, TaskId, Worker};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

/// Long enough for a machine that is busy with other tests.
pub(crate) const IN_TIME: Duration = Duration::from_secs(60);

/// Turns each fact, an `async fn fact(platform: &Platform)`, into a test on a server and one in process.
#[macro_export]
macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $fact() {
                    super::$fact(&$crate::support::Platform::embedded().await).await;
                }
            )*
        }
        mod remote {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $fact() {
                    super::$fact(&$crate::support::Platform::remote().await).await;
                }
            )*
        }
    };
}

pub(crate) struct Platform {
    pub(crate) client: Client,
    engine: Arc<Engine>,
    servers: Vec<Server>,
    directory: TempDir,
}

/// A node in front of an engine, with threads of its own.
pub(crate) struct Server {
    pub(crate) url: String,
    threads: Option<Runtime>,
    _stop: watch::Sender<bool>,
}

impl Server {
    pub(crate) async fn start(engine: Arc<Engine>) -> Server {
        Server::serve(std::future::ready(engine)).await
    }

    /// A node with an engine and connections of its own, all of which end with it.
    pub(crate) async fn on(database: &str) -> Server {
        let options = Options::new(database);
        Server::serve(async {
            let store = taskwheel_client::store::open(options).await.unwrap();
            Arc::new(Engine::start(store, EngineOptions::default()))
        })
        .await
    }

    async fn serve(engine: impl Future<Output = Arc<Engine>> + Send + 'static) -> Server {
        let threads = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = oneshot::channel();
        threads.spawn(async move {
            let engine = engine.await;
            let listener = taskwheel_server::bind(([127, 0, 0, 1], 0).into(), None).await.unwrap();
            tell.send(format!("http://{}", listener.address().unwrap())).unwrap();
            listener
                .serve(taskwheel_server::router(engine, taskwheel_server::Spans::default(), "UTC".into()), stopped)
                .await;
        });
        Server { url: told.await.unwrap(), threads: Some(threads), _stop: stop }
    }
}

/// Ends as a process does that is killed: connections break.
impl Drop for Server {
    fn drop(&mut self) {
        self.threads.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Platform {
    async fn new(is_remote: bool) -> Platform {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", database(&directory).display());
        let store = taskwheel_client::store::open(Options::new(url)).await.unwrap();
        let engine = Arc::new(Engine::start(store, EngineOptions::default()));
        let mut servers = Vec::new();
        let client = if is_remote {
            servers.push(Server::start(engine.clone()).await);
            Client::connect(&servers[0].url).unwrap()
        } else {
            Client::on_engine(engine.clone())
        };
        Platform { client, engine, servers, directory }
    }

    pub(crate) async fn embedded() -> Platform {
        Platform::new(false).await
    }

    pub(crate) async fn remote() -> Platform {
        Platform::new(true).await
    }

    /// Another node of the same platform.
    pub(crate) async fn another_node(&self) -> Server {
        Server::start(self.engine.clone()).await
    }

    /// The store, for what clients have no call for.
    pub(crate) fn store(&self) -> &dyn taskwheel_client::store::Store {
        self.engine.store()
    }

    /// The file of the store, for what only the database can do.
    pub(crate) fn database(&self) -> PathBuf {
        database(&self.directory)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url.clone()).collect()
    }

    /// A worker whose leases outlast any stall of a busy machine.
    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&self.client)
    }

    /// A worker that soon hears what became of its tasks.
    pub(crate) fn attentive_worker(&self) -> Worker {
        self.worker().heartbeat(Duration::from_millis(300))
    }

    pub(crate) async fn submit(&self, task: NewTask) -> TaskId {
        self.client.submit(task).await.unwrap().id
    }

    pub(crate) async fn task(&self, id: TaskId) -> Task {
        self.client.get(id).await.unwrap()
    }

    /// A task once it is as wanted.
    pub(crate) async fn task_when(&self, id: TaskId, is_so: impl Fn(&Task) -> bool) -> Task {
        let waiting = async {
            loop {
                let task = self.task(id).await;
                if is_so(&task) {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(IN_TIME, waiting).await {
            Ok(task) => task,
            Err(_) => panic!("it never was as wanted: {:?}", self.task(id).await),
        }
    }
}

fn database(directory: &TempDir) -> PathBuf {
    directory.path().join("tasks.db")
}

/// Fails a test that would hang.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(IN_TIME, future).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}
