//! The life of a task: what each event does in each state, and what no sequence of events can do.

use proptest::prelude::*;
use taskwheel_model::life::{EXPIRED, USED_UP};
use taskwheel_model::{
    Event, ExecId, Life, Outcome, Refusal, RetryPolicy, Rules, State, Status, Step, Time, decide, limits,
};
use uuid::Uuid;

const NOW: Time = Time(1_000_000);

fn exec(number: u128) -> ExecId {
    ExecId(Uuid::from_u128(number))
}

fn rules() -> Rules {
    Rules::of(None, None, None, None)
}

fn claim(number: u128) -> Event {
    Event::Claim { exec_id: exec(number), heartbeat_ms: None }
}

fn report(number: u128, outcome: Outcome) -> Event {
    Event::Report { exec_id: exec(number), outcome, retry_after_ms: None }
}

/// A task that was due at `NOW`, after some events at that very time.
fn after(rules: &Rules, events: &[Event]) -> Life {
    events.iter().fold(Life::new(NOW, None), |life, event| decide(&life, rules, event, NOW).unwrap().life)
}

fn executing() -> Life {
    after(&rules(), &[claim(1)])
}

fn step(life: &Life, event: &Event) -> Step {
    decide(life, &rules(), event, NOW).unwrap()
}

#[test]
fn a_claim_counts_the_attempt_and_sets_both_clocks() {
    let rules = Rules::of(None, None, Some(5_000), None);
    let life = after(&rules, &[claim(1)]);
    let State::Executing(execution) = &life.state else { panic!("{life:?}") };
    assert_eq!(life.attempts, 1);
    assert_eq!(execution.deadline, Some(NOW.plus_ms(5_000)));
    assert_eq!(execution.lease_until(None), NOW.plus_ms(5_000));
    assert_eq!(life.status(), Status::Executing);
}

#[test]
fn a_task_is_not_claimed_before_its_time() {
    let life = Life::new(NOW.plus_ms(1), None);
    assert_eq!(decide(&life, &rules(), &claim(1), NOW), Err(Refusal::TooEarly));
}

#[test]
fn success_ends_it() {
    let step = step(&executing(), &report(1, Outcome::Success));
    assert_eq!(step.life.status(), Status::Success);
    assert_eq!(step.ended, Some(Outcome::Success));
}

#[test]
fn completed_owes_a_callback_only_where_there_is_one() {
    assert_eq!(step(&executing(), &report(1, Outcome::Completed)).life.status(), Status::Success);
    let rules = Rules { callback: true, ..rules() };
    let step = decide(&executing(), &rules, &report(1, Outcome::Completed), NOW).unwrap();
    assert_eq!(step.life.status(), Status::Completed);
    let step = decide(&executing(), &rules, &report(1, Outcome::Success), NOW).unwrap();
    assert_eq!(step.life.status(), Status::Success);
}

#[test]
fn an_error_waits_by_policy_and_the_last_one_fails() {
    let mut life = Life::new(NOW, None);
    let mut now = NOW;
    for (number, delay_ms) in [(1, 10_000), (2, 20_000)] {
        life = decide(&life, &rules(), &claim(number), now).unwrap().life;
        life = decide(&life, &rules(), &report(number, Outcome::Error), now).unwrap().life;
        assert_eq!(life.status(), Status::Error);
        assert_eq!(life.due, now.plus_ms(delay_ms));
        now = life.due;
    }
    life = decide(&life, &rules(), &claim(3), now).unwrap().life;
    life = decide(&life, &rules(), &report(3, Outcome::Error), now).unwrap().life;
    assert_eq!((life.status(), life.attempts, life.error_count), (Status::Failure, 3, 3));
}

#[test]
fn need_manual_asks_a_person_instead() {
    let rules = Rules { max_attempts: Some(1), need_manual: true, ..rules() };
    let life = after(&rules, &[claim(1), report(1, Outcome::Error)]);
    assert_eq!(life.status(), Status::Pending);
    let life = after(&rules, &[claim(1), report(1, Outcome::Failure)]);
    assert_eq!(life.status(), Status::Failure, "the worker said that it is hopeless");
}

#[test]
fn strategy_none_means_one_attempt() {
    let rules = Rules::of(Some(RetryPolicy::None), Some(5), None, None);
    assert_eq!(after(&rules, &[claim(1), report(1, Outcome::Error)]).status(), Status::Failure);
}

