//! Drain: worker processes that are asked how far they are.

use super::{DONE, FIRST, Result, now_micros, pool, worker};
use serde_json::{Value, json};
use sqlx::PgPool;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How far apart the looks at the workers are; near the end they are closer, so that none is held against the peer.
const LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_millis(5);

/// Says that it is ready, waits for the word, works until it is killed, and answers each line it is sent with its progress.
pub(crate) async fn work(url: &str, setting: &str) -> Result<()> {
    let worker = worker(pool(url, 25).await?, setting).await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    std::thread::spawn(|| {
        for _ in std::io::stdin().lock().lines() {
            println!("{}", json!([DONE.load(Relaxed), FIRST.load(Relaxed), peak_mb()]));
        }
        std::process::exit(0);
    });
    Ok(worker.run().await?)
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

/// A worker process.
struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(url: &str, setting: &str) -> Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", url, setting])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("a worker without output")?);
        Ok(Process { child, answers })
    }

    /// Waits until it is connected.
    fn ready(&mut self) -> Result<()> {
        self.answers.read_line(&mut String::new())?;
        Ok(())
    }

    fn say(&mut self, word: &str) -> Result<()> {
        Ok(writeln!(self.child.stdin.as_mut().ok_or("a worker without input")?, "{word}")?)
    }

    /// How many jobs it has done, when it began, and the most memory that it had.
    fn progress(&mut self) -> Result<(u64, u64, f64)> {
        self.say("progress")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Those that are due were put last, so that the primary key finds what is left of them, however many wait.
async fn left(pool: &PgPool, first: i64) -> Result<i64> {
    let count = sqlx::query_scalar("select count(*) from graphile_worker._private_jobs where id >= $1");
    Ok(count.bind(first).fetch_one(pool).await?)
}

pub(crate) async fn drain(url: &str, jobs: u64, processes: usize, setting: &str) -> Result<Value> {
    let pool = pool(url, 1).await?;
    let due = sqlx::query_scalar("select min(id) from graphile_worker._private_jobs where run_at <= now()");
    let first: i64 = due.fetch_one(&pool).await?;
    let mut workers = (0..processes).map(|_| Process::start(url, setting)).collect::<Result<Vec<_>>>()?;
    workers.iter_mut().try_for_each(Process::ready)?;
    workers.iter_mut().try_for_each(|worker| worker.say("go"))?;
    let mut look = LOOK;
    loop {
        tokio::time::sleep(look).await;
        let progress = workers.iter_mut().map(Process::progress).collect::<Result<Vec<_>>>()?;
        let done = progress.iter().map(|(done, ..)| done).sum::<u64>();
        if done >= jobs {
            break;
        }
        look = if done >= jobs - jobs / 10 { LAST_LOOK } else { LOOK };
    }
    // Before the question is asked: what it takes to answer is not the peer's.
    let mut end = now_micros();
    while left(&pool, first).await? > 0 {
        tokio::time::sleep(LAST_LOOK).await;
        end = now_micros();
    }
    let progress = workers.iter_mut().map(Process::progress).collect::<Result<Vec<_>>>()?;
    let done: u64 = progress.iter().map(|(done, ..)| done).sum();
    let began = progress.iter().map(|(_, began, _)| *began).filter(|began| *began > 0).min().ok_or("no job ran")?;
    let memory = progress.iter().map(|(.., memory)| *memory).fold(0.0, f64::max);
    Ok(json!({ "done": done, "rate": jobs as f64 / ((end - began) as f64 / 1e6), "memory_mb": memory }))
}
