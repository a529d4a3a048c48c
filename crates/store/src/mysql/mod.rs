//! The store on MySQL 8.0.16 and later and MariaDB 10.6 and later, in the SQL that both know.
//!
//! Batches of rows go in as one JSON parameter, read by `JSON_TABLE` and joined in its order, so that each row is one
//! exact lookup whatever the optimizer believes about a table that fills and empties all day.

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
use session::MySqlSession;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use sqlx::{ConnectOptions, Executor, MySql, Row};
use std::str::FromStr;
use submit::{Ids, Within};
use taskwheel_model::{NewTask, Time};

/// Prepared statements that a connection keeps: all of the store's, and the searches that people make. What it has no place for is
/// closed, which takes time (see `plain`).
const STATEMENTS_MAX: usize = 500;

/// Connections for lists and counts.
const READ_CONNECTIONS_MAX: u32 = 4;

/// Without gap locks, so that claims and submits do not wait for each other.
const WORK_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// All statements of a list see the same rows: what is inserted between two of them would come twice, or never.
const READ_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
const SETTINGS: &str = "SET SESSION autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = 10,
         sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";

/// Every statement of ours has an end, and so has a pause between two in a transaction: a node that is stopped in the middle of
/// one shall not keep its tasks from the others. The first comment is a statement to MariaDB alone, the second to MySQL alone,
/// which can only end what reads.
const TIME_LIMITS: &str = "/*M!100600 SET SESSION max_statement_time = 30, idle_transaction_timeout = 5 */
     /*!80000 SET SESSION max_execution_time = 30000 */";

/// In a cluster whose nodes all write, the distance of ids changes as nodes come and go.
const IS_CLUSTERED: &str =
    "/*M!100600 SET @taskwheel_is_clustered = EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES
         WHERE VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON') */
     /*!80000 SET @taskwheel_is_clustered = EXISTS (SELECT 1 FROM performance_schema.global_variables
         WHERE VARIABLE_NAME = 'wsrep_on' AND VARIABLE_VALUE = 'ON') */";

/// Opens a store on MySQL or MariaDB.
pub async fn open(options: &Options) -> Result<impl Store> {
    let url = options.url.replacen("mariadb://", "mysql://", 1);
    let connect = MySqlConnectOptions::from_str(&url)
        .map_err(|error| StoreError::Configuration(format!("the MySQL URL cannot be read: {error}")))?
        .statement_cache_capacity(STATEMENTS_MAX)
        // Statements have payloads in them, which are nothing for a log.
        .disable_statement_logging();
    migrate::migrate(&connect, options).await?;
    let connections = |most: u32, isolation: &'static str| {
        let connect = connect.clone();
        Connections::new(
            most,
            Box::new(move || {
                let connect = connect.clone();
                Box::pin(async move {
                    let mut connection = connect.connect().await?;
                    connection.execute(isolation).await?;
                    connection.execute(SETTINGS).await?;
                    connection.execute(TIME_LIMITS).await?;
                    connection.execute(IS_CLUSTERED).await?;
                    Ok(connection)
                })
            }),
        )
    };
    let work = connections(options.connections_max, WORK_ISOLATION);
    let read = connections(READ_CONNECTIONS_MAX, READ_ISOLATION);
    let database = Pooled::<MySqlServer> { work, read, clock: options.clock.clone(), news: news::Silence };
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
        let (now, ids) = read_clock(connection, "").await?;
        let mut session = MySqlSession::new(connection, now, ids, Within::Theirs);
        let types = Types::new(types::all(&mut session).await?);
        submit_in(&mut session, &shared(tasks), &types).await
    };
    work.await.map_err(undone)
}

struct MySqlServer;

#[async_trait]
impl Server for MySqlServer {
    type Database = MySql;
    type Beginning = Ids;
    type News = news::Silence;

    const ROLLBACK: &'static str = "ROLLBACK; SET @taskwheel_lets_wait = NULL";

    async fn begin(connection: &mut MySqlConnection) -> Attempted<(Time, Ids)> {
        read_clock(connection, "BEGIN; ").await
    }

    fn inserted_at_once_max(ids: &Ids) -> Inserted {
        ids.at_once_max()
    }

    fn session(connection: &mut MySqlConnection, now: Now, transaction: Option<Ids>) -> Box<dyn Session + '_> {
        let within = if transaction.is_some() { Within::Ours } else { Within::None };
        Box::new(MySqlSession::new(connection, now.time, transaction.unwrap_or(Ids::SURE), within))
    }

    fn fault(error: sqlx::Error) -> Fault {
        fault(error)
    }
}

/// The database's time and what is known of ids, in one round trip with what comes before.
async fn read_clock(connection: &mut MySqlConnection, before: &str) -> Attempted<(Time, Ids)> {
    let (clock_us, ids) = read_clock_us(connection, before).await?;
    Ok((Time(clock_us.div_euclid(1_000)), ids))
}

/// The same, in microseconds since 1970.
async fn read_clock_us(connection: &mut MySqlConnection, before: &str) -> Attempted<(i64, Ids)> {
    let text = format!(
        "{before}SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), \
         CAST(@@auto_increment_increment AS SIGNED), CAST(COALESCE(@taskwheel_is_clustered, 1) AS SIGNED)"
    );
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).fetch_all(connection).await.map_err(fault)?;
    let row = rows.first().ok_or_else(|| StoreError::Database("the clock did not answer".into()))?;
    let may_change = row.try_get::<i64, _>(2).map_err(fault)? != 0;
    Ok((row.try_get(0).map_err(fault)?, Ids { step: row.try_get(1).map_err(fault)?, may_change }))
}

/// What an error of the driver means for the work.
fn fault(error: sqlx::Error) -> Fault {
    match &error {
        sqlx::Error::Database(_) => match number(&error) {
            // Deadlock, lock time-out, too many connections, a server that became a replica, a row that changed under MariaDB's
            // snapshot isolation, a statement that was ended or took too long, a full disk or table, and too little memory.
            1213 | 1205 | 1040 | 1203 | 1290 | 1836 | 1020 | 1317 | 1969 | 3024 | 1021 | 1114 | 1037 | 1041 => {
                Fault::Again(error.to_string())
            }
            // Shutdown, a killed connection, and a server that is not in its cluster.
            1053 | 1927 | 1047 => Fault::Lost(error.to_string()),
            _ => Fault::Final(StoreError::Database(error.to_string())),
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            Fault::Lost(error.to_string())
        }
        // It was waited for long enough.
        sqlx::Error::PoolTimedOut => Fault::Final(StoreError::Unavailable(error.to_string())),
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
