//! One run on one database: load, faults, heal, verify.

use crate::api::Api;
use crate::check::firings::Kept;
use crate::check::{self, Law, Violation, firings};
use crate::cluster::{Cluster, TENANTS};
use crate::disk::Disk;
use crate::history;
use crate::inject;
use crate::load::{self, Submitter};
use crate::own_server::OwnServer;
use crate::plan::{Fault, LIES, POINTS, faults, plan};
use crate::proxy::Weather;
use crate::report::Report;
use crate::state;
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use taskwheel_model::Time;
use taskwheel_store::schedule::Schedule;
use taskwheel_store::{Dialect, Options, Store};
use tokio::task::JoinSet;

pub(crate) struct Settings {
    pub(crate) binary: PathBuf,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) broken: Option<String>,
    pub(crate) only: Option<String>,
    pub(crate) is_calm: bool,
    pub(crate) drain_max: Duration,
}

impl Settings {
    /// Whether all faults are to be made.
    fn is_whole(&self) -> bool {
        !self.is_calm && self.only.is_none()
    }

    /// The faults that are to be made.
    fn faults(&self, dialect: Dialect) -> Vec<Fault> {
        let is_wanted =
            |fault: &Fault| !self.is_calm && self.only.as_ref().is_none_or(|only| fault.name().contains(only));
        faults(dialect).into_iter().filter(is_wanted).collect()
    }
}

const SCHEDULES: usize = 12;
/// Of each tenant.
const CLIENTS: usize = 4;
/// After the last fault, schedules get so long to make up for it: five seconds are what is not missed, and a look takes its time.
const HEAL: Duration = Duration::from_secs(8);
const READY_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(dialect: Dialect, settings: &Settings) -> Result<Report> {
    let length = Duration::from_secs(settings.seconds);
    let scratch = tempfile::Builder::new().prefix("taskwheel-chaos.").tempdir()?;
    let directory = settings.keep.as_deref().map_or(scratch.path().to_owned(), |keep| kept_in(keep, dialect));
    std::fs::create_dir_all(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o711))?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o711))?;
    let disk = if dialect == Dialect::Sqlite { None } else { Disk::mount(scratch.path()) };
    let database = database(dialect, disk.as_ref().map_or(scratch.path(), Disk::path)).await?.unzip();
    let broken = settings.broken.as_deref();
    let cluster = Cluster::prepare(&settings.binary, dialect, &directory, database, broken).await?;
    let cluster = Arc::new(cluster);
    let store = taskwheel_store::open(Options::new(&cluster.url)).await?;
    let schedules = firings::make(store.as_ref(), TENANTS[0], SCHEDULES).await;

    let keeper = tokio::spawn(cluster.clone().keep_up());
    let admin = Api::new(cluster.links(), cluster.admin.clone())?;
    prepare(&admin).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = clients(&cluster, &stop)?;
    let disk = Arc::new(disk);
    let faults = settings.faults(dialect);
    let planned = plan(settings.seed, &faults, settings.seconds * 1_000, cluster.servers.len());
    inject::all(&cluster, &disk, planned, length).await;

    heal(&cluster);
    if !faults.is_empty() {
        tokio::time::sleep(HEAL).await;
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let mut violations = Vec::new();
    let cursors = stop_schedules(store.as_ref(), &schedules, &mut violations).await;
    let drained = drain(&admin, settings.drain_max).await;
    violations.extend(check::drains(drained, settings.drain_max));
    keeper.abort();
    // Whoever started a process in that moment has done so when this is over.
    let _ = keeper.await;
    cluster.stop()?;

    let lines = history::read(&directory)?;
    let (mut tasks, mut kept) = (Vec::new(), Kept::default());
    let torn = check::in_one_place(store.contradictions().await?);
    // Of tasks that are in two places, or in none, nothing that is read can be trusted.
    let is_readable = torn.is_none();
    violations.extend(torn);
    if is_readable {
        tasks = state::read(&store).await?;
        violations.extend(check::check(&lines, &tasks));
        kept = check_schedules(store.as_ref(), &schedules, &cursors, &mut violations).await;
    }
    let mut guards = check::guards(&lines, &tasks, kept.misfires);
    if dialect == Dialect::Sqlite {
        guards.remove(check::OUTCOME_UNKNOWN);
    }
    let faults = count(&faults, &lines, &cluster.ended_at(), settings.is_whole());
    drop(store);
    Ok(Report {
        dialect,
        seed: settings.seed,
        seconds: settings.seconds,
        is_whole: settings.is_whole(),
        is_readable,
        facts: lines.len(),
        tasks: tasks.len(),
        runs: kept.runs,
        drained,
        drain_max: settings.drain_max,
        faults,
        guards,
        violations,
    })
}

/// Where what is kept of a database goes.
fn kept_in(keep: &Path, dialect: Dialect) -> PathBuf {
    keep.join(format!("{dialect:?}").to_lowercase())
}

