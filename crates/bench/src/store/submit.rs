//! Submit: many callers with one task each, every one answered after its commit, beside as many autocommit connections.

use super::autocommit::{self, Table};
use super::settings::Settings;
use super::work;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::Status;
use taskwheel_store::{Dialect, Store};

/// Callers at once, here and there.
pub(super) const CALLERS: u64 = 64;
const SECONDS: f64 = 5.0;

/// Measures single submits. The bar is against the same submit by plain SQL; the bare table shows what its indexes and
/// checks cost.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let duration = Duration::from_secs_f64(settings.seconds(SECONDS));
    let (mut ours, mut plain, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let (one, two, three) = (
            store(settings, duration).await?,
            autocommit::rate(&settings.url, Table::Task, duration).await?,
            autocommit::rate(&settings.url, Table::Floor, duration).await?,
        );
        progress(&format!("submit: {one:.0}/s beside {two:.0}/s, {three:.0}/s into a bare table"));
        ours.push(one);
        plain.push(two);
        bare.push(three);
    }
    let least = if Dialect::of(&settings.url)? == Dialect::Sqlite { 5.0 } else { 3.0 };
    let row = |beside: String, theirs: &[f64], bar| {
        let what = format!("submit, {CALLERS} callers with one task each");
        Row::beside(what, Unit::PerSecond, median(&ours), beside, median(theirs), bar)
    };
    let connections = format!("{CALLERS} autocommit connections");
    rows.push(row(connections.clone(), &plain, Some(Bar::RatioAtLeast(least))));
    rows.push(row(format!("{connections}, bare table"), &bare, None));
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
