//! Transactions on a server, over a few connections: the same for PostgreSQL and MySQL.
//!
//! Every transaction runs in a task of its own, so that a caller that goes away cannot leave it half done. A connection is
//! kept only after its transaction has ended; any other is closed, and the server rolls back what it held. What means "try
//! again" is tried again here, with one exception: when a change may have been committed but was not answered, work that
//! would do harm if it were done twice is reported as unknown.
//!
//! Work that makes its change by one statement needs no transaction around it: the statement is one. That saves the round
//! trips of BEGIN and COMMIT, where the connection was found alive a moment ago and the time can be counted on from then.

use crate::connections::{Connections, Lent};
use crate::faults::{self, Point};
use crate::options::Clock;
use crate::session::{Attempted, Database, Fault, Inserted, News, Now, Repeat, Session, Work};
use crate::{Result, StoreError};
use async_trait::async_trait;
use sqlx::Executor;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::Time;

/// How often work is tried that met a deadlock or a lost connection.
const TRIES_MAX: u32 = 5;

/// What differs between the servers.
#[async_trait]
pub(crate) trait Server: Send + Sync + 'static {
    type Database: sqlx::Database;
    /// What is read with the clock when a transaction begins.
    type Beginning: Send;
    /// How nodes hear of each other.
    type News: News;

    /// Statements are planned again after so long, by a statement that lets the server forget its plans. `None` where plans do not
    /// depend on how much there is.
    const FORGET_PLANS: Option<(Duration, &'static str)> = None;
    const ROLLBACK: &'static str = "ROLLBACK";
    /// Whether one statement ends successful tasks.
    const SUCCEEDS_AT_ONCE: bool = false;
    /// Whether one statement inserts a task and starts it.
    const BEGINS_AT_ONCE: bool = false;

    /// Begins a transaction and reads the clock.
    async fn begin(connection: &mut ConnectionOf<Self>) -> Attempted<(Time, Self::Beginning)>;

    /// The statements of the transaction that began so, or of none: then each is committed by itself.
    fn session(
        connection: &mut ConnectionOf<Self>,
        now: Now,
        transaction: Option<Self::Beginning>,
    ) -> Box<dyn Session + '_>;

    /// What one statement may insert with all that belongs to it, on a connection whose last transaction began so.
    fn inserted_at_once_max(beginning: &Self::Beginning) -> Inserted;

    /// What an error of the driver means for the work.
    fn fault(error: sqlx::Error) -> Fault;
}

/// What the statements of some work are part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// One transaction.
    Transaction,
    /// One that only inserts tasks, or ends them: where a single statement can do that, it is the transaction.
    Inserts(Inserted),
}

pub(crate) type ConnectionOf<S> = <<S as Server>::Database as sqlx::Database>::Connection;

/// A database behind a few connections.
pub(crate) struct Pooled<S: Server> {
    /// For work on tasks.
    pub(crate) work: Arc<Connections<ConnectionOf<S>>>,
    /// For lists and counts, apart from the work on tasks so that they cannot hold it up.
    pub(crate) read: Arc<Connections<ConnectionOf<S>>>,
    pub(crate) clock: Clock,
    pub(crate) news: S::News,
}

