//! The records of runs: reading them, calling runs off, and forgetting the old ones.

use super::runs::{self, Locked, code, read_path};
use super::schedules::read_json;
use super::watermark::LaneDue;
use super::{Memory, Types, access, act};
use crate::access::{Actor, AuditEntry};
use crate::people::Action;
use crate::plain::{self, IDS, Kind, Plain, PlainRow, plain};
use crate::schedule::{Run, RunQuery, RunTask, Schedule};
use crate::session::{Attempted, Session};
use serde_json::json;
use std::collections::HashMap;
use taskwheel_model::schedule::Child;
use taskwheel_model::{Definition, RunStatus, Status, TaskId, Time, limits};

const RUN: &str = "
SELECT r.id, r.tenant, r.schedule_id, r.timer_id, r.due_at, r.status, r.reason, r.error, r.host, r.started_at,
       r.finished_at, r.definition, s.name, s.type
FROM task_run r LEFT JOIN task_schedule s ON s.id = r.schedule_id WHERE ";
const RUN_KINDS: &[Kind] = &[
    Kind::Number,
    Kind::Text,
    Kind::Number,
    Kind::Number,
    Kind::Number,
    Kind::Number,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Number,
    Kind::Number,
    Kind::Text,
    Kind::Text,
    Kind::Text,
];

/// A run as it was read, with what names its tasks.
struct Found {
    run: Run,
    definition: Option<Definition>,
    name: Option<String>,
    task_type: Option<String>,
}

pub(super) async fn get(session: &mut dyn Session, tenant: Option<&str>, id: i64) -> Attempted<Option<Run>> {
    let found = read(session, plain(RUN).and("r.id = ?").bind(id)).await?;
    Ok(found.into_iter().next().filter(|run| tenant.is_none_or(|tenant| run.tenant == tenant)))
}

pub(super) async fn list(session: &mut dyn Session, query: &RunQuery) -> Attempted<Vec<Run>> {
    let mut find = plain(RUN).and("r.id < ?").bind(query.before.unwrap_or(i64::MAX));
    if let Some(tenant) = &query.tenant {
        find = find.and(" AND r.tenant = ?").bind(tenant.as_str());
    }
    if let Some(id) = query.schedule_id {
        find = find.and(" AND r.schedule_id = ?").bind(id);
    }
    if let Some(status) = query.status {
        find = find.and(" AND r.status = ?").bind(status.code());
    }
    read(session, find.and(" ORDER BY r.id DESC LIMIT ?").bind(query.limit as i64)).await
}

async fn read(session: &mut dyn Session, query: Plain) -> Attempted<Vec<Run>> {
    let rows = session.rows(&query, RUN_KINDS).await?;
    let mut found = rows.into_iter().map(found).collect::<Attempted<Vec<_>>>()?;
    let mut steps = steps(session, found.iter().map(|found| found.run.id)).await?;
    for found in &mut found {
        found.run.tasks = tasks(found, steps.remove(&found.run.id).unwrap_or_default());
    }
    Ok(found.into_iter().map(|found| found.run).collect())
}

fn found(mut row: PlainRow) -> Attempted<Found> {
    let run = Run {
        id: row.number()?,
        tenant: row.text()?,
        schedule_id: row.number()?,
        timer_id: row.maybe_number()?,
        due_at: Time(row.number()?),
        status: RunStatus::from_code(row.number()?).unwrap_or(RunStatus::Failed),
        reason: row.maybe_text()?,
        error: row.maybe_text()?,
        host: row.maybe_text()?,
        started_at: row.maybe_number()?.map(Time),
        finished_at: row.maybe_number()?.map(Time),
        tasks: Vec::new(),
    };
    let definition = row.maybe_text()?.map(|text| read_json(&text)).transpose()?;
    Ok(Found { run, definition, name: row.maybe_text()?, task_type: row.maybe_text()? })
}

/// A task of a run as it stands.
struct StepNow {
    task_id: TaskId,
    path: Vec<usize>,
    shard: Option<i64>,
    /// None where the task is not kept any more.
    now: Option<Status>,
    noted: Status,
    task_type: Option<String>,
    parent_id: Option<TaskId>,
}

/// Most tasks that a page of runs shows.
const STEPS_MAX: i64 = 5_000;

