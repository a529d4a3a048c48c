//! The rows of our tables, under the names of their columns, and how they carry the life of a task.
//!
//! The same structs are written on every database: PostgreSQL and MySQL take a batch of them as one JSON parameter.

use serde::Serialize;
use std::collections::HashMap;
use taskwheel_model::statistics::Histogram;
use taskwheel_model::{
    ExecId, Execution, Hold, Life, Liveness, Outcome, RetryPolicy, Rules, State, Status, TaskId, Time, TypeSettings,
};

/// How a live task stands: a row of `task_running` while it executes, else of `task_waiting`. Each table has the columns
/// that mean something there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LiveRow {
    pub id: TaskId,
    pub tenant: String,
    #[serde(rename = "type")]
    pub task_type: String,
    /// Where claims look for it: its type, or `type@host` while it is kept for a host; nowhere while it is parked.
    pub lane: String,
    /// 9 − priority, so that ascending is the order of claims on every database.
    pub rank: i16,
    pub due: Time,
    /// The code of its status.
    pub status: i16,
    pub round: u32,
    pub attempts: u32,
    pub error_count: u32,
    pub error_info: Option<String>,
    pub checkpoint: Option<String>,
    pub progress: Option<String>,
    pub result: Option<String>,
    pub expire_at: Option<Time>,
    pub category: Option<String>,
    pub creator: Option<String>,
    pub unique_key: Option<String>,
    /// The run of a schedule that it is part of.
    pub run_id: Option<i64>,
    pub affinity: Option<String>,
    pub hold_exec_id: Option<ExecId>,
    pub hold_until: Option<Time>,
    pub exec_id: Option<ExecId>,
    pub worker_id: Option<String>,
    pub host: Option<String>,
    pub started_at: Option<Time>,
    pub deadline: Option<Time>,
    pub heartbeat_ms: Option<i64>,
    /// 1 once the worker has named the execution.
    pub named: i16,
    pub lease_until: Option<Time>,
    /// When somebody must look at its clocks.
    pub check_at: Option<Time>,
    pub updated_at: Time,
}

/// A row of `task_history`: how a finished task ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HistoryRow {
    pub id: TaskId,
    pub tenant: String,
    /// The run that it is part of, which its row in `task` says.
    #[serde(skip)]
    pub run_id: Option<i64>,
    pub status: i16,
    pub round: u32,
    pub attempts: u32,
    pub error_count: u32,
    pub error_info: Option<String>,
    pub checkpoint: Option<String>,
    pub progress: Option<String>,
    pub result: Option<String>,
    pub affinity: Option<String>,
    pub hold_until: Option<Time>,
    /// The last execution and how it ended, where the task ended with it: the last line of the log of attempts.
    pub exec_id: Option<ExecId>,
    pub worker_id: Option<String>,
    pub host: Option<String>,
    pub started_at: Option<Time>,
    pub outcome: Option<i16>,
    pub finished_at: Time,
    pub updated_at: Time,
}

/// A row of `task_attempt`: an attempt that did not end its task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AttemptRow {
    pub task_id: TaskId,
    pub exec_id: ExecId,
    pub round: u32,
    pub attempt: u32,
    pub host: Option<String>,
    pub worker_id: Option<String>,
    pub started_at: Time,
    pub finished_at: Time,
    pub outcome: i16,
    pub error: Option<String>,
}

/// The columns of `task` that an edit or a decision may change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ContentRow {
    pub id: TaskId,
    pub priority: u8,
    pub run_at: Time,
    pub expire_at: Option<Time>,
    pub max_attempts: Option<i32>,
    pub retry: Option<String>,
    pub timeout_ms: Option<i64>,
    pub remark: Option<String>,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each task of a batch")]
pub(crate) enum Place {
    Live(LiveRow),
    History(HistoryRow),
}

/// A task loaded, and locked, for a decision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub content: ContentRow,
    pub task_type: String,
    pub category: Option<String>,
    pub creator: Option<String>,
    pub unique_key: Option<String>,
    pub run_id: Option<i64>,
    pub place: Place,
    /// When the worker of its execution last called, at the latest: calls may go unwritten for a tenth of its heartbeat.
    pub worker_seen_at: Option<Time>,
}

/// What to write about one task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Where it is now, to be replaced…
    pub before: Place,
    /// …by this. `None` removes the task with all that belongs to it.
    pub after: Option<Place>,
    /// A line for the log of attempts.
    pub attempt: Option<AttemptRow>,
    /// The new content, where it changed.
    pub content: Option<ContentRow>,
    /// The new payload, where it changed.
    pub payload: Option<Option<String>>,
}

