//! Tasks without a server: the engine runs in this process, on SQLite in a file of its own or on the database that is named.
//!
//! `cargo run -p taskwheel-client --example embedded [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use taskwheel_client::{Client, NewTask, RetryPolicy, TaskContext, TaskError, Worker};

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

/// What a handler returns is the task's result; an error is tried again.
async fn send(ctx: TaskContext, mail: Mail) -> Result<String, TaskError> {
    if !mail.to.contains('@') {
        return Err(TaskError::fail(format_args!("{} is no address", mail.to)));
    }
    if ctx.attempt() == 1 && mail.to.starts_with("busy") {
        return Err(TaskError::new("the mail server is busy"));
    }
    Ok(format!("sent to {}", mail.to))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite://embedded.db".into());
    let client = Client::embedded(url).await?;

    let tasks = ["you@here", "busy@there", "nowhere"]
        .map(|to| NewTask::new("mail", &Mail { to: to.into() }).retry(RetryPolicy::Fixed { delay_ms: 0 }));
    let submitted = client.submit_batch(tasks).await?;

    // Works until nothing is due; `run` would go on until SIGTERM or Ctrl-C.
    Worker::new(&client).handle("mail", send).run_until_idle().await?;

    for one in submitted {
        let task = client.get(one.id).await?;
        let how = task.result.map_or(task.error_info, |result| Some(result.to_string()));
        println!("{} after {} attempt(s): {}", task.status, task.attempts, how.unwrap_or_default());
    }
    client.close().await;
    Ok(())
}
