//! Delayed: how late tasks come into workers' hands that fall due while a million more wait.
//!
//! The workers' clock, the server's and the database's are one machine's, so that lateness is the time by that clock minus
//! the time that the task was due.

use super::backlog::{Backlog, TYPE, due_at};
use super::calls::{self, Claimed};
use super::http::Connection;
use super::settings::Settings;
use crate::common::clock::now_ms;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, percentile};
use crate::floor::Result;
use crate::peers::timing;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use taskwheel_store::Dialect;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const SPREAD_TASKS: u64 = 10_000;
const SPREAD_SECONDS: f64 = 60.0;
/// Waiting claims at once, and how many tasks each takes at most.
const SPREAD_WORKERS: usize = 8;
const SPREAD_CLAIM_MAX: usize = 100;
const LATENESS_P50_MS_MAX: f64 = 5.0;
/// Of the peer's p99, on the same PostgreSQL, where nothing else waits.
const LATENESS_OF_PEER_MAX: f64 = 0.25;

const BURST_TASKS: u64 = 20_000;
const BURST_WORKERS: usize = 16;
const BURST_CLAIM_MAX: usize = 500;
const BURST_SECONDS_MAX: f64 = 2.0;

const WAIT: Duration = Duration::from_secs(10);
/// From the submit of the tasks until the first is due.
const LEAD_MS: i64 = 5_000;
/// After the last was due, workers get so long to have it.
const REST_MAX: Duration = Duration::from_secs(60);

/// Tasks in a worker's hands, and when they came, in milliseconds since 1970.
type Taken = (f64, Claimed);

/// Measures both: those that fall due one by one, and those that fall due at one instant.
pub(super) async fn measure(settings: &Settings, backlog: &Backlog, rows: &mut Vec<Row>) -> Result<()> {
    let (mut p50s, mut p99s, mut bursts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let lateness = spread(settings, backlog).await?;
        let (p50, p99) = (percentile(&lateness, 0.5), percentile(&lateness, 0.99));
        let worst = percentile(&lateness, 1.0);
        progress(&format!("delayed: lateness p50 {p50:.2} ms, p99 {p99:.2} ms, worst {worst:.2} ms"));
        p50s.push(p50);
        p99s.push(p99);
        let seconds = burst(settings, backlog).await?;
        progress(&format!("delayed: all that were due at one instant in hands after {seconds:.2} s"));
        bursts.push(seconds);
    }
    let (seconds, waiting) = (settings.seconds(SPREAD_SECONDS), backlog.tasks);
    let tasks = settings.scaled(SPREAD_TASKS);
    let what = |share: &str| format!("lateness of {tasks} due over {seconds:.0} s, {waiting} more wait, {share}");
    rows.push(Row::alone(what("p50"), Unit::Milliseconds, median(&p50s), Some(Bar::Below(LATENESS_P50_MS_MAX))));
    let is_postgres = backlog.database.dialect == Dialect::Postgres;
    let (bar, p99) = (Some(Bar::RatioAtMost(LATENESS_OF_PEER_MAX)), median(&p99s));
    rows.push(if is_postgres {
        match timing::lateness(&settings.url, tasks, seconds).await {
            Ok((peer, theirs)) => Row::beside(what("p99"), Unit::Milliseconds, p99, peer, theirs, bar),
            Err(error) => Row::without(what("p99"), Unit::Milliseconds, p99, format!("no peer was run: {error}"), bar),
        }
    } else {
        Row::alone(what("p99"), Unit::Milliseconds, p99, None)
    });
    let bar = is_postgres.then_some(Bar::Below(BURST_SECONDS_MAX));
    let tasks = settings.scaled(BURST_TASKS);
    let what = format!("{tasks} due at one instant, {BURST_WORKERS} waiting workers: all in hands after");
    rows.push(Row::alone(what, Unit::Seconds, median(&bursts), bar));
    Ok(())
}