/// The changes of a batch, one for each task: a task that a batch names twice is written once, as it ends up.
#[derive(Default)]
pub(crate) struct Changes {
    list: Vec<Change>,
    by_id: HashMap<TaskId, usize>,
}

impl Changes {
    /// Adds the change of a record, which then stands as the change leaves it.
    pub(crate) fn push(&mut self, record: &mut Record, change: Change) {
        if let Some(place) = &change.after {
            record.place = place.clone();
        }
        if let Some(content) = &change.content {
            record.content = content.clone();
        }
        match self.by_id.get(&change.id()) {
            None => {
                self.by_id.insert(change.id(), self.list.len());
                self.list.push(change);
            }
            Some(index) => {
                let earlier = &mut self.list[*index];
                earlier.after = change.after;
                earlier.attempt = change.attempt.or(earlier.attempt.take());
                earlier.content = change.content.or(earlier.content.take());
                earlier.payload = change.payload.or(earlier.payload.take());
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[Change] {
        &self.list
    }
}

/// Changes, sorted by the statements that write them.
#[derive(Default)]
pub(crate) struct Writes<'a> {
    /// Executions that stay.
    pub keep_running: Vec<&'a LiveRow>,
    pub leave_running: Vec<i64>,
    pub leave_waiting: Vec<i64>,
    pub leave_history: Vec<i64>,
    pub enter_waiting: Vec<&'a LiveRow>,
    pub enter_history: Vec<&'a HistoryRow>,
    /// Tasks that are live no longer: their unique keys are free.
    pub finish: Vec<i64>,
    /// Tasks that are live again: they need their unique keys.
    pub revive: Vec<i64>,
    /// Tasks that are removed with all that belongs to them.
    pub remove: Vec<i64>,
    pub attempts: Vec<&'a AttemptRow>,
    pub contents: Vec<&'a ContentRow>,
    pub payloads: Vec<(i64, Option<&'a str>)>,
}

impl<'a> Writes<'a> {
    pub(crate) fn of(changes: &'a [Change]) -> Writes<'a> {
        let mut writes = Writes::default();
        for change in changes {
            writes.add(change);
        }
        writes
    }

    fn add(&mut self, change: &'a Change) {
        let id = change.id().0;
        self.attempts.extend(&change.attempt);
        self.contents.extend(&change.content);
        self.payloads.extend(change.payload.as_ref().map(|payload| (id, payload.as_deref())));
        if let (Place::Live(before), Some(Place::Live(after))) = (&change.before, &change.after)
            && before.exec_id.is_some()
            && after.exec_id.is_some()
        {
            self.keep_running.push(after);
            return;
        }
        match &change.before {
            Place::Live(row) if row.exec_id.is_some() => self.leave_running.push(id),
            Place::Live(_) => self.leave_waiting.push(id),
            Place::History(_) => self.leave_history.push(id),
        }
        match &change.after {
            Some(Place::Live(row)) => self.enter_waiting.push(row),
            Some(Place::History(row)) => self.enter_history.push(row),
            None => self.remove.push(id),
        }
        match (&change.before, &change.after) {
            (Place::Live(_), Some(Place::History(_))) => self.finish.push(id),
            (Place::History(_), Some(Place::Live(_))) => self.revive.push(id),
            _ => {}
        }
    }
}

impl Change {
    pub(crate) fn id(&self) -> TaskId {
        match &self.before {
            Place::Live(row) => row.id,
            Place::History(row) => row.id,
        }
    }
}

impl Record {
    pub(crate) fn id(&self) -> TaskId {
        self.content.id
    }

    pub(crate) fn tenant(&self) -> &str {
        match &self.place {
            Place::Live(row) => &row.tenant,
            Place::History(row) => &row.tenant,
        }
    }

    pub(crate) fn rules(&self, settings: Option<&TypeSettings>) -> Rules {
        rules(self.content.retry.as_deref(), self.content.max_attempts, self.content.timeout_ms, settings)
    }

    pub(crate) fn life(&self) -> Life {
        match &self.place {
            Place::Live(row) => row.life(),
            Place::History(row) => Life {
                state: State::Finished { status: status(row.status), hold: row.hold() },
                due: self.content.run_at,
                expire_at: self.content.expire_at,
                round: row.round,
                attempts: row.attempts,
                error_count: row.error_count,
            },
        }
    }
}

/// The rules from what a task row and a type say.
///
/// A plain INSERT can put anything into `retry`: what cannot be read counts as not given, so that the task still runs.
pub(crate) fn rules(
    retry: Option<&str>,
    max_attempts: Option<i32>,
    timeout_ms: Option<i64>,
    settings: Option<&TypeSettings>,
) -> Rules {
    Rules::of(read_policy(retry), max_attempts, timeout_ms, settings)
}

pub(crate) fn read_policy(retry: Option<&str>) -> Option<RetryPolicy> {
    let policy: RetryPolicy = serde_json::from_str(retry?).ok()?;
    policy.validate("retry").is_ok().then_some(policy)
}

pub(crate) fn status(code: i16) -> Status {
    Status::from_code(code).expect("the tables' checks allow only the nine codes")
}

impl LiveRow {
    pub(crate) fn life(&self) -> Life {
        let state = match status(self.status) {
            Status::Executing => {
                State::Executing(self.execution().expect("the table's check pairs status and exec_id"))
            }
            Status::Completed => State::Completed,
            Status::Pending => State::Pending,
            _ => State::Waiting { hold: self.hold() },
        };
        Life {
            state,
            due: self.due,
            expire_at: self.expire_at,
            round: self.round,
            attempts: self.attempts,
            error_count: self.error_count,
        }
    }

    fn execution(&self) -> Option<Execution> {
        let started_at = self.started_at?;
        let liveness = match self.heartbeat_ms {
            Some(every_ms) => Liveness::Heartbeat { every_ms, named: self.named != 0 },
            None => Liveness::Lease { until: self.lease_until.unwrap_or(started_at) },
        };
        Some(Execution { exec_id: self.exec_id?, started_at, deadline: self.deadline, liveness })
    }

    fn hold(&self) -> Option<Hold> {
        Some(Hold { exec_id: self.hold_exec_id?, until: self.hold_until? })
    }

    /// Takes over a life: every column that a decision can change, except who executes it.
    pub(crate) fn set_life(&mut self, life: &Life, now: Time) {
        let (execution, hold) = match &life.state {
            State::Executing(execution) => (Some(*execution), None),
            State::Waiting { hold } => (None, *hold),
            State::Completed | State::Pending | State::Finished { .. } => (None, None),
        };
        self.status = life.status().code();
        (self.due, self.expire_at) = (life.due, life.expire_at);
        (self.round, self.attempts, self.error_count) = (life.round, life.attempts, life.error_count);
        self.hold_exec_id = hold.map(|hold| hold.exec_id);
        self.hold_until = hold.map(|hold| hold.until);
        self.exec_id = execution.map(|execution| execution.exec_id);
        self.started_at = execution.map(|execution| execution.started_at);
        self.deadline = execution.and_then(|execution| execution.deadline);
        (self.heartbeat_ms, self.named, self.lease_until) = match execution.map(|execution| execution.liveness) {
            Some(Liveness::Heartbeat { every_ms, named }) => (Some(every_ms), i16::from(named), None),
            Some(Liveness::Lease { until }) => (None, 0, Some(until)),
            None => (None, 0, None),
        };
        if execution.is_none() {
            (self.worker_id, self.host) = (None, None);
        }
        match &life.state {
            State::Completed | State::Pending => self.lane.clear(),
            _ if self.lane.is_empty() => self.lane.clone_from(&self.task_type),
            _ => {}
        }
        self.check_at = check_at(life);
        self.updated_at = now;
    }
}

impl HistoryRow {
    fn hold(&self) -> Option<Hold> {
        Some(Hold { exec_id: self.exec_id?, until: self.hold_until? })
    }
}

/// When somebody must look at the clocks of a live task.
///
/// An execution that its heartbeating worker has named is not looked at for its lease: its worker is, and one look at a
/// silent worker finds all of its executions. That is what keeps heartbeats at one write for a worker, not for a task.
pub(crate) fn check_at(life: &Life) -> Option<Time> {
    match &life.state {
        State::Executing(Execution { deadline, liveness: Liveness::Heartbeat { named: true, .. }, .. }) => {
            Some(deadline.unwrap_or(NEVER))
        }
        _ => life.check_at(None),
    }
}

/// Stands for "never" in an index of executions, which must hold them all.
const NEVER: Time = Time(i64::MAX);

impl AttemptRow {
    /// The log line of the execution that a live row carries.
    pub(crate) fn of(row: &LiveRow, outcome: Outcome, error: Option<String>, now: Time) -> Option<AttemptRow> {
        Some(AttemptRow {
            task_id: row.id,
            exec_id: row.exec_id?,
            round: row.round,
            attempt: row.attempts,
            host: row.host.clone(),
            worker_id: row.worker_id.clone(),
            started_at: row.started_at?,
            finished_at: now,
            outcome: outcome.code(),
            error,
        })
    }
}

/// A histogram as it is stored.
pub(crate) fn write_histogram(histogram: &Histogram) -> String {
    serde_json::to_string(histogram).expect("numbers are plain JSON")
}

/// A stored histogram; one that somebody spoilt is empty.
pub(crate) fn read_histogram(text: &str) -> Histogram {
    serde_json::from_str(text).unwrap_or_default()
}
