//! Renew: executions that their workers keep.

use super::watermark::LaneDue;
use super::workers::Calls;
use super::{Memory, step};
use crate::rows::{Change, Changes, Place, Record};
use crate::session::{Attempted, Session};
use crate::worker::{Heartbeat, Renewal, Renewed, Worker};
use std::collections::{BTreeMap, HashMap};
use taskwheel_model::{Event, ExecId, Refusal, State, Status, TaskId, Time, decide};

pub(super) async fn renew(
    session: &mut dyn Session,
    memory: &Memory,
    workers: &[Heartbeat],
    items: &[&Renewal],
) -> Attempted<((Vec<Renewed>, Vec<LaneDue>), Calls)> {
    let mut forgotten = BTreeMap::new();
    let answers = match items {
        [] => Default::default(),
        _ => renew_all(session, memory, items, &mut forgotten).await?,
    };
    for worker in forgotten.into_values() {
        if let Some(heartbeat) = workers.iter().find(|heartbeat| heartbeat.worker_id == worker.worker_id) {
            session.register(&Worker { tenant: heartbeat.owner.clone(), ..worker }).await?;
        }
    }
    Ok((answers, memory.workers.heard(session, workers).await?))
}

/// Notes workers that live, and of which no row knows: a claim of theirs took so long that they were given up meanwhile. Without a row nobody
/// would notice their end.
async fn renew_all(
    session: &mut dyn Session,
    memory: &Memory,
    items: &[&Renewal],
    forgotten: &mut BTreeMap<String, Worker>,
) -> Attempted<(Vec<Renewed>, Vec<LaneDue>)> {
    let (now, types) = (session.now(), memory.types.get(session).await?);
    let mut records = load(session, items.iter().map(|item| item.id)).await?;
    let mut changes = Changes::default();
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let known = records.get_mut(&item.id).filter(|record| of_tenant(record, item.tenant.as_deref()));
        let Some(record) = known else {
            answers.push(Renewed::Superseded);
            continue;
        };
        let rules = record.rules(types.settings(&record.task_type));
        match decide(&record.life(), &rules, &Event::Renew { exec_id: item.exec_id }, now) {
            Ok(step) => {
                forgotten.extend(without_row(record, now).map(|worker| (worker.worker_id.clone(), worker)));
                let (change, lease_until) = keep(record, &step.life, item, now);
                if let Some(change) = change {
                    changes.push(record, change);
                }
                answers.push(Renewed::Ok(lease_until));
            }
            Err(Refusal::Cancelled) => {
                if let Some(change) = free(record, item.exec_id, now) {
                    changes.push(record, change);
                }
                answers.push(Renewed::Cancelled);
            }
            Err(_) if was_cancelled(record, item.exec_id) => answers.push(Renewed::Cancelled),
            Err(_) => answers.push(Renewed::Superseded),
        }
    }
    session.write(changes.as_slice()).await?;
    Ok((answers, changes.as_slice().iter().filter_map(step::lane_due).collect()))
}

/// The worker of an execution that lives by its heartbeat, where it has no row, as far as the execution tells.
fn without_row(record: &Record, now: Time) -> Option<Worker> {
    let Place::Live(row) = &record.place else { return None };
    let heartbeat_ms = row.heartbeat_ms.filter(|_| record.worker_seen_at.is_none())?;
    Some(Worker {
        worker_id: row.worker_id.clone()?,
        host: row.host.clone()?,
        app: None,
        types: Vec::new(),
        categories: Vec::new(),
        heartbeat_ms: Some(heartbeat_ms),
        started_at: now,
        seen_at: now,
        tenant: None,
    })
}

/// The change that keeps an execution, where its row needs one at all, and how long it is kept.
fn keep(record: &Record, life: &taskwheel_model::Life, item: &Renewal, now: Time) -> (Option<Change>, Time) {
    let (Place::Live(row), State::Executing(execution)) = (&record.place, &life.state) else {
        unreachable!("only a live execution can be renewed")
    };
    let mut next = row.clone();
    next.set_life(life, now);
    next.checkpoint = item.checkpoint.clone().or(next.checkpoint);
    next.progress = item.progress.clone().or(next.progress);
    let same = next.named == row.named
        && next.lease_until == row.lease_until
        && item.checkpoint.is_none()
        && item.progress.is_none();
    let lease_until = execution.lease_until(Some(now));
    if same {
        return (None, lease_until);
    }
    let change = Change {
        before: record.place.clone(),
        after: Some(Place::Live(next)),
        attempt: None,
        content: None,
        payload: None,
    };
    (Some(change), lease_until)
}

/// The change that ends the wait for a cancelled execution, now that its worker knows.
pub(super) fn free(record: &Record, exec_id: ExecId, now: Time) -> Option<Change> {
    let life = record.life().without_hold(exec_id, now)?;
    let (after, content) = match &record.place {
        Place::Live(row) => {
            let mut next = row.clone();
            next.set_life(&life, now);
            let content = crate::rows::ContentRow { run_at: next.due, ..record.content.clone() };
            (Place::Live(next), Some(content))
        }
        Place::History(row) => {
            let mut next = row.clone();
            (next.hold_until, next.updated_at) = (None, now);
            (Place::History(next), None)
        }
    };
    Some(Change { before: record.place.clone(), after: Some(after), attempt: None, content, payload: None })
}

fn was_cancelled(record: &Record, exec_id: ExecId) -> bool {
    matches!(&record.place, Place::History(row)
        if row.exec_id == Some(exec_id) && row.status == Status::Cancelled.code())
}

pub(super) fn of_tenant(record: &Record, tenant: Option<&str>) -> bool {
    tenant.is_none_or(|tenant| record.tenant() == tenant)
}

/// Loads tasks by id. In the order of ids, so that two transactions never wait for each other crosswise.
pub(super) async fn load(
    session: &mut dyn Session,
    ids: impl Iterator<Item = TaskId>,
) -> Attempted<HashMap<TaskId, Record>> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let records = session.load(&ids).await?;
    Ok(records.into_iter().map(|record| (record.id(), record)).collect())
}
