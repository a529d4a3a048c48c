//! The cluster: the database, the servers and the workers, each a process, and the links between them. What dies is started again.

use crate::history::History;
use crate::own_server::OwnServer;
use crate::proxy::Proxy;
use crate::worker::TYPES;
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;

/// The tenants, each with workers and clients of its own.
pub(crate) const TENANTS: [&str; 2] = ["red", "blue"];
/// Of each tenant. The last one lies.
const WORKERS: usize = 3;
/// So many files a server may have open, and each connection is one: few enough that a crowd can take all. Clients need less than half.
pub(crate) const SERVER_FILES_MAX: usize = 512;
const RESPAWN_EVERY: Duration = Duration::from_millis(200);
const STOP_MAX: Duration = Duration::from_secs(45);

/// What a server is told to do wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    pub(crate) kill: Option<&'static str>,
    pub(crate) clock_ms: i64,
    pub(crate) disk_full: bool,
    pub(crate) broken: Option<String>,
}

impl Orders {
    fn text(&self) -> String {
        let mut words = vec![format!("clock:{}", self.clock_ms)];
        words.extend(self.kill.map(|point| format!("kill:{point}")));
        words.extend(self.disk_full.then(|| "disk_full".to_owned()));
        words.extend(self.broken.iter().map(|rule| format!("break:{rule}")));
        words.join(" ")
    }
}

/// A process that is started again when it has ended.
pub(crate) struct Member {
    /// Whether it is one that does harm, and goes with the faults.
    lies: bool,
    is_retired: AtomicBool,
    command: Mutex<Command>,
    process: Mutex<Option<Child>>,
    /// Who stops it has it until it goes on: of two at a time the first would let it go on for both.
    pub(crate) held: tokio::sync::Mutex<()>,
}

impl Member {
    fn new(command: Command, lies: bool) -> Member {
        let (command, process) = (Mutex::new(command), Mutex::new(None));
        Member { lies, is_retired: AtomicBool::new(false), command, process, held: tokio::sync::Mutex::default() }
    }

    /// The number of its process: another one after each start.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// Ends it for good if it does harm.
    pub(crate) fn retire_liar(&self) {
        if self.lies {
            self.is_retired.store(true, Ordering::Relaxed);
            self.signal(Signal::SIGKILL);
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it if it does not run.
    fn ensure(&self) -> Result<()> {
        let mut process = self.process();
        let is_gone = process.as_mut().is_none_or(|process| !matches!(process.try_wait(), Ok(None)));
        if is_gone && !self.is_retired.load(Ordering::Relaxed) {
            *process = Some(self.command.lock().unwrap_or_else(PoisonError::into_inner).spawn()?);
        }
        Ok(())
    }

    /// Sends it a signal, and says whether it ran.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let mut process = self.process();
        process.as_mut().is_some_and(|process| {
            matches!(process.try_wait(), Ok(None)) && kill(Pid::from_raw(process.id().cast_signed()), signal).is_ok()
        })
    }

    /// Asks it to stop, and says whether it went in order.
    fn stop(&self) -> Result<bool> {
        self.signal(Signal::SIGTERM);
        let began = Instant::now();
        let mut process = self.process();
        let Some(process) = process.as_mut() else { return Ok(true) };
        while began.elapsed() < STOP_MAX {
            if let Some(status) = process.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut process) = self.process().take() {
            let _ = (process.kill(), process.wait());
        }
    }
}

/// A server with its links.
pub(crate) struct Server {
    pub(crate) member: Member,
    pub(crate) port: u16,
    pub(crate) to_database: Option<Arc<Proxy>>,
    pub(crate) to_workers: Arc<Proxy>,
    control: PathBuf,
    log: PathBuf,
    orders: Mutex<Orders>,
}

impl Server {
    /// Changes what it does wrong. It reads it within a moment.
    pub(crate) fn order(&self, change: impl FnOnce(&mut Orders)) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut orders);
        // Renamed, so that no half of it is read.
        let fresh = self.control.with_extension("fresh");
        let written = std::fs::write(&fresh, orders.text()).and_then(|()| std::fs::rename(&fresh, &self.control));
        written.expect("the orders can be written");
    }

    /// Whether it says that it has read what it was told last.
    pub(crate) fn has_taken_orders(&self) -> bool {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).text();
        std::fs::read_to_string(self.control.with_extension("taken")).is_ok_and(|taken| taken == orders)
    }

    /// At which points it ended as it was told.
    pub(crate) fn ended_at(&self) -> Vec<String> {
        let noted = std::fs::read_to_string(self.control.with_extension("killed")).unwrap_or_default();
        noted.lines().map(str::to_owned).collect()
    }
}

/// All of it.
pub(crate) struct Cluster {
    pub(crate) dialect: Dialect,
    /// The database, past the links.
    pub(crate) url: String,
    pub(crate) directory: PathBuf,
    pub(crate) database: tokio::sync::Mutex<Option<OwnServer>>,
    database_log: Option<PathBuf>,
    pub(crate) servers: Vec<Server>,
    pub(crate) workers: Vec<Member>,
    pub(crate) admin: String,
    /// A token of each tenant that may submit and step in.
    pub(crate) operators: Vec<String>,
    pub(crate) history: Arc<History>,
}

