//! Workers: who is known, and for how long.

use crate::facts;
use crate::support::{Platform, worker};
use taskwheel_store::worker::{ClaimRequest, Worker};

fn beating(name: &str) -> ClaimRequest {
    ClaimRequest {
        worker_id: name.into(),
        host: "host-a".into(),
        app: Some("shop".into()),
        categories: vec!["mails".into()],
        heartbeat_ms: Some(1_000),
        ..worker(&["mail", "sms"])
    }
}

async fn a_worker_that_claims_is_known(platform: &Platform) {
    platform.claim_for(beating("w1")).await;
    let known = platform.store.workers().await.unwrap();
    let expected = Worker {
        tenant: None,
        worker_id: "w1".into(),
        host: "host-a".into(),
        app: Some("shop".into()),
        types: vec!["mail".into(), "sms".into()],
        categories: vec!["mails".into()],
        heartbeat_ms: Some(1_000),
        started_at: platform.now(),
        seen_at: platform.now(),
    };
    assert_eq!(known, [expected]);
}

async fn calls_are_seen_and_the_start_stays(platform: &Platform) {
    let started_at = platform.now();
    platform.claim_for(beating("w1")).await;
    platform.advance_ms(500);
    platform.heartbeat("w1").await;
    let known = platform.store.workers().await.unwrap();
    assert_eq!((known[0].started_at, known[0].seen_at), (started_at, platform.now()));
    platform.advance_ms(500);
    platform.claim_for(ClaimRequest { types: vec!["fax".into()], ..beating("w1") }).await;
    let known = platform.store.workers().await.unwrap();
    assert_eq!((known[0].started_at, known[0].seen_at), (started_at, platform.now()));
    assert_eq!(known[0].types, ["fax"], "what it asks for now");
}

async fn a_silent_worker_is_forgotten_by_the_rescue(platform: &Platform) {
    platform.claim_for(beating("w1")).await;
    platform.claim_for(beating("w2")).await;
    platform.advance_ms(2_000);
    platform.heartbeat("w2").await;
    platform.advance_ms(2_000);
    platform.rescue().await;
    let known: Vec<_> = platform.store.workers().await.unwrap().into_iter().map(|one| one.worker_id).collect();
    assert_eq!(known, ["w2"]);
    platform.claim_for(beating("w1")).await;
    assert_eq!(platform.store.workers().await.unwrap().len(), 2, "and known again when it calls");
}

async fn a_worker_without_a_heartbeat_stays_known_for_a_while(platform: &Platform) {
    platform.claim_for(worker(&["mail"])).await;
    platform.advance_ms(60_000);
    platform.rescue().await;
    assert_eq!(platform.store.workers().await.unwrap().len(), 1);
}

async fn a_heartbeat_of_an_unknown_worker_is_harmless(platform: &Platform) {
    platform.heartbeat("nobody").await;
    assert_eq!(platform.store.workers().await.unwrap(), []);
}

async fn a_call_that_was_rolled_back_is_written_with_the_next(platform: &Platform) {
    platform.claim_for(beating("w2")).await;
    let foreign = ClaimRequest { owner: Some("acme".into()), ..beating("w2") };
    platform.store.claim(vec![beating("w1"), foreign]).await.expect_err("another's id is refused");
    assert_eq!(platform.store.readings().verbs["claim"].errors, 0, "that is the caller's fault, and none of the store");
    platform.claim_for(beating("w1")).await;
    let known: Vec<_> = platform.store.workers().await.unwrap().into_iter().map(|one| one.worker_id).collect();
    assert_eq!(known, ["w1", "w2"]);
}

async fn a_worker_that_another_node_gave_up_is_known_again_when_it_claims(platform: &Platform) {
    platform.claim_for(beating("w1")).await;
    platform.advance_ms(10_000);
    let other_node = platform.open_again(|_| ()).await.unwrap();
    other_node.rescue().await.unwrap();
    assert_eq!(platform.store.workers().await.unwrap(), []);
    platform.heartbeat("w1").await;
    platform.claim_for(beating("w1")).await;
    assert_eq!(platform.store.workers().await.unwrap().len(), 1);
}

facts![
    a_call_that_was_rolled_back_is_written_with_the_next,
    a_worker_that_another_node_gave_up_is_known_again_when_it_claims,
    a_worker_that_claims_is_known,
    calls_are_seen_and_the_start_stays,
    a_silent_worker_is_forgotten_by_the_rescue,
    a_worker_without_a_heartbeat_stays_known_for_a_while,
    a_heartbeat_of_an_unknown_worker_is_harmless,
];
