//! The store on MySQL 8.0.16 and later and MariaDB 10.6 and later, in the SQL that both know.
//!
//! Batches of rows go in as one JSON parameter, read by `JSON_TABLE` and joined in its order, so that each row is one
//! exact lookup whatever the optimizer believes about a table that fills and empties all day.

mod claim;
mod finish;
mod inspect;
mod migrate;
mod read;
mod rows;
mod session;
mod submit;
mod types;
mod workers;

use crate::options::{Clock, Dialect, Options};
use crate::session::{Attempted, Database, Fault, Repeat, Session, Work};
use crate::task::Submitted;
use crate::verb::{SqlStore, Types, submit_on as submit_in};
use crate::{Result, Store, StoreError};
use async_trait::async_trait;
use session::MySqlSession;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::{Executor, MySql, Row};
use std::str::FromStr;
use std::time::Duration;
use taskwheel_model::{NewTask, Time};

/// How often work is tried that met a deadlock or a lost connection.
const TRIES_MAX: u32 = 5;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections for lists and counts, apart from the work on tasks so that they cannot hold it up.
const READ_CONNECTIONS_MAX: u32 = 4;

/// Without gap locks, so that claims and submits do not wait for each other.
const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
     SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = 10,
         sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";

/// Every statement of ours has an end: the first comment is a statement to MariaDB alone, the second to MySQL alone, which
/// can only end what reads.
const TIME_LIMITS: &str = "/*M!100600 SET SESSION max_statement_time = 30, idle_transaction_timeout = 60 */
     /*!80000 SET SESSION max_execution_time = 30000 */";

/// Opens a store on MySQL or MariaDB.
pub async fn open(options: &Options) -> Result<impl Store> {
    let url = options.url.replacen("mariadb://", "mysql://", 1);
    let connect = MySqlConnectOptions::from_str(&url)
        .map_err(|error| StoreError::Configuration(format!("the MySQL URL cannot be read: {error}")))?;
    migrate::migrate(&connect, options.number).await?;
    let pool = |max: u32| {
        MySqlPoolOptions::new()
            .max_connections(max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(SETTINGS).await?;
                    connection.execute(TIME_LIMITS).await.map(drop)
                })
            })
            .connect_lazy_with(connect.clone())
    };
    let (work, read) = (pool(options.connections_max.max(1)), pool(READ_CONNECTIONS_MAX));
    let database = MySqlDatabase { work, read, clock: options.clock.clone() };
    Ok(SqlStore::new(database, Dialect::Mysql, options))
}

/// Submits tasks on your own open transaction: they exist if and when it commits.
///
/// Types that are configured with a priority are looked up in the same transaction. When a unique key is taken by
/// another transaction at the same moment this fails, and so must yours, as with any unique constraint.
pub async fn submit_on(connection: &mut MySqlConnection, tasks: &[NewTask]) -> Result<Vec<Submitted>> {
    for (index, task) in tasks.iter().enumerate() {
        task.validate().map_err(|errors| StoreError::Invalid { index, errors })?;
    }
    let work = async {
        let start = read_clock(connection, "").await?;
        let mut session = MySqlSession::new(connection, start);
        let types = Types::new(session.types().await?);
        submit_in(&mut session, tasks, &types).await
    };
    work.await.map_err(final_error)
}

struct MySqlDatabase {
    work: MySqlPool,
    read: MySqlPool,
    clock: Clock,
}

