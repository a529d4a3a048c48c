//! From a decision of the model to the rows that carry it out.

use super::Types;
use super::watermark::LaneDue;
use crate::rows::{AttemptRow, Change, HistoryRow, LiveRow, Place, Record, check_at};
use crate::worker::Worker;
use taskwheel_model::{Life, Outcome, Ran, State, Step, Time, field, limits};

/// What an execution leaves behind besides its outcome.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    pub error: Option<String>,
    pub result: Option<String>,
    pub checkpoint: Option<String>,
}

/// The change that carries out a step of a task.
pub(super) fn change(record: &Record, step: &Step, leaving: &Leaving, hosts: &Hosts<'_>, now: Time) -> Change {
    let error = error_text(step, leaving);
    let before = record.place.clone();
    let (after, attempt) = match (&record.place, &step.life.state) {
        (Place::Live(row), State::Finished { .. }) => (Place::History(finished(row, step, error, leaving, now)), None),
        (Place::Live(row), _) => {
            let attempt = step.ended.and_then(|outcome| AttemptRow::of(row, outcome, error.clone(), now));
            (Place::Live(stays_live(row, step, error, leaving, hosts, now)), attempt)
        }
        (Place::History(row), State::Finished { status, hold }) => {
            let row = HistoryRow {
                status: status.code(),
                hold_until: hold.map(|hold| hold.until),
                result: leaving.result.clone().or_else(|| row.result.clone()),
                updated_at: now,
                ..row.clone()
            };
            (Place::History(row), None)
        }
        (Place::History(row), _) => (Place::Live(revived(record, row, &step.life, hosts, now)), last_attempt(row)),
    };
    let content = match &after {
        Place::Live(row) => {
            let content =
                crate::rows::ContentRow { run_at: row.due, expire_at: row.expire_at, ..record.content.clone() };
            (content != record.content).then_some(content)
        }
        Place::History(_) => None,
    };
    Change { before, after: Some(after), attempt, content, payload: None }
}

/// Where claims can find the task that a change leaves, if they can.
pub(super) fn lane_due(change: &Change) -> Option<LaneDue> {
    match &change.after {
        Some(Place::Live(row)) if crate::rows::status(row.status).is_waiting() => {
            let (tenant, lane) = (row.tenant.clone(), row.lane.clone());
            Some(LaneDue { tenant, lane, rank: Some(row.rank), due: row.due, launched: 0 })
        }
        _ => None,
    }
}

fn error_text(step: &Step, leaving: &Leaving) -> Option<String> {
    if let Some(error) = &leaving.error {
        return Some(field::cut(error, limits::ERROR_BYTES_MAX));
    }
    let text = match (step.ended, step.reason) {
        (_, Some(reason)) => reason,
        (Some(Outcome::Timeout), _) => "the time limit of the attempt ran out",
        (Some(Outcome::Lost), _) => "the worker went silent",
        _ => return None,
    };
    Some(text.to_owned())
}

fn stays_live(
    row: &LiveRow,
    step: &Step,
    error: Option<String>,
    leaving: &Leaving,
    hosts: &Hosts<'_>,
    now: Time,
) -> LiveRow {
    let mut next = row.clone();
    if matches!(step.ended, Some(Outcome::Release | Outcome::Lost)) {
        next.affinity.clone_from(&row.host);
    }
    next.set_life(&step.life, now);
    next.error_info = error.or(next.error_info);
    next.result = leaving.result.clone().or(next.result);
    next.checkpoint = leaving.checkpoint.clone().or(next.checkpoint);
    if matches!(step.life.state, State::Waiting { .. }) {
        place_in_lane(&mut next, hosts, now);
    }
    next
}

/// Puts a waiting task into the lane where claims shall look for it, and sets when that must be looked at again.
///
/// A task with an affinity is kept for its host while a worker for it is alive there, until the grace after its due time
/// is over. Before it is due nobody can know, so it is looked at then, and when the last such worker would count as gone.
pub(super) fn place_in_lane(row: &mut LiveRow, hosts: &Hosts<'_>, now: Time) {
    let grace_ends = row.due.plus_ms(limits::AFFINITY_GRACE_MS);
    let kept_until = |host: &String| {
        if now < row.due {
            return Some(row.due);
        }
        let gone_at = hosts.gone_at(host, row)?;
        Some(gone_at.min(grace_ends)).filter(|until| now < *until)
    };
    let look_at = row.affinity.as_ref().and_then(kept_until);
    row.lane = lane(&row.task_type, row.affinity.as_deref().filter(|_| look_at.is_some()));
    let expiry = check_at(&row.life());
    row.check_at = match (look_at, expiry) {
        (Some(look_at), Some(expiry)) => Some(look_at.min(expiry)),
        (one, other) => one.or(other),
    };
}

