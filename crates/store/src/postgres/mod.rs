//! The store on PostgreSQL.

mod claim;
mod finish;
mod inspect;
mod migrate;
mod read;
mod rows;
mod session;
mod statistics;
mod submit;
mod types;
mod workers;

use crate::options::{Dialect, Options};
use crate::pooled::{Pooled, Server};
use crate::session::{Attempted, Fault, Session};
use crate::task::Submitted;
use crate::verb::{SqlStore, Types, submit_on as submit_in};
use crate::{Result, Store, StoreError};
use async_trait::async_trait;
use session::PgSession;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{Executor, Postgres, Row};
use std::str::FromStr;
use std::time::Duration;
use taskwheel_model::{NewTask, Time};

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections for lists and counts.
const READ_CONNECTIONS_MAX: u32 = 4;

/// Every statement of ours has an end. Connections for work on tasks keep to their indexes whatever the statistics of a
/// table that fills and empties all day say, and plan each statement once.
const WORK_SETTINGS: &str = "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed';
     SET statement_timeout = '30s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s';
     SET jit = off; SET plan_cache_mode = force_generic_plan;
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off";
const READ_SETTINGS: &str = "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed';
     SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'; SET jit = off";

/// Opens a store on PostgreSQL.
pub async fn open(options: &Options) -> Result<impl Store> {
    let connect = PgConnectOptions::from_str(&options.url)
        .map_err(|error| StoreError::Configuration(format!("the PostgreSQL URL cannot be read: {error}")))?
        .application_name("taskwheel");
    let pool = |max: u32, settings: &'static str| {
        PgPoolOptions::new()
            .max_connections(max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A connection that died is found when its transaction begins, without a round trip for each that did not.
            .test_before_acquire(false)
            .after_connect(move |connection, _| Box::pin(async move { connection.execute(settings).await.map(drop) }))
            .connect_lazy_with(connect.clone())
    };
    let work = pool(options.connections_max.max(1), WORK_SETTINGS);
    migrate::migrate(&work, options.number).await?;
    let read = pool(READ_CONNECTIONS_MAX, READ_SETTINGS);
    let database = Pooled::<PgServer> { work, read, clock: options.clock.clone() };
    Ok(SqlStore::new(database, Dialect::Postgres, options))
}

/// Submits tasks on your own open transaction: they exist if and when it commits.
///
/// Types that are configured with a priority are looked up in the same transaction. When a unique key is taken by
/// another transaction at the same moment this fails, and so must yours, as with any unique constraint.
pub async fn submit_on(connection: &mut PgConnection, tasks: &[NewTask]) -> Result<Vec<Submitted>> {
    for (index, task) in tasks.iter().enumerate() {
        task.validate().map_err(|errors| StoreError::Invalid { index, errors })?;
    }
    let work = async {
        let now = read_clock(connection, "").await?;
        let mut session = PgSession { connection, now };
        let types = Types::new(session.types().await?);
        submit_in(&mut session, tasks, &types).await
    };
    work.await.map_err(Fault::into_error)
}

struct PgServer;

#[async_trait]
impl Server for PgServer {
    type Database = Postgres;
    type Beginning = Time;

    async fn begin(connection: &mut PgConnection) -> Attempted<Time> {
        read_clock(connection, "BEGIN; ").await
    }

    fn session(connection: &mut PgConnection, now: Time, told: Option<Time>) -> Box<dyn Session + '_> {
        Box::new(PgSession { connection, now: told.unwrap_or(now) })
    }

    fn fault(error: sqlx::Error) -> Fault {
        fault(error)
    }
}

/// The database's time, in one round trip with what comes before it.
async fn read_clock(connection: &mut PgConnection, before: &str) -> Attempted<Time> {
    let text = format!("{before}SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint");
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).fetch_all(connection).await.map_err(fault)?;
    let row = rows.first().ok_or_else(|| StoreError::Database("the clock did not answer".into()))?;
    Ok(Time(row.try_get(0).map_err(fault)?))
}

/// What an error of the driver means for the work.
fn fault(error: sqlx::Error) -> Fault {
    match &error {
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some("23505") if matches!(database.constraint(), Some("task_unique_key" | "task_answer_key")) => {
                Fault::UniqueKey
            }
            // Deadlock, serialization failure, lock time-out, too many connections, and the server going or coming.
            Some("40001" | "40P01" | "55P03" | "53300" | "57P01" | "57P02" | "57P03") => {
                Fault::Again(error.to_string())
            }
            _ => Fault::Final(StoreError::Database(error.to_string())),
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => Fault::Again(error.to_string()),
        // It was waited for long enough.
        sqlx::Error::PoolTimedOut => Fault::Final(StoreError::Unavailable(error.to_string())),
        _ => Fault::Final(StoreError::Database(error.to_string())),
    }
}
