//! Sessions on SQLite: the threads that own the connections, and every statement the verbs need, each in the file of its
//! kind.
//!
//! The writer takes a job, begins a transaction, and goes on taking jobs into it while some are waiting. Each has a
//! savepoint of its own, so that one that fails, or panics, takes back only what it did itself. Then it commits, and only
//! then is anybody answered. A job that comes alone is committed alone, at once.

use super::{claim, fault, finish, inspect, plain, read, read_clock, rows, start, submit, workers};
use crate::clock::here_us;
use crate::faults::{self, Point};
use crate::options::Clock;
use crate::plain::{Kind, Plain, PlainRow};
use crate::rows::{Change, Record};
use crate::search::Statement;
use crate::session::{
    Attempted, Done, Ended, Fault, Insert, Pick, Picked, Repeat, Session, Start, Starter, Succeed, Work,
};
use crate::task::{Task, TaskDetail};
use crate::verbs::{Count, Inspection, Outlived, Upcoming};
use crate::worker::Worker;
use crate::{Result, StoreError, threads};
use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use taskwheel_model::{ExecId, Outcome, Status, TaskId, Time};
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for a thread; further ones wait to be let in.
const JOBS_MAX: usize = 1_000;
/// Most jobs in one transaction, and how long one goes on taking more.
const GROUP_JOBS_MAX: usize = 500;
const GROUP_TIME_MAX: Duration = Duration::from_millis(50);

/// Threads that own connections.
pub(super) type Threads = threads::Threads<Box<dyn Job>>;

/// Work for a thread that owns a connection.
pub(super) trait Job: Send {
    /// Does the work in the open transaction, and keeps its answer.
    fn run(&mut self, session: &mut SqliteSession) -> Attempted<()>;
    /// Tells the caller, where there still is one.
    fn answer(self: Box<Self>, end: End);
}

/// How a transaction ended for one job.
pub(super) enum End {
    Committed,
    RolledBack(Fault),
    /// The disk failed in the middle of the commit.
    Unknown(String),
}

/// A job and its caller.
pub(super) struct Request<T, F> {
    work: Arc<F>,
    repeat: Repeat,
    answer: Option<T>,
    caller: oneshot::Sender<Attempted<T>>,
}

impl<T, F> Request<T, F> {
    pub(super) fn new(work: Arc<F>, repeat: Repeat) -> (Request<T, F>, oneshot::Receiver<Attempted<T>>) {
        let (caller, answer) = oneshot::channel();
        (Request { work, repeat, answer: None, caller }, answer)
    }
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, T> + Send + Sync,
{
    fn run(&mut self, session: &mut SqliteSession) -> Attempted<()> {
        let mut work = (self.work)(session);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => {
                self.answer = Some(answer?);
                Ok(())
            }
            Poll::Pending => panic!("a statement on SQLite never waits, so a verb must have waited for something else"),
        }
    }

    fn answer(self: Box<Self>, end: End) {
        let answer = match (end, self.answer) {
            (End::Committed, Some(answer)) => Ok(answer),
            (End::Committed, None) => Err(StoreError::Database("work on the database gave no answer".into()).into()),
            (End::RolledBack(fault), _) => Err(fault),
            (End::Unknown(reason), _) => Err(match self.repeat {
                Repeat::Harmless => Fault::Again(reason),
                Repeat::Harmful => Fault::Final(StoreError::OutcomeUnknown(reason)),
            }),
        };
        // A caller that has gone away is not told.
        let _ = self.caller.send(answer);
    }
}

/// Starts the thread that writes.
pub(super) fn start_writer(connection: Connection, clock: &Clock) -> Result<Threads> {
    let (jobs, mut waiting) = mpsc::channel::<Box<dyn Job>>(JOBS_MAX);
    let mut session = SqliteSession { connection, clock: clock.clone(), now: Time(0) };
    let writer = move || {
        let mut commit_took = Duration::ZERO;
        while let Some(first) = waiting.blocking_recv() {
            commit_took = session.write(first, |worked| {
                if takes_more(worked, commit_took, waiting.len()) { waiting.try_recv().ok() } else { None }
            });
        }
    };
    Threads::start("taskwheel-writer", jobs, [writer])
}

/// Whether a transaction that has worked for so long takes another job of those that wait. One that waits alone gets a transaction of its
/// own, where a commit costs less than the work so far: whoever is answered now brings more while it is at work.
fn takes_more(worked: Duration, commit_took: Duration, waiting: usize) -> bool {
    (worked < commit_took || waiting > 1) && worked < GROUP_TIME_MAX
}

