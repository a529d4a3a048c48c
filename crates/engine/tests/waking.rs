//! Claims that wait are woken: here no look ever comes by itself, so that a wake-up that is missing is a claim that never ends.

use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::Options;
use taskwheel_store::access::Actor;
use taskwheel_store::people::Action;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const NEVER: Duration = Duration::from_secs(3_600);
const IN_TIME: Duration = Duration::from_secs(20);

async fn engine() -> (Arc<Engine>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
    let store = taskwheel_store::open(Options::new(url)).await.unwrap();
    let options = EngineOptions { look_every: NEVER, rescue_every: NEVER, ..EngineOptions::default() };
    (Arc::new(Engine::start(store, options)), directory)
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker_id: "w".into(),
        host: "h".into(),
        types: vec!["mail".into()],
        max: 1,
        ..ClaimRequest::default()
    }
}

/// A claim that waits, in the background.
async fn waiting(engine: &Arc<Engine>) -> JoinHandle<Vec<ClaimedTask>> {
    let claiming = engine.clone();
    let claim = tokio::spawn(async move { claiming.claim(request(), NEVER).await.unwrap() });
    // Once the worker is known, its first look is under way or over; what comes from here on must wake it.
    while engine.store().workers().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    claim
}

async fn answer(claim: JoinHandle<Vec<ClaimedTask>>) -> ClaimedTask {
    tokio::time::timeout(IN_TIME, claim).await.expect("the claim is woken").unwrap().remove(0)
}

#[tokio::test]
async fn a_submit_wakes_a_claim() {
    let (engine, _directory) = engine().await;
    let claim = waiting(&engine).await;
    let id = engine.submit(vec![NewTask::new("mail")]).await.unwrap()[0].id;
    assert_eq!(answer(claim).await.id, id);
}

/// How many transactions of a verb there were.
fn transactions(engine: &Engine, verb: &str) -> u64 {
    engine.store().readings().verbs.get(verb).map_or(0, |reading| reading.durations.count)
}

/// A claim that sleeps: its look has found nothing.
async fn sleeping(engine: &Arc<Engine>) -> JoinHandle<Vec<ClaimedTask>> {
    let looks = transactions(engine, "claim");
    let claim = waiting(engine).await;
    while transactions(engine, "claim") == looks {
        tokio::task::yield_now().await;
    }
    // From the end of its look to its sleep it takes a few turns on the one thread that there is.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    claim
}

#[tokio::test]
async fn a_task_is_handed_to_a_claim_that_sleeps_in_the_transaction_that_stores_it() {
    let (engine, _directory) = engine().await;
    let claim = sleeping(&engine).await;
    let looks = transactions(&engine, "claim");
    let id = engine.submit(vec![NewTask::new("mail")]).await.unwrap()[0].id;
    assert_eq!(answer(claim).await.id, id);
    assert_eq!((transactions(&engine, "claim"), transactions(&engine, "hand_over")), (looks, 1));
}

#[tokio::test]
async fn a_task_whose_claim_goes_away_is_there_for_the_next() {
    let (engine, _directory) = engine().await;
    for _ in 0..20 {
        let claim = sleeping(&engine).await;
        let submitting = engine.clone();
        let submit = tokio::spawn(async move { submitting.submit(vec![NewTask::new("mail")]).await.unwrap()[0].id });
        claim.abort();
        let id = submit.await.unwrap();
        // Where the claim had it in hand when it went, the task is with its worker.
        let went_with_it = claim.await.is_ok_and(|tasks| tasks.iter().any(|task| task.id == id));
        if !went_with_it {
            assert_eq!(answer(waiting(&engine).await).await.id, id);
        }
    }
}

#[tokio::test]
async fn a_submitter_that_goes_away_keeps_no_claim_from_its_task() {
    let (engine, _directory) = engine().await;
    for turns in 0..20 {
        let claim = sleeping(&engine).await;
        let submitting = engine.clone();
        let submit = tokio::spawn(async move { submitting.submit(vec![NewTask::new("mail")]).await });
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        submit.abort();
        let _ = submit.await;
        engine.submit(vec![NewTask::new("mail")]).await.unwrap();
        answer(claim).await;
        // What is left, if the first was stored as well.
        let rest = ClaimRequest { max: 9, ..request() };
        engine.claim(rest, Duration::ZERO).await.unwrap();
    }
}

#[tokio::test]
async fn a_delayed_task_wakes_a_claim_when_it_is_due() {
    let (engine, _directory) = engine().await;
    let claim = waiting(&engine).await;
    engine.submit(vec![NewTask { run_at: RunAt::After(300), ..NewTask::new("mail") }]).await.unwrap();
    let claimed = answer(claim).await;
    assert!(claimed.started_at >= claimed.run_at, "never before");
}

#[tokio::test]
async fn what_is_given_back_and_what_a_person_makes_due_wake_a_claim() {
    let (engine, _directory) = engine().await;
    let later = NewTask { run_at: RunAt::After(3_600_000), ..NewTask::new("mail") };
    let id = engine.submit(vec![later]).await.unwrap()[0].id;
    let claim = waiting(&engine).await;
    engine.act(Actor::command_line(), None, id, Action::RunNow).await.unwrap();
    let first = answer(claim).await;
    let claim = waiting(&engine).await;
    engine.report(vec![Report::new(first.id, first.exec_id, Outcome::Release)]).await.unwrap();
    assert_eq!(answer(claim).await.id, id);
}

#[tokio::test]
async fn a_stop_answers_a_claim_with_nothing() {
    let (engine, _directory) = engine().await;
    let claim = waiting(&engine).await;
    tokio::time::timeout(IN_TIME, engine.stop()).await.expect("the loops end");
    assert!(tokio::time::timeout(IN_TIME, claim).await.expect("it is answered").unwrap().is_empty());
}
