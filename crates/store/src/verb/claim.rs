//! Claim: due tasks into a worker's hands.

use super::step::{self, Hosts, Leaving};
use super::watermark::{LaneDue, Scan};
use super::{Memory, Types, ends, runs};
use crate::rows;
use crate::session::{Attempted, FROM_THE_START, Pick, PickLane, Picked, Session, Start, Starter};
use crate::worker::{ClaimRequest, ClaimedTask, Context};
use std::collections::BTreeSet;
use std::time::Instant;
use taskwheel_model::{Event, ExecId, Life, Ran, Refusal, State, TaskId, Time, decide};
use uuid::Uuid;

/// How often a claim looks again after it has met only tasks that may not start any more.
const ROUNDS_MAX: usize = 4;

/// Hands due tasks to a worker, and notes which may not start any more and end, and what becomes due by that.
pub(super) async fn claim(
    session: &mut dyn Session,
    memory: &Memory,
    request: &ClaimRequest,
    (dues, ran): (&mut Vec<LaneDue>, &mut Vec<Ran>),
) -> Attempted<Vec<ClaimedTask>> {
    let types = memory.types.get(session).await?;
    let mut pick = pick(request, &types);
    let mut claimed = Vec::new();
    for _ in 0..ROUNDS_MAX {
        pick.max = request.max - claimed.len();
        let picked = {
            let _turn = memory.watermarks.turn(pick.tenant.as_deref(), &pick.lanes).await;
            scan(session, memory, &mut pick).await?
        };
        let ended = start(session, &types, request, picked, &mut claimed).await?;
        if ended.is_empty() || claimed.len() == request.max {
            break;
        }
        dues.extend(end(session, memory, &types, &ended, ran).await?);
    }
    claimed.sort_by_key(|task| (std::cmp::Reverse(task.priority), task.run_at, task.id));
    Ok(claimed)
}

/// Whether a claim may find something.
pub(super) async fn is_due(session: &mut dyn Session, memory: &Memory, request: &ClaimRequest) -> Attempted<bool> {
    let types = memory.types.get(session).await?;
    let mut pick = Pick { max: 1, ..pick(request, &types) };
    Ok(!scan(session, memory, &mut pick).await?.is_empty())
}

/// Whether a claim asks for types, and for nothing that its lanes do not tell.
pub(super) fn asks_for_types_alone(request: &ClaimRequest) -> bool {
    request.categories.is_empty() && request.creator.is_none()
}

pub(super) fn pick(request: &ClaimRequest, types: &Types) -> Pick {
    let mut lanes: Vec<PickLane> = Vec::new();
    let mut add = |task_type: &str, plain_only: bool| {
        if types.is_paused(task_type) || lanes.iter().any(|lane| lane.lane == task_type) {
            return;
        }
        for lane in [step::lane(task_type, None), step::lane(task_type, Some(&request.host))] {
            lanes.push(PickLane { lane, plain_only, marks: FROM_THE_START });
        }
    };
    request.types.iter().for_each(|task_type| add(task_type, false));
    for category in &request.categories {
        types.of_category(category).iter().for_each(|task_type| add(task_type, true));
    }
    // One that is named twice would find its tasks twice.
    let categories: BTreeSet<_> = request.categories.iter().cloned().collect();
    Pick {
        tenant: request.tenant.clone(),
        creator: request.creator.clone(),
        lanes,
        categories: categories.into_iter().collect(),
        paused: if request.categories.is_empty() { Vec::new() } else { types.paused() },
        host: request.host.clone(),
        max: request.max,
    }
}

/// Picks by the watermarks, and from the start where that may find more.
async fn scan(session: &mut dyn Session, memory: &Memory, pick: &mut Pick) -> Attempted<Vec<Picked>> {
    let tenant = pick.tenant.clone();
    let tenant = tenant.as_deref();
    // A claim that wants only some of the tasks in its lanes cannot say what is left in them.
    let plain = pick.creator.is_none() && !pick.lanes.iter().any(|lane| lane.plain_only);
    let hint = if plain { memory.watermarks.start(tenant, &mut pick.lanes) } else { Scan::Full };
    let began = Instant::now();
    let mut picked = session.pick(pick).await?;
    let short = picked.len() < pick.max;
    if plain {
        memory.watermarks.learn(tenant, &pick.lanes, hint, began.elapsed(), (&picked, short));
    }
    for lane in &mut pick.lanes {
        lane.marks = FROM_THE_START;
    }
    if hint == Scan::Hinted && short && memory.watermarks.may_rescan(tenant, &pick.lanes) {
        let began = Instant::now();
        // What the hinted scan has locked is picked again: the transaction's own locks are not skipped.
        picked = session.pick(pick).await?;
        let short = picked.len() < pick.max;
        memory.watermarks.learn(tenant, &pick.lanes, Scan::Full, began.elapsed(), (&picked, short));
    }
    Ok(picked)
}