/// Starts the threads that read, one for each connection.
pub(super) fn start_readers(connections: Vec<Connection>, clock: &Clock) -> Result<Threads> {
    let (jobs, waiting) = mpsc::channel::<Box<dyn Job>>(JOBS_MAX);
    let waiting = Arc::new(Mutex::new(waiting));
    let readers = connections.into_iter().map(|connection| {
        let mut session = SqliteSession { connection, clock: clock.clone(), now: Time(0) };
        let waiting = waiting.clone();
        let next = move || waiting.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        move || {
            while let Some(job) = next() {
                session.read(job);
            }
        }
    });
    Threads::start("taskwheel-reader", jobs, readers)
}

/// A connection, and the time at which the work on it began.
pub(super) struct SqliteSession {
    pub(super) connection: Connection,
    clock: Clock,
    now: Time,
}

impl SqliteSession {
    /// Runs a job and those that come in the meantime in one transaction, and answers them after its commit.
    /// `next` is told how long the transaction has worked; a wait for the file's lock is no work. Answers how long the commit took.
    fn write(&mut self, first: Box<dyn Job>, mut next: impl FnMut(Duration) -> Option<Box<dyn Job>>) -> Duration {
        faults::limit_pages(&self.connection);
        if let Err(fault) = self.execute("BEGIN IMMEDIATE") {
            first.answer(End::RolledBack(fault));
            return Duration::ZERO;
        }
        let begun = Instant::now();
        let (mut done, mut taken) = (Vec::new(), Some(first));
        while let Some(mut job) = taken {
            let outcome = self.run_in_savepoint(job.as_mut());
            done.push((job, outcome));
            taken = if done.len() >= GROUP_JOBS_MAX || self.connection.is_autocommit() {
                None
            } else {
                next(begun.elapsed())
            };
        }
        let worked = Instant::now();
        let commit = self.commit();
        let commit_took = worked.elapsed();
        for (job, outcome) in done {
            job.answer(match (outcome, &commit) {
                (Err(fault), _) => End::RolledBack(fault),
                (Ok(()), Ok(())) => End::Committed,
                (Ok(()), Err(None)) => End::RolledBack(Fault::Again("another job ended the transaction".into())),
                (Ok(()), Err(Some(error))) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                    End::Unknown(error.to_string())
                }
                (Ok(()), Err(Some(error))) => End::RolledBack(fault(error)),
            });
        }
        commit_took
    }

    /// Commits, or says why not: SQLite has rolled everything back by itself after some errors (`None`).
    fn commit(&mut self) -> Result<(), Option<rusqlite::Error>> {
        if self.connection.is_autocommit() {
            return Err(None);
        }
        faults::at(Point::BeforeCommit);
        let end = if faults::forgets() { "ROLLBACK" } else { "COMMIT" };
        let committed = self.connection.prepare_cached(end).and_then(|mut commit| commit.execute([]));
        faults::at(Point::AfterCommit);
        self.leave();
        committed.map(drop).map_err(Some)
    }

    fn run_in_savepoint(&mut self, job: &mut dyn Job) -> Attempted<()> {
        self.execute("SAVEPOINT job")?;
        let outcome = self.run(job);
        let kept = match &outcome {
            Ok(()) => self.execute("RELEASE job"),
            Err(_) if self.connection.is_autocommit() => Ok(()),
            Err(_) => self.execute("ROLLBACK TO job").and_then(|()| self.execute("RELEASE job")),
        };
        // What cannot be taken back alone is taken back with all the others.
        kept.inspect_err(|_| self.leave())?;
        outcome
    }

    /// Runs a job that reads, on one snapshot.
    fn read(&mut self, mut job: Box<dyn Job>) {
        let outcome = self.execute("BEGIN").and_then(|()| self.run(job.as_mut()));
        self.leave();
        job.answer(outcome.map_or_else(End::RolledBack, |()| End::Committed));
    }

    fn run(&mut self, job: &mut dyn Job) -> Attempted<()> {
        self.now = self.clock.fixed().map_or_else(|| read_clock(&self.connection), |now| Ok(Time(now)))?;
        catch_unwind(AssertUnwindSafe(|| job.run(self))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("without a message");
            Err(StoreError::Database(format!("work on the database panicked: {text}")).into())
        })
    }

    /// Leaves the transaction, where one is still open.
    fn leave(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(fault) = self.execute("ROLLBACK")
        {
            tracing::error!(?fault, "a transaction could not be rolled back");
        }
    }

    fn execute(&mut self, sql: &str) -> Attempted<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

#[async_trait]
impl Session for SqliteSession {
    fn now(&self) -> Time {
        self.now
    }

    /// SQLite has the machine's own clock, and tells only its milliseconds.
    async fn clock_us(&mut self) -> Attempted<i64> {
        Ok(here_us())
    }

