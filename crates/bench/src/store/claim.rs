//! Claim: whether a claim of type A costs the same beside millions of rows that are none of its business.
//!
//! Two databases: one with A's tasks alone, one with all the rest too. Claims alternate between them, so that a noisy minute
//! hits both, and each is given back, so that what is there stays the same.

use super::fill::{Filler, Standing, Tasks};
use super::settings::Settings;
use super::work;
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, milliseconds};
use crate::floor::{Result, State};
use std::sync::Arc;
use std::time::Instant;
use taskwheel_model::Outcome;
use taskwheel_store::Store;

const CLAIMS: usize = 200;
const BATCH: usize = 100;
const WANTED: u64 = 10_000;
const OTHERS: u64 = 1_000_000;
const FINISHED: u64 = 5_000_000;
const RATIO_MAX: f64 = 1.3;
const DAY_MS: i64 = 86_400_000;
const WANTED_TYPE: &str = "a";
const PAUSED_TYPE: &str = "paused";

/// Measures claims.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let (alone, crowded) = (prepare(settings, false).await?, prepare(settings, true).await?);
    let (quiet, loud) = (alone.open(true).await?, crowded.open(true).await?);
    for store in [&quiet, &loud] {
        store.pause_type(PAUSED_TYPE.to_owned(), true).await?;
    }
    for types in [&[WANTED_TYPE][..], &[WANTED_TYPE, PAUSED_TYPE]] {
        let (mut quiet_ms, mut loud_ms) = (Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            let (quiet, loud) = medians(&quiet, &loud, types).await?;
            progress(&format!("claim of {}: {loud:.2} ms beside {quiet:.2} ms", types.join(" or ")));
            quiet_ms.push(quiet);
            loud_ms.push(loud);
        }
        rows.push(Row::beside(
            format!("claim of {BATCH} of {}, crowded, median of {CLAIMS}", types.join(" or ")),
            Unit::Milliseconds,
            median(&loud_ms),
            "the same, alone".into(),
            median(&quiet_ms),
            Some(Bar::RatioAtMost(RATIO_MAX)),
        ));
    }
    drop((quiet, loud));
    alone.remove().await?;
    crowded.remove().await
}

/// A database with A's tasks, and with all others where it shall be crowded.
async fn prepare(settings: &Settings, crowded: bool) -> Result<Database> {
    let database = Database::create(&settings.url, if crowded { "crowded" } else { "alone" }).await?;
    drop(database.open(true).await?);
    let now = now_ms();
    let (past, future) = (format!("{} + n", now - DAY_MS), format!("{} + n", now + DAY_MS));
    let mut filler = Filler::begin(&database).await?;
    if crowded {
        let finished = Tasks {
            standing: Standing::Finished { status: "3", host: "CONCAT('host', id % 20)" },
            ..Tasks::waiting("CASE WHEN n % 2 = 0 THEN 'a' ELSE 'b' END", "1", &past, &past)
        };
        filler.add("finished tasks", settings.scaled(FINISHED), &finished).await?;
        let others = settings.scaled(OTHERS);
        filler.add("future tasks of A, priority 9", others, &Tasks::waiting("'a'", "9", &future, &past)).await?;
        filler.add("due tasks of B, priority 9", others, &Tasks::waiting("'b'", "9", &past, &past)).await?;
        filler.add("due tasks of a paused type", others, &Tasks::waiting("'paused'", "9", &past, &past)).await?;
    }
    filler.add("due tasks of A", settings.scaled(WANTED).max(1_000), &Tasks::waiting("'a'", "1", &past, &past)).await?;
    progress("bringing the tables into the vacuumed state");
    database.bring_into(State::Vacuumed).await?;
    Ok(database)
}

/// The medians of many claims on either database.
async fn medians(quiet: &Arc<dyn Store>, loud: &Arc<dyn Store>, types: &[&str]) -> Result<(f64, f64)> {
    let (mut quiet_ms, mut loud_ms) = (Vec::new(), Vec::new());
    for _ in 0..CLAIMS {
        quiet_ms.push(claim(quiet, types).await?);
        loud_ms.push(claim(loud, types).await?);
    }
    Ok((median(&quiet_ms), median(&loud_ms)))
}

/// The time of one claim, which is given back afterwards.
async fn claim(store: &Arc<dyn Store>, types: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let mut answers = store.claim(vec![work::request("claimer", types, BATCH)]).await?;
    let took = milliseconds(began.elapsed());
    let claimed = answers.pop().unwrap_or_default();
    if claimed.len() != BATCH {
        return Err(format!("asked for {BATCH} tasks, got {}", claimed.len()).into());
    }
    work::report(store.as_ref(), &claimed, Outcome::Release).await?;
    Ok(took)
}