async fn steps(session: &mut dyn Session, runs: impl Iterator<Item = i64>) -> Attempted<HashMap<i64, Vec<StepNow>>> {
    let ids = plain::ids(runs);
    let mut steps: HashMap<i64, Vec<StepNow>> = HashMap::new();
    if ids.is_empty() {
        return Ok(steps);
    }
    use Kind::{Number, Text};
    let kinds = [Number, Number, Text, Number, Number, Number, Text, Number];
    for (columns, table) in [
        ("SELECT s.run_id, s.task_id, s.path, s.shard, s.status,", " JOIN task_step s ON s.run_id = n.id"),
        (
            "SELECT s.id, s.task_id, '', NULL + s.id, s.status * 0 + 1,",
            " JOIN task_run s ON s.id = n.id AND s.task_id > 0",
        ),
    ] {
        // The sum makes a number of the same kind of it on every database.
        let find =
            plain(columns).and(" 0 * s.task_id + COALESCE(w.status, r.status, h.status), t.type, t.parent_id FROM ");
        let find = find.rows(IDS, ids.clone()).and(table).and(
            " LEFT JOIN task t ON t.id = s.task_id LEFT JOIN task_waiting w ON w.id = t.id AND w.tenant = t.tenant
              LEFT JOIN task_running r ON r.id = s.task_id LEFT JOIN task_history h ON h.id = s.task_id
              ORDER BY s.task_id LIMIT ?",
        );
        for mut row in session.rows(&find.bind(STEPS_MAX), &kinds).await? {
            let run_id = row.number()?;
            let step = StepNow {
                task_id: TaskId(row.number()?),
                path: read_path(&row.text()?),
                shard: row.maybe_number()?,
                noted: code(row.number()?),
                now: row.maybe_number()?.map(code),
                task_type: row.maybe_text()?,
                parent_id: row.maybe_number()?.map(TaskId),
            };
            steps.entry(run_id).or_default().push(step);
        }
    }
    Ok(steps)
}

/// The whole tree of a run: its tasks, and after them what has not started.
fn tasks(found: &Found, steps: Vec<StepNow>) -> Vec<RunTask> {
    let Found { run, definition, .. } = found;
    let child = |path: &[usize]| definition.as_ref().and_then(|definition| definition.child(path));
    let shown = |step: &StepNow| {
        let (name, task_type) = match child(&step.path) {
            Some(child) => (child.name.clone(), Some(child.task_type.clone())),
            None => (found.name.clone(), found.task_type.clone()),
        };
        RunTask {
            id: Some(step.task_id),
            name,
            task_type: step.task_type.clone().or(task_type),
            status: Some(step.now.unwrap_or_else(|| forgotten(run.status, definition.is_some(), step.noted))),
            parent_id: step.parent_id,
            shard_index: step.shard,
            enabled: true,
        }
    };
    let mut tasks: Vec<_> = steps.iter().map(shown).collect();
    if let Some(definition) = definition {
        let started = |path: &[usize]| steps.iter().find(|step| step.path == path).map(|step| step.task_id);
        unstarted(&definition.children, &mut Vec::new(), &started, &mut tasks);
    }
    tasks
}

/// The status of a task that is not kept any more. One that is alone in its run ended as that did.
fn forgotten(run: RunStatus, is_tree: bool, noted: Status) -> Status {
    match run {
        _ if is_tree => noted,
        RunStatus::Done => Status::Success,
        RunStatus::Failed | RunStatus::TimedOut => Status::Failure,
        RunStatus::Cancelled => Status::Cancelled,
        _ => noted,
    }
}

fn unstarted(
    children: &[Child],
    path: &mut Vec<usize>,
    started: &dyn Fn(&[usize]) -> Option<TaskId>,
    tasks: &mut Vec<RunTask>,
) {
    for (place, child) in children.iter().enumerate() {
        let parent_id = started(path);
        path.push(place);
        if started(path).is_none() {
            tasks.push(RunTask {
                id: None,
                name: child.name.clone(),
                task_type: Some(child.task_type.clone()),
                status: None,
                parent_id,
                shard_index: None,
                enabled: child.enabled,
            });
        }
        unstarted(&child.children, path, started, tasks);
        path.pop();
    }
}

/// A run of which nothing is recorded, as it began.
pub(super) fn unrecorded(id: i64, schedule: &Schedule, now: Time) -> Run {
    Run {
        id,
        tenant: schedule.tenant.clone(),
        schedule_id: schedule.id,
        timer_id: None,
        due_at: now,
        status: RunStatus::Running,
        reason: None,
        error: None,
        host: None,
        started_at: Some(now),
        finished_at: None,
        tasks: Vec::new(),
    }
}

