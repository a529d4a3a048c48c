//! Launch: what begins in a transaction, the tasks of runs and the runs themselves, written together.

use super::schedules::text;
use super::submit::settle;
use super::types::Types;
use super::watermark::LaneDue;
use crate::plain::{Column, Kind, Plain, Row, plain, row};
use crate::session::{Attempted, Insert, Origin, Session};
use crate::worker::{Context, Worker};
use std::sync::Arc;
use taskwheel_model::schedule::{Log, Overlap, Shards};
use taskwheel_model::{Definition, NewTask, RunStatus, Status, TaskId, Time, limits};

/// One firing of a schedule.
#[derive(Clone, Debug)]
pub(super) struct Firing<'a> {
    pub schedule_id: i64,
    pub tenant: &'a str,
    /// `None` where somebody asked for it.
    pub timer_id: Option<i64>,
    pub definition: &'a Definition,
    pub due: Time,
    /// Whether its timer waits for the end of the run.
    pub rearms: bool,
}

/// What becomes of a firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Start,
    Queue,
    Skip {
        /// In a word.
        reason: &'static str,
        /// What more there is to say.
        detail: Option<String>,
    },
}

impl Fate {
    pub(super) fn skip(reason: &'static str) -> Fate {
        Fate::Skip { reason, detail: None }
    }
}

/// A row of `task_run`.
#[derive(Clone, Debug)]
struct RunRow {
    id: i64,
    tenant: String,
    schedule_id: i64,
    timer_id: Option<i64>,
    task_id: Option<TaskId>,
    due_at: Time,
    status: i64,
    log: Log,
    overlap: Overlap,
    rearms: i64,
    reason: Option<&'static str>,
    error: Option<String>,
    definition: Option<String>,
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

impl RunRow {
    /// In the order of the columns.
    fn cells(self) -> Row {
        row![
            self.id,
            self.tenant,
            self.schedule_id,
            self.timer_id,
            self.task_id,
            self.due_at,
            self.status,
            self.log.word(),
            self.overlap.word(),
            self.rearms,
            self.reason,
            self.error,
            self.definition,
            self.started_at,
            self.finished_at,
        ]
    }
}

/// What is to begin.
#[derive(Default)]
pub(super) struct Launch {
    inserts: Vec<Insert>,
    runs: Vec<RunRow>,
    /// Of each task to insert, its place in its run.
    places: Vec<Seat>,
}

/// The place of a task in its run.
pub(super) enum Seat {
    /// Nobody follows the run.
    None,
    /// The only task of this one of the runs to insert.
    Only(usize),
    /// One of several.
    Step { run_id: i64, path: String, shard: Option<u32> },
}

impl Launch {
    /// Adds a firing. A run that nobody has to follow and nobody wants a record of is its task and nothing else.
    pub(super) fn fire(&mut self, id: i64, firing: &Firing<'_>, fate: &Fate, at: &Moment<'_>) {
        let Firing { definition, .. } = firing;
        let roots = match fate {
            Fate::Start => at.roots(definition, firing.tenant, firing.due),
            Fate::Queue | Fate::Skip { .. } => Vec::new(),
        };
        let is_tree = definition.has_followers(&[]) || roots.len() > 1 || definition.shards.is_some();
        let is_followed =
            definition.log == Log::TransLog || definition.overlap != Overlap::Allow || firing.rearms || is_tree;
        let is_recorded = match fate {
            Fate::Start => is_followed || definition.log == Log::TriggerLog,
            Fate::Queue => true,
            Fate::Skip { .. } => definition.log != Log::None,
        };
        let run_id = is_recorded.then_some(id);
        if is_recorded {
            let status = match fate {
                Fate::Start if is_followed => RunStatus::Running,
                Fate::Start => RunStatus::Done,
                Fate::Queue => RunStatus::Queued,
                Fate::Skip { .. } => RunStatus::Skipped,
            };
            let (reason, detail) = match fate {
                Fate::Skip { reason, detail } => (Some(*reason), detail.clone()),
                _ => (None, None),
            };
            self.runs.push(RunRow {
                id,
                tenant: firing.tenant.to_owned(),
                schedule_id: firing.schedule_id,
                timer_id: firing.timer_id,
                task_id: None,
                due_at: firing.due,
                status: status.code(),
                log: definition.log,
                overlap: definition.overlap,
                rearms: i64::from(firing.rearms),
                reason,
                error: detail,
                definition: (is_tree || *fate == Fate::Queue).then(|| text(*definition)),
                started_at: (*fate == Fate::Start).then_some(at.now),
                finished_at: (!status.lives()).then_some(at.now),
            });
        }
        let place = self.runs.len();
        self.add_roots(firing.schedule_id, run_id, roots, at, |run_id, shard| match run_id {
            Some(run_id) if is_tree => Seat::Step { run_id, path: String::new(), shard },
            Some(_) if is_followed => Seat::Only(place - 1),
            _ => Seat::None,
        });
    }

    /// Adds the tasks of the root of a run that was queued.
    pub(super) fn begin(&mut self, schedule_id: i64, run_id: i64, roots: Vec<(NewTask, Context)>, at: &Moment<'_>) {
        let seat = |_, shard| Seat::Step { run_id, path: String::new(), shard };
        self.add_roots(schedule_id, Some(run_id), roots, at, seat);
    }

