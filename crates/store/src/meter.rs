//! What a store measures of itself, for whoever watches: how its verbs go, and what becomes of tasks.
//!
//! Everything is counted since the process started and lives in memory alone.

use crate::worker::ClaimedTask;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use taskwheel_model::{Outcome, Ran, Time};

/// Types that are counted by their own name; further ones are counted together, so that nobody can fill the memory of whoever
/// collects the figures by making up types.
const TYPES_MAX: usize = 200;
/// What further types are counted under.
pub const OTHER_TYPES: &str = "(other)";

/// A distribution of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many were at most as long as each bound, by [`Durations::BOUNDS_MS`]; those that were longer are not among them.
    pub within: [u64; Durations::BOUNDS_MS.len()],
    /// How many there were.
    pub count: u64,
    /// How long all of them were together.
    pub sum: Duration,
}

impl Durations {
    /// The bounds, in milliseconds.
    pub const BOUNDS_MS: [u64; 16] =
        [1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 2_500, 10_000, 30_000, 60_000, 600_000, 3_600_000];

    fn add(&mut self, duration: Duration) {
        for (bound, within) in Durations::BOUNDS_MS.iter().zip(&mut self.within) {
            *within += u64::from(duration <= Duration::from_millis(*bound));
        }
        self.count += 1;
        self.sum += duration;
    }
}

/// How a verb went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbReading {
    /// How long its transactions took, from the call to the answer.
    pub durations: Durations,
    /// How many failed.
    pub errors: u64,
}

/// What became of the tasks of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeReading {
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Tasks that were handed out.
    pub claimed: u64,
    /// Executions that ended, by how.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Executions after which the task is tried again.
    pub retries: u64,
    /// From being due to the start.
    pub lateness: Durations,
    /// From the start to the end.
    pub run: Durations,
}

/// All that was measured since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// By verb.
    pub verbs: BTreeMap<&'static str, VerbReading>,
    /// By type.
    pub types: BTreeMap<String, TypeReading>,
    /// Connections for work on tasks that are in use, and most of them. SQLite has one writer.
    pub connections: (usize, usize),
}

#[derive(Default)]
pub(crate) struct Meter(Mutex<Readings>);

impl Meter {
    pub(crate) fn verb(&self, verb: &'static str, took: Duration, is_ok: bool) {
        let mut readings = self.lock();
        let reading = readings.verbs.entry(verb).or_default();
        reading.durations.add(took);
        reading.errors += u64::from(!is_ok);
    }

    pub(crate) fn submitted<'t>(&self, types: impl Iterator<Item = &'t str>) {
        let mut readings = self.lock();
        types.for_each(|task_type| readings.of(task_type).submitted += 1);
    }

    /// Lateness is known at the start: a worker that hangs shall not hide it.
    pub(crate) fn claimed<'t>(&self, tasks: impl Iterator<Item = &'t ClaimedTask>) {
        let mut readings = self.lock();
        for task in tasks {
            let reading = readings.of(&task.task_type);
            reading.claimed += 1;
            reading.lateness.add(between(task.run_at, task.started_at));
        }
    }

    pub(crate) fn ran(&self, ran: &[Ran]) {
        let mut readings = self.lock();
        for one in ran {
            let Some((started_at, outcome)) = one.execution else { continue };
            let reading = readings.of(&one.task_type);
            *reading.outcomes.entry(outcome.word()).or_default() += 1;
            let is_tried_again = one.status.is_waiting() && outcome != Outcome::Release;
            reading.retries += u64::from(is_tried_again);
            reading.run.add(between(started_at, one.ended_at));
        }
    }

    pub(crate) fn readings(&self) -> Readings {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn between(from: Time, to: Time) -> Duration {
    Duration::from_millis(to.ms_since(from).max(0).unsigned_abs())
}

impl Readings {
    /// The readings of a type. There are never more than a few hundred names.
    fn of(&mut self, task_type: &str) -> &mut TypeReading {
        let is_known = self.types.contains_key(task_type) || self.types.len() < TYPES_MAX;
        let name = if is_known { task_type } else { OTHER_TYPES };
        if !self.types.contains_key(name) {
            self.types.insert(name.to_owned(), TypeReading::default());
        }
        self.types.get_mut(name).expect("it was just put there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_under_every_bound_that_they_keep() {
        let mut durations = Durations::default();
        durations.add(Duration::from_millis(10));
        durations.add(Duration::from_secs(100_000));
        assert_eq!(durations.within[..5], [0, 0, 0, 1, 1]);
        assert_eq!((durations.within[15], durations.count), (1, 2));
    }

    #[test]
    fn made_up_types_do_not_fill_the_memory() {
        let meter = Meter::default();
        for number in 0..1_000 {
            meter.submitted([format!("type-{number}").as_str()].into_iter());
        }
        let types = meter.readings().types;
        assert_eq!(types.len(), TYPES_MAX + 1);
        assert_eq!(types[OTHER_TYPES].submitted, 1_000 - TYPES_MAX as u64);
    }
}
