//! The law about schedules on a few runs: good ones break it not, and each way of going wrong does.

use super::{Grid, Kept, goes_on};
use std::collections::HashMap;
use taskwheel_model::{MisfirePolicy, RunStatus, Time, limits};
use taskwheel_store::schedule::Run;

/// Due every second from 10 s on, up to and without 20 s.
fn grid(policy: MisfirePolicy) -> Grid {
    Grid { first: Time(10_000), period_ms: 1_000, cursor: Time(20_000), policy }
}

fn run(due: i64, at: i64) -> Run {
    Run {
        id: due,
        tenant: "red".into(),
        schedule_id: 1,
        timer_id: Some(1),
        due_at: Time(due),
        status: RunStatus::Done,
        reason: None,
        error: None,
        host: None,
        started_at: Some(Time(at)),
        finished_at: Some(Time(at + 5)),
        tasks: Vec::new(),
    }
}

/// A record that four were missed, from 11 s to 14 s, which was made at 19.5 s.
fn missed(fired: usize) -> Run {
    let told =
        format!("4 due times from 1970-01-01T00:00:11Z to 1970-01-01T00:00:14Z were missed, of which {fired} fired");
    Run {
        id: 1,
        status: RunStatus::Skipped,
        reason: Some("misfire".into()),
        error: Some(told),
        started_at: None,
        finished_at: Some(Time(19_500)),
        ..run(11_000, 19_500)
    }
}

/// Nobody looked between 10 s and 19.5 s: up to 14 s were missed, and these of them fired all the same.
fn runs(late: &[i64]) -> Vec<Run> {
    let in_time = (15..20).map(|second| second * 1_000);
    let after = late.iter().copied().chain(in_time).map(|due| run(due, 19_500));
    [run(10_000, 10_001)].into_iter().chain(after).collect()
}

fn check(policy: MisfirePolicy, runs: &[Run]) -> Result<Kept, String> {
    let fired = runs.iter().filter(|run| run.status != RunStatus::Skipped);
    let tasks: HashMap<i64, usize> = fired.map(|run| (run.id, 1)).collect();
    grid(policy).check(runs, &tasks)
}

#[track_caller]
fn assert_broken(policy: MisfirePolicy, runs: &[Run], how: &str) {
    let broken = check(policy, runs).expect_err("it is noticed");
    assert!(broken.contains(how), "{broken}");
}

fn with(record: Run, mut runs: Vec<Run>) -> Vec<Run> {
    runs.push(record);
    runs
}

#[test]
fn each_policy_as_it_should_be_breaks_nothing() {
    assert_eq!(
        check(MisfirePolicy::CatchUp, &runs(&[11_000, 12_000, 13_000, 14_000])),
        Ok(Kept { runs: 10, misfires: 0 })
    );
    assert_eq!(check(MisfirePolicy::FireOnce, &with(missed(1), runs(&[14_000]))), Ok(Kept { runs: 8, misfires: 1 }));
    assert_eq!(check(MisfirePolicy::Skip, &with(missed(0), runs(&[]))), Ok(Kept { runs: 7, misfires: 1 }));
}

#[test]
fn a_due_time_that_fires_twice_is_noticed() {
    let mut all = runs(&[11_000, 12_000, 13_000, 14_000]);
    all.push(Run { id: 2, ..run(13_000, 19_500) });
    assert_broken(MisfirePolicy::CatchUp, &all, "fired twice");
}

#[test]
fn a_due_time_that_is_not_on_the_grid_is_noticed() {
    let all = runs(&[11_000, 12_000, 13_000, 14_000, 14_001]);
    assert_broken(MisfirePolicy::CatchUp, &all, "not on the grid");
}

#[test]
fn a_due_time_that_did_not_fire_is_noticed_whatever_the_policy() {
    assert_broken(MisfirePolicy::CatchUp, &runs(&[11_000, 12_000, 14_000]), "did not fire");
    assert_broken(MisfirePolicy::FireOnce, &runs(&[14_000]), "did not fire");
    assert_broken(MisfirePolicy::Skip, &runs(&[]), "did not fire");
    // One that was in time, beside others that were missed.
    let mut all = with(missed(0), runs(&[]));
    all.retain(|run| run.due_at != Time(15_000));
    assert_broken(MisfirePolicy::Skip, &all, "did not fire");
}

#[test]
fn a_missed_due_time_that_is_not_caught_up_is_noticed() {
    assert_broken(MisfirePolicy::CatchUp, &with(missed(0), runs(&[])), "to be caught up");
}

#[test]
fn a_missed_due_time_that_fires_where_it_is_to_be_skipped_is_noticed() {
    assert_broken(MisfirePolicy::Skip, &with(missed(1), runs(&[])), "fired");
    // Whatever the records say, when it fired says that it was late.
    assert_broken(MisfirePolicy::Skip, &with(missed(0), runs(&[13_000])), "was to be skipped");
    let mut early = runs(&[]);
    early.push(run(13_000, 13_001));
    assert_broken(MisfirePolicy::Skip, &with(missed(0), early), "recorded as missed");
}

#[test]
fn another_missed_due_time_than_the_latest_that_fires_is_noticed() {
    assert_broken(MisfirePolicy::FireOnce, &with(missed(1), runs(&[13_000])), "not the latest");
    assert_broken(MisfirePolicy::FireOnce, &with(missed(1), runs(&[])), "did not fire");
    assert_broken(MisfirePolicy::FireOnce, &with(missed(0), runs(&[])), "0 fired");
}

#[test]
fn a_due_time_that_was_in_time_and_is_called_missed_is_noticed() {
    let early = Run { finished_at: Some(Time(19_000)), ..missed(0) };
    assert_broken(MisfirePolicy::Skip, &with(early, runs(&[])), "was in time");
}

#[test]
fn a_record_that_counts_wrongly_is_noticed() {
    let mut record = missed(0);
    record.error = record.error.map(|told| told.replacen('4', "3", 1));
    assert_broken(MisfirePolicy::Skip, &with(record, runs(&[])), "3 were missed");
    assert_broken(MisfirePolicy::Skip, &with(missed(0), with(Run { id: 3, ..missed(0) }, runs(&[]))), "missed twice");
}

#[test]
fn a_timer_that_stands_still_is_noticed() {
    let due = Time(20_000);
    let last = due.plus_ms(limits::MISSED_AFTER_MS);
    // Its next due time is to come, or was a moment ago.
    for now in [Time(19_000), due, last] {
        assert_eq!(goes_on(due, now), Ok(()));
    }
    assert!(goes_on(due, last.plus_ms(1)).is_err_and(|what| what.contains("stands still")));
}

#[test]
fn a_run_without_its_task_is_noticed() {
    let all = runs(&[11_000, 12_000, 13_000, 14_000]);
    let tasks: HashMap<i64, usize> = all.iter().skip(1).map(|run| (run.id, 1)).collect();
    assert!(grid(MisfirePolicy::CatchUp).check(&all, &tasks).is_err_and(|what| what.contains("has None tasks")));
}
