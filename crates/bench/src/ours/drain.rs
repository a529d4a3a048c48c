//! Drain: worker processes of the SDK with a handler that does nothing, until nothing is due.

use super::site::{Site, Way};
use super::{CONCURRENCY, QUEUE, TYPE};
use crate::common::memory::peak_mb;
use crate::floor::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use taskwheel_client::{Client, TaskContext, Worker};

/// Works off what was loaded, and counts it in the history.
pub(super) async fn drain(way: Way, url: &str, jobs: u64, processes: usize) -> Result<Value> {
    // Where there is a server, all workers are on it; otherwise each has an engine of its own, and this process has none.
    let site = if way == Way::Http { Some(Site::open(way, url).await?) } else { None };
    let server = site.as_ref().and_then(|site| site.server.as_ref());
    let address = server.map_or_else(|| url.to_owned(), |server| format!("http://{}", server.address));
    let before = finished(url).await?;
    let mut workers = (0..processes).map(|_| Process::start(way, &address)).collect::<Result<Vec<_>>>()?;
    let clock = Instant::now();
    workers.iter_mut().try_for_each(Process::go)?;
    let (mut done, mut memory) = (0, 0.0_f64);
    for worker in &mut workers {
        let (its_done, its_memory) = worker.result()?;
        done += its_done;
        memory = memory.max(its_memory);
    }
    let elapsed = clock.elapsed();
    if let Some(Site { server: Some(server), .. }) = site {
        memory = server.kill()?;
    }
    let kept = finished(url).await? - before;
    if (done, kept) != (jobs, jobs) {
        return Err(format!("{jobs} tasks were due; {done} were done, and {kept} are in the history").into());
    }
    Ok(json!({ "done": done, "rate": jobs as f64 / elapsed.as_secs_f64(), "memory_mb": memory }))
}

async fn finished(url: &str) -> Result<u64> {
    let mut sql = crate::common::database::Database::at(url)?.sql().await?;
    Ok(u64::try_from(sql.number("SELECT COUNT(*) FROM task_history").await?)?)
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

    /// Waits for its end, and answers how many tasks it has done and the most memory that it had.
    fn result(&mut self) -> Result<(u64, f64)> {
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
        Way::Embedded => Client::embedded(address).await?,
        Way::Http => Client::connect(address)?,
    };
    // Connected before the clock starts.
    client.types().await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let handler = move |_: TaskContext, _: Value| {
        counted.fetch_add(1, Relaxed);
        std::future::ready(taskwheel_client::Result::<()>::Ok(()))
    };
    let worker = Worker::new(&client).handle(TYPE, handler).concurrency(CONCURRENCY).queue(QUEUE).host("bench");
    worker.run_until_idle().await?;
    println!("{}", json!([done.load(Relaxed), peak_mb("self")?]));
    Ok(())
}
