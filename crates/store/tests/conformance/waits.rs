//! Waits: a call takes as long as the database works, and waits for nothing else.

use crate::facts;
use crate::support::{Platform, due_in, task, worker};
use std::time::{Duration, Instant};
use taskwheel_model::NewTask;
use taskwheel_store::search::{Filter, Listing};
use taskwheel_store::worker::ClaimRequest;

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