impl Cluster {
    /// Makes the database and its tokens, and everything else ready to start.
    pub(crate) async fn prepare(
        binary: &Path,
        dialect: Dialect,
        directory: &Path,
        (database, database_log): (Option<OwnServer>, Option<PathBuf>),
        broken: Option<&str>,
    ) -> Result<Cluster> {
        let url = match &database {
            Some(database) => database.url(),
            None => format!("sqlite://{}", directory.join("tasks.db").display()),
        };
        let token = |arguments: &[&str]| token(binary, &url, arguments);
        let admin = token(&["--role", "admin"])?;
        let operators = TENANTS.map(|tenant| token(&["--role", "operator", "--tenant", tenant]));
        let operators = operators.into_iter().collect::<Result<Vec<_>>>()?;
        let mut servers = Vec::new();
        for number in 0..if dialect == Dialect::Sqlite { 1 } else { 3 } {
            servers.push(server(binary, &url, directory, number, database.as_ref(), broken).await?);
        }
        let links: Vec<_> =
            servers.iter().map(|server| format!("http://127.0.0.1:{}", server.to_workers.port)).collect();
        let mut workers = Vec::new();
        for tenant in TENANTS {
            for number in 0..WORKERS {
                let token = token(&["--role", "worker", "--tenant", tenant, "--types", &TYPES.join(",")])?;
                let lies = number + 1 == WORKERS;
                workers.push(worker(directory, tenant, number, &links, &token, lies)?);
            }
        }
        let history = Arc::new(History::open(&directory.join("harness.history"))?);
        let (directory, database) = (directory.to_owned(), tokio::sync::Mutex::new(database));
        Ok(Cluster { dialect, url, directory, database, database_log, servers, workers, admin, operators, history })
    }

    /// Starts what does not run, again and again.
    pub(crate) async fn keep_up(self: Arc<Self>) {
        loop {
            for server in &self.servers {
                let has_ended = matches!(server.member.process().as_mut().map(Child::try_wait), Some(Ok(Some(_))));
                if has_ended {
                    server.order(|orders| orders.kill = None);
                }
            }
            for member in self.servers.iter().map(|server| &server.member).chain(&self.workers) {
                member.ensure().expect("a process can be started");
            }
            tokio::time::sleep(RESPAWN_EVERY).await;
        }
    }

    /// The servers as clients reach them.
    pub(crate) fn links(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("http://127.0.0.1:{}", server.to_workers.port)).collect()
    }

    /// Where the servers and the database say what they could not do.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        self.servers.iter().map(|server| server.log.clone()).chain(self.database_log.clone()).collect()
    }

    /// The points at which servers ended as they were told.
    pub(crate) fn ended_at(&self) -> Vec<String> {
        self.servers.iter().flat_map(Server::ended_at).collect()
    }

    /// Stops everything but the database, in order. Workers do not listen, and are killed.
    pub(crate) fn stop(&self) -> Result<()> {
        for worker in &self.workers {
            worker.signal(Signal::SIGKILL);
        }
        for (number, server) in self.servers.iter().enumerate() {
            if !server.member.stop()? {
                bail!("server {number} did not stop in order; see {}", self.directory.display());
            }
        }
        Ok(())
    }
}

async fn server(
    binary: &Path,
    url: &str,
    directory: &Path,
    number: usize,
    database: Option<&OwnServer>,
    broken: Option<&str>,
) -> Result<Server> {
    let (to_database, url) = match database {
        Some(database) => {
            let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, database.port()))).await?;
            let url = url.replace(&format!(":{}/", database.port()), &format!(":{}/", proxy.port));
            (Some(proxy), url)
        }
        None => (None, url.to_owned()),
    };
    let port = crate::own_server::free_port();
    let to_workers = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let control = directory.join(format!("server-{number}.orders"));
    let (log, log_path) = log(directory, &format!("server-{number}"))?;
    // The limit is for this process alone, and hard: a server raises its soft one.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {SERVER_FILES_MAX} && exec \"$0\" \"$@\"")]).arg(binary);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--database", &url]);
    command.env("TASKWHEEL_FAULTS", &control).env("TASKWHEEL_LOG", "info");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let server = Server {
        member: Member::new(command, false),
        port,
        to_database,
        to_workers,
        control,
        log: log_path,
        orders: Mutex::default(),
    };
    server.order(|orders| orders.broken = broken.map(str::to_owned));
    Ok(server)
}

fn worker(directory: &Path, tenant: &str, number: usize, links: &[String], token: &str, lies: bool) -> Result<Member> {
    let name = format!("{tenant}-{number}");
    let (log, _) = log(directory, &name)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "--servers", &links.join(","), "--tenant", tenant, "--name", &name]);
    command.arg("--history").arg(directory.join(format!("{name}.history"))).env("TASKWHEEL_TOKEN", token);
    if lies {
        command.arg("--lies");
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Member::new(command, lies))
}

fn log(directory: &Path, name: &str) -> Result<(File, PathBuf)> {
    let path = directory.join(format!("{name}.log"));
    let file = File::options().create(true).append(true).open(&path);
    Ok((file.with_context(|| format!("cannot write {}", path.display()))?, path))
}

/// A new token, made on the database.
fn token(binary: &Path, url: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(["--json", "tokens", "create", "--database", url]).args(arguments);
    let output = command.output().with_context(|| format!("{} cannot be started", binary.display()))?;
    if !output.status.success() {
        bail!("no token was made: {}", String::from_utf8_lossy(&output.stderr));
    }
    let made: Value = serde_json::from_slice(&output.stdout)?;
    Ok(made["token"].as_str().context("a token was made and not shown")?.to_owned())
}
