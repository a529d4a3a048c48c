//! The first steps with the store: submit, claim, report, look. Runs on SQLite in a file of its own, or on the database
//! whose URL is given.
//!
//! `cargo run --release -p taskwheel-store --example first_steps [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use taskwheel_model::{NewTask, Outcome, RetryPolicy};
use taskwheel_store::people::Action;
use taskwheel_store::worker::{ClaimRequest, Report};
use taskwheel_store::{Options, open};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite://first_steps.db".into());
    let store = open(Options::new(url)).await?;
    println!("database: {}", store.inspect().await?.database);

    // Submit: one that will work, one that will fail once, one that is not wanted any more.
    let submitted = store
        .submit(vec![
            NewTask { key: Some("order-7".into()), payload: Some(r#"{"to":"a@b.c"}"#.into()), ..NewTask::new("mail") },
            NewTask { priority: Some(9), retry: Some(RetryPolicy::Fixed { delay_ms: 0 }), ..NewTask::new("mail") },
            NewTask { key: Some("order-8".into()), ..NewTask::new("mail") },
        ])
        .await?;
    let ids: Vec<_> = submitted.iter().map(|one| one.id).collect();
    println!("submitted {ids:?}");
    store.act(None, vec![ids[2]], Action::Cancel).await?;

    // Work: claim what is due, highest priority first, and report how it went.
    let worker = ClaimRequest {
        worker_id: "first-steps".into(),
        host: "here".into(),
        types: vec!["mail".into()],
        max: 10,
        ..ClaimRequest::default()
    };
    for round in 1..=2 {
        let tasks = store.claim(vec![worker.clone()]).await?.remove(0);
        for task in tasks {
            let goes_wrong = task.id == ids[1] && task.attempt == 1;
            let outcome = if goes_wrong { Outcome::Error } else { Outcome::Success };
            println!(
                "round {round}: task {} (priority {}), attempt {}: {}",
                task.id,
                task.priority,
                task.attempt,
                outcome.word()
            );
            let error = goes_wrong.then(|| "the mail server was away".into());
            store.finish(vec![Report { error, ..Report::new(task.id, task.exec_id, outcome) }]).await?;
        }
    }

    // Look: every task with every attempt.
    for id in ids {
        let detail = store.get(None, id).await?.ok_or("the task is gone")?;
        println!("task {id}: {}, {} attempt(s)", detail.task.status, detail.task.attempts);
        for attempt in detail.attempts_log {
            let outcome = attempt.outcome.map_or("running", Outcome::word);
            println!("    attempt {}: {outcome} {}", attempt.attempt, attempt.error.unwrap_or_default());
        }
    }
    Ok(())
}
