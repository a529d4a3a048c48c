//! Submit: many callers with one task each, every one answered after its commit, beside as many autocommit connections.

use super::autocommit;
use super::database::Database;
use super::report::{Bar, Row, Unit, progress};
use super::settings::Settings;
use super::statistics::median;
use super::work;
use crate::floor::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::Status;
use taskwheel_store::{Dialect, Store};

/// Callers at once, here and there.
pub(super) const CALLERS: u64 = 64;
const SECONDS: f64 = 5.0;

/// Measures single submits.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let duration = Duration::from_secs_f64(settings.seconds(SECONDS));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        ours.push(store(settings, duration).await?);
        let database = Database::create(&settings.url, "autocommit").await?;
        theirs.push(autocommit::rate(&database, duration).await?);
        database.remove().await?;
        progress(&format!("submit: {:.0}/s beside {:.0}/s", ours[ours.len() - 1], theirs[theirs.len() - 1]));
    }
    let least = if Dialect::of(&settings.url)? == Dialect::Sqlite { 5.0 } else { 3.0 };
    rows.push(Row::beside(
        format!("submit, {CALLERS} callers with one task each"),
        Unit::PerSecond,
        median(&ours),
        format!("{CALLERS} autocommit connections"),
        median(&theirs),
        Some(Bar::RatioAtLeast(least)),
    ));
    Ok(())
}

async fn store(settings: &Settings, duration: Duration) -> Result<f64> {
    let database = Database::create(&settings.url, "submit").await?;
    let store = database.open(true).await?;
    let clock = Instant::now();
    let callers: Vec<_> =
        (0..CALLERS).map(|number| tokio::spawn(caller(store.clone(), number, clock + duration))).collect();
    let mut acknowledged = 0;
    for caller in callers {
        acknowledged += caller.await??;
    }
    let elapsed = clock.elapsed();
    work::expect(store.as_ref(), Status::New, acknowledged).await?;
    drop(store);
    database.remove().await?;
    Ok(acknowledged as f64 / elapsed.as_secs_f64())
}

async fn caller(store: Arc<dyn Store>, number: u64, until: Instant) -> Result<u64> {
    let mut acknowledged = 0;
    while Instant::now() < until {
        store.submit(vec![work::task(number)]).await?;
        acknowledged += 1;
    }
    Ok(acknowledged)
}
