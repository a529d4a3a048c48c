//! A worker of a server: `taskwheel serve`, then this, then `taskwheel submit greet --payload '"you"'`.
//!
//! The servers are those of TASKWHEEL_SERVER, with commas between them, or http://127.0.0.1:9222. SIGTERM and Ctrl-C stop it:
//! it lets handlers end, and gives back what it cannot finish.
//!
//! `cargo run -p taskwheel-client --example remote_worker`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::convert::Infallible;
use std::time::Duration;
use taskwheel_client::{Client, TaskContext, TaskError, Worker};

/// Short work.
async fn greet(ctx: TaskContext, name: String) -> Result<String, Infallible> {
    println!("task {}, attempt {}: {name}", ctx.task_id(), ctx.attempt());
    Ok(format!("hello {name}"))
}

/// Work that takes as many seconds as it is told, and ends early when it is not wanted any more.
async fn wait(ctx: TaskContext, seconds: u64) -> Result<(), TaskError> {
    println!("task {} waits for {seconds} s", ctx.task_id());
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(seconds)) => Ok(()),
        // Its result would be dropped, whatever it is.
        () = ctx.cancelled() => Ok(()),
        () = ctx.stopping() => Err(TaskError::release().because("the worker stops")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::builder().build()?;
    Worker::new(&client).handle("greet", greet).handle("wait", wait).concurrency(8).run().await?;
    println!("stopped");
    Ok(())
}
