//! The backlog: how much is due and since when, type by type, at a cost that does not grow with it.
//!
//! A type's tasks are in the lane of its name, and in one for each host that some of them should go to: `mail`, `mail@a`,
//! `mail@b`. Anybody can make up hosts, so these lanes are not gone through one by one: those of a type's hosts are read
//! together, and so is what is left when there are too many types.

use crate::plain::{Kind, Plain, plain};
use crate::session::{Attempted, Session};
use crate::verbs::{Backlog, TypeBacklog};
use std::collections::BTreeMap;

/// Types that are told apart. Further ones are summed up.
const TYPES_MAX: usize = 200;
/// Stands for the types that are summed up.
const OTHER: &str = "(other)";
/// Due tasks of a rank that are counted.
const COUNTED_MAX: u64 = 1_000;
/// Tasks that are looked at, due or not, where lanes are read together.
const READ_MAX: u64 = 5_000;

/// Comes before whatever a type's name goes on with, in the order of lanes.
const FIRST: &str = "-";
/// Comes right after the `@` between type and host.
const AFTER_HOSTS: &str = "A";
/// Comes after all types.
const END: &str = "~";

const NEXT_LANE: &str = "SELECT MIN(w.lane) FROM task_waiting w WHERE w.lane >= ?";
const OF_RANK: &str = "
SELECT count(*), count(*), MIN(x.due) FROM (
  SELECT w.due FROM task_waiting w WHERE w.lane = ? AND w.rank = ? AND w.due <= ? ORDER BY w.due LIMIT 1000) x";
const TOGETHER: &str = "
SELECT count(*), count(CASE WHEN x.due <= ? THEN 1 END), MIN(CASE WHEN x.due <= ? THEN x.due END) FROM (
  SELECT w.due FROM task_waiting w WHERE w.lane >= ? AND w.lane < ? ORDER BY w.lane, w.rank, w.due LIMIT 5000) x";

pub(super) async fn backlog(session: &mut dyn Session) -> Attempted<Backlog> {
    let now = session.now();
    let mut counting = Counting { session, by_type: BTreeMap::new(), is_cut_off: false };
    // The lane of parked tasks is the empty one, and no claim looks there.
    let mut from = FIRST.to_owned();
    while let Some(lane) = counting.next_lane(&from).await? {
        let (task_type, host) = lane.split_once('@').map_or((&*lane, None), |(name, host)| (name, Some(host)));
        if counting.by_type.len() == TYPES_MAX && !counting.by_type.contains_key(task_type) {
            counting.lanes(OTHER, &lane, END).await?;
            break;
        }
        from = match host {
            None => {
                counting.lane(&lane).await?;
                format!("{task_type}{FIRST}")
            }
            Some(_) => {
                let end = format!("{task_type}{AFTER_HOSTS}");
                counting.lanes(task_type, &lane, &end).await?;
                end
            }
        };
    }
    let Counting { by_type, is_cut_off, .. } = counting;
    let types = by_type.into_values().filter(|of_type| of_type.due > 0).collect();
    Ok(Backlog { now, types, is_cut_off })
}

/// What was counted so far.
struct Counting<'s> {
    session: &'s mut dyn Session,
    by_type: BTreeMap<String, TypeBacklog>,
    is_cut_off: bool,
}

impl Counting<'_> {
    async fn next_lane(&mut self, from: &str) -> Attempted<Option<String>> {
        let next = self.session.rows(&plain(NEXT_LANE).bind(from), &[Kind::Text]).await?.into_iter().next();
        Ok(next.map(|mut row| row.maybe_text()).transpose()?.flatten())
    }

    /// Counts what is due in the lane that has the name of a type.
    async fn lane(&mut self, task_type: &str) -> Attempted<()> {
        let now = self.session.now();
        for rank in 0..9_i64 {
            self.add(task_type, plain(OF_RANK).bind(task_type).bind(rank).bind(now.0), COUNTED_MAX).await?;
        }
        Ok(())
    }

    /// Counts what is due in all lanes from one up to another, for a type.
    async fn lanes(&mut self, task_type: &str, from: &str, to: &str) -> Attempted<()> {
        let now = self.session.now();
        self.add(task_type, plain(TOGETHER).bind(now.0).bind(now.0).bind(from).bind(to), READ_MAX).await
    }

    /// Adds what a statement says: how many tasks it looked at, of so many at most, how many of them are due, since when.
    async fn add(&mut self, task_type: &str, statement: Plain, most: u64) -> Attempted<()> {
        let now = self.session.now();
        let name = task_type.to_owned();
        let of_type = self.by_type.entry(name.clone()).or_insert(TypeBacklog { task_type: name, due: 0, oldest_ms: 0 });
        for mut row in self.session.rows(&statement, &[Kind::Number, Kind::Number, Kind::Number]).await? {
            let (read, due, oldest) = (row.number()?, row.number()?, row.maybe_number()?);
            self.is_cut_off |= read.unsigned_abs() >= most;
            of_type.due += due.unsigned_abs();
            of_type.oldest_ms = of_type.oldest_ms.max(oldest.map_or(0, |oldest| now.0 - oldest));
        }
        Ok(())
    }
}
