//! Payload: what a task costs when it carries so many bytes.

use super::cost;
use super::results::Cost;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::progress;
use crate::floor::{Result, State};
use crate::store::work;
use taskwheel_model::NewTask;

const SIZES: [u64; 4] = [100, 1_000, 10_000, 100_000];
const TASKS: u64 = 20_000;
/// Of one size: beyond this, fewer tasks.
const BYTES_MAX: u64 = 100_000_000;

/// Measures at each size, on a database of its own.
pub(super) async fn measure(settings: &Settings) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for size in SIZES {
        progress(&format!("payloads of {size} bytes"));
        let tasks = settings.scaled(TASKS.min(BYTES_MAX / size));
        let payload = format!("\"{}\"", text(usize::try_from(size)?.saturating_sub(2)));
        let mut cost = Cost { at: size as f64, ..Cost::default() };
        for _ in 0..settings.runs {
            let database = Database::create(&settings.url, "growth").await?;
            let store = database.open(true).await?;
            let task = |_| NewTask { payload: Some(payload.clone()), ..NewTask::new(work::TYPE) };
            cost.submit.push(cost::submit(&store, tasks, task).await?);
            database.bring_into(State::Vacuumed).await?;
            cost.work.push(cost::work_off(&store, tasks, &[vec![work::TYPE]]).await?);
            drop(store);
            database.remove().await?;
        }
        progress(&format!("submit {:.1?} µs, claim and finish {:.1?} µs", cost.submit, cost.work));
        costs.push(cost);
    }
    Ok(costs)
}

/// Letters that do not compress to nothing, so that a database cannot make them small.
fn text(bytes: usize) -> String {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_payload_has_its_size_and_no_pattern() {
        assert_eq!(text(100).len(), 100);
        assert_ne!(text(100)[..50], text(100)[50..]);
    }
}
