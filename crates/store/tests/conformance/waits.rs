//! Waits: a call takes as long as the database works, and waits for nothing else.

use crate::facts;
use crate::support::{Platform, due_in, task, worker};
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::search::{Filter, Listing};
use taskwheel_store::worker::{ClaimRequest, Report};
use tokio::task::JoinSet;
use tokio::time::timeout;

const CALLS: usize = 20;
/// A packet that waits for the acknowledgement of the one before waits 40 ms.
const LONG: Duration = Duration::from_millis(40);

/// How long the fastest of some calls takes: on a machine that is busy others take longer.
async fn fastest<F: Future>(call: impl Fn(usize) -> F) -> Duration {
    let mut fastest = Duration::MAX;
    for number in 0..CALLS {
        let began = Instant::now();
        call(number).await;
        fastest = fastest.min(began.elapsed());
    }
    fastest
}

async fn no_call_waits_for_an_acknowledgement(platform: &Platform) {
    let types = ["mail", "sms", "fax", "post", "call", "visit"];
    for (number, task_type) in types.iter().cycle().take(CALLS * 20).enumerate() {
        let waiting = NewTask { key: Some(number.to_string()), ..task(task_type) };
        platform.submit_all(vec![waiting, due_in(task_type, 1_000)]).await;
    }
    let store = &platform.store;
    let look = fastest(async |_| store.upcoming(types.map(str::to_owned).to_vec(), 10_000, 100).await.unwrap()).await;
    // Those of a tenant, and of several types, are found by statements that are made for the call.
    let request = |number: usize| {
        let tenant = (number % 2 == 1).then(|| "default".to_owned());
        ClaimRequest { tenant, max: 8, ..worker(&types[..2 + number % 4]) }
    };
    let claim = fastest(async |number| assert_eq!(platform.claim_for(request(number)).await.len(), 8)).await;
    let search = |number: usize| {
        let filter = Filter { key: Some(number.to_string()), ..Filter::default() };
        Listing { filter, limit: 10, ..Listing::default() }
    };
    let list = fastest(async |number| assert_eq!(store.list(search(number)).await.unwrap().items.len(), 1)).await;
    for (call, took) in [("look", look), ("claim", claim), ("list", list)] {
        assert!(took < LONG, "the fastest {call} took {took:?}");
    }
}

facts![no_call_waits_for_an_acknowledgement];

/// A call that takes long holds the row of its worker until it ends.
async fn a_call_does_not_wait_for_another_that_writes_down_their_worker(platform: &Platform) {
    const HEARTBEAT_MS: i64 = 10_000;
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(HEARTBEAT_MS), ..worker(&["mail"]) }).await;
    // The last call is so old that one of the next two writes anew, and not so old that both must.
    platform.advance_ms(HEARTBEAT_MS / 20);
    let mut holder = platform.raw().await;
    holder.run("BEGIN").await;
    holder.rows("SELECT worker_id FROM task_worker FOR UPDATE").await;
    let mut calls = JoinSet::new();
    let store = platform.store.clone();
    let report = Report::new(claimed.id, claimed.exec_id, Outcome::Success);
    calls.spawn(async move { store.finish(vec![report]).await.map(drop) });
    let store = platform.store.clone();
    calls.spawn(async move { store.renew(vec!["worker".into()], Vec::new()).await.map(drop) });
    let first = timeout(Duration::from_secs(5), calls.join_next()).await.expect("one of them does not wait");
    assert!(matches!(first, Some(Ok(Ok(())))), "{first:?}");
    holder.run("ROLLBACK").await;
    assert!(matches!(calls.join_next().await, Some(Ok(Ok(())))));
}

crate::facts! { in rows_of_postgres on Postgres: a_call_does_not_wait_for_another_that_writes_down_their_worker }
crate::facts! { in rows_of_mysql on Mysql: a_call_does_not_wait_for_another_that_writes_down_their_worker }
