//! One open transaction on PostgreSQL: every statement the verbs need, each in the file of its kind.

use super::{claim, finish, inspect, plain, read, read_clock_us, rows, start, submit, workers};
use crate::plain::{Kind, Plain, PlainRow};
use crate::rows::{Change, Record};
use crate::search::Statement;
use crate::session::{Attempted, Begun, Done, Ended, Insert, Now, Pick, Picked, Session, Start, Starter, Succeed};
use crate::task::{Task, TaskDetail};
use crate::verbs::{Count, Inspection, Outlived, Upcoming};
use crate::worker::Worker;
use async_trait::async_trait;
use sqlx::postgres::PgConnection;
use std::collections::HashMap;
use taskwheel_model::{ExecId, Outcome, Status, TaskId, Time};

pub(super) struct PgSession<'c> {
    pub(super) connection: &'c mut PgConnection,
    pub(super) now: Now,
    /// Where picked tasks lie, which stays so while they are locked.
    pub(super) places: HashMap<TaskId, String>,
}

#[async_trait]
impl Session for PgSession<'_> {
    fn now(&self) -> Time {
        self.now.time
    }

    async fn clock_us(&mut self) -> Attempted<i64> {
        read_clock_us(self.connection, "").await
    }

    async fn insert(&mut self, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
        submit::insert(self.connection, tasks).await
    }

    async fn insert_begun(
        &mut self,
        task: &Insert,
        starter: &Starter,
        start: &Start,
        pick: &Pick,
    ) -> Attempted<Option<Begun>> {
        submit::insert_begun(self.connection, task, starter, start, pick, self.now).await
    }

    async fn live_unique(&mut self, keys: &[(&str, &str, &str)]) -> Attempted<Vec<Option<TaskId>>> {
        submit::live_unique(self.connection, keys).await
    }

    async fn execute(&mut self, statement: &Plain) -> Attempted<u64> {
        plain::execute(self.connection, statement).await
    }

    async fn execute_all(&mut self, statements: &[Plain]) -> Attempted<()> {
        if statements.is_empty() { Ok(()) } else { plain::execute_all(self.connection, statements).await }
    }

    async fn rows(&mut self, statement: &Plain, kinds: &[Kind]) -> Attempted<Vec<PlainRow>> {
        plain::rows(self.connection, statement, kinds).await
    }

    async fn pick(&mut self, pick: &Pick) -> Attempted<Vec<Picked>> {
        let (picked, places) = claim::pick(self.connection, pick, self.now.time).await?;
        self.places.extend(picked.iter().map(|task| task.id).zip(places));
        Ok(picked)
    }

    async fn start(&mut self, starter: &Starter, starts: &[Start]) -> Attempted<()> {
        start::start(self.connection, starter, starts, &self.places, self.now.time).await
    }

    async fn succeed(&mut self, done: &[Done], how: Succeed) -> Attempted<Vec<Ended>> {
        finish::succeed(self.connection, done, how, self.now.time).await
    }

    async fn load(&mut self, ids: &[TaskId]) -> Attempted<Vec<Record>> {
        rows::load(self.connection, ids).await
    }

    async fn write(&mut self, changes: &[Change]) -> Attempted<()> {
        rows::write(self.connection, changes).await
    }

    async fn logged(&mut self, executions: &[(TaskId, ExecId)]) -> Attempted<Vec<(TaskId, ExecId, Outcome)>> {
        rows::logged(self.connection, executions).await
    }

    async fn clocks_run_out(&mut self, max: usize) -> Attempted<Vec<TaskId>> {
        workers::clocks_run_out(self.connection, self.now.time, max).await
    }

    async fn silent_workers(&mut self) -> Attempted<Vec<String>> {
        workers::silent(self.connection, self.now.time).await
    }

    async fn executions_of(&mut self, worker_ids: &[String], max: usize) -> Attempted<Vec<TaskId>> {
        workers::executions_of(self.connection, worker_ids, max).await
    }

    async fn forget_workers(&mut self, worker_ids: &[String]) -> Attempted<()> {
        workers::forget(self.connection, worker_ids).await
    }

    async fn register(&mut self, worker: &Worker) -> Attempted<()> {
        workers::register(self.connection, worker).await
    }

    async fn seen(&mut self, worker_ids: &[String]) -> Attempted<usize> {
        workers::seen(self.connection, worker_ids, self.now.time).await
    }

    async fn watched_at(&mut self) -> Attempted<Time> {
        workers::watched_at(self.connection).await
    }

    async fn note_watch(&mut self) -> Attempted<()> {
        workers::note_watch(self.connection, self.now.time).await
    }

    async fn welcome_workers(&mut self, away_ms: i64) -> Attempted<()> {
        workers::welcome(self.connection, away_ms, self.now.time).await
    }

    async fn workers(&mut self) -> Attempted<Vec<Worker>> {
        workers::all(self.connection).await
    }

    async fn upcoming(&mut self, types: &[String], until: Time, max: usize) -> Attempted<Vec<Upcoming>> {
        read::upcoming(self.connection, types, self.now.time, until, max).await
    }

    async fn show(&mut self, id: TaskId) -> Attempted<Option<TaskDetail>> {
        read::show(self.connection, id).await
    }

    async fn select_tasks(&mut self, statement: &Statement) -> Attempted<Vec<Task>> {
        read::select_tasks(self.connection, statement).await
    }

    async fn select_keys(&mut self, statement: &Statement) -> Attempted<Vec<(TaskId, Time)>> {
        read::select_keys(self.connection, statement).await
    }

    async fn counts(&mut self, tenant: Option<&str>) -> Attempted<Vec<Count>> {
        read::counts(self.connection, tenant).await
    }

    async fn highest_id(&mut self) -> Attempted<TaskId> {
        read::highest_id(self.connection).await
    }

    async fn outlived(&mut self, status: Status, before: Time, max: usize) -> Attempted<Vec<Outlived>> {
        read::outlived(self.connection, status, before, max).await
    }

    async fn inspect(&mut self) -> Attempted<Inspection> {
        inspect::inspect(self.connection, self.now.time).await
    }

    async fn contradictions(&mut self) -> Attempted<u64> {
        inspect::contradictions(self.connection).await
    }
}