/// Tasks that fall due one by one: how late each came, in milliseconds.
async fn spread(settings: &Settings, backlog: &Backlog) -> Result<Vec<f64>> {
    let (tasks, ms) = (settings.scaled(SPREAD_TASKS), settings.seconds(SPREAD_SECONDS) * 1_000.0);
    let step_ms = ms / tasks as f64;
    let mut workers = Workers::start(backlog, SPREAD_WORKERS, SPREAD_CLAIM_MAX, true).await?;
    let first = now_ms() + LEAD_MS;
    submit(backlog, tasks, first, move |number| first + (number as f64 * step_ms) as i64).await?;
    let taken = workers.wait(tasks, Duration::from_secs_f64(ms / 1_000.0)).await?;
    Ok(taken.iter().flat_map(|(at, claimed)| claimed.numbers.iter().map(move |due| at - *due as f64)).collect())
}

/// Tasks that fall due at one instant: when the last was in a worker's hands, in seconds after that instant.
async fn burst(settings: &Settings, backlog: &Backlog) -> Result<f64> {
    let tasks = settings.scaled(BURST_TASKS);
    let mut workers = Workers::start(backlog, BURST_WORKERS, BURST_CLAIM_MAX, false).await?;
    let due = now_ms() + LEAD_MS;
    submit(backlog, tasks, due, move |_| due).await?;
    let taken = workers.wait(tasks, Duration::ZERO).await?;
    drop(workers);
    let last = taken.iter().map(|(at, _)| *at).fold(f64::NEG_INFINITY, f64::max);
    let mut connection = backlog.server.connect().await?;
    for (_, claimed) in &taken {
        calls::finish(&mut connection, claimed).await?;
    }
    Ok((last - due as f64) / 1_000.0)
}

async fn submit(
    backlog: &Backlog,
    tasks: u64,
    first: i64,
    due: impl Fn(u64) -> i64 + Copy + Send + 'static,
) -> Result<()> {
    calls::load(backlog.server.address, tasks, move |number| due_at(due(number))).await?;
    if now_ms() < first { Ok(()) } else { Err("the first task was due before the last was submitted".into()) }
}

/// Workers that wait for tasks. They end when this is dropped.
struct Workers {
    _workers: JoinSet<()>,
    taken: mpsc::UnboundedReceiver<Result<Taken>>,
}

impl Workers {
    /// Starts them, on a connection each. Those that report do so before they claim again, as a worker does whose tasks
    /// take no time; the others claim again at once, as one whose tasks take long.
    async fn start(backlog: &Backlog, workers: usize, max: usize, report: bool) -> Result<Workers> {
        let (sender, taken) = mpsc::unbounded_channel();
        let mut set = JoinSet::new();
        for number in 0..workers {
            let (connection, sender) = (backlog.server.connect().await?, sender.clone());
            let claim = calls::claim(&format!("worker{number}"), TYPE, max, WAIT);
            set.spawn(async move {
                if let Err(error) = work(connection, claim, report, &sender).await {
                    // Nobody listens any more once another worker has failed.
                    let _ = sender.send(Err(error));
                }
            });
        }
        Ok(Workers { _workers: set, taken })
    }

    /// Waits until they have so many tasks, of which the last is due after this long.
    async fn wait(&mut self, tasks: u64, last_due: Duration) -> Result<Vec<Taken>> {
        let lead = Duration::from_millis(LEAD_MS.unsigned_abs());
        let mut all = Vec::new();
        let mut count = 0;
        let take = async {
            while count < tasks {
                let taken = self.taken.recv().await.ok_or("the workers have gone")??;
                count += taken.1.tasks as u64;
                all.push(taken);
            }
            Result::Ok(())
        };
        match tokio::time::timeout(lead + last_due + REST_MAX, take).await {
            Ok(done) => done.map(|()| all),
            Err(_) => {
                Err(format!("{count} of {tasks} tasks were handed out {} s after all were due", REST_MAX.as_secs())
                    .into())
            }
        }
    }
}

async fn work(
    mut connection: Connection,
    claim: Vec<u8>,
    report: bool,
    sender: &mpsc::UnboundedSender<Result<Taken>>,
) -> Result<()> {
    loop {
        let claimed = calls::take(&mut connection, &claim).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1_000.0;
        if claimed.tasks == 0 {
            continue;
        }
        if report {
            calls::finish(&mut connection, &claimed).await?;
        }
        sender.send(Ok((now, claimed)))?;
    }
}
