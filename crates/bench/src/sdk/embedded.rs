//! Embedded: a worker on an engine in this process, beside the store's own drain.
//!
//! The store tries its settings once and the better ones are run again, between our own runs; the best of them is the bar. Its
//! clients promise no heartbeat and know no handlers; ours do, and an engine runs beside them.

use super::settings::Settings;
use super::{BAR, CONCURRENCY, QUEUE, TASKS, drain};
use crate::common::database::Database;
use crate::common::report::{Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::{Result, State};
use crate::store::{drain as store, work};
use std::sync::Arc;
use std::time::Instant;
use taskwheel_client::Client;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_model::Status;

/// Measures ours and the store's in turn.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let (url, tasks) = (&settings.url, settings.scaled(TASKS));
    let finalists = store::finalists(url, tasks, true).await?;
    let mut ours = Vec::new();
    let mut theirs: Vec<_> = finalists.iter().map(|_| Vec::new()).collect();
    for _ in 0..settings.runs {
        let rate = embedded(url, tasks).await?;
        progress(&format!("embedded: {rate:.0}/s"));
        ours.push(rate);
        for (setting, rates) in finalists.iter().zip(&mut theirs) {
            let rate = store::ours(url, tasks, *setting, true, State::Vacuumed).await?;
            progress(&format!("the store, {setting}: {rate:.0}/s"));
            rates.push(rate);
        }
    }
    let best = finalists.iter().zip(&theirs).map(|(setting, rates)| (median(rates), setting));
    let (rate, setting) = best.max_by(|one, other| one.0.total_cmp(&other.0)).ok_or("nothing was measured")?;
    let what = format!("embedded worker, {CONCURRENCY} at once, queue of {QUEUE}, history kept, vacuumed");
    let beside = format!("the store's drain ({setting})");
    rows.push(Row::beside(what, Unit::PerSecond, median(&ours), beside, rate, Some(BAR)));
    Ok(())
}

async fn embedded(url: &str, tasks: u64) -> Result<f64> {
    let database = Database::create(url, "embedded").await?;
    let store = database.open(true).await?;
    work::load(&store, tasks).await?;
    database.bring_into(State::Vacuumed).await?;
    let engine = Arc::new(Engine::start(store.clone(), EngineOptions::default()));
    let client = Client::on_engine(engine);
    let clock = Instant::now();
    let done = drain(&client, work::TYPE, "bench").await?;
    let elapsed = clock.elapsed();
    client.close().await;
    if done != tasks {
        return Err(format!("loaded {tasks} tasks, {done} were done").into());
    }
    work::expect(store.as_ref(), Status::Success, tasks).await?;
    drop(store);
    database.remove().await?;
    Ok(tasks as f64 / elapsed.as_secs_f64())
}
