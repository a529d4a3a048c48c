//! The store: rows in memory, and transactions that lock what they read.
//!
//! A lock is a version that is compared at the commit: whoever commits second finds that it has moved, and decides again.
//! That gives the same histories as rows that are locked, and lets a transaction lie open while others go on.

use crate::draft::Draft;
use crate::mistake::Mistake;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use taskwheel_model::schedule::{Definition, Overlap};
use taskwheel_model::{ExecId, Life, Outcome, Rhythm, RunStatus, Status, Time, TypeSettings};
use uuid::Uuid;

pub(crate) type TaskNumber = usize;
pub(crate) type WorkerNumber = usize;
pub(crate) type ScheduleNumber = usize;
pub(crate) type TimerNumber = usize;
pub(crate) type RunNumber = usize;

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) life: Life,
    pub(crate) kind: usize,
    pub(crate) given: Given,
    pub(crate) priority: u8,
    pub(crate) unique: Option<usize>,
    pub(crate) worker: Option<WorkerNumber>,
    pub(crate) step: Option<Place>,
}

/// What a task says about its attempts itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) retry: Option<taskwheel_model::RetryPolicy>,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) timeout_ms: Option<i64>,
}

/// Where in a run a task belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) run: RunNumber,
    pub(crate) path: Vec<usize>,
    pub(crate) shard: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) definition: Rc<Definition>,
    pub(crate) is_online: bool,
    pub(crate) timers: Vec<TimerNumber>,
}

#[derive(Clone, Debug)]
pub(crate) struct TimerRow {
    pub(crate) schedule: ScheduleNumber,
    pub(crate) rhythm: Rc<Rhythm>,
    pub(crate) has_begun: bool,
    pub(crate) cursor: Option<Time>,
    /// The cursor, while the schedule is online.
    pub(crate) next_due: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) schedule: ScheduleNumber,
    pub(crate) timer: TimerNumber,
    pub(crate) due: Time,
    pub(crate) status: RunStatus,
    /// As it was when the run was fired: an edit does not reach it.
    pub(crate) definition: Rc<Definition>,
}

/// What can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Task(TaskNumber),
    Worker(WorkerNumber),
    Unique(usize),
    Schedule(ScheduleNumber),
    Timer(TimerNumber),
    Run(RunNumber),
}

pub(crate) struct Store {
    pub(crate) kinds: Vec<TypeSettings>,
    pub(crate) paused: Vec<bool>,
    pub(crate) tasks: BTreeMap<TaskNumber, Row>,
    /// Of the tasks those that have not ended.
    pub(crate) live: BTreeSet<TaskNumber>,
    pub(crate) unique: BTreeMap<usize, TaskNumber>,
    pub(crate) log: BTreeMap<ExecId, Outcome>,
    pub(crate) seen: BTreeMap<WorkerNumber, Time>,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) timers: BTreeMap<TimerNumber, TimerRow>,
    pub(crate) runs: BTreeMap<RunNumber, Run>,
    pub(crate) running: BTreeSet<(ScheduleNumber, RunNumber)>,
    pub(crate) tasks_of: BTreeMap<RunNumber, Vec<TaskNumber>>,
    versions: BTreeMap<Key, u64>,
    sequence: Cell<usize>,
}

impl Store {
    pub(crate) fn new(kinds: Vec<TypeSettings>) -> Store {
        Store {
            paused: vec![false; kinds.len()],
            kinds,
            tasks: BTreeMap::new(),
            live: BTreeSet::new(),
            unique: BTreeMap::new(),
            log: BTreeMap::new(),
            seen: BTreeMap::new(),
            schedules: Vec::new(),
            timers: BTreeMap::new(),
            runs: BTreeMap::new(),
            running: BTreeSet::new(),
            tasks_of: BTreeMap::new(),
            versions: BTreeMap::new(),
            sequence: Cell::new(0),
        }
    }

