//! Taskwheel's task store: one set of verbs on SQLite, PostgreSQL and MySQL/MariaDB.
//!
//! [`Store`] says what can be done; [`open`] gives a store for a database URL. The verbs are written once, in `verb/`, over
//! the statements that each dialect supplies. Decisions are the model's: the store carries them out, each in one
//! transaction, by the database's clock.
//!
//! A task that shall commit together with rows of your own is submitted on your own open transaction, with
//! [`postgres::submit_on`], [`mysql::submit_on`] or [`sqlite::submit_on`], or by a plain `INSERT INTO task`.

pub mod access;
pub mod clock;
mod coalesce;
mod connections;
mod error;
pub mod export;
mod faults;
mod indexes;
pub mod meter;
mod options;
mod parts;
pub mod people;
mod plain;
mod pooled;
mod rows;
pub mod schedule;
pub mod search;
mod session;
pub mod task;
mod threads;
mod verb;
mod verbs;
pub mod worker;

pub mod mysql;
pub mod postgres;
pub mod sqlite;

pub use error::{Result, StoreError};
pub use options::{Clock, Dialect, Options};
pub use verbs::{
    Access, Ahead, Backlog, Count, Inspection, Label, Outlived, RanOut, Rescued, Retention, Statistics,
    StatisticsRange, Store, TaskType, TypeBacklog, Upcoming, WeakSetting,
};

use std::sync::Arc;

/// Opens the store at a URL, brings its schema up to date, and warns loudly where its settings may lose work.
pub async fn open(options: Options) -> Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = match Dialect::of(&options.url)? {
        Dialect::Sqlite => Arc::new(sqlite::open(&options).await?),
        Dialect::Postgres => Arc::new(postgres::open(&options).await?),
        Dialect::Mysql => Arc::new(mysql::open(&options).await?),
    };
    let inspection = store.inspect().await?;
    for weak in &inspection.weak_settings {
        tracing::warn!(
            setting = weak.name,
            value = weak.value,
            wanted = weak.wanted,
            "the database may lose acknowledged tasks when its machine crashes"
        );
    }
    Ok(store)
}
