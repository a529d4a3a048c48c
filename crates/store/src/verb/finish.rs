//! Finish: the reports of workers.
//!
//! A success needs no look at the task first: the model says that it ends the task whatever else is true of it (its
//! test `success_of_the_current_execution_always_ends_the_task`). So it is one guarded statement. Everything else is loaded
//! and decided, and so is a success that did not meet its execution: it may be a repetition.

use super::ends::{self, StepEnd};
use super::renew::{free, load, of_tenant};
use super::step::{self, Hosts, Leaving};
use super::watermark::LaneDue;
use super::workers::Calls;
use super::{Memory, Types, runs};
use crate::plain::{self, IDS, Kind, plain};
use crate::rows::{Changes, Place, Record};
use crate::session::{Attempted, Done, Ended, Session, Succeed};
use crate::worker::{Report, Reported};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use taskwheel_model::{Event, ExecId, Outcome, Ran, Refusal, Status, TaskId, decide};

pub(super) async fn finish(
    session: &mut dyn Session,
    memory: &Memory,
    reports: &[Report],
    keep_success: bool,
) -> Attempted<((Vec<Reported>, Vec<LaneDue>, Vec<Ran>), Calls)> {
    if reports.iter().any(is_success) && !are_of_success(reports) {
        lock(session, reports).await?;
    }
    let how = Succeed { keep: keep_success, leaves_runs: false };
    let Succeeded { executions: succeeded, mut callers, mut ran, mut steps } = succeed(session, reports, how).await?;
    if !succeeded.is_empty() {
        memory.ends_runs.store(!steps.is_empty(), Ordering::Relaxed);
    }
    let rest: Vec<_> = reports.iter().filter(|report| !succeeded.contains(&(report.id, report.exec_id))).collect();
    let (mut others, mut dues) = (Vec::new().into_iter(), Vec::new());
    if !rest.is_empty() {
        let types = memory.types.get(session).await?;
        let (answers, changes, ended) = decide_rest(session, &types, &rest, &mut callers).await?;
        ran.extend(ended);
        dues.extend(changes.as_slice().iter().filter_map(step::lane_due));
        steps.extend(ends::of(changes.as_slice()));
        others = answers.into_iter();
    }
    let calls = memory.workers.seen(session, callers).await?;
    dues.extend(runs::advance(session, memory, steps).await?);
    let answer = |report: &Report| {
        if succeeded.contains(&(report.id, report.exec_id)) {
            // The same execution cannot have ended otherwise as well: the first word counts.
            match report.outcome {
                Outcome::Success | Outcome::Completed => Reported::Accepted(Status::Success),
                _ => Reported::Superseded(Some(Status::Success)),
            }
        } else {
            others.next().unwrap_or(Reported::Superseded(None))
        }
    };
    Ok(((reports.iter().map(answer).collect(), dues, ran), calls))
}

/// Whether all of them are of success.
pub(super) fn are_of_success(reports: &[Report]) -> bool {
    reports.iter().all(is_success)
}

fn is_success(report: &Report) -> bool {
    matches!(report.outcome, Outcome::Success | Outcome::Completed)
}

/// Locks executions in the order of their ids, as every verb does, where two statements would take them in another.
async fn lock(session: &mut dyn Session, reports: &[Report]) -> Attempted<()> {
    let ids: BTreeSet<_> = reports.iter().map(|report| report.id).collect();
    let ids = plain::ids(ids.into_iter().map(|id| id.0));
    let find = plain("SELECT r.id FROM ").rows(IDS, ids).and(" JOIN task_running r ON r.id = n.id ORDER BY r.id");
    session.rows(&find.lock("r"), &[Kind::Number]).await.map(drop)
}

/// What ended well.
#[derive(Default)]
pub(super) struct Succeeded {
    pub(super) executions: HashSet<(TaskId, ExecId)>,
    /// Whose they were.
    pub(super) callers: BTreeSet<String>,
    pub(super) ran: Vec<Ran>,
    steps: Vec<StepEnd>,
}

