//! Drain: worker processes of the SDK with a handler that does nothing, until nothing is due.

use super::site::{Site, Way};
use super::{CONCURRENCY, QUEUE, TYPE};
use crate::common::clock::now_exact_ms;
use crate::common::database::Database;
use crate::common::memory::peak_mb;
use crate::floor::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use taskwheel_client::{Client, TaskContext, Worker};

/// What a worker process says at its end.
#[derive(Serialize, Deserialize)]
struct Worked {
    done: u64,
    /// When its first handler ran, in milliseconds since 1970; none where others were faster.
    first: Option<f64>,
    /// When everything was reported.
    end: f64,
    memory_mb: f64,
}

/// Works off what was loaded, and counts it in the tables. The clock is that of all drivers: from the first handler that runs, in
/// whichever process, until nothing is left.
pub(super) async fn drain(way: Way, url: &str, jobs: u64, processes: usize) -> Result<Value> {
    // Where there is a server, all workers are on it; otherwise each has an engine of its own, and this process has none.
    let site = if way == Way::Http { Some(Site::open(way, url).await?) } else { None };
    let server = site.as_ref().and_then(|site| site.server.as_ref());
    let address = server.map_or_else(|| url.to_owned(), |server| format!("http://{}", server.address));
    let before = Tables::count(url).await?;
    let mut workers = (0..processes).map(|_| Process::start(way, &address)).collect::<Result<Vec<_>>>()?;
    workers.iter_mut().try_for_each(Process::go)?;
    let worked = workers.iter_mut().map(Process::result).collect::<Result<Vec<_>>>()?;
    let first = worked.iter().filter_map(|one| one.first).reduce(f64::min).ok_or("no task ran")?;
    let end = worked.iter().map(|one| one.end).fold(first, f64::max);
    let mut memory = worked.iter().map(|one| one.memory_mb).fold(0.0, f64::max);
    if let Some(Site { server: Some(server), .. }) = site {
        memory = server.kill()?;
    }
    let (done, after) = (worked.iter().map(|one| one.done).sum::<u64>(), Tables::count(url).await?);
    let (ended, kept) = (before.live - after.live, after.finished - before.finished);
    let expected = if way.keeps() { jobs } else { 0 };
    if (done, ended, kept) != (jobs, jobs.cast_signed(), expected.cast_signed()) {
        return Err(
            format!("{jobs} tasks were due; {done} were done, {ended} have ended, {kept} are in the history").into()
        );
    }
    Ok(json!({ "done": done, "rate": jobs as f64 / ((end - first) / 1_000.0), "memory_mb": memory }))
}

/// How many tasks there are.
struct Tables {
    /// Those that have not ended.
    live: i64,
    finished: i64,
}

impl Tables {
    async fn count(url: &str) -> Result<Tables> {
        let mut sql = Database::at(url)?.sql().await?;
        let live = "SELECT (SELECT COUNT(*) FROM task_waiting) + (SELECT COUNT(*) FROM task_running)";
        let live = sql.number(live).await?;
        Ok(Tables { live, finished: sql.number("SELECT COUNT(*) FROM task_history").await? })
    }
}

/// A worker process. It is killed when this is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one, and waits until it is connected.
    fn start(way: Way, address: &str) -> Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["driver", way.word(), "worker", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut process = Process {
            child,
            input: input.ok_or("a worker without input")?,
            output: BufReader::new(output.ok_or("a worker without output")?),
        };
        process.output.read_line(&mut String::new())?;
        Ok(process)
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"go\n")?)
    }

    /// Waits for its end, and answers what it says.
    fn result(&mut self) -> Result<Worked> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line).map_err(|_| "a worker process has failed; its words are above")?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What such a process does: says that it is ready, waits for the word, works, and says how much.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(super) async fn child(way: Way, address: &str) -> Result<()> {
    let client = match way {
        Way::Http => Client::connect(address)?,
        Way::Embedded | Way::NotKept => way.embedded(address).await?,
    };
    // Connected before the clock starts.
    client.types().await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let (done, first) = (Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::new()));
    let (counted, began) = (done.clone(), first.clone());
    let handler = move |_: TaskContext, _: Value| {
        began.get_or_init(now_exact_ms);
        counted.fetch_add(1, Relaxed);
        std::future::ready(taskwheel_client::Result::<()>::Ok(()))
    };
    let worker = Worker::new(&client).handle(TYPE, handler).concurrency(CONCURRENCY).queue(QUEUE).host("bench");
    worker.run_until_idle().await?;
    let end = now_exact_ms();
    let worked = Worked { done: done.load(Relaxed), first: first.get().copied(), end, memory_mb: peak_mb("self")? };
    println!("{}", serde_json::to_string(&worked)?);
    Ok(())
}