    fn add_roots(
        &mut self,
        schedule_id: i64,
        run_id: Option<i64>,
        roots: Vec<(NewTask, Context)>,
        at: &Moment<'_>,
        seat: impl Fn(Option<i64>, Option<u32>) -> Seat,
    ) {
        for (task, context) in roots {
            let origin = Origin { schedule_id, run_id, parent_id: None, root_id: None, context: context.text() };
            self.add(task, origin, seat(run_id, context.shard_index), at);
        }
    }

    /// Adds a task of a run, with its place in it.
    pub(super) fn add(&mut self, task: NewTask, origin: Origin, seat: Seat, at: &Moment<'_>) {
        self.inserts.push(Insert { origin: Some(origin), ..settle(Arc::new(task), at.types, at.now) });
        self.places.push(seat);
    }

    /// Writes all of it, and says where claims can find it.
    pub(super) async fn write(self, session: &mut dyn Session) -> Attempted<Vec<LaneDue>> {
        Ok(self.write_with(session, None).await?.0)
    }

    /// The same, with a statement that belongs to it, and which tasks began.
    pub(super) async fn write_with(
        mut self,
        session: &mut dyn Session,
        other: Option<Plain>,
    ) -> Attempted<(Vec<LaneDue>, Vec<TaskId>)> {
        let now = session.now();
        let ids = session.insert(&self.inserts).await?;
        let mut steps = Vec::new();
        for (task_id, seat) in ids.iter().copied().zip(self.places) {
            match seat {
                Seat::None => {}
                Seat::Only(place) => self.runs[place].task_id = Some(task_id),
                Seat::Step { run_id, path, shard } => {
                    steps.push(row![run_id, task_id, path, shard.map(i64::from), i64::from(Status::New.code())]);
                }
            }
        }
        let mut statements: Vec<_> = other.into_iter().collect();
        if !self.runs.is_empty() {
            let runs = self.runs.into_iter().map(RunRow::cells).collect();
            statements.push(plain(INTO_RUN).rows(RUN, runs));
        }
        if !steps.is_empty() {
            statements.push(plain(INTO_STEP).rows(STEP, steps));
        }
        session.execute_all(&statements).await?;
        let tasks: Vec<_> = self.inserts.into_iter().map(|insert| insert.task).collect();
        let mut dues = LaneDue::of(&tasks, now);
        for due in &mut dues {
            let of_lane = || tasks.iter().filter(|task| task.task_type == due.lane);
            // What is for some host concerns everybody who might be there.
            let is_for_a_host = of_lane().any(|task| task.affinity.is_some());
            due.launched = if is_for_a_host { usize::MAX } else { of_lane().count() };
        }
        Ok((dues, ids))
    }
}

const INTO_RUN: &str = "
INSERT INTO task_run (id, tenant, schedule_id, timer_id, task_id, due_at, status, log, overlap, rearms, reason, error, definition,
                      started_at, finished_at)
SELECT n.id, n.tenant, n.schedule_id, n.timer_id, n.task_id, n.due_at, n.status, n.log, n.overlap, n.rearms, n.reason, n.error,
       n.definition, n.started_at, n.finished_at FROM ";
const RUN: &[Column] = &[
    ("id", Kind::Number),
    ("tenant", Kind::Text),
    ("schedule_id", Kind::Number),
    ("timer_id", Kind::Number),
    ("task_id", Kind::Number),
    ("due_at", Kind::Number),
    ("status", Kind::Number),
    ("log", Kind::Text),
    ("overlap", Kind::Text),
    ("rearms", Kind::Number),
    ("reason", Kind::Text),
    ("error", Kind::Text),
    ("definition", Kind::Text),
    ("started_at", Kind::Number),
    ("finished_at", Kind::Number),
];
const INTO_STEP: &str = "
INSERT INTO task_step (run_id, task_id, path, shard, status) SELECT n.run_id, n.task_id, n.path, n.shard, n.status FROM ";
const STEP: &[Column] = &[
    ("run_id", Kind::Number),
    ("task_id", Kind::Number),
    ("path", Kind::Text),
    ("shard", Kind::Number),
    ("status", Kind::Number),
];

/// What a launch must know about the moment.
pub(super) struct Moment<'a> {
    pub types: &'a Types,
    /// The workers, read where something has shards.
    pub workers: &'a [Worker],
    pub now: Time,
}

impl Moment<'_> {
    /// The tasks of the root: one, or one for each shard, each offered first to a host that has a worker for it. None where there shall be
    /// one for each worker and there is no worker.
    pub(super) fn roots(&self, definition: &Definition, tenant: &str, due: Time) -> Vec<(NewTask, Context)> {
        let root = definition.root(tenant, due);
        let Some(shards) = definition.shards else { return vec![(root, Context::default())] };
        let of_type = self.types.settings(&definition.task_type).and_then(|settings| settings.category.as_deref());
        let serves = |worker: &&Worker| worker.serves(definition, of_type, tenant, self.now);
        let hosts: Vec<&str> = self.workers.iter().filter(serves).map(|worker| worker.host.as_str()).collect();
        let total = match shards {
            Shards::PerWorker(_) => hosts.len().min(limits::SHARDS_MAX as usize) as u32,
            Shards::Fixed(total) => total,
        };
        let shard = |index: u32| {
            let affinity = (!hosts.is_empty()).then(|| hosts[index as usize % hosts.len()].to_owned());
            let context = Context { shard_index: Some(index), shard_total: Some(total), parent: None };
            (NewTask { affinity, ..root.clone() }, context)
        };
        (0..total).map(shard).collect()
    }
}
