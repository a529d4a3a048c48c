//! Private servers of peers that have no database: Redis as Debian ships it, and beanstalkd with an fsync for each change.

use super::{run, sources};
use crate::common::report::progress;
use crate::floor::Result;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const START_MAX: Duration = Duration::from_secs(10);

static STARTED: AtomicU64 = AtomicU64::new(0);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It writes snapshots now and then, and nothing when it answers.
    Redis,
    /// It answers when the change is on disk.
    Beanstalkd,
}

/// A server. It ends, and its data is gone, when this is dropped.
pub(crate) struct Service {
    kind: Kind,
    port: u16,
    directory: PathBuf,
    server: Option<Child>,
}

impl Service {
    /// Starts one on a free port; installs it where that is possible.
    pub(crate) async fn start(kind: Kind) -> Result<Service> {
        if kind.version().await.is_err() {
            progress(&format!("installing {}", kind.program()));
            let mut install = Command::new(sources().join("install"));
            install.arg(kind.program());
            run(install).await?;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let number = STARTED.fetch_add(1, Relaxed);
        // Not in /tmp, which is memory on many machines.
        let directory =
            PathBuf::from(format!("/var/tmp/taskwheel-bench-{}.{}.{number}", kind.program(), std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut service = Service { kind, port, directory, server: None };
        let mut server = Command::new(kind.program());
        match kind {
            Kind::Redis => {
                server.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(&service.directory)
            }
            Kind::Beanstalkd => {
                server.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-f0", "-b"]).arg(&service.directory)
            }
        };
        service.server = Some(server.stdout(Stdio::null()).kill_on_drop(true).spawn()?);
        let clock = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            if clock.elapsed() > START_MAX {
                return Err(format!("{} does not answer", kind.program()).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(service)
    }

    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Redis => format!("redis://127.0.0.1:{}", self.port),
            // Its process too, whose memory the driver asks for: all that it has is in there.
            Kind::Beanstalkd => format!("127.0.0.1:{}/{}", self.port, self.id()),
        }
    }

    fn id(&self) -> u32 {
        self.server.as_ref().and_then(Child::id).unwrap_or_default()
    }
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Kind::Redis => "redis-server",
            Kind::Beanstalkd => "beanstalkd",
        }
    }

    /// What it says of its version.
    pub(crate) async fn version(self) -> Result<String> {
        let mut ask = Command::new(self.program());
        ask.arg("-v");
        let said = run(ask).await?;
        // "Redis server v=7.0.15 sha=…", "beanstalkd 1.12".
        let word = said.split_whitespace().find_map(|word| word.strip_prefix("v=")).or(said.split_whitespace().last());
        Ok(word.unwrap_or_default().to_owned())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It is killed, so that it writes nothing more.
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
