//! Latency: with nothing else to do, how long from before the call that submits a task until a waiting worker has it.
//!
//! Submitter and worker are in one process, on two connections, so that one clock measures both ends.

use super::calls::{self, TYPE};
use super::http::Connection;
use super::memory::Peaks;
use super::process::Server;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, percentile};
use crate::floor::Result;
use crate::peers::timing;
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;

const TASKS: u64 = 1_000;
/// The first ones open connections to the database and prepare statements.
const WARM_UP: usize = 20;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_secs(10);
const CLAIM_MAX: usize = 10;
const SQLITE_MS_MAX: f64 = 1.7;
const SERVER_MS_MAX: f64 = 3.4;
/// Of a peer, one every 10 to 30 ms.
const PEER_JOBS: u64 = 400;
/// A percentile of fewer says nothing.
const PEER_JOBS_MIN: u64 = 30;
const PEER_BAR: Option<Bar> = Some(Bar::RatioAtMost(1.0));

/// Measures ours and the peers in turn, so that a noisy minute hits all.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>, peaks: &mut Peaks) -> Result<()> {
    let peers = timing::durable(Dialect::of(&settings.url)?, rows).await;
    let mut theirs: Vec<Result<Vec<f64>>> = peers.iter().map(|_| Ok(Vec::new())).collect();
    let (mut p50s, mut p99s) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let waits = run(settings, peaks).await?;
        let (p50, p99) = (percentile(&waits, 0.5), percentile(&waits, 0.99));
        progress(&format!("latency: p50 {p50:.2} ms, p99 {p99:.2} ms"));
        p50s.push(p50);
        p99s.push(p99);
        for (peer, p99s) in peers.iter().zip(&mut theirs) {
            let Ok(known) = p99s else { continue };
            match timing::latency(peer, &settings.url, settings.scaled(PEER_JOBS).max(PEER_JOBS_MIN)).await {
                Ok(p99) => known.push(p99),
                Err(error) => *p99s = Err(error),
            }
        }
    }
    let limit = if Dialect::of(&settings.url)? == Dialect::Sqlite { SQLITE_MS_MAX } else { SERVER_MS_MAX };
    let what = |share: &str| format!("idle latency, submit to a waiting worker's hands, {share}");
    rows.push(Row::alone(what("p50"), Unit::Milliseconds, median(&p50s), Some(Bar::Below(limit))));
    let mut ran = Vec::new();
    for (peer, p99s) in peers.iter().zip(theirs) {
        match p99s {
            Ok(p99s) => ran.push((median(&p99s), peer.name)),
            Err(error) => rows.push(Row::missing(peer.name, format!("not run: {error}"))),
        }
    }
    let (what, ours) = (what("p99"), median(&p99s));
    rows.push(match ran.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((theirs, name)) => {
            let beside = format!("{name}, the best durable peer here");
            Row::beside(what, Unit::Milliseconds, ours, beside, theirs, PEER_BAR)
        }
        None => {
            let bar = PEER_BAR.filter(|_| !peers.is_empty());
            Row::without(what, Unit::Milliseconds, ours, "no peer was run".to_owned(), bar)
        }
    });
    Ok(())
}

async fn run(settings: &Settings, peaks: &mut Peaks) -> Result<Vec<f64>> {
    let tasks = usize::try_from(settings.scaled(TASKS))? + WARM_UP;
    let database = Database::create(&settings.url, "latency").await?;
    let server = Server::start(&database).await?;
    let (submits, claims) = (server.connect().await?, server.connect().await?);
    let start = Instant::now();
    let both = async { tokio::try_join!(submit(submits, start, tasks), work(claims, start, tasks)) };
    let most = PAUSE_MAX * u32::try_from(tasks)? * 2 + WAIT;
    let ((), waits) = tokio::time::timeout(most, both).await.map_err(|_| "a task was not handed out")??;
    peaks.add("latency", server.kill()?);
    database.remove().await?;
    Ok(waits[WARM_UP..].to_vec())
}

/// Submits tasks that carry the time, with pauses of random length between them.
async fn submit(mut connection: Connection, start: Instant, tasks: usize) -> Result<()> {
    for _ in 0..tasks {
        let share = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        tokio::time::sleep(PAUSE_MIN + (PAUSE_MAX - PAUSE_MIN).mul_f64(share)).await;
        let task = format!("{{\"type\":\"{TYPE}\",\"payload\":{}}}", start.elapsed().as_micros());
        calls::submit(&mut connection, &task).await?;
    }
    Ok(())
}

/// Works on them, and answers how long each took to come, in milliseconds.
async fn work(mut connection: Connection, start: Instant, tasks: usize) -> Result<Vec<f64>> {
    let claim = calls::claim("worker", TYPE, CLAIM_MAX, WAIT);
    let mut waits = Vec::new();
    while waits.len() < tasks {
        let claimed = calls::take(&mut connection, &claim).await?;
        let now = start.elapsed().as_micros() as f64;
        waits.extend(claimed.numbers.iter().map(|submitted| (now - *submitted as f64) / 1_000.0));
        if claimed.tasks > 0 {
            calls::finish(&mut connection, &claimed).await?;
        }
    }
    Ok(waits)
}