    async fn insert(&mut self, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
        submit::insert_whole(&self.connection, tasks)
    }

    async fn live_unique(&mut self, keys: &[(&str, &str, &str)]) -> Attempted<Vec<Option<TaskId>>> {
        submit::live_unique(&self.connection, keys)
    }

    async fn execute(&mut self, statement: &Plain) -> Attempted<u64> {
        plain::execute(&self.connection, statement)
    }

    async fn rows(&mut self, statement: &Plain, kinds: &[Kind]) -> Attempted<Vec<PlainRow>> {
        plain::rows(&self.connection, statement, kinds)
    }

    async fn pick(&mut self, pick: &Pick) -> Attempted<Vec<Picked>> {
        claim::pick(&self.connection, pick, self.now)
    }

    async fn start(&mut self, starter: &Starter, starts: &[Start]) -> Attempted<()> {
        start::start(&self.connection, starter, starts, self.now)
    }

    async fn succeed(&mut self, done: &[Done], how: Succeed) -> Attempted<Vec<Ended>> {
        finish::succeed(&self.connection, done, how.keep, self.now)
    }

    async fn load(&mut self, ids: &[TaskId]) -> Attempted<Vec<Record>> {
        rows::load(&self.connection, ids)
    }

    async fn write(&mut self, changes: &[Change]) -> Attempted<()> {
        rows::write(&self.connection, changes)
    }

    async fn logged(&mut self, executions: &[(TaskId, ExecId)]) -> Attempted<Vec<(TaskId, ExecId, Outcome)>> {
        rows::logged(&self.connection, executions)
    }

    async fn clocks_run_out(&mut self, max: usize) -> Attempted<Vec<TaskId>> {
        workers::clocks_run_out(&self.connection, self.now, max)
    }

    async fn silent_workers(&mut self) -> Attempted<Vec<String>> {
        workers::silent(&self.connection, self.now)
    }

    async fn executions_of(&mut self, worker_ids: &[String], max: usize) -> Attempted<Vec<TaskId>> {
        workers::executions_of(&self.connection, worker_ids, max)
    }

    async fn forget_workers(&mut self, worker_ids: &[String]) -> Attempted<()> {
        workers::forget(&self.connection, worker_ids)
    }

    async fn register(&mut self, worker: &Worker) -> Attempted<()> {
        workers::register(&self.connection, worker)
    }

    async fn seen(&mut self, worker_ids: &[String]) -> Attempted<usize> {
        workers::seen(&self.connection, worker_ids, self.now)
    }

    async fn watched_at(&mut self) -> Attempted<Time> {
        workers::watched_at(&self.connection)
    }

    async fn note_watch(&mut self) -> Attempted<()> {
        workers::note_watch(&self.connection, self.now)
    }

    async fn welcome_workers(&mut self, away_ms: i64) -> Attempted<()> {
        workers::welcome(&self.connection, away_ms, self.now)
    }

    async fn workers(&mut self) -> Attempted<Vec<Worker>> {
        workers::all(&self.connection)
    }

    async fn upcoming(&mut self, types: &[String], until: Time, max: usize) -> Attempted<Vec<Upcoming>> {
        read::upcoming(&self.connection, types, self.now, until, max)
    }

    async fn show(&mut self, id: TaskId) -> Attempted<Option<TaskDetail>> {
        read::show(&self.connection, id)
    }

    async fn select_tasks(&mut self, statement: &Statement) -> Attempted<Vec<Task>> {
        read::select_tasks(&self.connection, statement)
    }

    async fn select_keys(&mut self, statement: &Statement) -> Attempted<Vec<(TaskId, Time)>> {
        read::select_keys(&self.connection, statement)
    }

    async fn counts(&mut self, tenant: Option<&str>) -> Attempted<Vec<Count>> {
        read::counts(&self.connection, tenant)
    }

    async fn highest_id(&mut self) -> Attempted<TaskId> {
        read::highest_id(&self.connection)
    }

    async fn outlived(&mut self, status: Status, before: Time, max: usize) -> Attempted<Vec<Outlived>> {
        read::outlived(&self.connection, status, before, max)
    }

    async fn inspect(&mut self) -> Attempted<Inspection> {
        inspect::inspect(&self.connection, self.now)
    }

