//! The store's benchmark: what it reaches, beside the floor and its peers, in one run on one database.
//!
//! Each measurement has a file, makes a database of its own, checks that no task was lost, and adds its rows to the table.

mod autocommit;
mod claim;
pub(crate) mod drain;
mod fill;
mod horizon;
mod latency;
mod memory;
mod pages;
mod peers;
pub(crate) mod settings;
mod submit;
pub(crate) mod work;

use crate::common::database::Database;
use crate::common::report::{Report, Row, progress};
use crate::floor::Result;
use settings::{Measure, Settings};
use taskwheel_store::Dialect;

/// Runs the measurements that the flags ask for, and prints what they found.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    if let [flag, url, tasks] = arguments
        && flag == memory::CHILD
    {
        return memory::child(url, tasks).await;
    }
    let settings = Settings::parse(arguments)?;
    let mut report =
        Report { database: Database::version(&settings.url).await?, rows: Vec::new(), details: serde_json::Map::new() };
    // A run of an hour that fails near its end still shows what it found.
    let outcome = measure(&settings, &mut report).await;
    report.publish(&settings)?;
    outcome
}

async fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let Report { rows, details, .. } = report;
    let peers = settings.wants(Measure::Peers) && Dialect::of(&settings.url)? == Dialect::Postgres;
    if settings.wants(Measure::Drain) || peers {
        progress("drain");
        let drained = drain::measure(settings, rows).await?;
        if peers {
            progress("peers");
            peers::measure(settings, &drained, rows).await?;
        }
    }
    if settings.wants(Measure::Peers) && !peers {
        rows.push(Row::missing("peers", "the graphile workers know only PostgreSQL".into()));
    }
    if settings.wants(Measure::Submit) {
        progress("submit");
        submit::measure(settings, rows).await?;
    }
    if settings.wants(Measure::Claim) {
        progress("claim");
        claim::measure(settings, rows).await?;
    }
    if settings.wants(Measure::Pages) {
        progress("pages");
        details.insert("pages".into(), pages::measure(settings, rows).await?);
    }
    if settings.wants(Measure::Horizon) {
        progress("horizon");
        horizon::measure(settings, rows).await?;
    }
    if settings.wants(Measure::Latency) {
        progress("latency");
        details.insert("latency".into(), latency::measure(settings, rows).await?);
    }
    if settings.wants(Measure::Memory) {
        progress("memory");
        memory::measure(settings, rows).await?;
    }
    Ok(())
}
