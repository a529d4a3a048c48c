//! The store on SQLite.
//!
//! ```text
//!  verbs that write --\                                                     /-- BEGIN IMMEDIATE, job, job, …, COMMIT,
//!                      +--> [ bounded queue ] --> the writer, one thread --+    then each caller is answered
//!  verbs that read -----+-> [ bounded queue ] --> readers, some threads ------- one snapshot for each read
//! ```
//!
//! SQLite lets one connection write at a time. So one thread owns the connection that writes, and whatever waits for it goes into
//! one transaction: the disk is asked once for all of them. Other processes may use the same file; the file's own locks
//! are the authority between them, and a transaction that waited for too long is tried again.

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

use crate::options::{Dialect, Options};
use crate::session::{Attempted, Database, Fault, Inserted, Repeat, Session, Work};
use crate::task::Submitted;
use crate::verb::{Plan, SqlStore, Types, shared, types, undone, unique_keys};
use crate::{Result, Store, StoreError};
use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use session::{Request, Threads};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::{DatabaseNumber, NewTask, Time};

/// The first version without a race between a checkpoint and a write that can corrupt a database in WAL mode.
const VERSION_MIN: i32 = 3_051_003;
/// How often work is tried that could not get the file's lock.
const TRIES_MAX: u32 = 5;
/// How long a transaction waits for the lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long opening waits for others that are opening the same file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Threads for lists and counts, apart from the work on tasks so that they cannot hold it up.
const READERS: usize = 4;
/// Statements that a connection keeps prepared: more than there are.
const STATEMENTS_MAX: usize = 128;

/// `FULL` keeps an acknowledged task through a power cut. The journal is written back when it has 4,000 pages, and cut to
/// 64 MiB when it has grown beyond. An automatic index is never worth its making: every join is by a primary key.
const SETTINGS: &str = "
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;
PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = OFF;
PRAGMA automatic_index = OFF;";
/// Memory for pages, in KiB below zero. More of it makes commits slower, and the operating system keeps the file anyhow.
const WRITER_SETTINGS: &str = "PRAGMA cache_size = -16384;";
const READER_SETTINGS: &str = "PRAGMA cache_size = -8192; PRAGMA query_only = ON;";

/// Opens a store on SQLite. The file is made where there is none.
pub async fn open(options: &Options) -> Result<impl Store> {
    let (path, number, makes_schema) = (path(&options.url)?, options.number, options.makes_schema);
    if !makes_schema && !path.exists() {
        return Err(StoreError::Schema(format!("there is no database {}", path.display())));
    }
    let opening = tokio::task::spawn_blocking(move || connect_all(&path, number, makes_schema));
    let opened = opening.await.map_err(|error| StoreError::Database(format!("opening ended early: {error}")))?;
    let (writer, readers) = opened.map_err(Fault::into_error)?;
    let database = SqliteDatabase {
        writer: session::start_writer(writer, &options.clock)?,
        readers: session::start_readers(readers, &options.clock)?,
    };
    Ok(SqlStore::new(database, Dialect::Sqlite, options))
}

/// Submits tasks on your own open transaction: they exist if and when it commits. Without one, this is a transaction.
///
/// Types that are configured with a priority are looked up in the same transaction. Begin yours with `BEGIN IMMEDIATE`:
/// SQLite refuses to let a transaction write that has read what another one has changed since.
pub fn submit_on(connection: &Connection, tasks: &[NewTask]) -> Result<Vec<Submitted>> {
    for (index, task) in tasks.iter().enumerate() {
        task.validate().map_err(|errors| StoreError::Invalid { index, errors })?;
    }
    let work = || -> Attempted<Vec<Submitted>> {
        connection.execute_batch("SAVEPOINT taskwheel_submit")?;
        let submitted = submit_inside(connection, tasks);
        if submitted.is_err() && !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK TO taskwheel_submit")?;
        }
        if !connection.is_autocommit() {
            connection.execute_batch("RELEASE taskwheel_submit")?;
        }
        submitted
    };
    work().map_err(undone)
}

/// The verb again, without its session: a borrowed connection cannot be sent to another thread, as a session must.
fn submit_inside(connection: &Connection, tasks: &[NewTask]) -> Attempted<Vec<Submitted>> {
    let now = read_clock(connection)?;
    let (query, kinds) = types::query();
    let types = plain::rows(connection, &query, &kinds)?.into_iter().map(types::read).collect::<Attempted<_>>()?;
    let types = Types::new(types);
    let tasks = shared(tasks);
    let keys = unique_keys(&tasks);
    let live = submit::live_unique(connection, &keys)?;
    let plan = Plan::of(&tasks, &keys, live, &types, now);
    let ids = submit::insert(connection, &plan.inserts)?;
    Ok(plan.answers(&ids))
}

