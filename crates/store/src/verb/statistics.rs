//! Statistics: executions are counted in memory as they end, and written by the minute.
//!
//! Each store counts what ended through it, under a name of its own, and writes the whole minute again each time, so that
//! nothing is counted twice. What was counted since the last write is lost when the process dies: statistics are no promise.

use crate::plain::{Kind, Plain, plain};
use crate::rows::{read_histogram, write_histogram};
use crate::session::{Attempted, Session};
use crate::verbs::{Statistics, StatisticsRange};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use taskwheel_model::{Ran, Tally, Time, limits};
use uuid::Uuid;

const MINUTE_MS: i64 = 60_000;
/// Minutes of types that are held; where nobody writes them, the oldest knowledge goes.
const HELD_MAX: usize = 20_000;

pub(super) struct Ledger {
    node: String,
    held: Mutex<HashMap<Of, Held>>,
}

/// Whose executions of which type, in which minute.
type Of = (String, String, i64);

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
            let one = held.entry((ran.tenant.clone(), ran.task_type.clone(), minute)).or_default();
            one.tally.add(ran);
            one.is_written = false;
        }
    }

    /// What is to be written.
    pub(super) fn unwritten(&self) -> Vec<Statistics> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let unwritten = held.iter().filter(|(_, one)| !one.is_written);
        unwritten
            .map(|((tenant, task_type, minute), one)| Statistics {
                minute: Time(*minute),
                tenant: tenant.clone(),
                task_type: task_type.clone(),
                tally: one.tally.clone(),
            })
            .collect()
    }

    /// It was written. What has not grown since, and whose minute is over, is not needed any more.
    pub(super) fn written(&self, written: &[Statistics], now: Time) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for statistics in written {
            let of = (statistics.tenant.clone(), statistics.task_type.clone(), statistics.minute.0);
            if let Some(one) = held.get_mut(&of) {
                one.is_written = one.tally == statistics.tally;
            }
        }
        // A transaction that commits late may still count for the minute before.
        held.retain(|(.., minute), one| !one.is_written || minute + 5 * MINUTE_MS > now.0);
    }
}

const REMOVE: &str = "DELETE FROM task_statistics WHERE minute = ? AND tenant = ? AND type = ? AND node = ?";
const PUT: &str = "
INSERT INTO task_statistics (minute, tenant, type, node, success_first, success_second, success_later, errors, failures,
                             wait_ms, run_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const OLDEST: &str = "SELECT MIN(minute) FROM task_statistics";
const FORGET: &str = "DELETE FROM task_statistics WHERE minute < ? AND minute <= ?";

/// Writes what this store counted, in the place of what it wrote before, and forgets an hour of what is too old.
pub(super) async fn write(session: &mut dyn Session, ledger: &Ledger, counted: &[Statistics]) -> Attempted<Time> {
    for Statistics { minute, tenant, task_type, tally } in counted {
        let of = |text| plain(text).bind(minute.0).bind(&**tenant).bind(&**task_type).bind(&*ledger.node);
        session.execute(&of(REMOVE)).await?;
        let counts = [tally.success_first, tally.success_second, tally.success_later, tally.errors, tally.failures];
        let put = counts.into_iter().fold(of(PUT), Plain::bind);
        session.execute(&put.bind(write_histogram(&tally.wait)).bind(write_histogram(&tally.run))).await?;
    }
    let now = session.now();
    let oldest = session.rows(&plain(OLDEST), &[Kind::Number]).await?;
    if let Some(mut row) = oldest.into_iter().next()
        && let Some(oldest) = row.maybe_number()?
    {
        let before = now.plus_ms(-limits::STATISTICS_MS).0;
        session.execute(&plain(FORGET).bind(before).bind(oldest + 60 * MINUTE_MS)).await?;
    }
    Ok(now)
}

const READ: &str = "
SELECT minute, tenant, type, success_first, success_second, success_later, errors, failures, wait_ms, run_ms
FROM task_statistics WHERE minute >= ? AND minute < ? AND (? IS NULL OR tenant = ?) AND (? IS NULL OR type = ?)
ORDER BY minute, tenant, type";

/// What all nodes counted.
pub(super) async fn read(session: &mut dyn Session, wanted: &StatisticsRange) -> Attempted<Vec<Statistics>> {
    use Kind::{Number, Text};
    let (tenant, task_type) = (wanted.tenant.as_deref(), wanted.task_type.as_deref());
    let query = plain(READ).bind(wanted.from.0).bind(wanted.to.0);
    let query = query.bind(tenant).bind(tenant).bind(task_type).bind(task_type);
    let kinds = [Number, Text, Text, Number, Number, Number, Number, Number, Text, Text];
    let mut found: Vec<Statistics> = Vec::new();
    for mut row in session.rows(&query, &kinds).await? {
        let (minute, tenant, task_type) = (Time(row.number()?), row.text()?, row.text()?);
        let mut count = || row.number().map(i64::unsigned_abs);
        let tally = Tally {
            success_first: count()?,
            success_second: count()?,
            success_later: count()?,
            errors: count()?,
            failures: count()?,
            wait: read_histogram(&row.text()?),
            run: read_histogram(&row.text()?),
        };
        match found.last_mut() {
            // Another node's share.
            Some(last) if (last.minute, &last.tenant, &last.task_type) == (minute, &tenant, &task_type) => {
                last.tally.merge(&tally);
            }
            _ => found.push(Statistics { minute, tenant, task_type, tally }),
        }
    }
    Ok(found)
}