/// Whether what is to be kept would come beside what another run has left, and be read with it.
pub(crate) fn check_keep(keep: &Path, dialects: &[Dialect]) -> Result<()> {
    for dialect in dialects {
        let place = kept_in(keep, *dialect);
        if std::fs::read_dir(&place).is_ok_and(|mut files| files.next().is_some()) {
            bail!(
                "{} is not empty: another run has left it, and its histories would be read with this one's",
                place.display()
            );
        }
    }
    Ok(())
}

/// The database with its log, where it is not a file.
async fn database(dialect: Dialect, place: &Path) -> Result<Option<(OwnServer, PathBuf)>> {
    if dialect == Dialect::Sqlite {
        return Ok(None);
    }
    let directory = tempfile::Builder::new().tempdir_in(place)?;
    let log = directory.path().join("log");
    Ok(Some((OwnServer::start_in(dialect, directory).await, log)))
}

/// Starts those who submit.
fn clients(cluster: &Cluster, stop: &Arc<AtomicBool>) -> Result<JoinSet<()>> {
    let latest = Arc::new(TENANTS.map(|_| AtomicI64::new(0)));
    let mut clients = JoinSet::new();
    for (place, token) in cluster.operators.iter().enumerate() {
        for number in 0..CLIENTS {
            clients.spawn(load::run(Submitter {
                name: number.to_string(),
                place,
                api: Api::new(cluster.links(), token.clone())?,
                history: cluster.history.clone(),
                latest: latest.clone(),
                stop: stop.clone(),
            }));
        }
    }
    Ok(clients)
}

/// Waits for the servers, and configures the type whose failures wait for a person.
async fn prepare(admin: &Api) -> Result<()> {
    let (began, judged) = (Instant::now(), json!({"need_manual": true}));
    while began.elapsed() < READY_MAX {
        if let Ok((status, answer)) = admin.call(Method::PUT, "/v1/types/judged", Some(&judged)).await {
            if status.is_success() {
                return Ok(());
            }
            bail!("the servers do not take a type: {status} {answer}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no server answered within {} s", READY_MAX.as_secs())
}

/// Takes back whatever is still wrong.
fn heal(cluster: &Cluster) {
    for server in &cluster.servers {
        server.order(|orders| {
            (orders.kill, orders.clock_ms, orders.disk_full) = (None, 0, false);
        });
        server.member.signal(Signal::SIGCONT);
        for link in server.to_database.iter().chain([&server.to_workers]) {
            link.set(Weather::Fair);
        }
    }
    for worker in &cluster.workers {
        worker.signal(Signal::SIGCONT);
        worker.retire_liar();
    }
}

/// How long it takes until nothing is to be done any more; `None` where it takes too long.
async fn drain(admin: &Api, within: Duration) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < within {
        let left = admin.call(Method::GET, "/v1/tasks?status=New,Error,Executing&limit=1", None).await;
        if left.is_ok_and(|(_, left)| left["items"].as_array().is_some_and(Vec::is_empty)) {
            return Some(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

async fn stop_schedules(
    store: &dyn Store,
    schedules: &[Schedule],
    violations: &mut Vec<Violation>,
) -> BTreeMap<i64, Time> {
    let mut cursors = BTreeMap::new();
    for schedule in schedules {
        match firings::stop(store, schedule).await {
            Ok(cursor) => drop(cursors.insert(schedule.id, cursor)),
            Err(what) => violations.push(Violation { law: Law::FiresOnce, what }),
        }
    }
    cursors
}

async fn check_schedules(
    store: &dyn Store,
    schedules: &[Schedule],
    cursors: &BTreeMap<i64, Time>,
    violations: &mut Vec<Violation>,
) -> Kept {
    let mut kept = Kept::default();
    for schedule in schedules {
        let Some(cursor) = cursors.get(&schedule.id) else { continue };
        match firings::check(store, schedule, *cursor).await {
            Ok(Kept { runs, misfires }) => (kept.runs, kept.misfires) = (kept.runs + runs, kept.misfires + misfires),
            Err(what) => violations.push(Violation { law: Law::FiresOnce, what }),
        }
    }
    kept
}

/// How often each fault was made. Those at points in the code count when a server ended there, whoever had told it to.
fn count(faults: &[Fault], lines: &[history::Line], ended_at: &[String], is_whole: bool) -> BTreeMap<String, usize> {
    let lies = LIES.into_iter().filter(|_| is_whole).map(str::to_owned);
    let mut counts: BTreeMap<String, usize> =
        faults.iter().map(|fault| fault.name()).chain(lies).map(|name| (name, 0)).collect();
    for line in lines {
        if let history::Fact::Fault { name } = &line.fact {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }
    for point in POINTS {
        let times = ended_at.iter().filter(|ended| *ended == point).count();
        counts.entry(Fault::KillAt(point).name()).and_modify(|count| *count = times);
    }
    counts
}

/// Whether what a run needs is there.
pub(crate) fn check_binary(binary: &Path) -> Result<()> {
    binary.is_file().then_some(()).with_context(|| {
        format!("{} is not there: build it with `cargo build -p taskwheel --features faults`", binary.display())
    })
}
