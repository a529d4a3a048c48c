//! Drain: how fast preloaded no-op tasks are worked off, beside the floor.
//!
//! Each answer is awaited before the next call, as a worker does. The rates hang on batch and clients: every setting is tried
//! once, the best two are measured. The floor runs between our own runs, so that a noisy minute hits both.

use super::settings::Settings;
use super::work::{self, Setting};
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::{self, Carried, Result, State};
use std::collections::BTreeMap;
use taskwheel_model::Status;
use taskwheel_store::Dialect;

const TASKS: u64 = 100_000;
const BATCHES: [usize; 3] = [100, 500, 1_000];
const CLIENTS: [usize; 3] = [1, 2, 4];
/// Settings that are worth more than one run.
const FINALISTS: usize = 2;
const FLOOR_BATCHES: [usize; 2] = [100, 500];
/// What the store must reach of the floor, with history, in the vacuumed state.
const OF_THE_FLOOR_MIN: f64 = 0.7;

/// Ours, by whether history is kept, or the floor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Kept,
    Dropped,
    Floor,
}

/// The best medians of ours in one state of the tables, for those who stand beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    pub(super) state: State,
    /// With history.
    pub(super) kept: f64,
    /// With a retention of zero for Success.
    pub(super) dropped: f64,
}

pub(super) fn word(state: State) -> &'static str {
    match state {
        State::Vacuumed => "vacuumed",
        State::JustLoaded => "just loaded",
    }
}

/// Measures drains in both states.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<Vec<Drained>> {
    let tasks = settings.scaled(TASKS);
    let mut contestants = Vec::new();
    for who in [Who::Kept, Who::Dropped] {
        for setting in finalists(&settings.url, tasks, who == Who::Kept).await? {
            contestants.push((who, setting));
        }
    }
    for setting in floor_settings(&settings.url)? {
        contestants.push((Who::Floor, setting));
    }
    let mut drained = Vec::new();
    for state in [State::Vacuumed, State::JustLoaded] {
        let mut rates: BTreeMap<(Who, usize), Vec<f64>> = BTreeMap::new();
        for _ in 0..settings.runs {
            for (place, (who, setting)) in contestants.iter().enumerate() {
                let rate = match who {
                    Who::Floor => floor_drain(settings, tasks, *setting, state).await?,
                    Who::Kept | Who::Dropped => ours(&settings.url, tasks, *setting, *who == Who::Kept, state).await?,
                };
                progress(&format!("drain, {}, {who:?} {setting}: {rate:.0}/s", word(state)));
                rates.entry((*who, place)).or_default().push(rate);
            }
        }
        let best = |wanted: Who| {
            let medians = rates.iter().filter(|((who, _), _)| *who == wanted);
            medians
                .map(|((_, place), rates)| (median(rates), contestants[*place].1))
                .max_by(|one, other| one.0.total_cmp(&other.0))
                .ok_or("nothing was measured")
        };
        let (kept, dropped, floor) = (best(Who::Kept)?, best(Who::Dropped)?, best(Who::Floor)?);
        let bar = (state == State::Vacuumed).then_some(Bar::RatioAtLeast(OF_THE_FLOOR_MIN));
        for (name, ours, bar) in [("history kept", kept, bar), ("history not kept", dropped, None)] {
            rows.push(Row::beside(
                format!("drain, {name}, {} ({})", word(state), ours.1),
                Unit::PerSecond,
                ours.0,
                format!("floor, with history ({})", floor.1),
                floor.0,
                bar,
            ));
        }
        drained.push(Drained { state, kept: kept.0, dropped: dropped.0 });
    }
    Ok(drained)
}

/// The settings that one try each shows to be the best.
pub(crate) async fn finalists(url: &str, tasks: u64, keep: bool) -> Result<Vec<Setting>> {
    let mut tried = Vec::new();
    for batch in BATCHES {
        for clients in CLIENTS {
            let setting = Setting { batch, clients };
            let rate = ours(url, tasks, setting, keep, State::Vacuumed).await?;
            progress(&format!(
                "drain, trying {setting}, history {}: {rate:.0}/s",
                if keep { "kept" } else { "not kept" }
            ));
            tried.push((rate, setting));
        }
    }
    tried.sort_by(|one, other| other.0.total_cmp(&one.0));
    Ok(tried.into_iter().take(FINALISTS).map(|(_, setting)| setting).collect())
}

/// One drain of the store by itself.
pub(crate) async fn ours(url: &str, tasks: u64, setting: Setting, keep: bool, state: State) -> Result<f64> {
    let database = Database::create(url, "drain").await?;
    let store = database.open(keep).await?;
    work::load(&store, tasks).await?;
    database.bring_into(state).await?;
    let rate = work::drain(&store, tasks, setting).await?;
    work::expect(store.as_ref(), Status::Success, if keep { tasks } else { 0 }).await?;
    drop(store);
    database.remove().await?;
    Ok(rate)
}

/// SQLite has one writer, so the floor knows no clients there.
fn floor_settings(url: &str) -> Result<Vec<Setting>> {
    let clients: &[usize] = if Dialect::of(url)? == Dialect::Sqlite { &[1] } else { &[1, 4] };
    Ok(FLOOR_BATCHES.iter().flat_map(|&batch| clients.iter().map(move |&clients| Setting { batch, clients })).collect())
}

async fn floor_drain(settings: &Settings, tasks: u64, setting: Setting, state: State) -> Result<f64> {
    let database = Database::create(&settings.url, "floor").await?;
    // The floor reads what follows `sqlite:` as a path, and a path may start with several slashes.
    let rate = floor::drain(&database.url, tasks, Carried::KeyAndPayload, setting.batch as u64, setting.clients, state)
        .await?;
    database.remove().await?;
    Ok(rate)
}
