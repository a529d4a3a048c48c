//! Runs: how they go on when a task of theirs ends, in the very transaction in which it ends.
//!
//! A run is locked before anything is decided about it, so that the last two shards of a node cannot both believe that the other one still
//! lives. What a run is made of is kept with it: an edit of its schedule does not reach it.

use super::ends::StepEnd;
use super::launch::{Launch, Moment, Seat};
use super::schedules::{read_json, rhythm};
use super::watermark::LaneDue;
use super::{Memory, Types};
use crate::plain::{self, Column, IDS, Kind, PlainRow, Row, plain, row, update};
use crate::session::{Attempted, Origin, Session};
use crate::worker::Context;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use taskwheel_model::schedule::{self, Log, Overlap, Progress, Step};
use taskwheel_model::{Definition, RunStatus, Status, TaskId, Time, Timer, field, limits};

/// A run, locked.
#[derive(Clone, Debug)]
pub(super) struct Locked {
    pub id: i64,
    pub tenant: String,
    pub schedule_id: i64,
    pub timer_id: Option<i64>,
    pub due: Time,
    pub status: RunStatus,
    pub log: Log,
    pub overlap: Overlap,
    pub rearms: bool,
    pub reason: Option<String>,
    pub error: Option<String>,
    pub host: Option<String>,
    /// Where it has more tasks than one, or may have.
    pub definition: Option<Definition>,
    pub started_at: Option<Time>,
}

const LOAD: &str = "SELECT r.id, r.tenant, r.schedule_id, r.timer_id, r.due_at, r.status, r.log, r.overlap, r.rearms, \
     r.reason, r.error, r.host, r.definition, r.started_at FROM ";
const LOAD_KINDS: &[Kind] = &[
    Kind::Number,
    Kind::Text,
    Kind::Number,
    Kind::Number,
    Kind::Number,
    Kind::Number,
    Kind::Text,
    Kind::Text,
    Kind::Number,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::Number,
];

/// Loads and locks runs, in the order of their ids.
pub(super) async fn lock(session: &mut dyn Session, ids: impl Iterator<Item = i64>) -> Attempted<Vec<Locked>> {
    let load = plain(LOAD).rows(IDS, plain::ids(ids)).and(" JOIN task_run r ON r.id = n.id ORDER BY r.id").lock("r");
    session.rows(&load, LOAD_KINDS).await?.into_iter().map(read).collect()
}

/// Loads and locks the first run of each of some schedules that is queued.
async fn lock_queued(session: &mut dyn Session, schedules: &[i64]) -> Attempted<Vec<Locked>> {
    let first = plain("SELECT MIN(r.id) FROM ").rows(IDS, plain::ids(schedules.iter().copied()));
    let first = first.and(" JOIN task_run r ON r.schedule_id = n.id AND r.status = ? GROUP BY n.id");
    let rows = session.rows(&first.bind(RunStatus::Queued.code()), &[Kind::Number]).await?;
    let ids = rows.into_iter().map(|mut row| row.number()).collect::<Attempted<Vec<_>>>()?;
    if ids.is_empty() { Ok(Vec::new()) } else { lock(session, ids.into_iter()).await }
}

fn read(mut row: PlainRow) -> Attempted<Locked> {
    let word = |text: String| Value::String(text);
    Ok(Locked {
        id: row.number()?,
        tenant: row.text()?,
        schedule_id: row.number()?,
        timer_id: row.maybe_number()?,
        due: Time(row.number()?),
        status: RunStatus::from_code(row.number()?).unwrap_or(RunStatus::Failed),
        log: serde_json::from_value(word(row.text()?)).unwrap_or_default(),
        overlap: serde_json::from_value(word(row.text()?)).unwrap_or_default(),
        rearms: row.number()? != 0,
        reason: row.maybe_text()?,
        error: row.maybe_text()?,
        host: row.maybe_text()?,
        definition: row.maybe_text()?.map(|text| read_json(&text)).transpose()?,
        started_at: row.maybe_number()?.map(Time),
    })
}

