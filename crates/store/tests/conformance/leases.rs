//! The two clocks: the hard limit of an attempt, and the lease that says whether its worker is there.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status, TypeSettings, limits};
use taskwheel_store::people::Action;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewed, Reported};
use taskwheel_store::{RanOut, Rescued};

const BEAT_MS: i64 = 1_000;

fn beating(name: &str) -> ClaimRequest {
    ClaimRequest { worker_id: name.into(), heartbeat_ms: Some(BEAT_MS), ..worker(&["mail"]) }
}

/// A task in the hands of a worker with a heartbeat.
async fn started(platform: &Platform, name: &str) -> ClaimedTask {
    platform.submit(task("mail")).await;
    platform.claim_one_for(beating(name)).await
}

async fn the_time_limit_ends_an_attempt_however_alive_its_worker_is(platform: &Platform) {
    let claimed = platform.start(NewTask { timeout_ms: Some(10_000), ..task("mail") }).await;
    for _ in 0..3 {
        platform.advance_ms(3_000);
        assert!(matches!(platform.renew(&claimed).await, Renewed::Ok(_)));
        assert_eq!(platform.rescue().await, Rescued::default());
    }
    platform.advance_ms(999);
    assert_eq!(platform.rescue().await.timed_out, 0);
    platform.advance_ms(1);
    assert_eq!(platform.rescue().await, Rescued { timed_out: 1, ..Rescued::default() });
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::Error, 1, 1));
    assert_eq!(shown.run_at, platform.now().plus_ms(10_000), "due again by the policy");
    assert_eq!(shown.affinity, None);
    assert!(shown.error_info.is_some());
    assert_eq!(platform.log(claimed.id).await[0].outcome, Some(Outcome::Timeout));
    assert_eq!(platform.renew(&claimed).await, Renewed::Superseded);
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Superseded(Some(Status::Error)));
}

async fn the_time_limit_counts_with_a_heartbeat_too(platform: &Platform) {
    platform.submit(NewTask { timeout_ms: Some(2_000), ..task("mail") }).await;
    let claimed = platform.claim_one_for(beating("worker")).await;
    platform.renew(&claimed).await;
    platform.advance_ms(2_000);
    assert_eq!(platform.rescue().await, Rescued { timed_out: 1, ..Rescued::default() });
}

async fn time_limits_use_up_the_attempts(platform: &Platform) {
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let id = platform.submit(NewTask { timeout_ms: Some(100), retry, ..task("mail") }).await;
    for attempt in 1..=3 {
        assert_eq!(platform.claim_one("mail").await.attempt, attempt);
        platform.advance_ms(100);
        platform.rescue().await;
    }
    assert_eq!(platform.status(id).await, Status::Failure);
    assert_eq!(platform.task(id).await.error_count, 3);
}

async fn a_lease_without_heartbeat_ends_after_the_limit_or_fifteen_minutes(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(15 * 60_000 - 1);
    assert_eq!(platform.rescue().await, Rescued::default());
    platform.advance_ms(1);
    let of = RanOut { id: claimed.id, exec_id: Some(claimed.exec_id), outcome: Some(Outcome::Lost) };
    assert_eq!(platform.rescue_by_name().await, Rescued { lost: 1, tasks: vec![of], ..Rescued::default() });
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::Error, 1, 1));
    assert_eq!(shown.run_at, platform.now(), "due at once");
    assert_eq!(shown.affinity.as_deref(), Some("host"), "it goes back to where it was");
    assert_eq!(platform.log(claimed.id).await[0].outcome, Some(Outcome::Lost));
}

async fn a_task_that_kills_its_worker_ends_after_its_attempts(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    for attempt in 1..=3 {
        let name = format!("worker-{attempt}");
        let claimed = platform.claim_one_for(beating(&name)).await;
        assert_eq!((claimed.id, claimed.attempt), (id, attempt));
        platform.store.renew(vec![name.into()], vec![renewal(&claimed)]).await.unwrap();
        platform.advance_ms(5 * BEAT_MS);
        assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() }, "attempt {attempt}");
    }
    let shown = platform.task(id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::Failure, 3, 3));
    platform.advance_ms(86_400_000);
    assert!(platform.claim("mail").await.is_empty());
}

