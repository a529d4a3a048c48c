//! The SDK's benchmark: what its worker costs, beside the same drain without it, in one run on one database.
//!
//! Each measurement has a file, makes databases of its own, checks that no task was lost, and adds a row to the table.

mod embedded;
mod remote;
pub(crate) mod settings;

pub(crate) use remote::child;

use crate::common::database::Database;
use crate::common::report::{Bar, Report, progress};
use crate::floor::Result;
use settings::{Measure, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use taskwheel_client::{Client, TaskContext, Worker};

const TASKS: u64 = 100_000;
const CONCURRENCY: usize = 64;
/// Four claims of the largest batch.
const QUEUE: usize = 4_000;
/// What the SDK may cost.
const BAR: Bar = Bar::RatioAtLeast(0.9);

/// Runs the measurements that the flags ask for, and prints what they found.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let settings = Settings::parse(arguments)?;
    let database = Database::version(&settings.url).await?;
    let mut report = Report { database, rows: Vec::new(), details: serde_json::Map::new() };
    let outcome = measure(&settings, &mut report).await;
    report.publish(&settings)?;
    outcome
}

async fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    if settings.wants(Measure::Embedded) {
        progress("embedded");
        embedded::measure(settings, &mut report.rows).await?;
    }
    if settings.wants(Measure::Remote) {
        progress("remote");
        remote::measure(settings, &mut report.rows).await?;
    }
    Ok(())
}

/// Works off all tasks of a type with a handler that does nothing, and answers how many.
async fn drain(client: &Client, task_type: &str, host: &str) -> Result<u64> {
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let handler = move |_: TaskContext, _: serde_json::Value| {
        counted.fetch_add(1, Relaxed);
        std::future::ready(taskwheel_client::Result::<()>::Ok(()))
    };
    let worker = Worker::new(client).handle(task_type, handler).concurrency(CONCURRENCY).queue(QUEUE).host(host);
    worker.run_until_idle().await?;
    Ok(done.load(Relaxed))
}
