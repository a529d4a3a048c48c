//! Run: two worker processes pull batches until the preloaded no-op tasks are done, beside the graphile workers' drains.
//!
//! Each worker claims, reports, and awaits every answer, on a few connections side by side, so that one claims while another
//! reports. The peers run in the process that asks the database; ours are behind HTTP, and keep the history.

use super::calls::{self, TYPE};
use super::http::Connection;
use super::memory::Peaks;
use super::process::Server;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::{Result, State};
use crate::peers::graphile::{self, Contestant};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;

const TASKS: u64 = 100_000;
pub(crate) const PROCESSES: usize = 2;
/// Of one worker process.
const CONNECTIONS: usize = 2;
const BATCH: usize = 500;
const OF_THE_PEER_MIN: f64 = 1.0;
/// Asks the program to be such a worker.
pub(crate) const CHILD: &str = "--work-in-this-process";

/// Measures ours and the peers in turn, so that a noisy minute hits all.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>, peaks: &mut Peaks) -> Result<()> {
    let (dialect, tasks) = (Dialect::of(&settings.url)?, settings.scaled(TASKS));
    let peers = if dialect == Dialect::Postgres { graphile::contestants(rows).await } else { Vec::new() };
    let mut ours = Vec::new();
    let mut theirs: Vec<Result<Vec<f64>>> = peers.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..settings.runs {
        let rate = run(&settings.url, tasks, "server", peaks).await?;
        progress(&format!("run: {rate:.0}/s"));
        ours.push(rate);
        for (peer, rates) in peers.iter().zip(&mut theirs) {
            let Ok(known) = rates else { continue };
            match peer.drain(&settings.url, tasks, State::Vacuumed).await {
                Ok(rate) => {
                    progress(&format!("run, {peer}: {rate:.0}/s"));
                    known.push(rate);
                }
                Err(error) => *rates = Err(error),
            }
        }
    }
    compare(dialect, median(&ours), peers.iter().zip(theirs), rows);
    Ok(())
}

fn compare<'p>(
    dialect: Dialect,
    ours: f64,
    peers: impl Iterator<Item = (&'p Contestant, Result<Vec<f64>>)>,
    rows: &mut Vec<Row>,
) {
    let mut best: Option<(f64, &Contestant)> = None;
    for (peer, rates) in peers {
        match rates {
            Ok(rates) if best.is_none_or(|(known, _)| median(&rates) > known) => best = Some((median(&rates), peer)),
            Ok(_) => {}
            Err(error) => rows.push(Row::missing(&peer.to_string(), format!("not run: {error}"))),
        }
    }
    let what = format!("run, {PROCESSES} worker processes × {CONNECTIONS} connections, batches of {BATCH}, vacuumed");
    let bar = (dialect == Dialect::Postgres).then_some(Bar::RatioAtLeast(OF_THE_PEER_MIN));
    rows.push(match best {
        Some((rate, peer)) => Row::beside(what, Unit::PerSecond, ours, format!("the better: {peer}"), rate, bar),
        None if bar.is_some() => Row::without(what, Unit::PerSecond, ours, "no peer was run".into(), bar),
        None => Row::alone(what, Unit::PerSecond, ours, None),
    });
}

/// One run, with workers that this program is when it is called with a command.
pub(crate) async fn run(url: &str, tasks: u64, command: &str, peaks: &mut Peaks) -> Result<f64> {
    let database = Database::create(url, "run").await?;
    let server = Server::start(&database).await?;
    calls::load(server.address, tasks, calls::task).await?;
    database.bring_into(State::Vacuumed).await?;
    let start = |number| Worker::start(command, server.address, number);
    let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    let clock = Instant::now();
    workers.iter_mut().try_for_each(Worker::go)?;
    let mut done = 0;
    for worker in &mut workers {
        done += worker.done()?;
    }
    let elapsed = clock.elapsed();
    peaks.add("run", server.kill()?);
    let kept = database.sql().await?.number("SELECT COUNT(*) FROM task_history").await?;
    if (done, u64::try_from(kept)?) != (tasks, tasks) {
        return Err(format!("loaded {tasks} tasks; {done} were done, and {kept} are in the history").into());
    }
    database.remove().await?;
    Ok(tasks as f64 / elapsed.as_secs_f64())
}

/// A worker process. It is killed when this is dropped.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one, and waits until it is connected.
    fn start(command: &str, server: SocketAddr, number: usize) -> Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([command, CHILD, &server.to_string(), &format!("worker{number}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut worker = Worker {
            child,
            input: input.ok_or("a worker without input")?,
            output: BufReader::new(output.ok_or("a worker without output")?),
        };
        worker.output.read_line(&mut String::new())?;
        Ok(worker)
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"go\n")?)
    }

    /// Waits for its end, and answers how many tasks it has done.
    fn done(&mut self) -> Result<u64> {
        let mut done = String::new();
        self.output.read_to_string(&mut done)?;
        Ok(done.trim().parse().map_err(|_| "a worker process has failed; its words are above")?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What such a process does: says that it is ready, waits for the word, works, and says how much.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(super) async fn child(server: &str, name: &str) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(server.parse()?).await?);
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let claim = calls::claim(name, TYPE, BATCH, Duration::ZERO);
    let pullers: Vec<_> =
        connections.into_iter().map(|connection| tokio::spawn(pull(connection, claim.clone()))).collect();
    let mut done = 0;
    for puller in pullers {
        done += puller.await??;
    }
    println!("{done}");
    Ok(())
}

async fn pull(mut connection: Connection, claim: Vec<u8>) -> Result<usize> {
    let mut done = 0;
    loop {
        let claimed = calls::take(&mut connection, &claim).await?;
        if claimed.tasks == 0 {
            return Ok(done);
        }
        calls::finish(&mut connection, &claimed).await?;
        done += claimed.tasks;
    }
}