#[test]
fn retry_later_counts_no_error() {
    let event = Event::Report { exec_id: exec(1), outcome: Outcome::Retry, retry_after_ms: Some(7) };
    let life = step(&executing(), &event).life;
    assert_eq!((life.status(), life.due, life.attempts), (Status::New, NOW.plus_ms(7), 1));
    let life = step(&executing(), &report(1, Outcome::Retry)).life;
    assert_eq!(life.due, NOW.plus_ms(10_000), "the policy's first delay");
}

#[test]
fn release_gives_the_attempt_back_and_keeps_the_due_time() {
    let life = decide(&executing(), &rules(), &report(1, Outcome::Release), NOW.plus_ms(99)).unwrap().life;
    assert_eq!((life.status(), life.due, life.attempts), (Status::New, NOW, 0));
}

#[test]
fn a_lost_lease_counts_and_is_due_at_once() {
    let now = NOW.plus_ms(limits::LEASE_MS_DEFAULT);
    let clock = Event::Clock { worker_seen_at: None };
    assert_eq!(decide(&executing(), &rules(), &clock, Time(now.0 - 1)), Err(Refusal::TooEarly));
    let step = decide(&executing(), &rules(), &clock, now).unwrap();
    assert_eq!(step.ended, Some(Outcome::Lost));
    assert_eq!((step.life.status(), step.life.due, step.life.error_count), (Status::Error, now, 1));
}

#[test]
fn a_task_that_kills_its_worker_ends_after_its_attempts() {
    let mut life = Life::new(NOW, None);
    let mut now = NOW;
    for number in 1..=3 {
        life = decide(&life, &rules(), &claim(number), now).unwrap().life;
        now = now.plus_ms(limits::LEASE_MS_DEFAULT);
        life = decide(&life, &rules(), &Event::Clock { worker_seen_at: None }, now).unwrap().life;
    }
    assert_eq!((life.status(), life.attempts, life.error_count), (Status::Failure, 3, 3));
}

#[test]
fn a_renewed_lease_lasts_but_the_time_limit_never_moves() {
    let later = NOW.plus_ms(10);
    let life = decide(&executing(), &rules(), &Event::Renew { exec_id: exec(1) }, later).unwrap().life;
    assert_eq!(life.check_at(None), Some(later.plus_ms(limits::LEASE_MS_DEFAULT)));

    let rules = Rules::of(None, None, Some(100), None);
    let life = after(&rules, &[claim(1)]);
    let life = decide(&life, &rules, &Event::Renew { exec_id: exec(1) }, later).unwrap().life;
    let step = decide(&life, &rules, &Event::Clock { worker_seen_at: None }, NOW.plus_ms(100)).unwrap();
    assert_eq!(step.ended, Some(Outcome::Timeout));
    assert_eq!(step.life.due, NOW.plus_ms(100 + 10_000), "a time limit waits by policy");
}

#[test]
fn heartbeats_carry_an_execution_that_was_named() {
    let beat = Event::Claim { exec_id: exec(1), heartbeat_ms: Some(1_000) };
    let life = after(&rules(), &[beat, Event::Renew { exec_id: exec(1) }]);
    let seen = NOW.plus_ms(60_000);
    let clock = Event::Clock { worker_seen_at: Some(seen) };
    assert_eq!(decide(&life, &rules(), &clock, seen.plus_ms(2_999)), Err(Refusal::TooEarly));
    let step = decide(&life, &rules(), &clock, seen.plus_ms(3_000)).unwrap();
    assert_eq!(step.ended, Some(Outcome::Lost));
}

#[test]
fn an_execution_its_worker_never_heard_of_is_given_back() {
    let life = after(&rules(), &[Event::Claim { exec_id: exec(1), heartbeat_ms: Some(1_000) }]);
    let now = NOW.plus_ms(3_000);
    let alive = Event::Clock { worker_seen_at: Some(NOW.plus_ms(2_500)) };
    let step = decide(&life, &rules(), &alive, now).unwrap();
    assert_eq!((step.ended, step.life.attempts), (Some(Outcome::Release), 0));
    let silent = Event::Clock { worker_seen_at: Some(NOW) };
    assert_eq!(decide(&life, &rules(), &silent, now).unwrap().ended, Some(Outcome::Lost));
}

/// Its next claim, or the end of one that waits, may have been its last call.
#[test]
fn the_execution_of_a_worker_that_died_right_after_its_claim_is_lost() {
    let life = after(&rules(), &[Event::Claim { exec_id: exec(1), heartbeat_ms: Some(1_000) }]);
    for seen_ms in [5, 1_005] {
        let clock = Event::Clock { worker_seen_at: Some(NOW.plus_ms(seen_ms)) };
        assert_eq!(decide(&life, &rules(), &clock, NOW.plus_ms(seen_ms + 2_999)), Err(Refusal::TooEarly));
        let step = decide(&life, &rules(), &clock, NOW.plus_ms(seen_ms + 3_000)).unwrap();
        assert_eq!((step.ended, step.life.attempts), (Some(Outcome::Lost), 1));
    }
}