/// The word that a run keeps while it goes on after a time limit ran out in it.
const TIME_LIMIT: &str = "time_limit";

/// Lets runs go on whose tasks ended, and says what became due by that.
pub(super) async fn advance(session: &mut dyn Session, memory: &Memory, ends: Vec<StepEnd>) -> Attempted<Vec<LaneDue>> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let types = memory.types.get(session).await?;
    let mut by_run: BTreeMap<i64, Vec<StepEnd>> = BTreeMap::new();
    for end in ends {
        by_run.entry(end.run_id).or_default().push(end);
    }
    let mut runs = lock(session, by_run.keys().copied()).await?;
    // Nobody follows a run of which only the firing is recorded.
    runs.retain(|run| !(run.log == Log::TriggerLog && run.status == RunStatus::Done));
    let steps = step_all(session, &runs, &by_run).await?;
    let mut launch = Launch::default();
    let moment = Moment { types: &types, workers: &[], now: session.now() };
    let mut changed = Vec::new();
    for mut run in runs {
        let Some(ends) = by_run.remove(&run.id) else { continue };
        if run.status == RunStatus::Cancelled {
            // It was cancelled with these, unless one of them was retried or resolved since: then it is taken up again.
            if ends.iter().all(|end| end.status == Status::Cancelled) {
                continue;
            }
            run.reason = None;
        }
        note(&mut run, &ends);
        let next = match (&run.definition, run.status) {
            (_, RunStatus::Skipped | RunStatus::Queued) => continue,
            (None, _) => of_one(&ends),
            (Some(definition), _) => {
                let steps = steps.get(&run.id).map_or(&[][..], Vec::as_slice);
                let known: Vec<_> = steps.iter().map(|(_, step)| step.clone()).collect();
                match schedule::progress(definition, &known) {
                    Progress::GoesOn { start } => {
                        follow(session, &mut launch, &run, definition, steps, &start, &moment).await?;
                        RunStatus::Running
                    }
                    Progress::Ended { is_done: true } => RunStatus::Done,
                    Progress::Ended { is_done: false } => of_all(&known),
                }
            }
        };
        run.status = match next {
            RunStatus::Failed if run.reason.as_deref() == Some(TIME_LIMIT) => RunStatus::TimedOut,
            next => next,
        };
        if run.status == RunStatus::Done {
            (run.error, run.reason) = (None, None);
        }
        changed.push(run);
    }
    let mut dues = launch.write(session).await?;
    dues.extend(settle(session, memory, &types, changed).await?);
    Ok(dues)
}

/// Notes in a run what went wrong first in it, and where it ran.
fn note(run: &mut Locked, ends: &[StepEnd]) {
    for end in ends {
        run.host = end.host.clone().or(run.host.take());
        match end.status {
            Status::Failure | Status::Pending if run.error.is_none() => {
                let text = end.error.as_deref().unwrap_or("it failed");
                run.error = Some(field::cut(text, limits::ERROR_BYTES_MAX));
                run.reason = end.timed_out.then(|| TIME_LIMIT.to_owned());
            }
            _ => {}
        }
    }
}

/// How a run of one task stands.
fn of_one(ends: &[StepEnd]) -> RunStatus {
    match ends.last().map(|end| end.status) {
        Some(Status::Success | Status::ManuallyProcessed) => RunStatus::Done,
        Some(Status::Failure | Status::Pending) => RunStatus::Failed,
        Some(Status::Cancelled) => RunStatus::Cancelled,
        _ => RunStatus::Running,
    }
}

/// How a run ended that did not end well.
fn of_all(steps: &[Step]) -> RunStatus {
    let failed = |step: &Step| matches!(step.status, Status::Failure | Status::Pending);
    if steps.iter().any(failed) { RunStatus::Failed } else { RunStatus::Cancelled }
}

type Steps = Vec<(TaskId, Step)>;

