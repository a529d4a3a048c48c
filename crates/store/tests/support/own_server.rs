//! A private database server that a test may kill and start again.

use super::Dialect;
use super::wait::{eventually, random_below};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use tempfile::TempDir;

/// A private server on a directory of its own.
pub(crate) struct OwnServer {
    dialect: Dialect,
    process: Child,
    directory: TempDir,
    port: u16,
    password: String,
    settings: &'static [&'static str],
}

impl OwnServer {
    pub(crate) async fn start(dialect: Dialect) -> OwnServer {
        OwnServer::start_with(dialect, &[]).await
    }

    /// With settings of its own, each as NAME=VALUE.
    pub(crate) async fn start_with(dialect: Dialect, settings: &'static [&'static str]) -> OwnServer {
        OwnServer::launch(dialect, tempfile::tempdir().expect("a temporary directory"), settings).await
    }

    pub(crate) async fn start_in(dialect: Dialect, directory: TempDir) -> OwnServer {
        OwnServer::launch(dialect, directory, &[]).await
    }

    async fn launch(dialect: Dialect, directory: TempDir, settings: &'static [&'static str]) -> OwnServer {
        let password = std::env::var("TASKWHEEL_TEST_PASSWORD")
            .expect("TASKWHEEL_TEST_PASSWORD is not set: run the tests with ./test, which sets it");
        // The server's user must be able to pass through.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).expect("the directory is ours");
        let port = free_port();
        let process = spawn(dialect, directory.path(), port, settings);
        let mut server = OwnServer { dialect, process, directory, port, password, settings };
        server.wait_until_ready().await;
        server
    }

    /// Of a user who may do no more than an application's usually may.
    pub(crate) fn url(&self) -> String {
        let user = if self.dialect == Dialect::Postgres { "postgres://taskwheel" } else { "mysql://ordinary" };
        format!("{user}:{}@127.0.0.1:{}/taskwheel", self.password, self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server is gone");
    }

    /// Lets it end in order.
    pub(crate) fn stop(&mut self) {
        // PostgreSQL then ends its connections; otherwise it would wait for them.
        let signal = if self.dialect == Dialect::Postgres { "-INT" } else { "-TERM" };
        drop(Command::new("kill").args([signal, &self.process.id().to_string()]).status());
        self.process.wait().expect("the server is gone");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn restart(&mut self) {
        self.process = spawn(self.dialect, self.directory.path(), self.port, self.settings);
        self.wait_until_ready().await;
    }

    /// Waits until the server answers. What the killed one left running may keep a new one from starting for a moment:
    /// then it is started again.
    pub(crate) async fn wait_until_ready(&mut self) {
        let url = self.url();
        let (dialect, path, port, settings) =
            (self.dialect, self.directory.path().to_owned(), self.port, self.settings);
        let process = Mutex::new(&mut self.process);
        eventually("the server answers", || {
            let mut process = process.lock().expect("one look at a time");
            if process.try_wait().expect("the server can be asked").is_some() {
                **process = spawn(dialect, &path, port, settings);
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

impl Drop for OwnServer {
    fn drop(&mut self) {
        // PostgreSQL removes its shared memory when it is told to stop at once.
        let signal = if self.dialect == Dialect::Postgres { "-QUIT" } else { "-KILL" };
        drop(Command::new("kill").args([signal, &self.process.id().to_string()]).status());
        drop(self.process.wait());
    }
}

fn spawn(dialect: Dialect, directory: &Path, port: u16, settings: &[&str]) -> Child {
    let (script, memory) = match dialect {
        Dialect::Postgres => ("start-postgres", "shared_buffers=64MB"),
        _ => ("start-mariadb", "innodb-buffer-pool-size=64M"),
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("the server's log opens");
    let mut command = Command::new(scripts.join(script));
    command.arg(directory.join("server")).arg(port.to_string()).arg(memory).args(settings);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log has two ends")).stderr(log);
    command.spawn().expect("the server starts")
}

/// Below the ports that the system hands out for outgoing connections.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = 20_000 + u16::try_from(random_below(12_000)).expect("a port");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
