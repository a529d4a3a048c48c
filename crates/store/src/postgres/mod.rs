//! The store on PostgreSQL.

mod claim;
mod finish;
mod inspect;
mod migrate;
mod news;
mod plain;
mod read;
mod rows;
mod session;
mod start;
mod submit;
mod workers;

use crate::connections::Connections;
use crate::options::{Dialect, Options};
use crate::pooled::{Pooled, Server};
use crate::session::{Attempted, Fault, Inserted, Now, Session};
use crate::task::Submitted;
use crate::verb::{SqlStore, Types, shared, submit_on as submit_in, types, undone};
use crate::{Result, Store, StoreError};
use async_trait::async_trait;
use news::Grapevine;
use session::PgSession;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor, Postgres, Row};
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;
use taskwheel_model::{NewTask, Time};

/// Connections for lists and counts.
const READ_CONNECTIONS_MAX: u32 = 4;

/// Every statement of ours has an end, and so has a pause between two in a transaction: a node that is stopped in the middle of
/// one shall not keep its tasks from the others. Connections for work on tasks keep to their indexes, and to the order of those, whatever
/// the statistics of a table that fills and empties all day say: a claim of ten types would read and sort all that is due. They plan
/// each statement once. They pack large payloads by lz4 where the server has it: 10 kB are stored in half the time. What they insert is
/// not told of by the trigger but after its commit, see `news`.
const WORK_SETTINGS: &str = "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed';
     SET statement_timeout = '30s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '5s';
     SET jit = off; SET plan_cache_mode = force_generic_plan; SET taskwheel.notify = 'off';
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off;
     SET enable_bitmapscan = off;
     SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings
     WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)";
/// All statements of a list see the same rows: what is inserted between two of them would come twice, or never. Each is planned for
/// its values: a common type is not found as a rare one is.
const READ_SETTINGS: &str = "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'repeatable read';
     SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'; SET jit = off;
     SET plan_cache_mode = force_custom_plan";

/// Opens a store on PostgreSQL.
pub async fn open(options: &Options) -> Result<impl Store> {
    let connect = PgConnectOptions::from_str(&options.url)
        .map_err(|error| StoreError::Configuration(format!("the PostgreSQL URL cannot be read: {error}")))?
        .application_name("taskwheel");
    let connections = |most: u32, settings: &'static str| {
        let connect = connect.clone();
        Connections::new(
            most,
            Box::new(move || {
                let connect = connect.clone();
                Box::pin(async move {
                    let mut connection = connect.connect().await?;
                    connection.execute(settings).await?;
                    Ok(connection)
                })
            }),
        )
    };
    migrate::migrate(&connect, options).await?;
    let work = connections(options.connections_max, WORK_SETTINGS);
    let database = Pooled::<PgServer> {
        news: Grapevine::new(connect.clone(), work.clone()),
        work,
        read: connections(READ_CONNECTIONS_MAX, READ_SETTINGS),
        clock: options.clock.clone(),
    };
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
        let now = Now { time: read_clock(connection, "").await?, lags: false };
        let mut session = PgSession { connection, now, places: HashMap::new() };
        let types = Types::new(types::all(&mut session).await?);
        submit_in(&mut session, &shared(tasks), &types).await
    };
    work.await.map_err(undone)
}

struct PgServer;

#[async_trait]
impl Server for PgServer {
    type Database = Postgres;
    type Beginning = ();
    type News = Grapevine;

    /// A plan that was made while a table was empty may use any index of it: all look alike. It must not outlive that for long. The
    /// statements stay prepared: to prepare them again would hold up whoever comes next by milliseconds.
    const FORGET_PLANS: Option<(Duration, &'static str)> = Some((Duration::from_secs(10), "DISCARD PLANS"));
    const SUCCEEDS_AT_ONCE: bool = true;
    const BEGINS_AT_ONCE: bool = true;

    async fn begin(connection: &mut PgConnection) -> Attempted<(Time, ())> {
        Ok((read_clock(connection, "BEGIN; ").await?, ()))
    }

    /// The trigger sees all rows of a statement at once.
    fn inserted_at_once_max((): &()) -> Inserted {
        Inserted::ANY
    }

    fn session(connection: &mut PgConnection, now: Now, _transaction: Option<()>) -> Box<dyn Session + '_> {
        Box::new(PgSession { connection, now, places: HashMap::new() })
    }

    fn fault(error: sqlx::Error) -> Fault {
        fault(error)
    }
}

/// The database's time, in one round trip with what comes before it.
async fn read_clock(connection: &mut PgConnection, before: &str) -> Attempted<Time> {
    Ok(Time(read_clock_us(connection, before).await?.div_euclid(1_000)))
}

/// The same, in microseconds since 1970.
async fn read_clock_us(connection: &mut PgConnection, before: &str) -> Attempted<i64> {
    let text = format!("{before}SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint");
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).fetch_all(connection).await.map_err(fault)?;
    let row = rows.first().ok_or_else(|| StoreError::Database("the clock did not answer".into()))?;
    row.try_get(0).map_err(fault)
}

/// What an error of the driver means for the work.
fn fault(error: sqlx::Error) -> Fault {
    match &error {
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some("23505") => Fault::UniqueKey,
            // Deadlock, serialization failure, lock time-out, a cancelled statement, and what the server has too little of:
            // connections, disk, memory.
            Some("40001" | "40P01" | "55P03" | "57014" | "53000" | "53100" | "53200" | "53300" | "53400" | "58030") => {
                Fault::Again(error.to_string())
            }
            // The server is going or coming, ended an idle session, or became a replica: another connection may find the new one.
            // Or a table got a column since this connection prepared the statement, which another one has not; or something is wrong
            // inside, as when a new connection finds the disk full.
            Some("57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25006" | "0A000" | "XX000") => {
                Fault::Lost(error.to_string())
            }
            _ => Fault::Final(StoreError::Database(error.to_string())),
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => Fault::Lost(error.to_string()),
        // It was waited for long enough.
        sqlx::Error::PoolTimedOut => Fault::Final(StoreError::Unavailable(error.to_string())),
        _ => Fault::Final(StoreError::Database(error.to_string())),
    }
}