const STEP: &[Column] =
    &[("run_id", Kind::Number), ("task_id", Kind::Number), ("status", Kind::Number), ("result", Kind::Text)];

/// Writes how tasks of runs with several stand, and reads all of those runs' tasks.
async fn step_all(
    session: &mut dyn Session,
    runs: &[Locked],
    by_run: &BTreeMap<i64, Vec<StepEnd>>,
) -> Attempted<HashMap<i64, Steps>> {
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    for run in runs {
        let Some(definition) = &run.definition else { continue };
        ids.push(run.id);
        for end in by_run.get(&run.id).into_iter().flatten() {
            let result = end.result.as_deref().filter(|_| !definition.children.is_empty());
            rows.push(row![end.run_id, end.task_id, i64::from(end.status.code()), result]);
        }
    }
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    session.execute(&update("task_step", 2, STEP, rows)).await?;
    let find = plain("SELECT s.run_id, s.task_id, s.path, s.status FROM ").rows(IDS, plain::ids(ids));
    let find = find.and(" JOIN task_step s ON s.run_id = n.id ORDER BY s.run_id, s.task_id");
    let mut steps: HashMap<i64, Steps> = HashMap::new();
    for mut row in session.rows(&find, &[Kind::Number, Kind::Number, Kind::Text, Kind::Number]).await? {
        let (run_id, task_id) = (row.number()?, TaskId(row.number()?));
        let step = Step { path: read_path(&row.text()?), status: code(row.number()?) };
        steps.entry(run_id).or_default().push((task_id, step));
    }
    Ok(steps)
}

/// The status that a step's number stands for.
pub(super) fn code(code: i64) -> Status {
    i16::try_from(code).ok().and_then(Status::from_code).unwrap_or(Status::Failure)
}

/// A path as it is stored: the places, with dots between.
fn path_text(path: &[usize]) -> String {
    path.iter().map(usize::to_string).collect::<Vec<_>>().join(".")
}

pub(super) fn read_path(text: &str) -> Vec<usize> {
    text.split('.').filter_map(|place| place.parse().ok()).collect()
}

/// Starts nodes of a run, each with the results of its parent.
async fn follow(
    session: &mut dyn Session,
    launch: &mut Launch,
    run: &Locked,
    definition: &Definition,
    steps: &[(TaskId, Step)],
    start: &[Vec<usize>],
    moment: &Moment<'_>,
) -> Attempted<()> {
    let root_id = steps.iter().find(|(_, step)| step.path.is_empty()).map(|(id, _)| *id);
    let mut parents: HashMap<&[usize], (Option<TaskId>, Value)> = HashMap::new();
    for path in start {
        let (Some(child), Some((_, above))) = (definition.child(path), path.split_last()) else { continue };
        if !parents.contains_key(above) {
            parents.insert(above, results(session, run.id, &path_text(above)).await?);
        }
        let (parent_id, parent) = parents[above].clone();
        let context = Context { shard_index: None, shard_total: None, parent: Some(parent) };
        let (schedule_id, run_id) = (run.schedule_id, Some(run.id));
        let origin = Origin { schedule_id, run_id, parent_id, root_id, context: context.text() };
        let seat = Seat::Step { run_id: run.id, path: path_text(path), shard: None };
        launch.add(definition.follower(child, &run.tenant), origin, seat, moment);
    }
    Ok(())
}

/// The tasks of a node with their results: an object, or a list of them where it has shards.
async fn results(session: &mut dyn Session, run_id: i64, path: &str) -> Attempted<(Option<TaskId>, Value)> {
    let find =
        plain("SELECT task_id, shard, result FROM task_step WHERE run_id = ? AND path = ? ORDER BY shard, task_id");
    let rows = session.rows(&find.bind(run_id).bind(path), &[Kind::Number, Kind::Number, Kind::Text]).await?;
    let (mut first, mut bytes, mut is_sharded, mut list) = (None, 0, false, Vec::new());
    for mut row in rows {
        let (id, shard, result) = (row.number()?, row.maybe_number()?, row.maybe_text()?);
        first.get_or_insert(TaskId(id));
        is_sharded |= shard.is_some();
        bytes += result.as_ref().map_or(0, String::len);
        let result = result.filter(|_| bytes <= limits::PARENTS_BYTES_MAX);
        let result: Value = result.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        list.push(json!({"id": id, "result": result}));
    }
    let parent = if is_sharded { Value::Array(list) } else { list.into_iter().next().unwrap_or_default() };
    Ok((first, parent))
}

