//! Idle: what a look at the timers costs when none is due, with few of them and with many.

use super::online;
use super::settings::Settings;
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, milliseconds};
use crate::floor::{Result, State};
use std::time::Instant;

const FEW: u64 = 100;
const MANY: u64 = 100_000;
const LOOKS: u64 = 500;
/// The index is a level deeper, and that is all.
const BAR: Bar = Bar::RatioAtMost(1.5);

pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let (few, many) = (settings.scaled(FEW), settings.scaled(MANY));
    let (one, other) = (look(settings, many).await?, look(settings, few).await?);
    progress(&format!("idle: {one:.3} ms beside {other:.3} ms"));
    let what = format!("a look at {many} timers of which none is due");
    rows.push(Row::beside(what, Unit::Milliseconds, one, format!("of {few}"), other, Some(BAR)));
    Ok(())
}

async fn look(settings: &Settings, schedules: u64) -> Result<f64> {
    let database = Database::create(&settings.url, "idle").await?;
    let store = database.open(true).await?;
    let later = now_ms() + 3_600_000;
    online::fill(&database, schedules, 3_600_000, |number| later + number as i64).await?;
    database.sql().await?.bring_into(State::Vacuumed, "task_timer").await?;
    let mut took = Vec::new();
    for _ in 0..settings.scaled(LOOKS) {
        let clock = Instant::now();
        if store.fire(super::fire::TIMERS_AT_ONCE).await?.runs > 0 {
            return Err("something fired that was not due".into());
        }
        took.push(milliseconds(clock.elapsed()));
    }
    drop(store);
    database.remove().await?;
    Ok(median(&took))
}
