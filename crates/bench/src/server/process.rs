//! The server under test: the release binary, as a child process on a free loopback port.

use super::http::Connection;
use crate::common::database::Database;
use crate::common::memory::peak_mb;
use crate::floor::Result;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const READY_MAX: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(2);
const ANY_PORT: &str = "127.0.0.1:0";

/// A server that runs. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start of the process until it said that it is ready.
    pub(crate) ready_after: Duration,
    /// Kept open, so that the server may go on printing.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts one on a database, and waits until it is ready.
    pub(crate) async fn start(database: &Database) -> Result<Server> {
        Server::start_at(&database.url).await
    }

    /// Starts one on the database at a URL, and waits until it is ready.
    pub(crate) async fn start_at(url: &str) -> Result<Server> {
        let program = std::env::current_exe()?.with_file_name("taskwheel");
        let clock = Instant::now();
        let mut child = Command::new(&program)
            .args(["serve", "--listen", ANY_PORT])
            // Not as an argument: it may have a password in it.
            .env("TASKWHEEL_DATABASE", url)
            .env("TASKWHEEL_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut output = BufReader::new(child.stdout.take().ok_or("a server without output")?);
        let address = address(&mut output);
        let mut server =
            Server { child, address: ([127, 0, 0, 1], 0).into(), ready_after: Duration::ZERO, _output: output };
        server.address = address?;
        server.wait_until_ready(clock).await?;
        server.ready_after = clock.elapsed();
        Ok(server)
    }

    async fn wait_until_ready(&self, clock: Instant) -> Result<()> {
        while !self.is_ready().await {
            if clock.elapsed() > READY_MAX {
                return Err(format!("the server was not ready after {} s", READY_MAX.as_secs()).into());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Ok(())
    }

    async fn is_ready(&self) -> bool {
        let Ok(mut connection) = Connection::open(self.address).await else { return false };
        matches!(connection.get("/readyz").await, Ok((200, _)))
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address).await
    }

    /// Kills it as a power cut would, and answers the most memory that it had.
    pub(crate) fn kill(mut self) -> Result<f64> {
        let peak = peak_mb(&self.child.id().to_string())?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(peak)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it listens, by its own word.
fn address(output: &mut BufReader<ChildStdout>) -> Result<SocketAddr> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    let (_, address) = line.trim().rsplit_once("http://").ok_or("the server did not start; its words are above")?;
    Ok(address.parse()?)
}
