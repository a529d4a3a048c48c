//! The checker on small histories: a good one breaks no law, and each way of going wrong breaks its own.

use super::{Final, FinalAttempt, Law, check, drains, guards, in_one_place};
use crate::history::{Fact, Line};
use std::time::Duration;

/// Facts, a second apart unless they say when they were sent.
fn history(facts: Vec<(i64, Fact)>) -> Vec<Line> {
    facts.into_iter().map(|(at, fact)| Line { at, fact }).collect()
}

fn submitting(key: &str) -> Fact {
    Fact::Submitting { key: key.into(), tenant: "red".into(), unique: None, attempts_max: 2 }
}

fn submitted(key: &str, id: i64) -> Fact {
    Fact::Submitted { key: key.into(), id, created: true }
}

fn claimed(exec: &str, sent: i64) -> Fact {
    Fact::Claimed {
        worker: format!("worker of {exec}"),
        tenant: "red".into(),
        sent,
        id: 1,
        exec: exec.into(),
        attempt: 1,
        of_tenant: "red".into(),
        timeout_ms: None,
    }
}

fn renewed(exec: &str, sent: i64) -> Fact {
    Fact::Renewed { worker: format!("worker of {exec}"), sent, items: vec![(1, exec.into(), "ok".into())] }
}

fn reporting(exec: &str) -> Fact {
    Fact::Reporting { id: 1, exec: exec.into(), outcome: "success".into() }
}

fn reported(exec: &str, state: &str) -> Fact {
    Fact::Reported { id: 1, exec: exec.into(), outcome: "success".into(), state: state.into() }
}

fn attempt(exec: &str, outcome: &str, from: i64, to: i64) -> FinalAttempt {
    FinalAttempt { round: 1, exec: exec.into(), outcome: Some(outcome.into()), started_at: from, finished_at: Some(to) }
}

/// A task that was lost once and done by its second execution.
fn good() -> (Vec<Line>, Vec<Final>) {
    let lines = history(vec![
        (0, submitting("k")),
        (10, submitted("k", 1)),
        (1_000, claimed("first", 990)),
        (5_000, claimed("second", 4_990)),
        (5_100, reporting("second")),
        (5_110, reported("second", "accepted")),
        (6_000, reporting("first")),
        (6_010, reported("first", "superseded")),
    ]);
    let task = Final {
        id: 1,
        tenant: "red".into(),
        key: Some("k".into()),
        status: "Success".into(),
        result_of: Some("second".into()),
        finished_at: Some(5_105),
        attempts: vec![attempt("first", "lost", 995, 4_500), attempt("second", "success", 4_995, 5_105)],
    };
    (lines, vec![task])
}

#[track_caller]
fn assert_broken(law: Law, lines: &[Line], tasks: &[Final]) {
    let laws: Vec<_> = check(lines, tasks).into_iter().map(|violation| violation.law).collect();
    assert!(laws.contains(&law), "{law:?} was not noticed, but {laws:?}");
}