#[test]
fn a_stale_execution_changes_nothing() {
    for event in [report(2, Outcome::Success), report(2, Outcome::Release), Event::Renew { exec_id: exec(2) }] {
        assert_eq!(decide(&executing(), &rules(), &event, NOW), Err(Refusal::Superseded));
    }
}

#[test]
fn expiry_ends_waiting_but_not_running_tasks() {
    let life = Life::new(NOW, Some(NOW.plus_ms(5)));
    let clock = Event::Clock { worker_seen_at: None };
    assert_eq!(decide(&life, &rules(), &clock, NOW.plus_ms(4)), Err(Refusal::TooEarly));
    for event in [clock.clone(), claim(1)] {
        let step = decide(&life, &rules(), &event, NOW.plus_ms(5)).unwrap();
        assert_eq!((step.life.status(), step.reason), (Status::Failure, Some(EXPIRED)));
    }
    let running = decide(&life, &rules(), &claim(1), NOW).unwrap().life;
    assert_eq!(decide(&running, &rules(), &clock, NOW.plus_ms(5)), Err(Refusal::TooEarly));
}

#[test]
fn a_task_that_asks_to_be_tried_again_too_often_fails_and_says_why() {
    let rules = Rules { max_attempts: Some(1), ..rules() };
    let life = after(&rules, &[claim(1)]);
    let last = |outcome: Outcome| decide(&life, &rules, &report(1, outcome), NOW).unwrap();
    assert_eq!((last(Outcome::Retry).life.status(), last(Outcome::Retry).reason), (Status::Failure, Some(USED_UP)));
    assert_eq!(last(Outcome::Error).reason, None, "an error says more");
}

#[test]
fn a_lowered_maximum_is_kept_at_the_claim() {
    let life = after(&rules(), &[claim(1), report(1, Outcome::Retry)]);
    let rules = Rules { max_attempts: Some(1), ..rules() };
    let step = decide(&life, &rules, &claim(2), life.due).unwrap();
    assert_eq!((step.life.status(), step.reason), (Status::Failure, Some(USED_UP)));
}

#[test]
fn a_cancelled_execution_holds_its_task_until_its_worker_answers_or_its_lease_ends() {
    let cancel = Event::Cancel { worker_seen_at: None };
    let cancelled = step(&executing(), &cancel).life;
    assert_eq!(cancelled.status(), Status::Cancelled);
    assert_eq!(decide(&cancelled, &rules(), &report(1, Outcome::Success), NOW), Err(Refusal::Cancelled));
    assert_eq!(decide(&cancelled, &rules(), &cancel, NOW), Err(Refusal::Unchanged));

    let again = step(&cancelled, &Event::Retry).life;
    assert_eq!((again.status(), again.round, again.attempts), (Status::New, 2, 0));
    assert_eq!(decide(&again, &rules(), &claim(2), NOW.plus_ms(1)), Err(Refusal::TooEarly));
    assert_eq!(decide(&again, &rules(), &Event::RunNow, NOW), Err(Refusal::Unchanged));
    assert!(decide(&again, &rules(), &claim(2), NOW.plus_ms(limits::LEASE_MS_DEFAULT)).is_ok());

    let freed = again.without_hold(exec(1), NOW.plus_ms(1)).unwrap();
    assert!(decide(&freed, &rules(), &claim(2), NOW.plus_ms(1)).is_ok());
    assert_eq!(again.without_hold(exec(9), NOW), None);
}

#[test]
fn people_are_told_what_a_status_does_not_allow() {
    let conflict = |life: &Life, event: &Event| decide(life, &rules(), event, NOW) == Err(Refusal::Conflict);
    let success = after(&rules(), &[claim(1), report(1, Outcome::Success)]);
    let cancel = Event::Cancel { worker_seen_at: None };
    for event in [&cancel, &Event::Retry, &Event::RunNow, &Event::Resolve, &claim(2)] {
        assert!(conflict(&success, event), "{event:?}");
    }
    let completed = Life { state: State::Completed, ..success };
    assert!(conflict(&completed, &cancel));
    assert!(conflict(&executing(), &Event::RunNow));
    assert!(conflict(&executing(), &Event::Retry));
    assert!(conflict(&Life::new(NOW, None), &Event::Resolve));
    assert_eq!(decide(&Life::new(NOW, None), &rules(), &Event::Retry, NOW), Err(Refusal::Unchanged));
}

