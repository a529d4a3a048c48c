//! Fire: how many firings a second there are when every schedule is due at once, beside the bare SQL of the same transactions.

use super::settings::Settings;
use super::{floor, online};
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;
use std::time::Instant;

const SCHEDULES: u64 = 10_000;
/// As the engine does.
pub(super) const TIMERS_AT_ONCE: usize = 500;
const BAR: Bar = Bar::RatioAtLeast(0.7);

pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let schedules = settings.scaled(SCHEDULES);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let (one, other) = (store(settings, schedules).await?, bare(settings, schedules).await?);
        progress(&format!("fire: {one:.0}/s beside {other:.0}/s"));
        ours.push(one);
        theirs.push(other);
    }
    let what = format!("firings with {schedules} schedules due at once, {TIMERS_AT_ONCE} in a transaction");
    let beside = "bare SQL of the same transactions".to_owned();
    rows.push(Row::beside(what, Unit::PerSecond, median(&ours), beside, median(&theirs), Some(BAR)));
    Ok(())
}

async fn store(settings: &Settings, schedules: u64) -> Result<f64> {
    let database = Database::create(&settings.url, "fire").await?;
    let store = database.open(true).await?;
    online::fill(&database, schedules, 3_600_000, |_| now_ms()).await?;
    online::make_due(&database, now_ms()).await?;
    let clock = Instant::now();
    while store.fire(TIMERS_AT_ONCE).await?.more {}
    let elapsed = clock.elapsed();
    check(&database, schedules).await?;
    drop(store);
    database.remove().await?;
    Ok(schedules as f64 / elapsed.as_secs_f64())
}

async fn bare(settings: &Settings, schedules: u64) -> Result<f64> {
    let database = Database::create(&settings.url, "bare").await?;
    drop(database.open(true).await?);
    online::fill(&database, schedules, 3_600_000, |_| now_ms()).await?;
    online::make_due(&database, now_ms()).await?;
    let mut sql = floor::connect(&database).await?;
    let (clock, mut run_id) = (Instant::now(), 100_000_000);
    loop {
        let fired = floor::fire(&mut sql, run_id).await?;
        run_id += i64::try_from(fired)?;
        if fired < TIMERS_AT_ONCE {
            break;
        }
    }
    let elapsed = clock.elapsed();
    drop(sql);
    check(&database, schedules).await?;
    database.remove().await?;
    Ok(schedules as f64 / elapsed.as_secs_f64())
}

async fn check(database: &Database, schedules: u64) -> Result<()> {
    let tasks = online::tasks(database).await?;
    let expected = i64::try_from(schedules)?;
    if tasks == expected { Ok(()) } else { Err(format!("{expected} schedules were due, {tasks} tasks came").into()) }
}
