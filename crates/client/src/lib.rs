//! Taskwheel's Rust SDK: submit tasks, run handlers for them, step in.
//!
//! A [`Client`] submits and shows tasks; a [`Worker`] runs handlers for them. Both do so against a server, or, with the feature
//! `embedded`, on a database in your own process; the difference is how the client is made:
//!
//! ```no_run
//! use taskwheel_client::{Client, NewTask, TaskContext, TaskError, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail {
//!     to: String,
//! }
//!
//! async fn send(_: TaskContext, mail: Mail) -> Result<String, TaskError> {
//!     Ok(format!("sent to {}", mail.to))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::connect("http://127.0.0.1:9222")?;
//!     // let client = Client::embedded("sqlite://tasks.db").await?;
//!
//!     client.submit(NewTask::new("mail", &Mail { to: "a@b.c".into() })).await?;
//!     Worker::new(&client).handle("mail", send).run().await?;
//!     Ok(())
//! }
//! ```
//!
//! - [`TaskContext`] is what a handler knows and tells while it runs: ids for idempotency, checkpoints, progress, cancellation.
//! - [`TaskError`] is how a handler ends other than well: again by policy, again after a while, never again, elsewhere.
//! - [`testing`] runs handlers on a task in memory.
//! - `postgres`, `mysql` and `sqlite` submit on your own open transaction, with the feature `embedded`.
//!
//! A task can run more than once: when a worker dies after its work and before its report. Make what a handler does
//! repeatable, by [`TaskContext::task_id`], which is the same each time.

mod backend;
mod client;
mod context;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod execution;
mod handler;
mod new_task;
mod people;
mod remote;
mod search;
mod task;
pub mod testing;
mod worker;

pub use client::{Client, ClientBuilder, Partial};
pub use context::{Parent, Progress, TaskContext};
pub use error::{BadField, Error, Result};
pub use handler::TaskError;
pub use jiff::Timestamp;
pub use new_task::NewTask;
pub use people::{Bulk, BulkAction, BulkDone, Edit, Resolution};
pub use search::{Filter, Listing, Sort};
pub use task::{Attempt, Page, Submitted, Task, TaskType};
pub use taskwheel_model::{ExecId, Outcome, RetryPolicy, Status, TaskId, TypeSettings};
pub use worker::Worker;

#[cfg(feature = "embedded")]
pub use embedded::transactions::{mysql, postgres, sqlite};
#[cfg(feature = "embedded")]
pub use {rusqlite, sqlx, taskwheel_engine as engine, taskwheel_store as store};

/// The page for people, whose code is compiled here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