/// The file that a URL names.
fn path(url: &str) -> Result<PathBuf> {
    let refuse = |reason: String| Err(StoreError::Configuration(reason));
    let name = url.split_once("://").map_or("", |(_, name)| name);
    if name.is_empty() || name.starts_with(":memory:") || name.starts_with("file:") {
        return refuse(format!(
            "{url}: give SQLite a file, as in sqlite://tasks.db or sqlite:///var/lib/tasks.db; tasks in memory would be lost"
        ));
    }
    let path = PathBuf::from(name);
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    match directory {
        Some(directory) if !directory.is_dir() => {
            refuse(format!("{url}: the directory {} does not exist", directory.display()))
        }
        _ if path.is_dir() => refuse(format!("{url}: that is a directory, and should be a file")),
        _ => Ok(path),
    }
}

/// The connection that writes, its schema up to date, and those that read.
fn connect_all(path: &Path, number: DatabaseNumber, makes_schema: bool) -> Attempted<(Connection, Vec<Connection>)> {
    if rusqlite::version_number() < VERSION_MIN {
        let reason = format!("SQLite {} may corrupt a database: 3.51.3 or later is needed", rusqlite::version());
        return Err(StoreError::Configuration(reason).into());
    }
    let writer = connect(path, WRITER_SETTINGS)?;
    patiently(|| migrate::migrate(&writer, number, makes_schema))?;
    // It writes by itself what the triggers write for others.
    writer.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    let readers = (0..READERS).map(|_| connect(path, READER_SETTINGS)).collect::<Attempted<_>>()?;
    Ok((writer, readers))
}

fn connect(path: &Path, settings: &str) -> Attempted<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    only_ours(path);
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    patiently(|| Ok(connection.execute_batch(SETTINGS)?))?;
    connection.execute_batch(settings)?;
    Ok(connection)
}

/// Makes a new file readable for its owner alone: payloads are nobody else's business. SQLite gives its other files the same mode.
/// Where that fails, opening says why.
fn only_ours(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.open(path);
}

