//! Rescue: looks at the clocks by the database's time, and acts on that very execution only.
//!
//! Every verb locks executions first, in the order of their ids, and then workers, in the order of theirs, so that none ever waits for
//! another crosswise. So a worker is found silent without a lock, and asked for once more when its executions are locked.

use super::renew::load;
use super::step::{self, Hosts, Leaving};
use super::watermark::LaneDue;
use super::{Memory, ends, runs, workers};
use crate::rows::{Change, Place, Record};
use crate::session::{Attempted, Session};
use crate::verbs::{RanOut, Rescued};
use taskwheel_model::{Event, ExecId, Outcome, Ran, Time, decide, limits};

pub(super) async fn rescue(session: &mut dyn Session, memory: &Memory) -> Attempted<(Rescued, Vec<LaneDue>, Vec<Ran>)> {
    let now = session.now();
    let silent = session.silent_workers().await?;
    let mut ids = session.clocks_run_out(limits::CHUNK_ROWS_MAX).await?;
    let mut more = ids.len() == limits::CHUNK_ROWS_MAX;
    let mut is_all_of_theirs = true;
    if !silent.is_empty() {
        let theirs = session.executions_of(&silent, limits::CHUNK_ROWS_MAX).await?;
        is_all_of_theirs = theirs.len() < limits::CHUNK_ROWS_MAX;
        more |= !is_all_of_theirs;
        ids.extend(theirs);
    }
    let mut rescued = Rescued { more, ..Rescued::default() };
    if ids.is_empty() && silent.is_empty() {
        return Ok((rescued, Vec::new(), Vec::new()));
    }
    let records = load(session, ids.into_iter()).await?;
    let seen_at = workers::lock(session, records.values().filter_map(worker_id).chain(&silent)).await?;
    if is_all_of_theirs && !silent.is_empty() {
        let still = session.silent_workers().await?;
        let gone: Vec<_> = silent.into_iter().filter(|id| still.contains(id)).collect();
        session.forget_workers(&gone).await?;
        memory.workers.forget(&gone);
    }
    let (types, workers) = (memory.types.get(session).await?, session.workers().await?);
    let hosts = Hosts::new(&workers, &types);
    let (mut changes, mut ran) = (Vec::new(), Vec::new());
    for record in records.values() {
        let rules = record.rules(types.settings(&record.task_type));
        let worker_seen_at = worker_id(record).and_then(|id| seen_at.get(id).copied());
        let event = Event::Clock { worker_seen_at };
        match decide(&record.life(), &rules, &event, now) {
            Ok(step) => {
                match step.ended {
                    Some(Outcome::Timeout) => rescued.timed_out += 1,
                    Some(Outcome::Lost) => rescued.lost += 1,
                    Some(Outcome::Release) => rescued.released += 1,
                    _ => rescued.expired += 1,
                }
                let exec_id = step.ended.and_then(|_| exec_id(record));
                rescued.tasks.push(RanOut { id: record.content.id, exec_id, outcome: step.ended });
                ran.extend(step::ran(record, &step, now));
                changes.push(step::change(record, &step, &Leaving::default(), &hosts, now));
            }
            Err(_) => changes.extend(look_again(record, &hosts, now)),
        }
    }
    session.write(&changes).await?;
    let mut dues: Vec<_> = changes.iter().filter_map(step::lane_due).collect();
    dues.extend(runs::advance(session, memory, ends::of(&changes)).await?);
    Ok((rescued, dues, ran))
}

fn worker_id(record: &Record) -> Option<&String> {
    match &record.place {
        Place::Live(row) => row.worker_id.as_ref(),
        Place::History(_) => None,
    }
}

fn exec_id(record: &Record) -> Option<ExecId> {
    match &record.place {
        Place::Live(row) => row.exec_id,
        Place::History(_) => None,
    }
}

/// A task whose time had come to be looked at, and whose clocks have not run out: a task that was kept for a host may go
/// to everybody now; an execution whose worker has called since is looked at later. One that its worker has not named is looked at
/// again a third of a heartbeat later: by then it may have called, or been silent too long.
fn look_again(record: &Record, hosts: &Hosts<'_>, now: Time) -> Option<Change> {
    let Place::Live(row) = &record.place else { return None };
    let mut next = row.clone();
    if crate::rows::status(row.status).is_waiting() {
        step::place_in_lane(&mut next, hosts, now);
    } else {
        let later = now.plus_ms((row.heartbeat_ms.unwrap_or(0) / 3).max(1));
        let later = row.deadline.map_or(later, |deadline| deadline.min(later));
        next.check_at = crate::rows::check_at(&row.life()).map(|at| if at > now { at } else { later });
    }
    (next != *row).then(|| Change {
        before: record.place.clone(),
        after: Some(Place::Live(next)),
        attempt: None,
        content: None,
        payload: None,
    })
}
