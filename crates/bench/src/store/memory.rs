//! Memory: what a process needs at most while it drains a backlog of a million.
//!
//! The drain runs in a process of its own, because the kernel remembers the peak of a whole life.

use super::settings::Settings;
use super::work::{self, Setting};
use crate::common::database::Database;
use crate::common::memory::peak_mb;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::{Result, State};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use taskwheel_store::{Options, open};

const TASKS: u64 = 1_000_000;
const SETTING: Setting = Setting { batch: 1_000, clients: 4 };
const PEAK_MB_MAX: f64 = 200.0;
/// Asks the program to be that process.
pub(super) const CHILD: &str = "--drain-in-this-process";

/// Measures the peak.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let (tasks, mut peaks) = (settings.scaled(TASKS), Vec::new());
    for _ in 0..settings.runs {
        let peak = peak(&settings.url, tasks).await?;
        progress(&format!("memory: {peak:.0} MB"));
        peaks.push(peak);
    }
    let what = format!("memory while draining {tasks} tasks ({SETTING}), peak");
    rows.push(Row::alone(what, Unit::Megabytes, median(&peaks), Some(Bar::Below(PEAK_MB_MAX))));
    Ok(())
}

async fn peak(url: &str, tasks: u64) -> Result<f64> {
    let database = Database::create(url, "memory").await?;
    progress(&format!("loading {tasks} tasks"));
    let store = database.open(true).await?;
    work::load(&store, tasks).await?;
    drop(store);
    database.bring_into(State::Vacuumed).await?;
    let output = Command::new(std::env::current_exe()?)
        .args(["store", CHILD, &database.url, &tasks.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the process that drains has failed".into());
    }
    let figures: Value = serde_json::from_slice(&output.stdout)?;
    database.remove().await?;
    Ok(figures["peak_mb"].as_f64().ok_or("the process that drains did not say its peak")?)
}

/// Drains, and prints what it took.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(super) async fn child(url: &str, tasks: &str) -> Result<()> {
    let store = open(Options::new(url)).await?;
    let rate = work::drain(&store, tasks.parse()?, SETTING).await?;
    println!("{}", json!({ "rate": rate, "peak_mb": peak_mb("self")? }));
    Ok(())
}