#[test]
fn retry_starts_a_new_round_and_clears_a_past_expiry() {
    let failed = Life { expire_at: Some(NOW), ..after(&rules(), &[claim(1), report(1, Outcome::Failure)]) };
    let life = step(&failed, &Event::Retry).life;
    assert_eq!((life.round, life.attempts, life.error_count, life.expire_at), (2, 0, 0, None));
}

fn any_event() -> impl Strategy<Value = Event> {
    let exec_id = (1_u128..5).prop_map(exec);
    let outcome = prop::sample::select(Outcome::ALL.into_iter().filter(|o| o.is_reportable()).collect::<Vec<_>>());
    let seen = prop::option::of((NOW.0..NOW.0 + 100_000).prop_map(Time));
    prop_oneof![
        4 => (exec_id.clone(), prop::option::of(100_i64..10_000))
            .prop_map(|(exec_id, heartbeat_ms)| Event::Claim { exec_id, heartbeat_ms }),
        2 => exec_id.clone().prop_map(|exec_id| Event::Renew { exec_id }),
        4 => (exec_id, outcome, prop::option::of(0_i64..10_000)).prop_map(|(exec_id, outcome, retry_after_ms)| {
            Event::Report { exec_id, outcome, retry_after_ms }
        }),
        3 => seen.clone().prop_map(|worker_seen_at| Event::Clock { worker_seen_at }),
        1 => seen.prop_map(|worker_seen_at| Event::Cancel { worker_seen_at }),
        1 => Just(Event::Retry),
        1 => Just(Event::RunNow),
        1 => Just(Event::Resolve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// From no sequence of events can a task leave a finished status but by an explicit retry (or a person's resolve of a
    /// failure), exceed its attempts, hold two executions, or change its execution without ending the old one.
    #[test]
    fn no_sequence_of_events_breaks_a_life(
        events in prop::collection::vec((any_event(), 0_i64..40_000), 1..60),
        max_attempts in prop::option::of(1_u32..5),
        timeout_ms in prop::option::of(1_i64..20_000),
        expire_ms in prop::option::of(0_i64..100_000),
        need_manual: bool,
        callback: bool,
    ) {
        let rules = Rules { max_attempts, retry: RetryPolicy::BUILT_IN, timeout_ms, need_manual, callback };
        let mut now = NOW;
        let mut life = Life::new(NOW, expire_ms.map(|ms| NOW.plus_ms(ms)));
        for (event, pause_ms) in events {
            now = now.plus_ms(pause_ms);
            let Ok(step) = decide(&life, &rules, &event, now) else { continue };
            let (before, next) = (life.status(), step.life.status());

            if before.is_finished() {
                let allowed = matches!((&event, next), (Event::Retry, Status::New))
                    || matches!((&event, before, next), (Event::Resolve, Status::Failure, Status::ManuallyProcessed));
                prop_assert!(allowed, "{event:?} took {before} to {next}");
            }
            if let Some(max) = max_attempts {
                prop_assert!(step.life.attempts <= max);
            }
            prop_assert!(step.life.error_count <= step.life.attempts || step.ended == Some(Outcome::Release));
            prop_assert!(step.life.round == life.round || event == Event::Retry);

            let running = |life: &Life| match &life.state {
                State::Executing(execution) => Some(execution.exec_id),
                _ => None,
            };
            match (running(&life), running(&step.life)) {
                (Some(old), Some(new)) => prop_assert!(old == new, "two executions"),
                (Some(_), None) => prop_assert!(step.ended.is_some(), "an execution ended without a record"),
                (None, Some(_)) => {
                    let claimed = matches!(event, Event::Claim { .. }) && before.is_waiting() && life.due <= now;
                    prop_assert!(claimed, "started otherwise than by a claim of a due task");
                }
                (None, None) => prop_assert!(step.ended.is_none()),
            }
            life = step.life;
        }
    }

    /// Success ends an execution whatever else is true of the task: stores finish it without reading the row first.
    #[test]
    fn success_of_the_current_execution_always_ends_the_task(
        attempts in 1_u32..10, error_count in 0_u32..10, max_attempts in prop::option::of(1_u32..5), need_manual: bool,
    ) {
        let rules = Rules { max_attempts, need_manual, ..rules() };
        let life = Life { attempts, error_count, ..executing() };
        let step = decide(&life, &rules, &report(1, Outcome::Success), NOW).unwrap();
        prop_assert_eq!(step.life.status(), Status::Success);
        prop_assert_eq!((step.life.attempts, step.life.error_count), (attempts, error_count));
    }
}
