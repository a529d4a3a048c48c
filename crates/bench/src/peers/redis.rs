//! A private Redis, as Debian ships it: it writes snapshots now and then, and nothing when it answers.

use super::{run, sources};
use crate::common::report::progress;
use crate::floor::Result;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const START_MAX: Duration = Duration::from_secs(10);

/// The server. It ends, and its data is gone, when this is dropped.
pub(crate) struct Redis {
    port: u16,
    directory: PathBuf,
    server: Option<Child>,
}

impl Redis {
    /// Starts one on a free port; installs it where that is possible.
    pub(crate) async fn start() -> Result<Redis> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().await.is_err() {
            install().await?;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        // Not in /tmp, which is memory on many machines.
        let directory = PathBuf::from(format!("/var/tmp/taskwheel-bench-redis.{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut redis = Redis { port, directory, server: None };
        let mut server = Command::new("redis-server");
        server.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(&redis.directory);
        redis.server = Some(server.stdout(Stdio::null()).kill_on_drop(true).spawn()?);
        let clock = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            if clock.elapsed() > START_MAX {
                return Err("redis-server does not answer".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It is killed, so that it writes nothing more.
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

async fn install() -> Result<()> {
    progress("installing redis-server");
    run(Command::new(sources().join("install-redis"))).await.map(drop)
}
