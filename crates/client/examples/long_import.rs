//! A long import that survives anything: kill it with kill -9, start it again, and it goes on from its checkpoint.
//!
//! It writes rows into a file, each after a pause in milliseconds. Started again it finds the import that it began.
//!
//! `cargo run -p taskwheel-client --example long_import DATABASE_URL OUTPUT_FILE ROWS PAUSE`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;
use taskwheel_client::{Client, NewTask, TaskContext, TaskError, Worker};

#[derive(Serialize, Deserialize)]
struct Import {
    output: String,
    rows: u64,
}

async fn import(ctx: TaskContext, import: Import, pause: Duration) -> Result<u64, TaskError> {
    let first: u64 = ctx.restore()?.unwrap_or(0);
    println!("attempt {} begins with row {first}", ctx.attempt());
    let mut output = OpenOptions::new().create(true).append(true).open(&import.output)?;
    for row in first..import.rows {
        tokio::time::sleep(pause).await;
        writeln!(output, "row {row}")?;
        // Costs nothing: it is saved every now and then. What is done after the last save is done again.
        ctx.checkpoint(&(row + 1))?;
        ctx.progress((row + 1, import.rows));
        if row % 3 == 2 {
            // This one waits until it is stored.
            ctx.save().await?;
            println!("saved {}", row + 1);
        }
    }
    Ok(import.rows)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, output, rows, pause] = arguments.as_slice() else {
        return Err("give a database URL, a file, a number of rows and a pause in milliseconds".into());
    };
    let (rows, pause) = (rows.parse()?, Duration::from_millis(pause.parse()?));
    let client = Client::embedded(database).await?;
    let task = NewTask::new("import", &Import { output: output.clone(), rows }).unique_key(output.clone());
    let task = client.submit(task).await?;

    let (done, is_done) = tokio::sync::oneshot::channel();
    let watch = client.clone();
    tokio::spawn(async move {
        while watch.get(task.id).await.is_ok_and(|task| task.status.is_live()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = done.send(());
    });
    let worker = Worker::new(&client)
        .handle("import", move |ctx, rows| import(ctx, rows, pause))
        .heartbeat(Duration::from_millis(200)) // after three that are missed, whoever is there goes on
        .queue(0); // an import that waits here could run elsewhere
    worker.run_until(async { is_done.await.unwrap_or_default() }).await?;

    let task = client.get(task.id).await?;
    println!("{} after {} attempt(s)", task.status, task.attempts);
    Ok(())
}
