//! kill -9 of a database server under load: what it acknowledged is there after its restart, and the same store goes on.

use crate::load::{self, Acknowledged};
use crate::support::{Dialect, eventually, random_below};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use taskwheel_store::Options;
use tempfile::TempDir;

const KILLS: usize = 2;
const ACKNOWLEDGED_EACH: usize = 150;

/// A private server on a directory of its own.
struct Server {
    dialect: Dialect,
    process: Child,
    directory: TempDir,
    port: u16,
    password: String,
}

impl Server {
    async fn start(dialect: Dialect) -> Server {
        let password = std::env::var("TASKWHEEL_TEST_PASSWORD")
            .expect("TASKWHEEL_TEST_PASSWORD is not set: run the tests with ./test, which sets it");
        let directory = tempfile::tempdir().expect("a temporary directory");
        // The server's user must be able to pass through.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).expect("the directory is ours");
        let port = free_port();
        let process = spawn(dialect, directory.path(), port);
        let mut server = Server { dialect, process, directory, port, password };
        server.wait_until_ready().await;
        server
    }

    fn url(&self) -> String {
        let scheme = if self.dialect == Dialect::Postgres { "postgres" } else { "mysql" };
        format!("{scheme}://taskwheel:{}@127.0.0.1:{}/taskwheel", self.password, self.port)
    }

    fn kill(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server is gone");
    }

    async fn restart(&mut self) {
        self.process = spawn(self.dialect, self.directory.path(), self.port);
        self.wait_until_ready().await;
    }

    /// Waits until the server answers. What the killed one left running may keep a new one from starting for a moment:
    /// then it is started again.
    async fn wait_until_ready(&mut self) {
        let url = self.url();
        let (dialect, path, port) = (self.dialect, self.directory.path().to_owned(), self.port);
        let process = Mutex::new(&mut self.process);
        eventually("the server answers", || {
            let mut process = process.lock().expect("one look at a time");
            if process.try_wait().expect("the server can be asked").is_some() {
                **process = spawn(dialect, &path, port);
            }
            let url = url.clone();
            async move {
                match dialect {
                    Dialect::Postgres => PgConnection::connect(&url).await.ok().map(drop),
                    _ => MySqlConnection::connect(&url).await.ok().map(drop),
                }
            }
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // PostgreSQL removes its shared memory when it is told to stop at once.
        let signal = if self.dialect == Dialect::Postgres { "-QUIT" } else { "-KILL" };
        drop(Command::new("kill").args([signal, &self.process.id().to_string()]).status());
        drop(self.process.wait());
    }
}

fn spawn(dialect: Dialect, directory: &Path, port: u16) -> Child {
    let (script, memory) = match dialect {
        Dialect::Postgres => ("start-postgres", "shared_buffers=64MB"),
        _ => ("start-mariadb", "innodb-buffer-pool-size=64M"),
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("the server's log opens");
    let mut command = Command::new(scripts.join(script));
    command.arg(directory.join("server")).arg(port.to_string()).arg(memory);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log has two ends")).stderr(log);
    command.spawn().expect("the server starts")
}

/// Below the ports that the system hands out for outgoing connections.
fn free_port() -> u16 {
    loop {
        let port = 20_000 + u16::try_from(random_below(12_000)).expect("a port");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

async fn acknowledged_work_survives_the_kill_of_the_server(dialect: Dialect) {
    let mut server = Server::start(dialect).await;
    let store = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens");
    let record = Arc::new(Mutex::new(Vec::new()));
    let told: Arc<dyn Fn(Acknowledged) + Send + Sync> = {
        let record = record.clone();
        Arc::new(move |one| record.lock().expect("the record is whole").push(one))
    };
    let count = || record.lock().expect("the record is whole").len();
    let mut load = load::start(&store, &told);
    for _ in 0..KILLS {
        let wanted = count() + ACKNOWLEDGED_EACH;
        eventually("work is acknowledged", || async { (count() >= wanted).then_some(()) }).await;
        server.kill();
        server.restart().await;
    }
    let wanted = count() + ACKNOWLEDGED_EACH;
    eventually("the same store goes on by itself", || async { (count() >= wanted).then_some(()) }).await;
    while let Some(ended) = load.try_join_next() {
        ended.expect("a caller met nothing but a database that was away");
    }
    load.shutdown().await;
    let acknowledged = record.lock().expect("the record is whole").clone();
    load::assert_all_there(&*store, &acknowledged).await;
    let again = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens again");
    load::assert_all_there(&*again, &acknowledged).await;
}

mod postgres {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_the_server() {
        super::acknowledged_work_survives_the_kill_of_the_server(crate::support::Dialect::Postgres).await;
    }
}

mod mysql {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_the_server() {
        super::acknowledged_work_survives_the_kill_of_the_server(crate::support::Dialect::Mysql).await;
    }
}