async fn lost_leases_wait_for_a_person_where_the_type_says_so(platform: &Platform) {
    let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(limits::LEASE_MS_DEFAULT);
    platform.rescue().await;
    assert_eq!(platform.status(claimed.id).await, Status::Pending);
}

async fn any_call_keeps_a_workers_executions_alive(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    platform.renew(&claimed).await;
    for round in 0..12 {
        platform.advance_ms(2 * BEAT_MS);
        match round % 3 {
            0 => platform.heartbeat("worker").await,
            1 => drop(platform.claim_for(beating("worker")).await),
            _ => {
                let other = started(platform, "worker").await;
                assert!(matches!(platform.finish(&other, Outcome::Success).await, Reported::Accepted(_)));
            }
        }
        assert_eq!(platform.rescue().await, Rescued::default(), "round {round}");
    }
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
    platform.finish(&claimed, Outcome::Success).await;
}

async fn each_kind_of_report_is_a_call(platform: &Platform) {
    for outcome in [Outcome::Error, Outcome::Release, Outcome::Retry, Outcome::Failure, Outcome::Completed] {
        let name = outcome.word();
        let kept = started(platform, name).await;
        platform.store.renew(vec![name.into()], vec![renewal(&kept)]).await.unwrap();
        let other = started(platform, name).await;
        platform.advance_ms(2 * BEAT_MS);
        platform.finish(&other, outcome).await;
        platform.advance_ms(2 * BEAT_MS);
        assert_eq!(platform.rescue().await.lost, 0, "{outcome:?}");
        platform.finish(&kept, Outcome::Success).await;
        platform.act(other.id, Action::Cancel).await;
    }
}

async fn a_silent_worker_loses_all_it_has(platform: &Platform) {
    platform.submit_all((0..5).map(|_| task("mail")).collect()).await;
    let claimed = platform.claim_for(beating("worker")).await;
    let items = claimed.iter().map(renewal).collect();
    platform.store.renew(vec!["worker".into()], items).await.unwrap();
    platform.advance_ms(3 * BEAT_MS - 100);
    assert_eq!(platform.rescue().await, Rescued::default(), "not before three heartbeats");
    platform.advance_ms(300);
    assert_eq!(platform.rescue().await, Rescued { lost: 5, ..Rescued::default() });
    for one in &claimed {
        let shown = platform.task(one.id).await;
        assert_eq!((shown.status, shown.error_count, shown.run_at), (Status::Error, 1, platform.now()));
    }
    assert_eq!(platform.claim("mail").await.len(), 5, "and others get it at once");
}

async fn one_silent_worker_does_not_hurt_another(platform: &Platform) {
    let silent = started(platform, "silent").await;
    let alive = started(platform, "alive").await;
    for (name, claimed) in [("silent", &silent), ("alive", &alive)] {
        platform.store.renew(vec![name.into()], vec![renewal(claimed)]).await.unwrap();
    }
    platform.advance_ms(2 * BEAT_MS);
    platform.heartbeat("alive").await;
    platform.advance_ms(2 * BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() });
    assert_eq!(platform.status(silent.id).await, Status::Error);
    assert_eq!(platform.status(alive.id).await, Status::Executing);
}

async fn an_execution_its_worker_never_named_is_given_back(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    for _ in 0..3 {
        platform.advance_ms(BEAT_MS);
        platform.heartbeat("worker").await;
    }
    platform.advance_ms(1);
    assert_eq!(platform.rescue().await, Rescued { released: 1, ..Rescued::default() });
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::New, 0, 0), "like release");
    assert_eq!(platform.log(claimed.id).await[0].outcome, Some(Outcome::Release));
    let again = platform.claim_one_for(beating("worker")).await;
    assert_eq!((again.id, again.attempt), (claimed.id, 1));
    assert!(again.exec_id != claimed.exec_id);
}

async fn naming_an_execution_once_is_enough(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    platform.advance_ms(BEAT_MS);
    platform.renew(&claimed).await;
    for _ in 0..10 {
        platform.advance_ms(BEAT_MS);
        platform.heartbeat("worker").await;
        assert_eq!(platform.rescue().await, Rescued::default());
    }
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
}