    async fn contradictions(&mut self) -> Attempted<u64> {
        inspect::contradictions(&self.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::plain;
    use crate::sqlite::connect_all;
    use taskwheel_model::DatabaseNumber;

    fn session() -> (SqliteSession, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let (connection, _) = connect_all(&directory.path().join("tasks.db"), DatabaseNumber::default(), true).unwrap();
        (SqliteSession { connection, clock: Clock::manual(Time(1_000)), now: Time(0) }, directory)
    }

    fn job<F>(work: F) -> (Box<dyn Job>, oneshot::Receiver<Attempted<()>>)
    where
        F: for<'s> Fn(&'s mut dyn Session) -> Work<'s, ()> + Send + Sync + 'static,
    {
        let (request, answer) = Request::new(Arc::new(work), Repeat::Harmful);
        (Box::new(request), answer)
    }

    /// A job that writes a type of this name, and then ends as told.
    fn writes(
        name: &'static str,
        end: impl Fn() -> Attempted<()> + Copy + Send + Sync + 'static,
    ) -> (Box<dyn Job>, oneshot::Receiver<Attempted<()>>) {
        job(move |session| {
            Box::pin(async move {
                let add = plain("INSERT INTO task_type (type, updated_at) VALUES (?, 0)").bind(name);
                session.execute(&add).await?;
                end()
            })
        })
    }

    fn written(session: &SqliteSession) -> Vec<String> {
        assert!(session.connection.is_autocommit(), "the transaction is over");
        let mut statement = session.connection.prepare("SELECT type FROM task_type ORDER BY type").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn final_fault() -> Attempted<()> {
        Err(StoreError::Database("refused".into()).into())
    }

    #[test]
    fn a_failing_job_takes_back_only_its_own() {
        let (mut session, _directory) = session();
        let (first, mut first_answer) = writes("a", || Ok(()));
        let (second, mut second_answer) = writes("b", final_fault);
        let (third, mut third_answer) = writes("c", || Ok(()));
        let mut rest = vec![third, second];
        session.write(first, |_| rest.pop());
        assert_eq!(written(&session), ["a", "c"]);
        assert!(first_answer.try_recv().unwrap().is_ok());
        assert!(matches!(second_answer.try_recv().unwrap(), Err(Fault::Final(_))));
        assert!(third_answer.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_panic_is_its_own_jobs_alone() {
        let (mut session, _directory) = session();
        let (first, mut first_answer) = writes("a", || panic!("on purpose"));
        let (second, mut second_answer) = writes("b", || Ok(()));
        let (third, mut third_answer) = job(|_| Box::pin(std::future::pending()));
        let mut rest = vec![third, second];
        session.write(first, |_| rest.pop());
        assert_eq!(written(&session), ["b"]);
        let Err(Fault::Final(error)) = first_answer.try_recv().unwrap() else { panic!("a panic is no success") };
        assert!(error.to_string().contains("on purpose"), "{error}");
        assert!(second_answer.try_recv().unwrap().is_ok());
        assert!(matches!(third_answer.try_recv().unwrap(), Err(Fault::Final(_))), "work that waits is a fault");
    }

    #[test]
    fn a_transaction_takes_more_where_that_saves_more_than_it_holds_up() {
        let commit = Duration::from_millis(1);
        assert!(takes_more(commit / 2, commit, 1), "a commit costs more than the work so far");
        assert!(!takes_more(commit * 2, commit, 1), "one that waits alone");
        assert!(takes_more(commit * 2, commit, 2));
        assert!(!takes_more(GROUP_TIME_MAX, commit, 100), "those who have waited longest are answered");
    }

    #[test]
    fn nobody_is_answered_before_the_commit() {
        let (mut session, _directory) = session();
        let (first, mut first_answer) = writes("a", || Ok(()));
        let mut second = Some(writes("b", || Ok(())).0);
        session.write(first, |_| {
            assert!(first_answer.try_recv().is_err(), "the transaction is still open");
            second.take()
        });
        assert!(first_answer.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_job_whose_caller_has_gone_runs_to_its_end() {
        let (mut session, _directory) = session();
        let (first, answer) = writes("a", || Ok(()));
        drop(answer);
        session.write(first, |_| None);
        assert_eq!(written(&session), ["a"]);
    }

    /// After some errors SQLite rolls the whole transaction back by itself.
    struct EndsTheTransaction;

    impl Job for EndsTheTransaction {
        fn run(&mut self, session: &mut SqliteSession) -> Attempted<()> {
            session.execute("ROLLBACK")?;
            final_fault()
        }

        fn answer(self: Box<Self>, end: End) {
            assert!(matches!(end, End::RolledBack(Fault::Final(_))));
        }
    }

    #[test]
    fn jobs_of_a_lost_transaction_are_told_to_try_again() {
        let (mut session, _directory) = session();
        let (first, mut first_answer) = writes("a", || Ok(()));
        let mut second: Option<Box<dyn Job>> = Some(Box::new(EndsTheTransaction));
        session.write(first, |_| second.take());
        assert_eq!(written(&session), [""; 0]);
        assert!(matches!(first_answer.try_recv().unwrap(), Err(Fault::Again(_))));
    }
}
