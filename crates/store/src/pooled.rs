//! Transactions on a server, over pools of connections: the same for PostgreSQL and MySQL.
//!
//! Every transaction runs in a task of its own, so that a caller that goes away cannot leave it half done. A connection goes
//! back to its pool only after its transaction has ended; any other is closed, and the server rolls back what it held. What
//! means "try again" is tried again here, with one exception: when a COMMIT is not answered, work that would do harm if it
//! were done twice is reported as unknown.

use crate::options::Clock;
use crate::session::{Attempted, Database, Fault, Repeat, Session, Work};
use crate::{Result, StoreError};
use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::{Executor, Pool};
use std::time::Duration;
use taskwheel_model::Time;

/// How often work is tried that met a deadlock or a lost connection.
const TRIES_MAX: u32 = 5;

/// What differs between the servers.
#[async_trait]
pub(crate) trait Server: Send + Sync + 'static {
    type Database: sqlx::Database;
    /// What is read when a transaction begins.
    type Beginning: Send;

    /// Begins a transaction.
    async fn begin(connection: &mut ConnectionOf<Self>) -> Attempted<Self::Beginning>;

    /// The open transaction. Tests may tell the time.
    fn session(
        connection: &mut ConnectionOf<Self>,
        beginning: Self::Beginning,
        told: Option<Time>,
    ) -> Box<dyn Session + '_>;

    /// What an error of the driver means for the work.
    fn fault(error: sqlx::Error) -> Fault;
}

pub(crate) type ConnectionOf<S> = <<S as Server>::Database as sqlx::Database>::Connection;

/// A database behind pools of connections.
pub(crate) struct Pooled<S: Server> {
    /// For work on tasks.
    pub(crate) work: Pool<S::Database>,
    /// For lists and counts, apart from the work on tasks so that they cannot hold it up.
    pub(crate) read: Pool<S::Database>,
    pub(crate) clock: Clock,
}

#[async_trait]
impl<S: Server> Database for Pooled<S>
where
    for<'c> &'c mut ConnectionOf<S>: Executor<'c, Database = S::Database>,
{
    async fn transact<T, F>(&self, repeat: Repeat, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end::<S, T, F>(self.work.clone(), self.clock.clone(), repeat, work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end::<S, T, F>(self.read.clone(), self.clock.clone(), Repeat::Harmless, work).await
    }
}

async fn run_to_end<S, T, F>(pool: Pool<S::Database>, clock: Clock, repeat: Repeat, work: F) -> Result<T>
where
    S: Server,
    for<'c> &'c mut ConnectionOf<S>: Executor<'c, Database = S::Database>,
    T: Send + 'static,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
{
    let running = tokio::spawn(async move {
        let mut tries = 0;
        loop {
            tries += 1;
            match attempt::<S, T, F>(&pool, &clock, repeat, &work).await {
                Err(Fault::Again(reason)) if tries < TRIES_MAX => {
                    tracing::debug!(reason, tries, "a transaction is tried again");
                    tokio::time::sleep(Duration::from_millis(u64::from(5 * tries * tries))).await;
                }
                // Another task took the key between our look and our insert: the next look finds it.
                Err(Fault::UniqueKey) if tries < TRIES_MAX => {}
                other => return other.map_err(Fault::into_error),
            }
        }
    });
    running.await.map_err(|error| StoreError::Database(format!("work on the database ended early: {error}")))?
}

/// One try. On MySQL a deadlock has rolled back all of the transaction, a lock time-out only its last statement: the
/// ROLLBACK makes them alike.
async fn attempt<S, T, F>(pool: &Pool<S::Database>, clock: &Clock, repeat: Repeat, work: &F) -> Attempted<T>
where
    S: Server,
    for<'c> &'c mut ConnectionOf<S>: Executor<'c, Database = S::Database>,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync,
{
    let (mut lease, beginning) = begin::<S>(pool).await?;
    let answer = {
        let mut session = S::session(&mut lease.connection, beginning, clock.fixed().map(Time));
        work(&mut *session).await
    };
    let end = if answer.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = (&mut *lease.connection).execute(end).await;
    lease.clean = ended.is_ok();
    match (answer, ended) {
        (Ok(answer), Ok(_)) => Ok(answer),
        (Ok(_), Err(error)) => Err(match (S::fault(error), repeat) {
            (Fault::Again(reason), Repeat::Harmful) => Fault::Final(StoreError::OutcomeUnknown(reason)),
            (fault, _) => fault,
        }),
        (Err(fault), _) => Err(fault),
    }
}

/// Begins a transaction on a connection that lives. After a restart of the server all idle ones are dead: each is tried
/// and thrown away, until the pool makes a new one or says why it cannot.
async fn begin<S: Server>(pool: &Pool<S::Database>) -> Attempted<(Lease<S::Database>, S::Beginning)> {
    let mut dead = 0;
    loop {
        let mut lease = Lease { connection: pool.acquire().await.map_err(S::fault)?, clean: false };
        match S::begin(&mut lease.connection).await {
            Err(Fault::Again(_)) if dead < pool.options().get_max_connections() => dead += 1,
            beginning => return Ok((lease, beginning?)),
        }
    }
}

/// A connection that goes back to the pool only when its transaction has ended, even if the work panics.
struct Lease<DB: sqlx::Database> {
    connection: PoolConnection<DB>,
    clean: bool,
}

impl<DB: sqlx::Database> Drop for Lease<DB> {
    fn drop(&mut self) {
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}