/// Tries again while others are in the way: SQLite does not wait for them where it changes the mode of a file.
fn patiently<T>(work: impl Fn() -> Attempted<T>) -> Attempted<T> {
    let began = Instant::now();
    loop {
        match work() {
            Err(Fault::Again(_)) if began.elapsed() < OPEN_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
}

/// What reads is dropped first, so that the writer is the last to close the file.
struct SqliteDatabase {
    readers: Threads,
    writer: Threads,
}

#[async_trait]
impl Database for SqliteDatabase {
    type News = news::Silence;

    fn news(&self) -> &news::Silence {
        &news::Silence
    }

    fn connections(&self) -> (usize, usize) {
        self.writer.jobs().map_or((0, 0), |jobs| (jobs.max_capacity() - jobs.capacity(), jobs.max_capacity()))
    }

    async fn transact<T, F>(&self, repeat: Repeat, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end(&self.writer, repeat, work).await
    }

    async fn insert<T, F>(&self, repeat: Repeat, _size: Inserted, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        self.transact(repeat, work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
    {
        run_to_end(&self.readers, Repeat::Harmless, work).await
    }
}

/// Hands work to a thread, and again while that can help. Once it is handed over it runs to its end, whoever goes away.
async fn run_to_end<T, F>(threads: &Threads, repeat: Repeat, work: F) -> Result<T>
where
    T: Send + 'static,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync + 'static,
{
    let work = Arc::new(work);
    let ended = || StoreError::Unavailable("the store's threads have ended".into());
    let jobs = threads.jobs().ok_or_else(ended)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let (request, answer) = Request::new(work.clone(), repeat);
        jobs.send(Box::new(request)).await.map_err(|_| ended())?;
        match answer.await.map_err(|_| ended())? {
            Err(Fault::Again(reason)) if tries < TRIES_MAX => {
                tracing::debug!(reason, tries, "a transaction is tried again");
                tokio::time::sleep(Duration::from_millis(u64::from(5 * tries * tries))).await;
            }
            Err(Fault::UniqueKey) if tries < TRIES_MAX => {}
            other => return other.map_err(Fault::into_error),
        }
    }
}

const CLOCK: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// The database's time.
fn read_clock(connection: &Connection) -> Attempted<Time> {
    Ok(connection.prepare_cached(CLOCK)?.query_row([], |row| row.get(0).map(Time))?)
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        fault(&error)
    }
}

/// What an error of SQLite means for the work.
fn fault(error: &rusqlite::Error) -> Fault {
    let unavailable = |what: &str| Fault::Final(StoreError::Unavailable(format!("{what} ({error})")));
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Again(error.to_string()),
        Some(ErrorCode::ConstraintViolation)
            if ["task_unique.", "task_answer."].iter().any(|table| error.to_string().contains(table)) =>
        {
            Fault::UniqueKey
        }
        Some(ErrorCode::DiskFull) => unavailable("the disk is full"),
        Some(ErrorCode::SystemIoFailure) => unavailable("the disk could not be read or written"),
        Some(ErrorCode::ReadOnly) => unavailable("the database file, or its directory, cannot be written"),
        Some(ErrorCode::CannotOpen) => unavailable("the database file cannot be opened"),
        Some(ErrorCode::NotADatabase) => {
            Fault::Final(StoreError::Configuration(format!("the file is not a SQLite database ({error})")))
        }
        _ => Fault::Final(StoreError::Database(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rescued;
    use crate::access::Actor;
    use crate::schedule::{NewSchedule, Schedules};
    use crate::worker::ClaimRequest;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use taskwheel_model::submit::RunAt;
    use taskwheel_model::{ScheduleStatus, Timer, TimerSpec, limits};

    /// So many tasks wait, so many run and so many timers are set, and nothing is to be done about any of them for an hour or a
    /// lease.
    const NOT_DUE: usize = 3_000;
    const HOUR_MS: i64 = 3_600_000;

    async fn claim(store: &impl Store, types: &[&str]) -> usize {
        let request = ClaimRequest {
            worker_id: "worker".into(),
            host: "host".into(),
            types: types.iter().map(ToString::to_string).collect(),
            max: limits::CLAIM_BATCH_MAX,
            ..ClaimRequest::default()
        };
        store.claim(vec![request]).await.unwrap()[0].len()
    }

    fn due_in(ms: i64) -> NewTask {
        NewTask { run_at: RunAt::After(ms), ..NewTask::new("mail") }
    }

    async fn fill(store: &impl Store) {
        store.submit(vec![due_in(HOUR_MS); NOT_DUE]).await.unwrap();
        store.submit(vec![NewTask::new("running"); NOT_DUE]).await.unwrap();
        while claim(store, &["running"]).await > 0 {}
        for _ in 0..NOT_DUE / limits::TIMERS_MAX {
            let definition = serde_json::from_value(json!({"name": "nightly", "type": "job"})).unwrap();
            let timer = Timer::new(TimerSpec::FixedRate { period_ms: HOUR_MS, initial_delay_ms: HOUR_MS });
            let (timers, status) = (vec![timer; limits::TIMERS_MAX], ScheduleStatus::Online);
            let new = NewSchedule { tenant: "default".into(), definition, timers, status };
            store.create_schedule(Actor::application(), new).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_look_does_not_read_what_is_not_due() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let options = Options::new(format!("sqlite://{}", path.display()));
        let (writer, readers) = connect_all(&path, options.number, true).unwrap();
        // SQLite calls it where a statement goes on to a next row, among other places.
        let steps = Arc::new(AtomicUsize::new(0));
        for connection in readers.iter().chain([&writer]) {
            let steps = steps.clone();
            let count = move || {
                steps.fetch_add(1, Ordering::Relaxed);
                false
            };
            connection.progress_handler(1, Some(count)).unwrap();
        }
        let database = SqliteDatabase {
            writer: session::start_writer(writer, &options.clock).unwrap(),
            readers: session::start_readers(readers, &options.clock).unwrap(),
        };
        let store = SqlStore::new(database, Dialect::Sqlite, &options);
        fill(&store).await;
        let taken = || steps.swap(0, Ordering::Relaxed);
        assert!(taken() > NOT_DUE, "they are counted");
        let fired = store.fire(100).await.unwrap();
        assert!(fired.runs == 0 && fired.next_due.is_some(), "{fired:?}");
        let mut each = vec![("due timers", taken())];
        // The only task that can be found comes just before, so that the look goes on to where the others are.
        for types in [&["mail"][..], &["mail", "a", "b", "c", "d", "e", "f", "g", "h", "i"]] {
            store.submit(vec![due_in(0)]).await.unwrap();
            assert_eq!(claim(&store, types).await, 1);
            each.push(("tasks to claim", taken()));
        }
        store.submit(vec![due_in(HOUR_MS / 2)]).await.unwrap();
        assert_eq!(store.upcoming(vec!["mail".into()], HOUR_MS * 3 / 4, 100).await.unwrap().dues.len(), 1);
        each.push(("tasks soon due", taken()));
        assert_eq!(store.rescue().await.unwrap(), Rescued::default());
        each.push(("clocks run out", taken()));
        // To read a row takes several.
        assert!(each.iter().all(|(_, steps)| *steps < NOT_DUE), "{each:?}");
    }
}