async fn a_new_start_of_a_worker_does_not_keep_the_old_ones_executions(platform: &Platform) {
    let old = started(platform, "worker-1").await;
    platform.store.renew(vec!["worker-1".into()], vec![renewal(&old)]).await.unwrap();
    for _ in 0..4 {
        platform.advance_ms(BEAT_MS);
        platform.claim_for(beating("worker-2")).await;
    }
    assert_eq!(platform.rescue().await.lost, 1);
}

async fn a_rescued_worker_that_comes_back_is_told(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    platform.renew(&claimed).await;
    platform.advance_ms(10 * BEAT_MS);
    assert_eq!(platform.rescue().await.lost, 1);
    assert_eq!(platform.renew(&claimed).await, Renewed::Superseded);
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Superseded(Some(Status::Error)));
    let again = platform.claim_one_for(beating("worker")).await;
    platform.renew(&again).await;
    platform.advance_ms(2 * BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued::default(), "it is known again");
    assert_eq!(platform.finish(&again, Outcome::Success).await, Reported::Accepted(Status::Success));
}

async fn nothing_is_rescued_twice(platform: &Platform) {
    let claimed = platform.start(NewTask { timeout_ms: Some(100), ..task("mail") }).await;
    platform.advance_ms(100);
    assert_eq!(platform.rescue().await.timed_out, 1);
    assert_eq!(platform.rescue().await, Rescued::default());
    assert_eq!(platform.log(claimed.id).await.len(), 1);
}

/// How many looks at the clocks find lost, until none is left.
async fn lost(platform: &Platform) -> u64 {
    let mut lost = 0;
    loop {
        let rescued = platform.rescue().await;
        lost += rescued.lost;
        if !rescued.more {
            return lost;
        }
    }
}

async fn a_rescue_of_many_goes_on_in_chunks(platform: &Platform) {
    let many = limits::CHUNK_ROWS_MAX + 200;
    platform.submit_all((0..many).map(|_| task("mail")).collect()).await;
    while !platform.claim("mail").await.is_empty() {}
    platform.advance_ms(limits::LEASE_MS_DEFAULT);
    assert_eq!(lost(platform).await, many as u64);
}

async fn a_silent_worker_with_many_executions_loses_all(platform: &Platform) {
    let many = limits::CHUNK_ROWS_MAX + 200;
    platform.submit_all((0..many).map(|_| task("mail")).collect()).await;
    for _ in 0..2 {
        let claimed = platform.claim_for(beating("worker")).await;
        let items = claimed.iter().map(renewal).collect();
        platform.store.renew(vec!["worker".into()], items).await.unwrap();
    }
    platform.advance_ms(4 * BEAT_MS);
    assert_eq!(lost(platform).await, many as u64);
}

async fn what_a_dead_worker_never_named_keeps_no_look_busy(platform: &Platform) {
    let count = limits::CHUNK_ROWS_MAX + 1;
    platform.submit_all((0..count).map(|_| task("mail")).collect()).await;
    let first = platform.claim_for(beating("worker")).await.len();
    assert_eq!(first + platform.claim_for(beating("worker")).await.len(), count);
    // It calls once more, and then never again.
    platform.advance_ms(BEAT_MS / 2);
    platform.heartbeat("worker").await;
    platform.advance_ms(3 * BEAT_MS - BEAT_MS / 2);
    let mut looks = 0;
    while platform.rescue().await.more {
        looks += 1;
        assert!(looks < 5, "the same executions are looked at again and again");
    }
    platform.advance_ms(BEAT_MS);
    assert_eq!(lost(platform).await, count as u64);
}

/// A worker that has promised a heartbeat may claim without one, and what it gets then has a lease.
async fn leases_of_a_silent_worker_keep_no_look_busy(platform: &Platform) {
    let named = started(platform, "worker").await;
    platform.renew(&named).await;
    platform.submit_all((0..limits::CHUNK_ROWS_MAX).map(|_| task("mail")).collect()).await;
    let leased = ClaimRequest { heartbeat_ms: None, max: limits::CLAIM_BATCH_MAX, ..beating("worker") };
    let mut claimed = 0;
    while claimed < limits::CHUNK_ROWS_MAX {
        claimed += platform.claim_for(leased.clone()).await.len();
    }
    platform.advance_ms(4 * BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() }, "what it had named, and no more");
    platform.advance_ms(limits::LEASE_MS_DEFAULT);
    assert_eq!(lost(platform).await, limits::CHUNK_ROWS_MAX as u64);
}

