//! The benchmark of schedules: how late their tasks come into workers' hands, and how many firings a second there can be, beside the bare
//! SQL of a firing.
//!
//! Each measurement has a file, makes a database of its own, checks that every firing made its task, and adds its rows to the table.

mod fire;
mod floor;
mod idle;
mod online;
mod precision;
pub(crate) mod settings;

use crate::common::database::Database;
use crate::common::report::{Report, progress};
use crate::floor::Result;
use settings::{Measure, Settings};

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
    let rows = &mut report.rows;
    if settings.wants(Measure::Precision) {
        progress("precision");
        precision::spread(settings, rows).await?;
    }
    if settings.wants(Measure::Burst) {
        progress("burst");
        precision::burst(settings, rows).await?;
    }
    if settings.wants(Measure::Fire) {
        progress("fire");
        fire::measure(settings, rows).await?;
    }
    if settings.wants(Measure::Idle) {
        progress("idle");
        idle::measure(settings, rows).await?;
    }
    Ok(())
}