/// The lane of tasks of a type that are for everybody, or kept for a host. No type has an `@`.
pub(super) fn lane(task_type: &str, host: Option<&str>) -> String {
    match host {
        Some(host) => format!("{task_type}@{host}"),
        None => task_type.to_owned(),
    }
}

fn finished(row: &LiveRow, step: &Step, error: Option<String>, leaving: &Leaving, now: Time) -> HistoryRow {
    let State::Finished { status, hold } = &step.life.state else { unreachable!("asked for finished tasks only") };
    let ran = step.ended.is_some();
    HistoryRow {
        id: row.id,
        tenant: row.tenant.clone(),
        run_id: row.run_id,
        status: status.code(),
        round: step.life.round,
        attempts: step.life.attempts,
        error_count: step.life.error_count,
        error_info: error.or_else(|| row.error_info.clone()),
        checkpoint: leaving.checkpoint.clone().or_else(|| row.checkpoint.clone()),
        progress: row.progress.clone(),
        result: leaving.result.clone().or_else(|| row.result.clone()),
        affinity: row.affinity.clone(),
        hold_until: hold.map(|hold| hold.until),
        // A hold outlives its round: the execution it names must be known by its id.
        exec_id: if ran { row.exec_id } else { hold.map(|hold| hold.exec_id) },
        worker_id: row.worker_id.clone().filter(|_| ran),
        host: row.host.clone().filter(|_| ran),
        started_at: row.started_at.filter(|_| ran),
        outcome: step.ended.map(Outcome::code),
        finished_at: now,
        updated_at: now,
    }
}

fn revived(record: &Record, row: &HistoryRow, life: &Life, hosts: &Hosts<'_>, now: Time) -> LiveRow {
    let mut live = LiveRow {
        id: row.id,
        tenant: row.tenant.clone(),
        task_type: record.task_type.clone(),
        lane: record.task_type.clone(),
        rank: 9 - i16::from(record.content.priority),
        due: life.due,
        status: 0,
        round: 0,
        attempts: 0,
        error_count: 0,
        error_info: row.error_info.clone(),
        checkpoint: row.checkpoint.clone(),
        progress: row.progress.clone(),
        result: None,
        expire_at: life.expire_at,
        category: record.category.clone(),
        creator: record.creator.clone(),
        unique_key: record.unique_key.clone(),
        run_id: record.run_id,
        affinity: row.affinity.clone(),
        hold_exec_id: None,
        hold_until: None,
        exec_id: None,
        worker_id: None,
        host: None,
        started_at: None,
        deadline: None,
        heartbeat_ms: None,
        named: 0,
        lease_until: None,
        check_at: None,
        updated_at: now,
    };
    live.set_life(life, now);
    place_in_lane(&mut live, hosts, now);
    live
}

/// The last attempt of a finished task, for the log: its row in history will be gone.
fn last_attempt(row: &HistoryRow) -> Option<AttemptRow> {
    let outcome = row.outcome?;
    Some(AttemptRow {
        task_id: row.id,
        exec_id: row.exec_id?,
        round: row.round,
        attempt: row.attempts,
        host: row.host.clone(),
        worker_id: row.worker_id.clone(),
        started_at: row.started_at?,
        finished_at: row.finished_at,
        outcome,
        error: row.error_info.clone().filter(|_| Outcome::from_code(outcome).is_some_and(Outcome::has_error)),
    })
}

/// Which hosts have workers for which types.
pub(super) struct Hosts<'a> {
    workers: &'a [Worker],
    types: &'a Types,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(workers: &'a [Worker], types: &'a Types) -> Hosts<'a> {
        Hosts { workers, types }
    }

    /// When the last worker of a host that takes such tasks counts as gone, if none of them calls until then.
    fn gone_at(&self, host: &str, row: &LiveRow) -> Option<Time> {
        let of_type = self.types.settings(&row.task_type).and_then(|settings| settings.category.as_deref());
        let category = row.category.as_deref().or(of_type);
        let serves = |worker: &Worker| worker.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant);
        let takes = |worker: &&Worker| worker.host == host && serves(worker) && worker.takes(&row.task_type, category);
        self.workers.iter().filter(takes).map(Worker::gone_at).max()
    }
}

/// What a step ended, for the statistics: an execution, or the task itself where it expired.
pub(super) fn ran(record: &Record, step: &Step, now: Time) -> Option<Ran> {
    let Place::Live(row) = &record.place else { return None };
    Some(Ran {
        tenant: row.tenant.clone(),
        task_type: row.task_type.clone(),
        attempt: row.attempts,
        due: row.due,
        ended_at: now,
        execution: row.started_at.zip(step.ended),
        status: step.life.status(),
    })
}
