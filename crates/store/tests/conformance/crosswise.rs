//! Calls of the same workers through several nodes at once never wait for each other crosswise: a deadlock costs a second on PostgreSQL.

use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
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

crate::facts! { in postgres on Postgres: calls_through_many_nodes_never_deadlock }
