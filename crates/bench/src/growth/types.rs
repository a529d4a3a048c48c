//! Types: what a task costs when tasks are of so many types, and workers ask for up to a hundred of them in a claim.

use super::cost;
use super::results::Cost;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::progress;
use crate::floor::{Result, State};
use crate::store::work;
use taskwheel_model::NewTask;

const SIZES: [u64; 5] = [1, 10, 100, 1_000, 10_000];
const TASKS: u64 = 20_000;
/// Of one claim.
const TYPES_MAX: usize = 100;
/// From the type of a task to that of the next. It shares no factor with any size, so that types are equally many, and those of one call are
/// no neighbours in an index, as they would be in the order of their names: a hundred neighbours share a few pages.
const STEP: u64 = 7_919;

/// Measures at each size, on a database of its own.
pub(super) async fn measure(settings: &Settings) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for size in SIZES {
        progress(&format!("{size} types"));
        let tasks = settings.scaled(TASKS).max(size);
        let names: Vec<String> = (0..size).map(|number| format!("type{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups: Vec<Vec<&str>> = names.chunks(TYPES_MAX).map(<[&str]>::to_vec).collect();
        let mut cost = Cost { at: size as f64, ..Cost::default() };
        for _ in 0..settings.runs {
            let database = Database::create(&settings.url, "growth").await?;
            let store = database.open(true).await?;
            let task = |number: u64| {
                let of = NewTask::new(names[usize::try_from(number * STEP % size).unwrap_or_default()]);
                NewTask { payload: work::task(number).payload, ..of }
            };
            cost.submit.push(cost::submit(&store, tasks, task).await?);
            database.bring_into(State::Vacuumed).await?;
            cost.work.push(cost::work_off(&store, tasks, &groups).await?);
            drop(store);
            database.remove().await?;
        }
        progress(&format!("submit {:.1?} µs, claim and finish {:.1?} µs", cost.submit, cost.work));
        costs.push(cost);
    }
    Ok(costs)
}
