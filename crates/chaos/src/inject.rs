//! Makes the faults of a plan, each for its time, and takes them back. Several may be under way at once.

use crate::cluster::{Cluster, Server};
use crate::disk::Disk;
use crate::history::Fact;
use crate::plan::{Fault, Planned};
use crate::proxy::Weather;
use nix::sys::signal::Signal;
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// More connections than any server here lets in.
const CROWD: usize = 1_500;

/// Makes all of them, and ends when the last is over.
pub(crate) async fn all(cluster: &Arc<Cluster>, disk: &Arc<Option<Disk>>, plan: Vec<Planned>, length: Duration) {
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for planned in plan {
        let at = Duration::from_millis(planned.at_ms);
        tokio::time::sleep(at.saturating_sub(began.elapsed())).await;
        let (cluster, disk) = (cluster.clone(), disk.clone());
        under_way.spawn(async move {
            if make(&cluster, disk.as_ref().as_ref(), planned).await {
                cluster.history.note(Fact::Fault { name: planned.fault.name() });
            }
        });
    }
    tokio::time::sleep(length.saturating_sub(began.elapsed())).await;
    under_way.join_all().await;
}

/// Makes one, waits its time and takes it back. Says whether it could be made.
async fn make(cluster: &Cluster, disk: Option<&Disk>, planned: Planned) -> bool {
    let lasts = Duration::from_millis(planned.lasts_ms);
    let pick = |count: usize| (planned.victim % count as u64) as usize;
    let server = &cluster.servers[pick(cluster.servers.len())];
    let worker = &cluster.workers[pick(cluster.workers.len())];
    match planned.fault {
        Fault::KillServer => server.member.signal(Signal::SIGKILL),
        Fault::KillWorker => worker.signal(Signal::SIGKILL),
        Fault::StopServer => {
            server.member.signal(Signal::SIGSTOP);
            tokio::time::sleep(lasts).await;
            server.member.signal(Signal::SIGCONT);
        }
        Fault::StopWorker => {
            worker.signal(Signal::SIGSTOP);
            tokio::time::sleep(lasts).await;
            worker.signal(Signal::SIGCONT);
        }
        // What was told to end is told once, and counted where it ends.
        Fault::KillAt(point) => {
            server.order(|orders| orders.kill = Some(point));
            tokio::time::sleep(Duration::from_secs(5)).await;
            server.order(|orders| orders.kill = None);
            return false;
        }
        Fault::KillDatabase | Fault::RestartDatabase => {
            let mut database = cluster.database.lock().await;
            let Some(database) = database.as_mut() else { return false };
            if planned.fault == Fault::KillDatabase {
                database.kill();
                tokio::time::sleep(lasts).await;
            } else {
                tokio::task::block_in_place(|| database.stop());
            }
            database.restart().await;
        }
        Fault::DatabaseLink(weather) => match &server.to_database {
            Some(link) => {
                link.set(weather);
                tokio::time::sleep(lasts).await;
                link.set(Weather::Fair);
            }
            None => return false,
        },
        Fault::WorkerLink(Weather::Repeat) => return server.to_workers.repeat().await,
        Fault::WorkerLink(weather) => {
            server.to_workers.set(weather);
            tokio::time::sleep(lasts).await;
            server.to_workers.set(Weather::Fair);
        }
        // It stays off until the next one: clocks jump back as well as forth.
        Fault::Clock(ms) => server.order(|orders| orders.clock_ms = ms),
        Fault::DiskFull => return fill(cluster, disk, server, lasts).await,
        Fault::DatabaseCrowd => return crowd_database(cluster, lasts).await,
        Fault::ServerCrowd => {
            let mut crowd = Vec::new();
            for _ in 0..CROWD {
                let connecting = TcpStream::connect(("127.0.0.1", server.port));
                match tokio::time::timeout(Duration::from_millis(200), connecting).await {
                    Ok(Ok(connection)) => crowd.push(connection),
                    _ => break,
                }
            }
            tokio::time::sleep(lasts).await;
        }
    }
    true
}

async fn fill(cluster: &Cluster, disk: Option<&Disk>, server: &Server, lasts: Duration) -> bool {
    if cluster.dialect == Dialect::Sqlite {
        server.order(|orders| orders.disk_full = true);
        tokio::time::sleep(lasts).await;
        server.order(|orders| orders.disk_full = false);
        return true;
    }
    let Some(disk) = disk else { return false };
    if disk.fill().is_err() {
        return false;
    }
    tokio::time::sleep(lasts).await;
    disk.clear();
    // A database that could not write its log has given up.
    if let Some(database) = cluster.database.lock().await.as_mut() {
        database.wait_until_ready().await;
    }
    true
}

/// Takes every connection that the database has left. Says whether it refused one.
async fn crowd_database(cluster: &Cluster, lasts: Duration) -> bool {
    let (mut postgres, mut mysql) = (Vec::new(), Vec::new());
    let is_full = loop {
        let refused = match cluster.dialect {
            Dialect::Postgres => PgConnection::connect(&cluster.url).await.map(|one| postgres.push(one)),
            _ => MySqlConnection::connect(&cluster.url).await.map(|one| mysql.push(one)),
        };
        if refused.is_err() || postgres.len() + mysql.len() >= CROWD {
            break refused.is_err();
        }
    };
    tokio::time::sleep(lasts).await;
    is_full
}