#[async_trait]
impl Database for MySqlDatabase {
    async fn transact<T, F>(&self, repeat: Repeat, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end(self.work.clone(), self.clock.clone(), repeat, work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end(self.read.clone(), self.clock.clone(), Repeat::Harmless, work).await
    }
}

/// Runs work in a task of its own: a caller that goes away cannot leave its transaction half done on a pooled connection.
async fn run_to_end<T, F>(pool: MySqlPool, clock: Clock, repeat: Repeat, work: F) -> Result<T>
where
    T: Send + 'static,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
{
    let running = tokio::spawn(async move {
        let mut tries = 0;
        loop {
            tries += 1;
            match attempt(&pool, &clock, repeat, &work).await {
                Err(Fault::Again(reason)) if tries < TRIES_MAX => {
                    tracing::debug!(reason, tries, "a transaction is tried again");
                    tokio::time::sleep(Duration::from_millis(u64::from(5 * tries * tries))).await;
                }
                // Another task took the key between our look and our insert: the next look finds it.
                Err(Fault::UniqueKey) if tries < TRIES_MAX => {}
                other => return other.map_err(final_error),
            }
        }
    });
    running.await.map_err(|error| StoreError::Database(format!("work on the database ended early: {error}")))?
}

/// One try. A deadlock has rolled back all of the transaction, a lock time-out only its last statement: the ROLLBACK makes
/// them alike.
async fn attempt<T, F>(pool: &MySqlPool, clock: &Clock, repeat: Repeat, work: &F) -> Attempted<T>
where
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync,
{
    let mut lease = Lease { connection: pool.acquire().await.map_err(fault)?, clean: false };
    let mut start = read_clock(&mut lease.connection, "BEGIN; ").await?;
    start.now = clock.fixed().map_or(start.now, Time);
    let mut session = MySqlSession::new(&mut lease.connection, start);
    let answer = work(&mut session).await;
    let end = if answer.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = lease.connection.execute(end).await;
    lease.clean = ended.is_ok();
    match (answer, ended) {
        (Ok(answer), Ok(_)) => Ok(answer),
        (Ok(_), Err(error)) => Err(match (fault(error), repeat) {
            (Fault::Again(reason), Repeat::Harmful) => Fault::Final(StoreError::OutcomeUnknown(reason)),
            (fault, _) => fault,
        }),
        (Err(fault), _) => Err(fault),
    }
}

/// A connection that goes back to the pool only when its transaction has ended, even if the work panics.
struct Lease {
    connection: PoolConnection<MySql>,
    clean: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}

/// What is read when a transaction begins.
struct Beginning {
    now: Time,
    /// The distance of ids that one statement hands out: more than 1 in a cluster where every node may insert.
    id_step: i64,
}

/// The database's time, in one round trip with what comes before it.
async fn read_clock(connection: &mut MySqlConnection, before: &str) -> Attempted<Beginning> {
    let text = format!(
        "{before}SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000, \
         CAST(@@auto_increment_increment AS SIGNED)"
    );
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).fetch_all(connection).await.map_err(fault)?;
    let row = rows.first().ok_or_else(|| StoreError::Database("the clock did not answer".into()))?;
    Ok(Beginning { now: Time(row.try_get(0).map_err(fault)?), id_step: row.try_get(1).map_err(fault)? })
}

/// What an error of the driver means for the work.
fn fault(error: sqlx::Error) -> Fault {
    match &error {
        sqlx::Error::Database(_) => match number(&error) {
            // Deadlock, lock time-out, too many connections, shutdown, a server that became a replica or is not yet in
            // its cluster, a killed connection, and a row that changed under MariaDB's snapshot isolation.
            1213 | 1205 | 1040 | 1203 | 1053 | 1290 | 1836 | 1047 | 1927 | 1020 => Fault::Again(error.to_string()),
            _ => Fault::Final(StoreError::Database(error.to_string())),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => Fault::Again(error.to_string()),
        _ => Fault::Final(StoreError::Database(error.to_string())),
    }
}

/// The same for statements that insert into `task_unique`, by themselves or by the trigger. Its key is the only one in their
/// reach that can be there already, and as a primary key it has no name that would tell it from others.
fn unique_fault(error: sqlx::Error) -> Fault {
    match number(&error) {
        1062 => Fault::UniqueKey,
        _ => fault(error),
    }
}

/// The number of a server's error; 0 is none.
fn number(error: &sqlx::Error) -> u16 {
    let database = error.as_database_error();
    database.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>()).map_or(0, MySqlDatabaseError::number)
}

fn final_error(fault: Fault) -> StoreError {
    match fault {
        Fault::Again(reason) => StoreError::Unavailable(reason),
        Fault::UniqueKey => StoreError::Unavailable("a unique key was taken by another transaction just now".into()),
        Fault::Final(error) => error,
    }
}
