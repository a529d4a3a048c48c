//! Calls of the same workers through several nodes at once never wait for each other crosswise: a deadlock costs a second on PostgreSQL.

use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::Outcome;
use taskwheel_store::Store;
use taskwheel_store::worker::{ClaimRequest, Report};

const NODES: usize = 3;
const WORKERS: usize = 4;
const CALLERS: usize = 4;
const LENGTH: Duration = Duration::from_secs(3);

/// Claims, renews and reports for any of the workers, each time for another.
async fn call(store: Arc<dyn Store>, caller: usize) {
    let (began, mut turn) = (Instant::now(), caller);
    while began.elapsed() < LENGTH {
        let name = |number: usize| format!("worker-{}", number % WORKERS);
        // A heartbeat so short that every call is written down.
        let claim = |number| ClaimRequest {
            worker_id: name(number),
            heartbeat_ms: Some(1_000),
            max: 4,
            ..worker(&["crosswise"])
        };
        let claimed = store.claim(vec![claim(turn), claim(turn + 1)]).await.expect("the claims go through").concat();
        let heartbeats = vec![name(turn + 2).into(), name(turn).into()];
        store.renew(heartbeats, claimed.iter().map(renewal).collect()).await.expect("the renewals go through");
        let outcome = if turn % 2 == 0 { Outcome::Retry } else { Outcome::Success };
        let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, outcome)).collect();
        store.finish(reports).await.expect("the reports go through");
        store.rescue().await.expect("the rescue goes through");
        turn += 1;
    }
}

async fn calls_through_many_nodes_never_deadlock(platform: &Platform) {
    let mut stores = Vec::new();
    for _ in 0..NODES {
        stores.push(platform.with_real_clock().await);
    }
    platform.submit_all((0..500).map(|_| task("crosswise")).collect()).await;
    let calls: Vec<_> =
        (0..NODES * CALLERS).map(|caller| tokio::spawn(call(stores[caller % NODES].clone(), caller))).collect();
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