/// Starts what may start, and answers the others.
async fn start(
    session: &mut dyn Session,
    types: &Types,
    request: &ClaimRequest,
    picked: Vec<Picked>,
    claimed: &mut Vec<ClaimedTask>,
) -> Attempted<Vec<TaskId>> {
    let now = session.now();
    let mut starts = Vec::with_capacity(picked.len());
    let mut ended = Vec::new();
    for task in picked {
        let id = task.id;
        match begin(types, request, task, now) {
            Beginning::Starts(start, task) => {
                starts.push(start);
                claimed.push(*task);
            }
            Beginning::Ends => ended.push(id),
            Beginning::Waits => {}
        }
    }
    if !starts.is_empty() {
        session.start(&starter(request), &starts).await?;
    }
    Ok(ended)
}

/// What becomes of a task that a claim has met.
pub(super) enum Beginning {
    Starts(Start, Box<ClaimedTask>),
    /// It may not start any more.
    Ends,
    /// Its rank index said it was due; whatever else it is, it is not for now.
    Waits,
}

pub(super) fn begin(types: &Types, request: &ClaimRequest, task: Picked, now: Time) -> Beginning {
    let settings = types.settings(&task.task_type);
    let rules = rows::rules(task.retry.as_deref(), task.max_attempts, task.timeout_ms, settings);
    let life = Life {
        state: State::Waiting { hold: None },
        due: task.due,
        expire_at: task.expire_at,
        round: task.round,
        attempts: task.attempts,
        error_count: task.error_count,
    };
    let exec_id = new_exec_id(now);
    let event = Event::Claim { exec_id, heartbeat_ms: request.heartbeat_ms };
    let step = match decide(&life, &rules, &event, now) {
        Ok(step) => step,
        Err(Refusal::TooEarly | Refusal::Unchanged | Refusal::Conflict | Refusal::Superseded | Refusal::Cancelled) => {
            return Beginning::Waits;
        }
    };
    let State::Executing(execution) = &step.life.state else { return Beginning::Ends };
    let start = Start {
        id: task.id,
        exec_id,
        deadline: execution.deadline,
        lease_until: request.heartbeat_ms.is_none().then(|| execution.lease_until(None)),
        check_at: rows::check_at(&step.life).unwrap_or(now),
    };
    let claimed = ClaimedTask {
        id: task.id,
        exec_id,
        tenant: task.tenant,
        category: task.category.or_else(|| settings.and_then(|settings| settings.category.clone())),
        task_type: task.task_type,
        key: task.key,
        payload: task.payload,
        creator: task.creator,
        priority: u8::try_from(9 - task.rank).unwrap_or(1),
        run_at: task.due,
        round: task.round,
        attempt: step.life.attempts,
        checkpoint: task.checkpoint,
        lease_until: execution.lease_until(Some(now)),
        timeout_ms: rules.timeout_ms.unwrap_or(-1),
        started_at: now,
        trace_parent: task.trace_parent,
        context: task.context.as_deref().map(Context::read).unwrap_or_default(),
    };
    Beginning::Starts(start, Box::new(claimed))
}

pub(super) fn starter(request: &ClaimRequest) -> Starter {
    Starter { worker_id: request.worker_id.clone(), host: request.host.clone(), heartbeat_ms: request.heartbeat_ms }
}

/// Ends tasks that were due but may not start any more, so that the next claim does not meet them again.
async fn end(
    session: &mut dyn Session,
    memory: &Memory,
    types: &Types,
    ids: &[TaskId],
    ran: &mut Vec<Ran>,
) -> Attempted<Vec<LaneDue>> {
    let now = session.now();
    let hosts = Hosts::new(&[], types);
    let mut changes = Vec::new();
    for record in session.load(ids).await? {
        let rules = record.rules(types.settings(&record.task_type));
        let event = Event::Claim { exec_id: new_exec_id(now), heartbeat_ms: None };
        if let Ok(step) = decide(&record.life(), &rules, &event, now)
            && !matches!(step.life.state, State::Executing(_))
        {
            ran.extend(step::ran(&record, &step, now));
            changes.push(step::change(&record, &step, &Leaving::default(), &hosts, now));
        }
    }
    session.write(&changes).await?;
    runs::advance(session, memory, ends::of(&changes)).await
}

fn new_exec_id(now: Time) -> ExecId {
    let random = Uuid::new_v4().into_bytes();
    // Bytes 6 and 8 of a version 4 UUID carry fixed bits.
    ExecId::new(
        now,
        [
            random[0], random[1], random[2], random[3], random[4], random[5], random[7], random[9], random[10],
            random[11],
        ],
    )
}
