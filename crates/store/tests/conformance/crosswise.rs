//! Calls of the same workers through several nodes at once never wait for each other crosswise: a deadlock costs a second on PostgreSQL.

use crate::support::platform::renewal;
use crate::support::{Platform, eventually, task, worker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::Outcome;
use taskwheel_store::Store;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report};

const NODES: usize = 3;
const WORKERS: usize = 4;
const CALLERS: usize = 12;
/// So short that many calls are written down, and so long that no lease runs out.
const HEARTBEAT_MS: i64 = 1_000;
const LENGTH: Duration = Duration::from_secs(3);

/// Claims for two workers at one node; then reports there and renews at another, at the same time.
async fn call(stores: Vec<Arc<dyn Store>>, caller: usize) {
    let (began, mut turn) = (Instant::now(), caller);
    while began.elapsed() < LENGTH {
        let (here, there) = (&stores[turn % NODES], &stores[(turn + 1) % NODES]);
        let name = |number: usize| format!("worker-{}", number % WORKERS);
        let claim = |number| ClaimRequest {
            worker_id: name(number),
            heartbeat_ms: Some(HEARTBEAT_MS),
            max: 4,
            ..worker(&["crosswise"])
        };
        let claimed = here.claim(vec![claim(turn), claim(turn + 1)]).await.expect("the claims go through").concat();
        let outcome = if turn.is_multiple_of(4) { Outcome::Success } else { Outcome::Retry };
        let report =
            |one: &ClaimedTask| Report { retry_after_ms: Some(3_600_000), ..Report::new(one.id, one.exec_id, outcome) };
        let heartbeats = vec![name(turn).into(), name(turn + 1).into()];
        let (reported, renewed) = tokio::join!(
            here.finish(claimed.iter().map(report).collect()),
            there.renew(heartbeats, claimed.iter().map(renewal).collect()),
        );
        assert!(reported.is_ok() && renewed.is_ok());
        here.rescue().await.expect("the rescue goes through");
        turn += 1;
    }
}

async fn calls_through_many_nodes_never_deadlock(platform: &Platform) {
    let mut stores = Vec::new();
    for _ in 0..NODES {
        stores.push(platform.with_real_clock().await);
    }
    for _ in 0..10 {
        platform.submit_all((0..1_000).map(|_| task("crosswise")).collect()).await;
    }
    let calls: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(call(stores.clone(), caller))).collect();
    for call in calls {
        call.await.expect("every call was answered");
    }
    let mut raw = platform.raw().await;
    // Connections tell what happened on them with a delay of a second at most.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    drop(stores);
    let deadlocks = raw.rows("SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()").await;
    assert_eq!(deadlocks, [[Some("0".to_owned())]]);
}

/// A server that starts under load excuses all workers while their reports come in.
async fn who_looks_again_waits_for_executions_in_their_order(platform: &Platform) {
    let first = platform.submit(task("first")).await;
    let second = platform.submit(task("second")).await;
    // They lie in the other order than that of their ids.
    for name in ["second", "first"] {
        let beating = ClaimRequest { heartbeat_ms: Some(HEARTBEAT_MS), ..worker(&[name]) };
        platform.claim_one_for(beating).await;
    }
    platform.advance_ms(3_600_000);
    let mut report = platform.raw().await;
    report.run("BEGIN").await;
    report.rows(&format!("SELECT id FROM task_running WHERE id = {first} FOR UPDATE")).await;
    let store = platform.store.clone();
    let look = tokio::spawn(async move { store.watch(false).await });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the look waits", || async { (platform.raw().await.number(waiting).await > 0).then_some(()) }).await;
    let next = format!("SELECT id FROM task_running WHERE id = {second} FOR UPDATE NOWAIT");
    assert_eq!(report.rows(&next).await.len(), 1, "it holds none while it waits for one before it");
    report.run("ROLLBACK").await;
    assert!(look.await.unwrap().is_ok());
}

crate::facts! { in postgres on Postgres: calls_through_many_nodes_never_deadlock, who_looks_again_waits_for_executions_in_their_order }
