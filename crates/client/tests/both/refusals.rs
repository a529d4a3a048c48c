//! A database that refuses statements for a while: they are cancelled, or it takes no writes for now.

use crate::support::{Platform, in_time};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use taskwheel_client::rusqlite::Connection;
use taskwheel_client::{Error, NewTask, Outcome, Status, TaskContext, TaskError, sqlite};

/// Has everything refused that is about running tasks, for so long from now.
fn refuse(database: &Path, time: Duration) {
    let connection = Connection::open(database).unwrap();
    connection.execute_batch("ALTER TABLE task_running RENAME TO hidden").unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        connection.execute_batch("ALTER TABLE hidden RENAME TO task_running").unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_worker_nor_a_result_is_lost_to_it() {
    let platform = Platform::embedded().await;
    let id = platform.submit(NewTask::new("echo", "a")).await;
    let (database, begin, time) = (platform.database(), Instant::now(), Duration::from_millis(500));
    refuse(&database, time);
    let echo = move |_: TaskContext, word: String| {
        refuse(&database, time);
        async { Ok::<_, TaskError>(word) }
    };
    platform.worker().handle("echo", echo).run_until_idle().await.unwrap();
    assert!(begin.elapsed() >= 2 * time, "the claim and the report were refused");
    let task = platform.task(id).await;
    assert_eq!((task.status, task.result), (Status::Success, Some(json!("a"))));
    assert_eq!(task.attempts_log.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [Some(Outcome::Success)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_reports_have_the_rest_of_the_grace_period() {
    let platform = Platform::embedded().await;
    let id = platform.submit(NewTask::new("late", &())).await;
    let database = platform.database();
    let late = move |ctx: TaskContext, (): ()| {
        let database = database.clone();
        async move {
            ctx.stopping().await;
            // Longer than they have in any case.
            refuse(&database, Duration::from_secs(6));
            Ok::<(), TaskError>(())
        }
    };
    let stop = async { drop(platform.task_when(id, |task| task.status == Status::Executing).await) };
    // A heartbeat that comes meanwhile is refused as well, and names the task again in time.
    in_time("it stops", platform.worker().handle("late", late).run_until(stop)).await.unwrap();
    assert_eq!(platform.task(id).await.status, Status::Success);
}

#[test]
fn what_it_refuses_on_a_transaction_surely_did_not_happen() {
    let refused = sqlite::submit_on(&Connection::open_in_memory().unwrap(), [NewTask::new("mail", &())]);
    let Err(Error::Unexpected(words)) = refused else { panic!("there is no schema: {refused:?}") };
    assert!(words.contains("make them with `taskwheel migrate`"), "{words}");
}
