//! Watch: the silence of workers counts only while somebody looks.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::Outcome;
use taskwheel_store::Rescued;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewed};

const BEAT_MS: i64 = 1_000;
/// Three heartbeats, and the tenth by which they may be written late.
const SILENCE_MS: i64 = 3 * BEAT_MS + BEAT_MS / 10;

fn beating(heartbeat_ms: i64) -> ClaimRequest {
    ClaimRequest { heartbeat_ms: Some(heartbeat_ms), max: 1, ..worker(&["mail"]) }
}

/// A task that a worker has, and somebody who looks.
async fn watched(platform: &Platform, heartbeat_ms: i64) -> ClaimedTask {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(beating(heartbeat_ms)).await;
    platform.store.watch(false).await.unwrap();
    claimed
}

async fn silence_counts_from_when_somebody_looks_again(platform: &Platform) {
    let claimed = watched(platform, BEAT_MS).await;
    platform.renew(&claimed).await;
    platform.advance_ms(3_600_000);
    assert!(platform.store.watch(false).await.unwrap(), "nobody has looked for an hour");
    assert_eq!(platform.rescue().await, Rescued::default());
    platform.advance_ms(SILENCE_MS - 1);
    platform.store.watch(true).await.unwrap();
    assert_eq!(platform.rescue().await, Rescued::default());
    assert!(matches!(platform.renew(&claimed).await, Renewed::Ok(_)), "it calls");
    platform.advance_ms(SILENCE_MS);
    platform.store.watch(true).await.unwrap();
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() }, "and then no more");
}

async fn silence_counts_while_another_node_looks(platform: &Platform) {
    let claimed = watched(platform, BEAT_MS).await;
    platform.renew(&claimed).await;
    for _ in 0..4 {
        platform.advance_ms(BEAT_MS);
        platform.store.watch(true).await.unwrap();
    }
    let other = platform.open_again(|_| {}).await.unwrap();
    assert!(!other.watch(false).await.unwrap(), "it has just started, and somebody has looked all the time");
    let rescued = other.rescue().await.unwrap();
    assert_eq!((rescued.lost, rescued.tasks[0].id), (1, claimed.id));
    assert!(matches!(platform.store.renew(vec![], vec![renewal(&claimed)]).await.unwrap()[0], Renewed::Superseded));
}

async fn who_has_looked_all_the_time_needs_no_proof(platform: &Platform) {
    let claimed = watched(platform, BEAT_MS).await;
    platform.renew(&claimed).await;
    platform.advance_ms(SILENCE_MS);
    assert!(!platform.store.watch(true).await.unwrap(), "a look may take its time");
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() });
}

async fn a_short_absence_is_no_excuse_for_a_slow_heart(platform: &Platform) {
    let claimed = watched(platform, 10_000).await;
    platform.renew(&claimed).await;
    let called = platform.now();
    platform.advance_ms(9_999);
    assert!(platform.store.watch(false).await.unwrap());
    assert_eq!(platform.store.workers().await.unwrap()[0].seen_at, called, "it had time enough");
    platform.advance_ms(10_000);
    assert!(platform.store.watch(false).await.unwrap());
    assert_eq!(platform.store.workers().await.unwrap()[0].seen_at, platform.now(), "it may have missed a heartbeat");
}

async fn what_was_not_named_yet_is_not_given_back_at_once(platform: &Platform) {
    watched(platform, BEAT_MS).await;
    platform.advance_ms(3_600_000);
    assert!(platform.store.watch(false).await.unwrap());
    assert_eq!(platform.rescue().await, Rescued::default());
    platform.advance_ms(2 * BEAT_MS);
    platform.heartbeat("worker").await;
    platform.advance_ms(BEAT_MS);
    assert_eq!(platform.rescue().await, Rescued { released: 1, ..Rescued::default() }, "the answer did not arrive");
}

async fn time_limits_run_on_while_nobody_looks(platform: &Platform) {
    platform.submit(taskwheel_model::NewTask { timeout_ms: Some(60_000), ..task("mail") }).await;
    platform.claim_one_for(beating(BEAT_MS)).await;
    platform.advance_ms(3_600_000);
    assert!(!platform.store.watch(false).await.unwrap(), "nobody had ever looked");
    assert_eq!(platform.rescue().await, Rescued { timed_out: 1, ..Rescued::default() });
}

async fn after_the_clock_was_set_back_a_worker_that_dies_is_noticed(platform: &Platform) {
    let before = watched(platform, BEAT_MS).await;
    platform.finish(&before, Outcome::Success).await;
    platform.advance_ms(-3_600_000);
    assert!(platform.store.watch(false).await.unwrap(), "the last look is in the future");
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(beating(BEAT_MS)).await;
    platform.renew(&claimed).await;
    platform.advance_ms(SILENCE_MS);
    platform.store.watch(true).await.unwrap();
    assert_eq!(platform.rescue().await, Rescued { lost: 1, ..Rescued::default() });
}

facts![
    after_the_clock_was_set_back_a_worker_that_dies_is_noticed,
    silence_counts_from_when_somebody_looks_again,
    silence_counts_while_another_node_looks,
    who_has_looked_all_the_time_needs_no_proof,
    a_short_absence_is_no_excuse_for_a_slow_heart,
    what_was_not_named_yet_is_not_given_back_at_once,
    time_limits_run_on_while_nobody_looks,
];
