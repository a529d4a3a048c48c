//! The backlog: how much is due and since when, type by type, at a cost that does not grow with it.

use crate::plain::{Kind, plain};
use crate::session::{Attempted, Session};
use crate::verbs::Backlog;
use std::collections::BTreeMap;

/// Lanes that are looked into.
const LANES_MAX: usize = 300;
/// Due tasks of a rank that are counted; where there are more, it is at least as many.
const COUNTED_MAX: u64 = 1_000;

const NEXT_LANE: &str = "SELECT MIN(w.lane) FROM task_waiting w WHERE w.lane > ?";
const DUE: &str = "
SELECT count(*), MIN(x.due) FROM (
  SELECT w.due FROM task_waiting w WHERE w.lane = ? AND w.rank = ? AND w.due <= ? ORDER BY w.due LIMIT 1000) x";

pub(super) async fn backlog(session: &mut dyn Session) -> Attempted<Vec<Backlog>> {
    let now = session.now();
    let mut by_type: BTreeMap<String, Backlog> = BTreeMap::new();
    // The lane of parked tasks is the empty one, and no claim looks there.
    let mut lane = String::new();
    for _ in 0..LANES_MAX {
        let next = session.rows(&plain(NEXT_LANE).bind(&*lane), &[Kind::Text]).await?.into_iter().next();
        let Some(next) = next.map(|mut row| row.maybe_text()).transpose()?.flatten() else { break };
        lane = next;
        let task_type = lane.split('@').next().unwrap_or(&lane).to_owned();
        let of_type = by_type.entry(task_type.clone()).or_insert(Backlog { task_type, due: 0, oldest_ms: 0 });
        for rank in 0..9_i64 {
            let due = plain(DUE).bind(&*lane).bind(rank).bind(now.0);
            for mut row in session.rows(&due, &[Kind::Number, Kind::Number]).await? {
                let (count, oldest) = (row.number()?.unsigned_abs(), row.maybe_number()?);
                of_type.due += count.min(COUNTED_MAX);
                let age = oldest.map_or(0, |oldest| now.0 - oldest);
                of_type.oldest_ms = of_type.oldest_ms.max(age);
            }
        }
    }
    Ok(by_type.into_values().filter(|of_type| of_type.due > 0).collect())
}