fn run_row(run: &Locked, now: Time) -> Row {
    let finished_at = (!run.status.lives()).then_some(now);
    row![
        run.id,
        run.status.code(),
        run.reason.as_deref(),
        run.error.as_deref(),
        run.host.as_deref(),
        run.started_at,
        finished_at,
    ]
}

const RUN: &[Column] = &[
    ("id", Kind::Number),
    ("status", Kind::Number),
    ("reason", Kind::Text),
    ("error", Kind::Text),
    ("host", Kind::Text),
    ("started_at", Kind::Number),
    ("finished_at", Kind::Number),
];

/// Writes how locked runs stand, and does what follows from the end of those that ended: a timer that waited for one is set, and the next
/// that was queued behind one begins.
pub(super) async fn settle(
    session: &mut dyn Session,
    memory: &Memory,
    types: &Types,
    mut runs: Vec<Locked>,
) -> Attempted<Vec<LaneDue>> {
    let now = session.now();
    let (mut dues, mut ended) = (Vec::new(), Vec::new());
    while !runs.is_empty() {
        write(session, &runs, now).await?;
        let over: Vec<_> = runs.into_iter().filter(|run| !run.status.lives()).collect();
        let queueing: HashSet<_> =
            over.iter().filter(|run| run.overlap == Overlap::Queue).map(|run| run.schedule_id).collect();
        ended.extend(over);
        (runs, dues) = begin_queued(session, types, queueing, dues).await?;
    }
    rearm(session, memory, &ended).await?;
    Ok(dues)
}

async fn write(session: &mut dyn Session, runs: &[Locked], now: Time) -> Attempted<()> {
    let rows = runs.iter().map(|run| run_row(run, now)).collect();
    session.execute(&update("task_run", 1, RUN, rows)).await?;
    let forgotten = runs.iter().filter(|run| !run.status.lives() && run.log == Log::None);
    for run in forgotten {
        session.execute(&plain("DELETE FROM task_step WHERE run_id = ?").bind(run.id)).await?;
        session.execute(&plain("DELETE FROM task_run WHERE id = ?").bind(run.id)).await?;
    }
    Ok(())
}

/// Begins the next queued run of schedules that have none that runs. Answers the runs to be written, and what is due with them.
///
/// A firing that queues a run has the schedule locked, as this has: either it sees that the run before it has ended, or this sees what it
/// queued.
async fn begin_queued(
    session: &mut dyn Session,
    types: &Types,
    schedules: HashSet<i64>,
    mut dues: Vec<LaneDue>,
) -> Attempted<(Vec<Locked>, Vec<LaneDue>)> {
    if schedules.is_empty() {
        return Ok((Vec::new(), dues));
    }
    let mut schedules: Vec<_> = schedules.into_iter().collect();
    schedules.sort_unstable();
    lock_schedules(session, &schedules).await?;
    let live = living(session, &schedules).await?;
    schedules.retain(|id| live.get(id).is_none_or(|live| live.running == 0));
    let mut queued = lock_queued(session, &schedules).await?;
    if queued.is_empty() {
        return Ok((queued, dues));
    }
    let workers = session.workers().await?;
    let moment = Moment { types, workers: &workers, now: session.now() };
    let mut launch = Launch::default();
    for run in &mut queued {
        run.started_at = Some(moment.now);
        let roots = run.definition.as_ref().map(|definition| moment.roots(definition, &run.tenant, run.due));
        match roots.filter(|roots| !roots.is_empty()) {
            Some(roots) => {
                run.status = RunStatus::Running;
                launch.begin(run.schedule_id, run.id, roots, &moment);
            }
            None => {
                (run.status, run.started_at) = (RunStatus::Skipped, None);
                run.reason = Some("no_workers".to_owned());
            }
        }
    }
    dues.extend(launch.write(session).await?);
    Ok((queued, dues))
}

