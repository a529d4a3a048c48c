//! Statistics: how executions of a type went in a minute.

use crate::{Outcome, Status, Time};
use serde::{Deserialize, Serialize};

/// Buckets of a histogram: the upper bound of bucket n is 2^n milliseconds, that of the last is none.
const BUCKETS: usize = 32;

/// An execution that ended, or a task that expired before it had one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Whose task it was.
    pub tenant: String,
    /// The task's type.
    pub task_type: String,
    /// Which attempt of the task it was.
    pub attempt: u32,
    /// When the task was due.
    pub due: Time,
    /// When it ended.
    pub ended_at: Time,
    /// When the execution started and how it ended; none where the task expired.
    pub execution: Option<(Time, Outcome)>,
    /// The task's status after it.
    pub status: Status,
}

/// A distribution of durations, by powers of two milliseconds. Two of them can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    /// Counts a duration; a negative one is none.
    pub fn add(&mut self, ms: i64) {
        let ms = ms.max(0).unsigned_abs();
        let bucket = usize::try_from(u64::BITS - ms.saturating_sub(1).leading_zeros()).unwrap_or(BUCKETS);
        let bucket = if ms == 0 { 0 } else { bucket.min(BUCKETS - 1) };
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// The duration that a share of all (0 to 1) did not exceed, in milliseconds, rounded up to a power of two; `None` when
    /// nothing was counted.
    #[must_use]
    pub fn percentile_ms(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let wanted = (share.clamp(0.0, 1.0) * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(1 << bucket)
    }
}

/// How executions went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tasks that succeeded with their first attempt…
    pub success_first: u64,
    /// …with their second…
    pub success_second: u64,
    /// …and with a later one.
    pub success_later: u64,
    /// Executions that ended by error, failure, time limit or lost lease.
    pub errors: u64,
    /// Tasks that ended as Failure, or wait for a person.
    pub failures: u64,
    /// From being due to the start of the execution.
    pub wait: Histogram,
    /// From its start to its end.
    pub run: Histogram,
}

impl Tally {
    /// Counts what ended.
    pub fn add(&mut self, ran: &Ran) {
        match (ran.status, ran.attempt) {
            (Status::Success | Status::Completed, 0 | 1) => self.success_first += 1,
            (Status::Success | Status::Completed, 2) => self.success_second += 1,
            (Status::Success | Status::Completed, _) => self.success_later += 1,
            (Status::Failure | Status::Pending, _) => self.failures += 1,
            _ => {}
        }
        let Some((started_at, outcome)) = ran.execution else { return };
        if matches!(outcome, Outcome::Error | Outcome::Failure | Outcome::Timeout | Outcome::Lost) {
            self.errors += 1;
        }
        self.wait.add(started_at.ms_since(ran.due));
        self.run.add(ran.ended_at.ms_since(started_at));
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Tally) {
        self.success_first += other.success_first;
        self.success_second += other.success_second;
        self.success_later += other.success_later;
        self.errors += other.errors;
        self.failures += other.failures;
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ran(attempt: u32, outcome: Outcome, status: Status) -> Ran {
        let time = |ms: i64| Time(1_700_000_000_000 + ms);
        Ran {
            tenant: "t".into(),
            task_type: "a".into(),
            attempt,
            due: time(0),
            ended_at: time(105),
            execution: Some((time(5), outcome)),
            status,
        }
    }

    #[test]
    fn successes_are_told_apart_by_their_attempt() {
        let mut tally = Tally::default();
        for attempt in [1, 1, 2, 3, 9] {
            tally.add(&ran(attempt, Outcome::Success, Status::Success));
        }
        tally.add(&ran(1, Outcome::Error, Status::Error));
        tally.add(&ran(3, Outcome::Lost, Status::Failure));
        tally.add(&ran(1, Outcome::Release, Status::New));
        assert_eq!((tally.success_first, tally.success_second, tally.success_later), (2, 1, 2));
        assert_eq!((tally.errors, tally.failures), (2, 1));
        assert_eq!((tally.wait.percentile_ms(0.5), tally.run.percentile_ms(0.5)), (Some(8), Some(128)));
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Histogram::default().percentile_ms(0.99), None);
    }

    proptest! {
        #[test]
        fn a_percentile_is_the_next_power_of_two_of_a_duration_that_was_counted(
            durations in prop::collection::vec(0..1_000_000_000_i64, 1..50),
            share in 0.0..=1.0_f64,
        ) {
            let (mut one, mut two) = (Histogram::default(), Histogram::default());
            durations.iter().enumerate().for_each(|(n, ms)| if n % 2 == 0 { one.add(*ms) } else { two.add(*ms) });
            one.merge(&two);
            let mut sorted = durations.clone();
            sorted.sort_unstable();
            let place = ((share * durations.len() as f64).ceil() as usize).max(1) - 1;
            let exact = sorted[place].unsigned_abs().max(1);
            prop_assert_eq!(one.percentile_ms(share), Some(exact.next_power_of_two()));
        }
    }
}
