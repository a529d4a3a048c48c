//! Makes the faults of a plan, each for its time, and takes them back. Several may be under way at once. A fault counts when it was seen
//! to do something; one that met nobody is made again.

use crate::cluster::{Cluster, Member, Server};
use crate::crowd;
use crate::disk::Disk;
use crate::history::Fact;
use crate::log::Log;
use crate::plan::{Fault, Planned};
use crate::proxy::Weather;
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// So long a fault is tried that meets nobody: it may be hidden behind others, until they are over.
const TRY_MAX: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So long a process is waited for that is to be hit, and a server that was told something.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// So long a database may go on with what room it has taken before.
const FULL_MAX: Duration = Duration::from_secs(10);
/// What logs say of a disk that is full: of SQLite, of PostgreSQL, of either database server, and of MariaDB.
const NO_ROOM: [&str; 5] = ["disk is full", "could not write", "No space left", "Disk full", "' is full"];

/// Makes all of them, and ends when the last is over.
pub(crate) async fn all(cluster: &Arc<Cluster>, disk: &Arc<Option<Disk>>, plan: Vec<Planned>, length: Duration) {
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for planned in plan {
        let at = Duration::from_millis(planned.at_ms);
        tokio::time::sleep(at.saturating_sub(began.elapsed())).await;
        let (cluster, disk) = (cluster.clone(), disk.clone());
        under_way.spawn(async move {
            let began = Instant::now();
            while began.elapsed() < TRY_MAX {
                if make(&cluster, disk.as_ref().as_ref(), planned).await {
                    cluster.history.note(Fact::Fault { name: planned.fault.name() });
                    break;
                }
                tokio::time::sleep(TRY_EVERY).await;
            }
        });
    }
    tokio::time::sleep(length.saturating_sub(began.elapsed())).await;
    under_way.join_all().await;
}

/// Makes one, waits its time and takes it back. Says whether it was seen to do something.
async fn make(cluster: &Cluster, disk: Option<&Disk>, planned: Planned) -> bool {
    let lasts = Duration::from_millis(planned.lasts_ms);
    let pick = |count: usize| (planned.victim % count as u64) as usize;
    let server = &cluster.servers[pick(cluster.servers.len())];
    let worker = &cluster.workers[pick(cluster.workers.len())];
    match planned.fault {
        Fault::KillServer => strike(&server.member, Signal::SIGKILL).await,
        Fault::KillWorker => strike(worker, Signal::SIGKILL).await,
        Fault::StopServer => hold(&server.member, lasts).await,
        Fault::StopWorker => hold(worker, lasts).await,
        Fault::KillAt(point) => end_at(server, point).await,
        Fault::KillDatabase | Fault::RestartDatabase => {
            let mut database = cluster.database.lock().await;
            let Some(database) = database.as_mut() else { return false };
            let was_there = listens(database.port()).await;
            if planned.fault == Fault::KillDatabase {
                database.kill();
                tokio::time::sleep(lasts).await;
            } else {
                tokio::task::block_in_place(|| database.stop());
            }
            let is_gone = !listens(database.port()).await;
            database.restart().await;
            was_there && is_gone
        }
        Fault::DatabaseLink(weather) => match &server.to_database {
            Some(link) => link.suffer(weather, lasts).await,
            None => false,
        },
        Fault::WorkerLink(Weather::Repeat) => server.to_workers.repeat().await,
        Fault::WorkerLink(weather) => server.to_workers.suffer(weather, lasts).await,
        // It stays off until the next one: clocks jump back as well as forth.
        Fault::Clock(ms) => {
            server.order(|orders| orders.clock_ms = ms);
            until(WAIT_MAX, || server.has_taken_orders()).await
        }
        Fault::DiskFull => fill(cluster, disk, server, lasts).await,
        Fault::DatabaseCrowd => crowd::of_database(cluster, lasts).await,
        Fault::ServerCrowd => crowd::of_server(server.port, lasts).await,
    }
}

/// Waits for something, and says whether it came.
async fn until(most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() >= most {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Sends a signal to a process as soon as it runs.
async fn strike(member: &Member, signal: Signal) -> bool {
    until(WAIT_MAX, || member.signal(signal)).await
}

/// Stops a process for a while. One that was killed meanwhile was not stopped for as long.
async fn hold(member: &Member, lasts: Duration) -> bool {
    let _turn = member.held.lock().await;
    if !strike(member, Signal::SIGSTOP).await {
        return false;
    }
    let stopped = member.id();
    tokio::time::sleep(lasts).await;
    member.signal(Signal::SIGCONT) && member.id() == stopped
}

/// Lets a server end at a point. Whoever dies of something else first is told again.
async fn end_at(server: &Server, point: &'static str) -> bool {
    let times = || server.ended_at().iter().filter(|ended| *ended == point).count();
    let before = times();
    let has_ended = until(WAIT_MAX, || {
        server.order(|orders| orders.kill = orders.kill.or(Some(point)));
        times() > before
    });
    let has_ended = has_ended.await;
    server.order(|orders| orders.kill = orders.kill.filter(|other| *other != point));
    has_ended
}

async fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

/// Leaves no room on the disk, until somebody says that something could not be written.
async fn fill(cluster: &Cluster, disk: Option<&Disk>, server: &Server, lasts: Duration) -> bool {
    // Nobody starts it meanwhile: MariaDB waits a minute for room before it looks again.
    let mut database = cluster.database.lock().await;
    let mut logs: Vec<_> = cluster.logs().into_iter().map(Log::from_now).collect();
    let began = Instant::now();
    if cluster.dialect == Dialect::Sqlite {
        server.order(|orders| orders.disk_full = true);
    } else if disk.is_none_or(|disk| disk.fill().is_err()) {
        return false;
    }
    let was_noticed = until(lasts.max(FULL_MAX), || logs.iter_mut().any(|log| log.says(&NO_ROOM))).await;
    tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
    server.order(|orders| orders.disk_full = false);
    if let Some(disk) = disk {
        disk.clear();
        // A database that could not write its log has given up.
        if let Some(database) = database.as_mut() {
            database.wait_until_ready().await;
        }
    }
    was_noticed
}