/// Locks schedules, in the order of their ids.
pub(super) async fn lock_schedules(session: &mut dyn Session, ids: &[i64]) -> Attempted<()> {
    let lock = plain("SELECT s.id FROM ").rows(IDS, plain::ids(ids.iter().copied()));
    let lock = lock.and(" JOIN task_schedule s ON s.id = n.id ORDER BY s.id").lock("s");
    session.rows(&lock, &[Kind::Number]).await.map(drop)
}

/// How many runs of a schedule live.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Living {
    pub running: usize,
    pub queued: usize,
}

pub(super) async fn living(session: &mut dyn Session, schedules: &[i64]) -> Attempted<HashMap<i64, Living>> {
    let rows = plain::ids(schedules.iter().copied());
    let count = plain("SELECT r.schedule_id, r.status, COUNT(*) FROM ").rows(IDS, rows);
    let count =
        count.and(" JOIN task_run r ON r.schedule_id = n.id AND r.status <= 2 GROUP BY r.schedule_id, r.status");
    let mut living: HashMap<i64, Living> = HashMap::new();
    for mut row in session.rows(&count, &[Kind::Number, Kind::Number, Kind::Number]).await? {
        let (schedule_id, status, count) = (row.number()?, row.number()?, row.number()?);
        let live = living.entry(schedule_id).or_default();
        *(if status == RunStatus::Queued.code() { &mut live.queued } else { &mut live.running }) =
            usize::try_from(count).unwrap_or(0);
    }
    Ok(living)
}

/// Sets the timers that waited for runs to end, unless another run of theirs goes on: an old one that was taken up again has ended once
/// more. They are locked first, so that of two runs that end at once the second sees that the first has, and an edit under way is over.
async fn rearm(session: &mut dyn Session, memory: &Memory, ended: &[Locked]) -> Attempted<()> {
    let rows = plain::ids(ended.iter().filter(|run| run.rearms).filter_map(|run| run.timer_id));
    if rows.is_empty() {
        return Ok(());
    }
    let now = session.now();
    let lock = plain("SELECT t.id FROM ").rows(IDS, rows.clone());
    let lock = lock.and(" JOIN task_timer t ON t.id = n.id ORDER BY t.id").lock("t");
    session.rows(&lock, &[Kind::Number]).await?;
    let find = plain("SELECT t.id, t.spec, s.status FROM ").rows(IDS, rows);
    let find = find.and(
        " JOIN task_timer t ON t.id = n.id JOIN task_schedule s ON s.id = t.schedule_id WHERE t.cursor_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM task_run r WHERE r.schedule_id = t.schedule_id AND r.status <= 2 \
           AND r.timer_id = t.id AND r.rearms = 1)",
    );
    let mut set = Vec::new();
    for mut row in session.rows(&find, &[Kind::Number, Kind::Text, Kind::Text]).await? {
        let (id, timer, status) = (row.number()?, read_json::<Timer>(&row.text()?)?, row.text()?);
        let due = rhythm(&timer).ok().and_then(|rhythm| rhythm.due_after_run(now));
        let next_due = due.filter(|_| status == "online");
        set.push(row![id, due, next_due]);
    }
    if !set.is_empty() {
        session.execute(&update("task_timer", 1, CURSOR, set)).await?;
        memory.timers_moved.store(true, Ordering::Release);
    }
    Ok(())
}

/// The columns of a timer that a firing changes.
pub(super) const CURSOR: &[Column] = &[("id", Kind::Number), ("cursor_at", Kind::Number), ("next_due", Kind::Number)];