async fn a_claim_without_a_heartbeat_takes_back_none_that_was_promised(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    platform.renew(&claimed).await;
    platform.claim_for(ClaimRequest { heartbeat_ms: None, ..beating("worker") }).await;
    platform.advance_ms(4 * BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() });
}

async fn who_promised_a_heartbeat_and_calls_on_loses_nothing(platform: &Platform) {
    const SHORT_MS: i64 = 100;
    let short = ClaimRequest { heartbeat_ms: Some(SHORT_MS), ..beating("worker") };
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(short.clone()).await;
    platform.renew(&claimed).await;
    platform.claim_for(ClaimRequest { heartbeat_ms: None, ..short }).await;
    for _ in 0..10 {
        platform.advance_ms(SHORT_MS);
        assert!(matches!(platform.renew(&claimed).await, Renewed::Ok(_)));
        assert_eq!(platform.rescue().await, Rescued::default());
    }
}

async fn who_promised_two_heartbeats_keeps_to_the_longer_one(platform: &Platform) {
    const LONG_MS: i64 = 60_000;
    for [first, second] in [[LONG_MS, BEAT_MS], [BEAT_MS, LONG_MS]] {
        let promise = |ms| ClaimRequest { heartbeat_ms: Some(ms), ..beating("worker") };
        platform.submit(task("mail")).await;
        let claimed = platform.claim_one_for(promise(first)).await;
        platform.renew(&claimed).await;
        assert_eq!(platform.claim_for(promise(second)).await, []);
        platform.advance_ms(10 * BEAT_MS);
        assert_eq!(platform.rescue().await, Rescued::default());
        platform.advance_ms(3 * LONG_MS);
        assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() }, "{first} and {second}");
        platform.act(claimed.id, Action::Cancel).await;
    }
}

/// As it is after a claim that took so long that its worker was given up meanwhile.
async fn a_worker_without_a_row_that_renews_is_known_again(platform: &Platform) {
    let claimed = started(platform, "worker").await;
    platform.raw().await.run("DELETE FROM task_worker").await;
    platform.advance_ms(BEAT_MS);
    assert!(matches!(platform.renew(&claimed).await, Renewed::Ok(_)));
    platform.advance_ms(3 * BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued::default());
    platform.advance_ms(BEAT_MS / 10);
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() });
}

facts![
    who_promised_two_heartbeats_keeps_to_the_longer_one,
    a_worker_without_a_row_that_renews_is_known_again,
    who_promised_a_heartbeat_and_calls_on_loses_nothing,
    what_a_dead_worker_never_named_keeps_no_look_busy,
    leases_of_a_silent_worker_keep_no_look_busy,
    a_claim_without_a_heartbeat_takes_back_none_that_was_promised,
    the_time_limit_ends_an_attempt_however_alive_its_worker_is,
    the_time_limit_counts_with_a_heartbeat_too,
    time_limits_use_up_the_attempts,
    a_lease_without_heartbeat_ends_after_the_limit_or_fifteen_minutes,
    a_task_that_kills_its_worker_ends_after_its_attempts,
    lost_leases_wait_for_a_person_where_the_type_says_so,
    any_call_keeps_a_workers_executions_alive,
    each_kind_of_report_is_a_call,
    a_silent_worker_loses_all_it_has,
    one_silent_worker_does_not_hurt_another,
    an_execution_its_worker_never_named_is_given_back,
    naming_an_execution_once_is_enough,
    a_new_start_of_a_worker_does_not_keep_the_old_ones_executions,
    a_rescued_worker_that_comes_back_is_told,
    nothing_is_rescued_twice,
    a_rescue_of_many_goes_on_in_chunks,
    a_silent_worker_with_many_executions_loses_all,
];