#[test]
fn a_good_history_breaks_no_law() {
    let (lines, tasks) = good();
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn an_acknowledged_task_that_is_not_there_is_noticed() {
    let (lines, _) = good();
    assert_broken(Law::SubmitKept, &lines, &[]);
}

#[test]
fn an_execution_that_begins_within_the_lease_of_another_is_noticed() {
    let (mut lines, tasks) = good();
    // The first was named at once, and its worker called again: its lease lasts until 5,500.
    lines.insert(3, Line { at: 1_510, fact: renewed("first", 1_500) });
    lines.insert(4, Line { at: 2_510, fact: renewed("first", 2_500) });
    assert_broken(Law::OneExecution, &lines, &tasks);
}

#[test]
fn a_call_that_came_late_keeps_nothing_alive() {
    let (mut lines, tasks) = good();
    lines.insert(3, Line { at: 1_510, fact: renewed("first", 1_500) });
    // Sent before the lease ended, answered long after.
    lines.insert(5, Line { at: 5_050, fact: renewed("first", 2_500) });
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn an_answer_that_came_after_the_next_execution_is_none() {
    let (mut lines, tasks) = good();
    // The answer about the first is on its way for longer than the lease.
    let late = lines.iter().position(|line| matches!(&line.fact, Fact::Claimed { exec, .. } if exec == "first"));
    let mut late = lines.remove(late.expect("it is handed out"));
    let next = lines.iter().position(|line| matches!(&line.fact, Fact::Claimed { exec, .. } if exec == "second"));
    let next = next.expect("it is handed out");
    late.at = lines[next].at + 1;
    lines.insert(next + 1, late);
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn a_cancelled_execution_lives_until_its_worker_asks() {
    let (mut lines, tasks) = good();
    lines.insert(3, Line { at: 1_100, fact: Fact::Acting { id: 1, action: "cancel".into() } });
    // Handed out again within the lease of the first: wrong, unless its worker has asked.
    (lines[4].at, lines[4].fact) = (2_000, claimed("second", 1_990));
    assert_broken(Law::OneExecution, &lines, &tasks);
    lines.insert(4, Line { at: 1_500, fact: Fact::Renewing { execs: vec!["first".into()] } });
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn a_call_on_its_way_at_a_cancel_may_hear_of_it() {
    let (mut lines, tasks) = good();
    let renewing = Fact::Renewing { execs: vec!["first".into()] };
    lines.splice(
        3..3,
        [(1_050, renewing), (1_100, Fact::Acting { id: 1, action: "cancel".into() })]
            .map(|(at, fact)| Line { at, fact }),
    );
    (lines[5].at, lines[5].fact) = (2_000, claimed("second", 1_990));
    assert_eq!(check(&lines, &tasks), []);
    lines.insert(4, Line { at: 1_060, fact: renewed("first", 1_050) });
    assert_broken(Law::OneExecution, &lines, &tasks);
}

#[test]
fn attempts_that_overlap_in_the_records_are_noticed() {
    let (lines, mut tasks) = good();
    tasks[0].attempts[0].finished_at = Some(4_996);
    assert_broken(Law::OneExecution, &lines, &tasks);
}

#[test]
fn a_superseded_result_that_took_effect_is_noticed() {
    let (lines, mut tasks) = good();
    tasks[0].result_of = Some("first".into());
    assert_broken(Law::FencedOff, &lines, &tasks);
}

/// What an execution said and was answered, after the good history.
fn said(exec: &str, outcome: &str, state: &str) -> [Line; 2] {
    let (exec, outcome, state) = (exec.to_owned(), outcome.to_owned(), state.to_owned());
    let reporting = Fact::Reporting { id: 1, exec: exec.clone(), outcome: outcome.clone() };
    let reported = Fact::Reported { id: 1, exec, outcome, state };
    [Line { at: 7_000, fact: reporting }, Line { at: 7_010, fact: reported }]
}

#[test]
fn a_superseded_report_that_is_recorded_is_noticed_whatever_it_says() {
    for outcome in ["success", "error", "failure", "retry", "release"] {
        let (mut lines, mut tasks) = good();
        lines.extend(said("first", outcome, "superseded"));
        assert_eq!(check(&lines, &tasks), []);
        tasks[0].attempts[0].outcome = Some(outcome.into());
        assert_broken(Law::FencedOff, &lines, &tasks);
    }
}

#[test]
fn a_report_that_was_taken_before_another_was_superseded_breaks_nothing() {
    let (mut lines, mut tasks) = good();
    tasks[0].attempts[0].outcome = Some("error".into());
    lines.extend(said("first", "error", "accepted"));
    assert_eq!(check(&lines, &tasks), []);
    // Where one was not answered nobody knows what was taken, and when.
    let (mut lines, _) = good();
    lines.extend(said("first", "error", "superseded"));
    let [unanswered, _] = said("first", "error", "accepted");
    lines.push(unanswered);
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn a_report_for_an_execution_of_another_task_breaks_nothing() {
    let (mut lines, mut tasks) = good();
    tasks.push(Final { id: 2, tenant: "red".into(), status: "Success".into(), ..Final::default() });
    lines.extend(said("nobody's", "success", "superseded"));
    let [_, mut answered] = said("second", "success", "superseded");
    if let Fact::Reported { id, .. } = &mut answered.fact {
        *id = 2;
    }
    lines.push(answered);
    assert_eq!(check(&lines, &tasks), []);
}

fn acting(at: i64, action: &str) -> Line {
    Line { at, fact: Fact::Acting { id: 1, action: action.into() } }
}

fn acted(at: i64, action: &str) -> Line {
    Line { at, fact: Fact::Acted { id: 1, action: action.into() } }
}

/// A task that was cancelled before anybody had it.
fn cancelled() -> (Vec<Line>, Vec<Final>) {
    let mut lines = history(vec![(0, submitting("k")), (10, submitted("k", 1))]);
    lines.extend([acting(20, "cancel"), acted(30, "cancel")]);
    let task = Final { id: 1, tenant: "red".into(), key: Some("k".into()), ..Final::default() };
    (lines, vec![Final { status: "Cancelled".into(), finished_at: Some(25), ..task }])
}

#[test]
fn an_acknowledged_cancel_that_is_lost_is_noticed() {
    let (lines, mut tasks) = cancelled();
    assert_eq!(check(&lines, &tasks), []);
    for status in ["Success", "Failure", "Pending"] {
        tasks[0].status = status.into();
        assert_broken(Law::ActionKept, &lines, &tasks);
    }
}

#[test]
fn a_cancel_that_was_not_acknowledged_may_be_lost() {
    let (mut lines, mut tasks) = cancelled();
    lines.pop();
    tasks[0].status = "Success".into();
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn a_retry_undoes_a_cancel_whether_or_not_it_was_answered() {
    let (mut lines, mut tasks) = cancelled();
    tasks[0].status = "Success".into();
    lines.push(acting(40, "retry"));
    assert_eq!(check(&lines, &tasks), []);
    lines.push(acted(50, "retry"));
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn an_acknowledged_retry_that_is_lost_is_noticed() {
    let (mut lines, tasks) = cancelled();
    lines.extend([acting(40, "retry"), acted(50, "retry")]);
    assert_broken(Law::ActionKept, &lines, &tasks);
}

#[test]
fn a_retry_that_was_not_acknowledged_may_be_lost() {
    let (mut lines, tasks) = cancelled();
    lines.push(acting(40, "retry"));
    assert_eq!(check(&lines, &tasks), []);
}

#[test]
fn a_cancel_that_may_have_been_done_after_a_retry_undoes_it() {
    let retried = [acting(40, "retry"), acted(50, "retry")];
    let (good, tasks) = cancelled();
    // It was sent afterwards, or before that and not answered before.
    let later = [&good[..], &retried, &[acting(60, "cancel")]].concat();
    assert_eq!(check(&later, &tasks), []);
    let meanwhile = [&good[..], &[acting(35, "cancel")], &retried].concat();
    assert_eq!(check(&meanwhile, &tasks), []);
    let between = [&good[..], &retried[..1], &[acting(45, "cancel"), acted(46, "cancel")], &retried].concat();
    assert_eq!(check(&between, &tasks), []);
}

#[test]
fn an_accepted_result_that_is_gone_is_noticed() {
    let (lines, mut tasks) = good();
    (tasks[0].status, tasks[0].result_of) = ("Failure".into(), None);
    assert_broken(Law::ResultKept, &lines, &tasks);
}

#[test]
fn more_attempts_than_the_maximum_are_noticed() {
    let (lines, mut tasks) = good();
    tasks[0].attempts.insert(0, attempt("zeroth", "error", 900, 950));
    assert_broken(Law::AttemptsBounded, &lines, &tasks);
}

#[test]
fn more_attempts_than_the_maximum_are_noticed_of_what_a_schedule_fired() {
    let fired = Final { id: 2, tenant: "red".into(), status: "Failure".into(), ..Final::default() };
    let attempts = |count: usize| {
        (0..count).map(|number| {
            let from = 1_000 * number as i64;
            attempt(&format!("fired {number}"), "lost", from, from + 500)
        })
    };
    let (lines, mut tasks) = good();
    tasks.push(Final { attempts: attempts(3).collect(), ..fired });
    assert_eq!(check(&lines, &tasks), []);
    tasks[1].attempts = attempts(4).collect();
    assert_broken(Law::AttemptsBounded, &lines, &tasks);
}

#[test]
fn an_execution_without_a_record_is_noticed() {
    let (lines, mut tasks) = good();
    tasks[0].attempts.remove(0);
    assert_broken(Law::AttemptsBounded, &lines, &tasks);
}

#[test]
fn a_task_that_is_still_executing_is_noticed() {
    let (lines, mut tasks) = good();
    tasks[0].status = "Executing".into();
    assert_broken(Law::NoneStuck, &lines, &tasks);
}

#[test]
fn a_unique_key_that_was_live_twice_is_noticed() {
    let unique = |key: &str| Fact::Submitting {
        key: key.into(),
        tenant: "red".into(),
        unique: Some("u".into()),
        attempts_max: 2,
    };
    let (mut lines, mut tasks) = good();
    lines[0].fact = unique("k");
    let other =
        Final { id: 2, tenant: "red".into(), key: Some("other".into()), status: "Success".into(), ..Final::default() };
    tasks.push(Final { finished_at: Some(5_200), ..other });
    lines.push(Line { at: 5_000, fact: unique("other") });
    lines.push(Line { at: 5_105, fact: submitted("other", 2) });
    assert_eq!(check(&lines, &tasks), []);
    lines.last_mut().expect("lines").at = 5_104;
    assert_broken(Law::UniqueOnce, &lines, &tasks);
}

#[test]
fn a_task_of_another_tenant_is_noticed() {
    let (mut lines, tasks) = good();
    if let Fact::Claimed { tenant, .. } = &mut lines[2].fact {
        *tenant = "blue".into();
    }
    assert_broken(Law::TenantsApart, &lines, &tasks);
}

#[test]
fn a_task_of_another_tenant_that_can_be_cancelled_is_noticed() {
    let (mut lines, tasks) = good();
    lines.push(Line { at: 7_000, fact: Fact::Trespassed { tenant: "blue".into(), id: 1, status: 404 } });
    assert_eq!(check(&lines, &tasks), []);
    lines.push(Line { at: 7_000, fact: Fact::Trespassed { tenant: "blue".into(), id: 1, status: 409 } });
    assert_broken(Law::TenantsApart, &lines, &tasks);
}

#[test]
fn a_submit_that_made_two_tasks_is_noticed() {
    let (lines, mut tasks) = good();
    tasks.push(Final { id: 2, ..tasks[0].clone() });
    assert_broken(Law::SubmitKept, &lines, &tasks);
}

#[test]
fn a_repeated_submit_that_is_answered_with_another_task_is_noticed() {
    let (mut lines, tasks) = good();
    lines.insert(2, Line { at: 20, fact: Fact::Repeated { key: "k".into(), id: 1 } });
    assert_eq!(check(&lines, &tasks), []);
    lines.insert(3, Line { at: 30, fact: Fact::Repeated { key: "k".into(), id: 2 } });
    assert_broken(Law::SubmitKept, &lines, &tasks);
}

#[test]
fn a_backlog_that_does_not_drain_in_time_is_noticed() {
    let minute = Duration::from_secs(60);
    assert_eq!(drains(Some(minute), minute), None);
    for late in [None, Some(minute + Duration::from_millis(1))] {
        assert_eq!(drains(late, minute).map(|violation| violation.law), Some(Law::Drains));
    }
}

#[test]
fn a_task_that_is_in_two_places_or_in_none_is_noticed() {
    assert_eq!(in_one_place(0), None);
    assert_eq!(in_one_place(1).map(|violation| violation.law), Some(Law::InOnePlace));
}

#[test]
fn guards_count_what_the_history_says() {
    let (mut lines, tasks) = good();
    let count = |lines: &[Line], name: &str| guards(lines, &tasks, 3)[name];
    assert_eq!(count(&lines, "a stale report was told superseded"), 1);
    assert_eq!(count(&lines, "a lease ran out"), 1);
    assert_eq!(count(&lines, "a due time was missed"), 3);
    assert_eq!(count(&lines, super::OUTCOME_UNKNOWN), 0);
    for code in [Some("outcome_unknown".to_owned()), Some("unavailable".to_owned()), None] {
        lines.push(Line { at: 7_000, fact: Fact::Unanswered { call: "submit".into(), code } });
    }
    assert_eq!(count(&lines, super::OUTCOME_UNKNOWN), 1);
    assert_eq!(count(&lines, "a call was not answered"), 3);
    lines.extend([acted(7_000, "cancel"), acted(7_010, "retry")]);
    assert_eq!(count(&lines, "a cancel was acknowledged"), 1);
}
