//! Start: how long after a kill until a new server on the same database says that it is ready, with a million live tasks.

use super::backlog::Backlog;
use super::memory::Peaks;
use super::settings::Settings;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;

const READY_SECONDS_MAX: f64 = 3.0;

/// Measures it.
pub(super) async fn measure(
    settings: &Settings,
    mut backlog: Backlog,
    rows: &mut Vec<Row>,
    peaks: &mut Peaks,
) -> Result<Backlog> {
    let mut seconds = Vec::new();
    for _ in 0..settings.runs {
        backlog = backlog.restart(peaks).await?;
        let ready_after = backlog.server.ready_after.as_secs_f64();
        progress(&format!("start: ready after {ready_after:.2} s"));
        seconds.push(ready_after);
    }
    let what = format!("ready after a kill, with {} live tasks", backlog.tasks);
    rows.push(Row::alone(what, Unit::Seconds, median(&seconds), Some(Bar::Below(READY_SECONDS_MAX))));
    Ok(backlog)
}
