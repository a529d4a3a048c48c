//! Nodes: what a task costs when so many servers share the database, and the clients are spread over them.
//!
//! The clients are as many whatever the number of servers, so that on one machine the best that can be is the same cost.

use super::cost::each;
use super::results::Cost;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::progress;
use crate::floor::{Result, State};
use crate::server::calls::{self, TYPE};
use crate::server::http::Connection;
use crate::server::process::Server;
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [1, 2, 4];
const SUBMITS: u64 = 20_000;
const TASKS: u64 = 50_000;
/// One task a call.
const SUBMITTERS: usize = 64;
const WORKERS: usize = 4;
const BATCH: usize = 500;

/// Measures at each size, on a database of its own.
pub(super) async fn measure(settings: &Settings) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for size in SIZES {
        progress(&format!("{size} servers"));
        let mut cost = Cost { at: size as f64, ..Cost::default() };
        for _ in 0..settings.runs {
            let (submit, work) = run(settings, size).await?;
            cost.submit.push(submit);
            cost.work.push(work);
        }
        progress(&format!("submit {:.1?} µs, claim and finish {:.1?} µs", cost.submit, cost.work));
        costs.push(cost);
    }
    Ok(costs)
}

async fn run(settings: &Settings, size: usize) -> Result<(f64, f64)> {
    let database = Database::create(&settings.url, "growth").await?;
    let mut servers = Vec::new();
    for _ in 0..size {
        servers.push(Server::start(&database).await?);
    }
    let share = settings.scaled(SUBMITS).div_ceil(SUBMITTERS as u64);
    let submitted = share * SUBMITTERS as u64;
    let mut submitters = Vec::new();
    for number in 0..SUBMITTERS {
        submitters.push(submit(servers[number % size].connect().await?, share));
    }
    let clock = Instant::now();
    spawn(submitters).await?;
    let submit = each(clock.elapsed(), submitted);
    let tasks = settings.scaled(TASKS);
    calls::load(servers[0].address, tasks, calls::task).await?;
    database.bring_into(State::Vacuumed).await?;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(work(servers[number % size].connect().await?, format!("worker{number}")));
    }
    let clock = Instant::now();
    spawn(workers).await?;
    let work = each(clock.elapsed(), tasks + submitted);
    drop(servers);
    let done = database.sql().await?.number("SELECT COUNT(*) FROM task_history").await?;
    if u64::try_from(done)? != tasks + submitted {
        return Err(format!("{} tasks should be done; {done} are", tasks + submitted).into());
    }
    database.remove().await?;
    Ok((submit, work))
}

async fn spawn(all: Vec<impl Future<Output = Result<()>> + Send + 'static>) -> Result<()> {
    let running: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    for one in running {
        one.await??;
    }
    Ok(())
}

async fn submit(mut connection: Connection, tasks: u64) -> Result<()> {
    for number in 0..tasks {
        calls::submit(&mut connection, &calls::task(number)).await?;
    }
    Ok(())
}

async fn work(mut connection: Connection, name: String) -> Result<()> {
    let claim = calls::claim(&name, TYPE, BATCH, Duration::ZERO);
    loop {
        let claimed = calls::take(&mut connection, &claim).await?;
        if claimed.tasks == 0 {
            return Ok(());
        }
        calls::finish(&mut connection, &claimed).await?;
    }
}
