//! Peers: our drain beside the graphile workers', on the same PostgreSQL.

use super::drain::{Drained, word};
use super::settings::Settings;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::{Result, State};
use crate::peers::graphile;

const JOBS: u64 = 100_000;
const WITH_HISTORY_MIN: f64 = 1.0;
const WITHOUT_HISTORY_MIN: f64 = 1.3;

/// Measures both, and sets ours beside the better.
pub(super) async fn measure(settings: &Settings, ours: &[Drained], rows: &mut Vec<Row>) -> Result<()> {
    let contestants = graphile::contestants(rows).await;
    for drained in ours {
        let mut best: Option<(f64, String)> = None;
        for contestant in &contestants {
            let mut rates = Vec::new();
            for _ in 0..settings.runs {
                rates.push(contestant.drain(&settings.url, settings.scaled(JOBS), drained.state).await?);
            }
            let (rate, name) = (median(&rates), contestant.to_string());
            progress(&format!("{name}, {}: {rate:.0}/s", word(drained.state)));
            let what = format!("drain, history not kept, {}", word(drained.state));
            rows.push(Row::beside(what, Unit::PerSecond, drained.dropped, name.clone(), rate, None));
            if best.as_ref().is_none_or(|(known, _)| rate > *known) {
                best = Some((rate, name));
            }
        }
        let Some((rate, name)) = best else { continue };
        let bar = |least| (drained.state == State::Vacuumed).then_some(Bar::RatioAtLeast(least));
        for (history, ours, least) in
            [("kept", drained.kept, WITH_HISTORY_MIN), ("not kept", drained.dropped, WITHOUT_HISTORY_MIN)]
        {
            let what = format!("drain, history {history}, {}", word(drained.state));
            rows.push(Row::beside(what, Unit::PerSecond, ours, format!("the better: {name}"), rate, bar(least)));
        }
    }
    Ok(())
}
