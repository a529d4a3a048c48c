//! The server's benchmark: the real binary over HTTP, from another process, beside peers in the same run.
//!
//! Each measurement has a file, starts a server on a database of its own, checks that no task was lost, and adds its rows to
//! the table. All of it runs on one thread: the machine's other cores are the server's and the database's.

mod backlog;
pub(crate) mod calls;
mod delayed;
pub(crate) mod http;
mod latency;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod settings;
mod start;
mod submit;

use crate::common::database::Database;
use crate::common::report::{Report, progress};
use crate::floor::Result;
use backlog::Backlog;
use memory::Peaks;
use settings::{Measure, Settings};

/// Runs the measurements that the flags ask for, and prints what they found.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    if let [flag, server, name] = arguments
        && flag == run::CHILD
    {
        return run::child(server, name).await;
    }
    let settings = Settings::parse(arguments)?;
    let database = Database::version(&settings.url).await?;
    let mut report = Report { database, rows: Vec::new(), details: serde_json::Map::new() };
    let mut peaks = Peaks::default();
    // A long run that fails near its end still shows what it found.
    let outcome = measure(&settings, &mut report, &mut peaks).await;
    report.rows.extend(peaks.row());
    report.details.insert("memory".into(), peaks.json());
    report.publish(&settings)?;
    outcome
}

async fn measure(settings: &Settings, report: &mut Report, peaks: &mut Peaks) -> Result<()> {
    let rows = &mut report.rows;
    if settings.wants(Measure::Submit) {
        progress("submit");
        submit::measure(settings, rows, peaks).await?;
    }
    if settings.wants(Measure::Run) {
        progress("run");
        run::measure(settings, rows, peaks).await?;
    }
    if settings.wants(Measure::Latency) {
        progress("latency");
        latency::measure(settings, rows, peaks).await?;
    }
    if settings.wants(Measure::Delayed) || settings.wants(Measure::Start) {
        let mut backlog = Backlog::load(settings).await?;
        if settings.wants(Measure::Delayed) {
            progress("delayed");
            delayed::measure(settings, &backlog, rows).await?;
        }
        if settings.wants(Measure::Start) {
            progress("start");
            backlog = start::measure(settings, backlog, rows, peaks).await?;
        }
        backlog.remove(peaks).await?;
    }
    Ok(())
}