#[async_trait]
impl<S: Server> Database for Pooled<S>
where
    for<'c> &'c mut ConnectionOf<S>: Executor<'c, Database = S::Database>,
{
    type News = S::News;

    const SUCCEEDS_AT_ONCE: bool = S::SUCCEEDS_AT_ONCE;
    const BEGINS_AT_ONCE: bool = S::BEGINS_AT_ONCE;

    fn news(&self) -> &S::News {
        &self.news
    }

    fn connections(&self) -> (usize, usize) {
        (self.work.in_use(), self.work.most)
    }

    async fn transact<T, F>(&self, repeat: Repeat, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end::<S, T, F>(self.work.clone(), self.clock.clone(), (repeat, Extent::Transaction), work).await
    }

    async fn insert<T, F>(&self, repeat: Repeat, size: Inserted, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end::<S, T, F>(self.work.clone(), self.clock.clone(), (repeat, Extent::Inserts(size)), work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        let how = (Repeat::Harmless, Extent::Transaction);
        run_to_end::<S, T, F>(self.read.clone(), self.clock.clone(), how, work).await
    }
}

async fn run_to_end<S, T, F>(
    connections: Arc<Connections<ConnectionOf<S>>>,
    clock: Clock,
    (repeat, extent): (Repeat, Extent),
    work: F,
) -> Result<T>
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
            match attempt::<S, T, F>(&connections, &clock, repeat, extent, &work).await {
                Err(Fault::Again(reason) | Fault::Lost(reason)) if tries < TRIES_MAX => {
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

async fn attempt<S, T, F>(
    connections: &Connections<ConnectionOf<S>>,
    clock: &Clock,
    repeat: Repeat,
    extent: Extent,
    work: &F,
) -> Attempted<T>
where
    S: Server,
    for<'c> &'c mut ConnectionOf<S>: Executor<'c, Database = S::Database>,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync,
{
    let told = clock.fixed().map(Time);
    let mut lent = connections.lend().await.map_err(S::fault)?;
    // One that cannot even do that is dead, which BEGIN shows without harm.
    let is_alive = match S::FORGET_PLANS {
        Some((age_max, forget)) if lent.outlived_plans(age_max) => {
            sqlx::raw_sql(forget).execute(lent.connection()).await.is_ok()
        }
        _ => true,
    };
    if let Extent::Inserts(size) = extent
        && is_alive
        && faults::may_be_alone()
        && let Some((now, at_once_max)) = lent.reading()
        && size.fits(at_once_max)
    {
        let now = Now { time: told.unwrap_or(now), lags: told.is_none() };
        return alone::<S, T, F>(lent, now, repeat, work).await;
    }
    let (mut lent, now, beginning) = begin::<S>(connections, lent).await?;
    // On MySQL a deadlock has rolled back all of the transaction, a lock time-out only its last statement: the ROLLBACK makes
    // them alike.
    let now = Now { time: told.unwrap_or(now), lags: false };
    let answer = work(&mut *S::session(lent.connection(), now, Some(beginning))).await;
    let end = if answer.is_ok() && !faults::forgets() { "COMMIT" } else { S::ROLLBACK };
    faults::at(Point::BeforeCommit);
    let ended = sqlx::raw_sql(end).execute(lent.connection()).await;
    // One that leads to a server which takes no changes any more is lost too, and not used again.
    if ended.is_ok() && !matches!(answer, Err(Fault::Lost(_))) {
        lent.give_back();
    }
    match (answer, ended) {
        (Ok(answer), Ok(_)) => {
            faults::at(Point::AfterCommit);
            Ok(answer)
        }
        (Ok(_), Err(error)) => Err(unknown(S::fault(error), repeat)),
        (Err(fault), _) => Err(fault),
    }
}

/// Runs work without a transaction. A connection on which something failed is not used again.
async fn alone<S, T, F>(mut lent: Lent<ConnectionOf<S>>, now: Now, repeat: Repeat, work: &F) -> Attempted<T>
where
    S: Server,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync,
{
    faults::at(Point::BeforeCommit);
    let answer = work(&mut *S::session(lent.connection(), now, None)).await;
    match answer {
        Ok(answer) => {
            faults::at(Point::AfterCommit);
            lent.give_back();
            Ok(answer)
        }
        Err(fault) => Err(unknown(fault, repeat)),
    }
}

/// What it means that a change was not answered: it may have been made.
fn unknown(fault: Fault, repeat: Repeat) -> Fault {
    match (fault, repeat) {
        (Fault::Lost(reason), Repeat::Harmful) => Fault::Final(StoreError::OutcomeUnknown(reason)),
        (fault, _) => fault,
    }
}

/// Begins a transaction on a connection that lives. After a restart of the server all idle ones are dead: each is tried
/// and thrown away, until there is a new one or a reason why there is none.
async fn begin<S: Server>(
    connections: &Connections<ConnectionOf<S>>,
    mut lent: Lent<ConnectionOf<S>>,
) -> Attempted<(Lent<ConnectionOf<S>>, Time, S::Beginning)> {
    let mut dead = 0;
    loop {
        let asked_at = Instant::now();
        match S::begin(lent.connection()).await {
            Err(Fault::Again(_) | Fault::Lost(_)) if dead < connections.most => dead += 1,
            began => {
                let (now, beginning) = began?;
                lent.note_reading(asked_at, now, S::inserted_at_once_max(&beginning));
                return Ok((lent, now, beginning));
            }
        }
        drop(lent);
        lent = connections.lend().await.map_err(S::fault)?;
    }
}