/// Ends what was successful.
pub(super) async fn succeed(session: &mut dyn Session, reports: &[Report], how: Succeed) -> Attempted<Succeeded> {
    let mut seen = HashSet::new();
    let done: Vec<_> = reports
        .iter()
        .filter(|report| is_success(report))
        .filter(|report| seen.insert(report.id))
        .map(|report| Done {
            id: report.id,
            exec_id: report.exec_id,
            tenant: report.tenant.clone(),
            outcome: report.outcome,
            result: report.result.clone(),
        })
        .collect();
    if done.is_empty() {
        return Ok(Succeeded::default());
    }
    let mut done = done;
    done.sort_unstable_by_key(|one| one.id);
    let reported: HashMap<_, _> = done.iter().map(|one| (one.id, (one.exec_id, one.outcome))).collect();
    let ended = session.succeed(&done, how).await?;
    let callers = ended.iter().filter_map(|one| one.worker_id.clone()).collect();
    let executions = ended.iter().map(|one| (one.id, reported[&one.id].0)).collect();
    let result = |id| done.binary_search_by_key(&id, |one| one.id).ok().and_then(|place| done[place].result.clone());
    let steps = ends::of_well(&ended, result);
    let ended_at = session.now();
    let ran = |one: Ended| Ran {
        execution: Some((one.started_at, reported[&one.id].1)),
        tenant: one.tenant,
        task_type: one.task_type,
        attempt: one.attempt,
        due: one.due,
        ended_at: ended_at.max(one.started_at),
        status: Status::Success,
    };
    Ok(Succeeded { executions, callers, ran: ended.into_iter().map(ran).collect(), steps })
}

async fn decide_rest(
    session: &mut dyn Session,
    types: &Types,
    reports: &[&Report],
    callers: &mut BTreeSet<String>,
) -> Attempted<(Vec<Reported>, Changes, Vec<Ran>)> {
    let now = session.now();
    let workers = session.workers().await?;
    let hosts = Hosts::new(&workers, types);
    let mut records = load(session, reports.iter().map(|report| report.id)).await?;
    let executions: Vec<_> = reports.iter().map(|report| (report.id, report.exec_id)).collect();
    let logged = session.logged(&executions).await?;
    let mut ends: HashMap<_, _> = logged.into_iter().map(|(id, exec_id, outcome)| ((id, exec_id), outcome)).collect();
    ends.extend(records.values().filter_map(end_in_history));

    let mut changes = Changes::default();
    let (mut answers, mut ran) = (Vec::with_capacity(reports.len()), Vec::new());
    for report in reports {
        let known = records.get_mut(&report.id).filter(|record| of_tenant(record, report.tenant.as_deref()));
        let Some(record) = known else {
            answers.push(Reported::Superseded(None));
            continue;
        };
        let rules = record.rules(types.settings(&record.task_type));
        let event =
            Event::Report { exec_id: report.exec_id, outcome: report.outcome, retry_after_ms: report.retry_after_ms };
        match decide(&record.life(), &rules, &event, now) {
            Ok(step) => {
                if let Place::Live(row) = &record.place {
                    callers.extend(row.worker_id.clone().filter(|_| row.heartbeat_ms.is_some()));
                }
                ran.extend(step::ran(record, &step, now));
                let change = step::change(record, &step, &leaving(report), &hosts, now);
                changes.push(record, change);
                ends.insert((report.id, report.exec_id), report.outcome);
                answers.push(Reported::Accepted(step.life.status()));
            }
            Err(refusal) => {
                let status = record.life().status();
                if refusal == Refusal::Cancelled
                    && let Some(change) = free(record, report.exec_id, now)
                {
                    changes.push(record, change);
                }
                let repeated = ends.get(&(report.id, report.exec_id)) == Some(&report.outcome);
                answers.push(if repeated { Reported::Accepted(status) } else { Reported::Superseded(Some(status)) });
            }
        }
    }
    session.write(changes.as_slice()).await?;
    Ok((answers, changes, ran))
}

/// How the last execution of a finished task ended.
fn end_in_history(record: &Record) -> Option<((TaskId, ExecId), Outcome)> {
    match &record.place {
        Place::History(row) => Some(((row.id, row.exec_id?), Outcome::from_code(row.outcome?)?)),
        Place::Live(_) => None,
    }
}

/// What succeeded has nothing to go on from.
fn leaving(report: &Report) -> Leaving {
    let checkpoint = report.checkpoint.clone().filter(|_| !is_success(report));
    Leaving { error: report.error.clone(), result: report.result.clone(), checkpoint }
}
