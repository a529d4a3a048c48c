//! Backlog: what a task costs while so many others are due too.

use super::cost;
use super::results::Cost;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::progress;
use crate::floor::{Result, State};
use crate::store::work;

/// What is submitted and worked off at each size.
const TASKS: u64 = 10_000;

/// Measures at each size. The backlog stays the same: as many are submitted as are worked off.
pub(super) async fn measure(settings: &Settings, sizes: &[u64]) -> Result<Vec<Cost>> {
    let database = Database::create(&settings.url, "growth").await?;
    let store = database.open(true).await?;
    let (tasks, mut loaded, mut costs) = (settings.scaled(TASKS), 0, Vec::new());
    for size in sizes.iter().map(|size| settings.scaled(*size)) {
        progress(&format!("backlog of {size}"));
        work::load(&store, size - loaded).await?;
        loaded = size;
        database.bring_into(State::Vacuumed).await?;
        let mut cost = Cost { at: size as f64, ..Cost::default() };
        for _ in 0..settings.runs {
            cost.submit.push(cost::submit(&store, tasks, work::task).await?);
            cost.work.push(cost::work_off(&store, tasks, &[vec![work::TYPE]]).await?);
        }
        progress(&format!("submit {:.1?} µs, claim and finish {:.1?} µs", cost.submit, cost.work));
        costs.push(cost);
    }
    let waiting = database.sql().await?.number("SELECT COUNT(*) FROM task_waiting").await?;
    if u64::try_from(waiting)? != loaded {
        return Err(format!("{loaded} tasks should wait; {waiting} do").into());
    }
    drop(store);
    database.remove().await?;
    Ok(costs)
}
