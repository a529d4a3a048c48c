//! What this engine was not told of wakes claims too, where the database says so: PostgreSQL. Here no look ever comes by
//! itself, so that only the news can wake a claim.

#[path = "../../store/tests/support/database.rs"]
mod database;
#[path = "../../store/tests/support/raw.rs"]
mod raw;
#[path = "../../store/tests/support/wait.rs"]
#[expect(dead_code, reason = "the store's own tests use all of it")]
mod wait;

use database::TestDatabase;
use raw::Raw;
use sqlx::postgres::PgListener;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report};
use taskwheel_store::{Dialect, Options};
use tokio::task::JoinHandle;
use uuid::Uuid;
use wait::eventually;

const NEVER: Duration = Duration::from_secs(3_600);
const IN_TIME: Duration = Duration::from_secs(20);
const INSERT: &str = "INSERT INTO task (type, task_key) VALUES ('mail', 'order-7')";

async fn start(database: &TestDatabase) -> Arc<Engine> {
    let store = taskwheel_store::open(Options::new(&database.url)).await.unwrap();
    let options = EngineOptions { look_every: NEVER, rescue_every: NEVER, ..EngineOptions::default() };
    Arc::new(Engine::start(store, options))
}

/// Until so many nodes listen.
async fn listening(raw: &mut Raw, nodes: i64) {
    let raw = tokio::sync::Mutex::new(raw);
    let listeners = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                     AND application_name = 'taskwheel listener' AND query LIKE 'LISTEN%' AND state = 'idle'";
    eventually("nodes listen", || async { (raw.lock().await.number(listeners).await == nodes).then_some(()) }).await;
}

/// A claim that waits, in the background, and has looked already.
async fn waiting(engine: &Arc<Engine>, task_type: &str) -> JoinHandle<Vec<ClaimedTask>> {
    let request = ClaimRequest {
        worker_id: Uuid::new_v4().to_string(),
        host: "h".into(),
        types: vec![task_type.into()],
        max: 1,
        ..ClaimRequest::default()
    };
    let (claiming, worker_id) = (engine.clone(), request.worker_id.clone());
    let claim = tokio::spawn(async move { claiming.claim(request, NEVER).await.unwrap() });
    eventually("the worker is known", || async {
        engine.store().workers().await.unwrap().iter().any(|worker| worker.worker_id == worker_id).then_some(())
    })
    .await;
    claim
}

async fn answer(claim: JoinHandle<Vec<ClaimedTask>>) -> ClaimedTask {
    tokio::time::timeout(IN_TIME, claim).await.expect("the claim is woken").unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_wakes_a_claim_on_postgres() {
    let database = TestDatabase::create(Dialect::Postgres).await;
    let engine = start(&database).await;
    let mut raw = database.raw().await;
    listening(&mut raw, 1).await;
    let claim = waiting(&engine, "mail").await;
    raw.run(INSERT).await;
    assert_eq!(answer(claim).await.key.as_deref(), Some("order-7"));

    let claim = waiting(&engine, "mail").await;
    raw.run("INSERT INTO task (type, run_at) VALUES ('mail', clock_timestamp() + interval '300 ms')").await;
    let claimed = answer(claim).await;
    assert!(claimed.started_at >= claimed.run_at, "a task that is not due yet wakes when it is, and never before");
    engine.stop().await;
    drop(engine);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_listens_again_after_its_connection_was_lost() {
    let database = TestDatabase::create(Dialect::Postgres).await;
    let engine = start(&database).await;
    let mut raw = database.raw().await;
    listening(&mut raw, 1).await;
    let listener = "SELECT pid FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'taskwheel listener'";
    let first = raw.number(listener).await;
    raw.rows(&format!("SELECT pg_terminate_backend({first})::text")).await;
    let still = tokio::sync::Mutex::new(&mut raw);
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {first}");
    eventually("it is gone", || async { (still.lock().await.number(&alive).await == 0).then_some(()) }).await;
    listening(&mut raw, 1).await;
    let claim = waiting(&engine, "mail").await;
    raw.run(INSERT).await;
    assert_eq!(answer(claim).await.key.as_deref(), Some("order-7"));
    engine.stop().await;
    drop(engine);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_makes_due_wakes_a_claim_at_another_on_postgres() {
    let database = TestDatabase::create(Dialect::Postgres).await;
    let (here, there) = (start(&database).await, start(&database).await);
    listening(&mut database.raw().await, 2).await;
    let claim = waiting(&there, "mail").await;
    let id = here.submit(vec![NewTask::new("mail")]).await.unwrap()[0].id;
    let claimed = answer(claim).await;
    assert_eq!(claimed.id, id);

    let claim = waiting(&there, "fax").await;
    here.submit(vec![NewTask { run_at: RunAt::After(300), ..NewTask::new("fax") }]).await.unwrap();
    let later = answer(claim).await;
    assert!(later.started_at >= later.run_at, "never before");

    let claim = waiting(&there, "mail").await;
    here.report(vec![Report::new(claimed.id, claimed.exec_id, Outcome::Release)]).await.unwrap();
    assert_eq!(answer(claim).await.id, id, "what is given back through another node");
    for engine in [here, there] {
        engine.stop().await;
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_nodes_submits_and_sessions_that_do_not_want_it_notify_nobody() {
    let database = TestDatabase::create(Dialect::Postgres).await;
    let engine = start(&database).await;
    let mut raw = database.raw().await;
    listening(&mut raw, 1).await;
    let mut heard = PgListener::connect(&database.url).await.unwrap();
    heard.listen("taskwheel").await.unwrap();
    for _ in 0..50 {
        engine.submit(vec![NewTask::new("mail")]).await.unwrap();
    }
    raw.run("SET taskwheel.notify = off").await;
    raw.run(INSERT).await;
    raw.run("INSERT INTO task (type, run_at) VALUES ('mail', '2030-01-01')").await;
    raw.run("RESET taskwheel.notify").await;
    raw.run("INSERT INTO task (type, run_at) VALUES ('fax', '2020-01-01'), ('fax', '2020-01-02')").await;
    let next = tokio::time::timeout(IN_TIME, heard.recv()).await.expect("the last one notifies").unwrap();
    assert_eq!(next.payload(), "- 0 fax", "and nothing notified before");
    drop(heard);
    engine.stop().await;
    drop(engine);
    database.remove().await;
}
