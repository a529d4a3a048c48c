//! What a task costs: one client, a hundred tasks a call, each call answered before the next.

use crate::floor::Result;
use crate::store::work;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::NewTask;
use taskwheel_store::Store;

/// Tasks in a call.
pub(super) const BATCH: usize = 100;

/// Submits tasks, and answers the microseconds of one.
pub(super) async fn submit(store: &Arc<dyn Store>, tasks: u64, task: impl Fn(u64) -> NewTask) -> Result<f64> {
    let clock = Instant::now();
    let mut first = 0;
    while first < tasks {
        let batch: Vec<_> = (first..tasks.min(first + BATCH as u64)).map(&task).collect();
        first += batch.len() as u64;
        store.submit(batch).await?;
    }
    Ok(each(clock.elapsed(), tasks))
}

/// Claims and finishes so many tasks of groups of types, one group after the other, and answers the microseconds of one.
pub(super) async fn work_off(store: &Arc<dyn Store>, tasks: u64, groups: &[Vec<&str>]) -> Result<f64> {
    let clock = Instant::now();
    let mut done = 0;
    for types in groups {
        while done < tasks {
            let mut answers = store.claim(vec![work::request("worker", types, BATCH)]).await?;
            let claimed = answers.pop().unwrap_or_default();
            if claimed.is_empty() {
                break;
            }
            work::finish(store.as_ref(), &claimed).await?;
            done += claimed.len() as u64;
        }
    }
    let elapsed = clock.elapsed();
    if done < tasks {
        return Err(format!("{tasks} tasks should be done; {done} were").into());
    }
    Ok(each(elapsed, done))
}

/// The microseconds of one of so many.
pub(super) fn each(elapsed: Duration, tasks: u64) -> f64 {
    elapsed.as_secs_f64() * 1e6 / tasks as f64
}
