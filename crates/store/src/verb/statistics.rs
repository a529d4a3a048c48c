//! Statistics: executions are counted in memory as they end, and written by the minute.
//!
//! Each store counts what ended through it, under a name of its own, and writes the whole minute again each time, so that
//! nothing is counted twice. What was counted since the last write is lost when the process dies: statistics are no promise.

use crate::session::{Attempted, Session};
use crate::verbs::Statistics;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use taskwheel_model::{Ran, Tally, Time, limits};
use uuid::Uuid;

const MINUTE_MS: i64 = 60_000;
/// Minutes of types that are held; where nobody writes them, the oldest knowledge goes.
const HELD_MAX: usize = 20_000;

pub(super) struct Ledger {
    node: String,
    held: Mutex<HashMap<(String, i64), Held>>,
}

#[derive(Default)]
struct Held {
    tally: Tally,
    is_written: bool,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { node: Uuid::new_v4().simple().to_string(), held: Mutex::default() }
    }
}

impl Ledger {
    /// Counts executions. To be called after their commit.
    pub(super) fn add(&self, ran: &[Ran]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() > HELD_MAX {
            held.clear();
        }
        for ran in ran {
            let minute = ran.ended_at.0 - ran.ended_at.0.rem_euclid(MINUTE_MS);
            let one = held.entry((ran.task_type.clone(), minute)).or_default();
            one.tally.add(ran);
            one.is_written = false;
        }
    }

    /// What is to be written.
    pub(super) fn unwritten(&self) -> Vec<Statistics> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let unwritten = held.iter().filter(|(_, one)| !one.is_written);
        unwritten
            .map(|((task_type, minute), one)| Statistics {
                minute: Time(*minute),
                task_type: task_type.clone(),
                tally: one.tally.clone(),
            })
            .collect()
    }

    /// It was written. What has not grown since, and whose minute is over, is not needed any more.
    pub(super) fn written(&self, written: &[Statistics], now: Time) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for statistics in written {
            if let Some(one) = held.get_mut(&(statistics.task_type.clone(), statistics.minute.0)) {
                one.is_written = one.tally == statistics.tally;
            }
        }
        // A transaction that commits late may still count for the minute before.
        held.retain(|(_, minute), one| !one.is_written || minute + 5 * MINUTE_MS > now.0);
    }
}

/// Writes statistics, and forgets some that are too old.
pub(super) async fn write(session: &mut dyn Session, ledger: &Ledger, counted: &[Statistics]) -> Attempted<Time> {
    let now = session.now();
    session.put_statistics(&ledger.node, counted).await?;
    session.forget_statistics(now.plus_ms(-limits::STATISTICS_MS), limits::CHUNK_ROWS_MAX).await?;
    Ok(now)
}

/// What several nodes counted of the same minute and type, as one.
pub(super) fn merged(found: Vec<Statistics>) -> Vec<Statistics> {
    let mut merged: Vec<Statistics> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if last.minute == one.minute && last.task_type == one.task_type => last.tally.merge(&one.tally),
            _ => merged.push(one),
        }
    }
    merged
}
