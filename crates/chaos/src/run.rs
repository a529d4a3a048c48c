//! One run on one database: load, faults, heal, verify.

use crate::api::Api;
use crate::check::{self, Law, Violation, firings};
use crate::cluster::{Cluster, TENANTS};
use crate::disk::Disk;
use crate::history;
use crate::inject;
use crate::load;
use crate::own_server::OwnServer;
use crate::plan::{Fault, POINTS, faults, plan};
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
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The faults that are to be made.
    fn faults(&self, dialect: Dialect) -> Vec<Fault> {
        let is_wanted =
            |fault: &Fault| !self.is_calm && self.only.as_ref().is_none_or(|only| fault.name().contains(only));
        faults(dialect).into_iter().filter(is_wanted).collect()
    }
}

const SCHEDULES: usize = 12;
/// Of each tenant.
const CLIENTS: usize = 2;
/// After the last fault, schedules get so long to make up for it: five seconds are what is not missed, and a look takes its time.
const HEAL: Duration = Duration::from_secs(8);
const READY_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(dialect: Dialect, settings: &Settings) -> Result<Report> {
    let length = Duration::from_secs(settings.seconds);
    let scratch = tempfile::Builder::new().prefix("taskwheel-chaos.").tempdir()?;
    let directory = match &settings.keep {
        Some(keep) => keep.join(format!("{dialect:?}").to_lowercase()),
        None => scratch.path().to_owned(),
    };
    std::fs::create_dir_all(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o711))?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o711))?;
    let disk = if dialect == Dialect::Sqlite { None } else { Disk::mount(scratch.path()) };
    let database = database(dialect, disk.as_ref().map_or(scratch.path(), Disk::path)).await?;
    let broken = settings.broken.as_deref();
    let cluster = Cluster::prepare(&settings.binary, dialect, &directory, database, broken).await?;
    let cluster = Arc::new(cluster);
    let store = taskwheel_store::open(Options::new(&cluster.url)).await?;
    let schedules = firings::make(store.as_ref(), TENANTS[0], SCHEDULES).await;

    let keeper = tokio::spawn(cluster.clone().keep_up());
    let admin = Api::new(cluster.links(), cluster.admin.clone())?;
    prepare(&admin).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for (tenant, token) in TENANTS.iter().zip(&cluster.operators) {
        for number in 0..CLIENTS {
            let api = Api::new(cluster.links(), token.clone())?;
            let (name, tenant) = (number.to_string(), (*tenant).to_owned());
            clients.spawn(load::run(name, tenant, api, cluster.history.clone(), stop.clone()));
        }
    }
    let disk = Arc::new(disk);
    let faults = settings.faults(dialect);
    let planned = plan(settings.seed, &faults, settings.seconds * 1_000);
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
    if drained.is_none() {
        let what = format!("something was still to be done after {} s", settings.drain_max.as_secs());
        violations.push(Violation { law: Law::Drains, what });
    }
    keeper.abort();
    // Whoever started a process in that moment has done so when this is over.
    let _ = keeper.await;
    cluster.stop()?;

    let lines = history::read(&directory)?;
    let (mut tasks, mut runs) = (Vec::new(), 0);
    match store.contradictions().await? {
        0 => {
            tasks = state::read(&store).await?;
            violations.extend(check::check(&lines, &tasks));
            runs = check_schedules(store.as_ref(), &schedules, &cursors, &mut violations).await;
        }
        // Then nothing that is read can be trusted.
        count => {
            violations.push(Violation { law: Law::InOnePlace, what: format!("{count} tasks are not in one place") });
        }
    }
    let guards = check::guards(&lines, &tasks);
    let faults = count(&faults, &lines, &cluster.ended_at());
    drop(store);
    Ok(Report {
        dialect,
        seed: settings.seed,
        seconds: settings.seconds,
        is_whole: !settings.is_calm && settings.only.is_none(),
        facts: lines.len(),
        tasks: tasks.len(),
        runs,
        drained,
        drain_max: settings.drain_max,
        faults,
        guards,
        violations,
    })
}

async fn database(dialect: Dialect, place: &Path) -> Result<Option<OwnServer>> {
    if dialect == Dialect::Sqlite {
        return Ok(None);
    }
    let directory = tempfile::Builder::new().tempdir_in(place)?;
    Ok(Some(OwnServer::start_in(dialect, directory).await))
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
) -> usize {
    let mut runs = 0;
    for schedule in schedules {
        let Some(cursor) = cursors.get(&schedule.id) else { continue };
        match firings::check(store, schedule, *cursor).await {
            Ok(count) => runs += count,
            Err(what) => violations.push(Violation { law: Law::FiresOnce, what }),
        }
    }
    runs
}

/// How often each fault was made. Those at points in the code count when a server ended there.
fn count(faults: &[Fault], lines: &[history::Line], ended_at: &[String]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = faults.iter().map(|fault| (fault.name(), 0)).collect();
    for line in lines {
        if let history::Fact::Fault { name } = &line.fact {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }
    for point in POINTS {
        let times = ended_at.iter().filter(|ended| *ended == point).count();
        counts.entry(Fault::KillAt(point).name()).and_modify(|count| *count += times);
    }
    counts
}

/// Whether what a run needs is there.
pub(crate) fn check_binary(binary: &Path) -> Result<()> {
    binary.is_file().then_some(()).with_context(|| {
        format!("{} is not there: build it with `cargo build -p taskwheel --features faults`", binary.display())
    })
}