    /// A number that nothing else has. As with a database's sequence, a transaction that fails leaves a gap.
    pub(crate) fn next(&self) -> usize {
        self.sequence.replace(self.sequence.get() + 1)
    }

    pub(crate) fn next_exec_id(&self) -> ExecId {
        ExecId(Uuid::from_u128(self.next() as u128))
    }

    pub(crate) fn version(&self, key: Key) -> u64 {
        self.versions.get(&key).copied().unwrap_or(0)
    }

    /// Whether nothing that a transaction locked has changed since.
    pub(crate) fn accepts(&self, draft: &Draft, mistake: Option<Mistake>) -> bool {
        let same = |(key, version): (&Key, &u64)| self.version(*key) == *version;
        draft.locks.iter().all(|lock| same(lock) || is_overlooked(self, draft, *lock.0, mistake))
    }

    /// Writes what a transaction changed, all of it at once.
    pub(crate) fn apply(&mut self, draft: &Draft, mistake: Option<Mistake>) {
        for key in draft.locks.keys() {
            *self.versions.entry(*key).or_default() += 1;
        }
        for (number, row) in &draft.tasks {
            self.put_task(*number, row.clone());
        }
        if mistake != Some(Mistake::ResultNotStored) {
            self.log.extend(draft.log.iter().copied());
        }
        for (worker, seen) in &draft.seen {
            match seen {
                Some(at) => self.seen.insert(*worker, *at),
                None => self.seen.remove(worker),
            };
        }
        for (number, timer) in &draft.timers {
            match timer {
                Some(timer) => self.timers.insert(*number, timer.clone()),
                None => self.timers.remove(number),
            };
        }
        for (number, schedule) in &draft.schedules {
            self.schedules[*number] = schedule.clone();
        }
        for (number, run) in &draft.runs {
            let place = (run.schedule, *number);
            if run.status.lives() {
                self.running.insert(place)
            } else {
                self.running.remove(&place)
            };
            self.runs.insert(*number, run.clone());
        }
        if let Some((kind, is_paused)) = draft.paused {
            self.paused[kind] = is_paused;
        }
    }

    fn put_task(&mut self, number: TaskNumber, row: Row) {
        let is_live = row.life.status().is_live();
        if is_live {
            self.live.insert(number)
        } else {
            self.live.remove(&number)
        };
        if let Some(key) = row.unique {
            if is_live {
                self.unique.insert(key, number);
            } else if self.unique.get(&key) == Some(&number) {
                self.unique.remove(&key);
            }
        }
        let is_new = !self.tasks.contains_key(&number);
        if let Some(place) = row.step.as_ref().filter(|_| is_new) {
            self.tasks_of.entry(place.run).or_default().push(number);
        }
        self.tasks.insert(number, row);
    }
}

/// Whether a mistake keeps a transaction from noticing that a lock was lost.
fn is_overlooked(store: &Store, draft: &Draft, key: Key, mistake: Option<Mistake>) -> bool {
    let status = |task: &TaskNumber| store.tasks.get(task).map(|row| row.life.status());
    match (mistake, key) {
        (Some(Mistake::CursorNotCompared), Key::Timer(_)) => draft.is_firing(),
        (Some(Mistake::ScheduleNotLocked), Key::Schedule(schedule)) => {
            draft.is_firing() && store.schedules[schedule].definition.overlap == Overlap::Skip
        }
        (Some(Mistake::RunNotLocked), Key::Run(_)) => true,
        (Some(Mistake::UniqueNotChecked), Key::Unique(_)) => true,
        (Some(Mistake::ClaimsShareARow), Key::Task(task)) => {
            let lasts = |row: &Row| row.life.check_at(None).is_some_and(|until| until > draft.at);
            draft.is_claim() && status(&task) == Some(Status::Executing) && lasts(&store.tasks[&task])
        }
        (Some(Mistake::ResultOverwritten), Key::Task(task)) => {
            draft.is_rescue() && status(&task) == Some(Status::Success)
        }
        _ => false,
    }
}
