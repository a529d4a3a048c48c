//! One loop that fails is enough for the engine not to be healthy, however well the others do.

use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_store::Options;

const IN_TIME: Duration = Duration::from_secs(20);

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waits = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(IN_TIME, waits).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn a_loop_that_fails_is_not_outvoted_by_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tasks.db");
    let store = taskwheel_store::open(Options::new(format!("sqlite://{}", file.display()))).await.unwrap();
    let options = EngineOptions { rescue_every: Duration::from_millis(1), ..EngineOptions::default() };
    let engine = Arc::new(Engine::start(store, options));
    let raw = rusqlite::Connection::open(&file).unwrap();
    raw.busy_timeout(IN_TIME).unwrap();
    raw.execute_batch("ALTER TABLE task_timer RENAME TO task_timer_elsewhere").unwrap();
    until("schedules cannot be looked at", || !engine.is_healthy()).await;
    let rescues = || engine.store().readings().verbs.get("rescue").map_or(0, |reading| reading.durations.count);
    let before = rescues();
    until("it goes on to look after workers", || {
        assert!(!engine.is_healthy());
        rescues() > before + 50
    })
    .await;
    raw.execute_batch("ALTER TABLE task_timer_elsewhere RENAME TO task_timer").unwrap();
    until("all is well again", || engine.is_healthy()).await;
    engine.stop().await;
}