/// Cancels what has not ended of a run.
pub(super) async fn cancel(
    session: &mut dyn Session,
    memory: &Memory,
    by: &Actor,
    tenant: Option<&str>,
    id: i64,
) -> Attempted<(Option<Run>, Vec<LaneDue>)> {
    let Some(before) = get(session, tenant, id).await? else { return Ok((None, Vec::new())) };
    if !before.status.lives() {
        return Ok((Some(before), Vec::new()));
    }
    let types = memory.types.get(session).await?;
    let (is_cancelled, dues) = call_off(session, memory, &types, id, None).await?;
    if is_cancelled {
        let line = AuditEntry::new(session.now(), by, Some(&before.tenant), "run.cancel", id.to_string());
        let (was, became) = (json!({"status": before.status}), json!({"status": RunStatus::Cancelled}));
        access::write_line(session, AuditEntry { before: was, after: became, ..line }).await?;
    }
    Ok((get(session, tenant, id).await?.or(Some(before)), dues))
}

/// Cancels all runs of a schedule that live: a new one takes their place.
pub(super) async fn replace(
    session: &mut dyn Session,
    memory: &Memory,
    types: &Types,
    schedule_id: i64,
) -> Attempted<Vec<LaneDue>> {
    let find = plain("SELECT id FROM task_run WHERE schedule_id = ? AND status <= ? ORDER BY id");
    let live = session.rows(&find.bind(schedule_id).bind(RunStatus::Running.code()), &[Kind::Number]).await?;
    let mut dues = Vec::new();
    for mut row in live {
        dues.extend(call_off(session, memory, types, row.number()?, Some("replaced")).await?.1);
    }
    Ok(dues)
}

/// Cancels a run's tasks, and then the run. A task that starts in between is found by the next look; the run is locked for the last one.
async fn call_off(
    session: &mut dyn Session,
    memory: &Memory,
    types: &Types,
    id: i64,
    reason: Option<&str>,
) -> Attempted<(bool, Vec<LaneDue>)> {
    let (mut dues, mut called_off) = (Vec::new(), 0);
    loop {
        let living = living_tasks(session, id).await?;
        called_off += living.len();
        for chunk in living.chunks(limits::CHUNK_ROWS_MAX) {
            dues.extend(act::act(session, memory, None, chunk, &Action::Cancel).await?.1);
        }
        let Some(run) = runs::lock(session, [id].into_iter()).await?.into_iter().next() else {
            return Ok((called_off > 0, dues));
        };
        if run.status.lives() {
            if !living_tasks(session, id).await?.is_empty() {
                continue;
            }
            let cancelled = Locked { status: RunStatus::Cancelled, ..run };
            dues.extend(runs::settle(session, memory, types, vec![cancelled]).await?);
        } else if called_off == 0 {
            return Ok((false, dues));
        }
        // Whatever else went wrong in it, it was called off.
        let set = plain("UPDATE task_run SET status = ?, reason = ? WHERE id = ?").bind(RunStatus::Cancelled.code());
        session.execute(&set.bind(reason).bind(id)).await?;
        return Ok((true, dues));
    }
}

/// The tasks of a run that have not ended.
async fn living_tasks(session: &mut dyn Session, id: i64) -> Attempted<Vec<TaskId>> {
    let steps = steps(session, [id].into_iter()).await?.remove(&id).unwrap_or_default();
    let lives = |step: &&StepNow| step.now.is_some_and(|status| !status.is_finished());
    Ok(steps.iter().filter(lives).map(|step| step.task_id).collect())
}

/// Removes runs that ended before a time, from the oldest on.
pub(super) async fn purge(session: &mut dyn Session, keep_ms: i64) -> Attempted<u64> {
    let before = session.now().plus_ms(-keep_ms);
    let find = plain("SELECT id, finished_at FROM task_run WHERE finished_at < ? ORDER BY finished_at LIMIT ?");
    let find = find.bind(before.0).bind(limits::CHUNK_ROWS_MAX as i64);
    let (mut ids, mut last) = (Vec::new(), None);
    for mut row in session.rows(&find, &[Kind::Number, Kind::Number]).await? {
        ids.push(row.number()?);
        last = Some(row.number()?);
    }
    let (Some(first), Some(highest), Some(last)) = (ids.iter().min(), ids.iter().max(), last) else { return Ok(0) };
    const STEPS: &str = "
DELETE FROM task_step WHERE run_id >= ? AND run_id <= ? AND run_id IN (SELECT id FROM task_run WHERE finished_at <= ?)";
    session.execute(&plain(STEPS).bind(*first).bind(*highest).bind(last)).await?;
    let purge = plain("DELETE FROM task_run WHERE finished_at <= ? AND id >= ? AND id <= ?");
    session.execute(&purge.bind(last).bind(*first).bind(*highest)).await
}
