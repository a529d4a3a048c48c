//! Fire: timers that are due become runs and tasks, many in one transaction.
//!
//! The transaction locks the timers it fires, moves their cursors and inserts what they begin. Another node skips what is locked, and finds
//! the cursor moved afterwards: each due time fires once, whoever lives or dies. Due times come from the cursor, never from a clock; the
//! clock, the database's, only says which of them are due.

use super::launch::{Fate, Firing, Launch, Moment};
use super::records;
use super::runs::{CURSOR, Living, living, lock_schedules};
use super::schedules::{self, read_json, rhythm};
use super::watermark::LaneDue;
use super::{Memory, access, broken};
use crate::access::{Actor, AuditEntry};
use crate::export::rfc3339;
use crate::plain::{Kind, Row, plain, row, update};
use crate::schedule::{Fired, RunNow};
use crate::session::{Attempted, Session};
use crate::worker::Worker;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use taskwheel_model::schedule::{Admission, Overlap, Shards};
use taskwheel_model::timer::{Due, Missed};
use taskwheel_model::{Definition, Rhythm, TaskId, Time, Timer};

/// A transaction begins with no more tasks than this, but for one firing that has more by itself.
const TASKS_MAX: usize = 1_000;
/// So many types of what was fired are told.
const TYPES_TOLD_MAX: usize = 4;

/// What came of an attempt to fire.
pub(super) enum Firings {
    /// With the tasks that began.
    Done(Fired, Vec<TaskId>),
    /// It needs so many ids, and had fewer.
    NeedsIds(usize),
}

/// A timer that is due, locked.
struct DueTimer {
    id: i64,
    schedule_id: i64,
    tenant: String,
    definition: Definition,
    rhythm: Rhythm,
    due: Due,
}

impl DueTimer {
    /// How many tasks each of its firings begins with.
    fn roots(&self, workers: &[Worker]) -> usize {
        let roots = match self.definition.shards {
            None => 1,
            Some(Shards::Fixed(total)) => total as usize,
            Some(Shards::PerWorker(_)) => workers.len(),
        };
        roots.max(1)
    }

    /// Leaves all firings but the first ones to the next transaction; says whether there are any.
    fn leave(&mut self, first: usize) -> bool {
        let Some(next) = self.due.fire.get(first) else { return false };
        self.due.next = Some(*next);
        self.due.fire.truncate(first);
        true
    }
}

pub(super) async fn fire(
    session: &mut dyn Session,
    memory: &Memory,
    mut ids: Range<i64>,
    max: usize,
) -> Attempted<(Firings, Vec<LaneDue>)> {
    let now = session.now();
    let (found, mut timers, mut moved) = due_timers(session, max).await?;
    let available = usize::try_from(ids.end - ids.start).unwrap_or(0);
    let is_sharded = timers.iter().any(|timer| timer.definition.shards.is_some());
    let workers = if is_sharded { session.workers().await? } else { Vec::new() };
    let mut is_left = false;
    if let Some(first) = timers.first_mut() {
        let firings = TASKS_MAX / first.roots(&workers);
        is_left = first.leave(firings.max(1));
    }
    let (mut taken, mut needed, mut tasks) = (0, 0, 0);
    for timer in &timers {
        let more = timer.due.fire.len() + usize::from(timer.due.missed.is_some());
        let roots = timer.roots(&workers);
        if taken > 0 && tasks + more * roots > TASKS_MAX {
            break;
        }
        (needed, taken, tasks) = (needed + more, taken + 1, tasks + more * roots);
    }
    if needed > available {
        return Ok((Firings::NeedsIds(needed), Vec::new()));
    }
    let more = found == max || taken < timers.len() || is_left;
    let timers = &timers[..taken];
    let types = memory.types.get(session).await?;
    let moment = Moment { types: &types, workers: &workers, now };
    let mut overlaps = Overlaps::of(session, timers.iter().map(|timer| (timer.schedule_id, &timer.definition))).await?;
    let mut wanted = BTreeMap::<_, usize>::new();
    for timer in timers {
        *wanted.entry(&*timer.tenant).or_default() += timer.due.fire.len() * timer.roots(&workers);
    }
    let mut room = memory.quotas.room(session, &wanted).await?;
    let mut planned: Vec<(Firing<'_>, Fate)> = Vec::with_capacity(needed);
    for timer in timers {
        let firing = |due: Time| Firing {
            schedule_id: timer.schedule_id,
            tenant: &timer.tenant,
            timer_id: Some(timer.id),
            definition: &timer.definition,
            due,
            rearms: timer.rhythm.waits_for_run(),
        };
        if let Some(missed) = timer.due.missed.filter(|missed| missed.count > missed.fired) {
            planned.push((firing(missed.first), Fate::Skip { reason: "misfire", detail: Some(told(missed)) }));
        }
        for due in &timer.due.fire {
            let tasks = || moment.roots(&timer.definition, &timer.tenant, *due).len();
            let fate = if room.has(&timer.tenant, tasks) {
                overlaps.fate(timer.schedule_id, &timer.tenant, &timer.definition, &moment)
            } else {
                Fate::skip("quota")
            };
            if fate == Fate::Start {
                room.take(&timer.tenant, tasks);
            }
            if timer.definition.overlap == Overlap::Replace && is_begun(&fate) {
                replace_planned(&mut planned, timer.schedule_id);
            }
            planned.push((firing(*due), fate));
        }
    }
    // A later timer of the same schedule may have replaced what an earlier one was to begin.
    for timer in timers {
        let begins = |(firing, fate): &(Firing<'_>, Fate)| firing.timer_id == Some(timer.id) && is_begun(fate);
        let waits = timer.rhythm.waits_for_run() && planned.iter().any(begins);
        let next = match timer.due.next {
            // A fixed delay that did not begin has no run that could bring its next due time.
            None if timer.rhythm.waits_for_run() && !waits => timer.rhythm.due_after_run(now),
            next => next,
        };
        moved.push(row![timer.id, next, next]);
    }
    // By no timer, or the database would notice by itself: a timer has one run for a due time.
    broken::firings(&mut planned, |(firing, fate)| (Firing { timer_id: None, ..firing.clone() }, fate.clone()));
    let mut dues = Vec::new();
    for schedule_id in overlaps.replaced() {
        dues.extend(records::replace(session, memory, &types, schedule_id).await?);
    }
    let mut launch = Launch::default();
    for (firing, fate) in &planned {
        if let Some(id) = ids.next() {
            launch.fire(id, firing, fate, &moment);
        }
    }
    let moved = (!moved.is_empty()).then(|| update("task_timer", 1, CURSOR, moved));
    let (launched, begun) = launch.write_with(session, moved).await?;
    dues.extend(launched);
    memory.quotas.took(room);
    // Whoever fired something looks again soon, and need not know.
    let next_due = if planned.is_empty() { next_due(session).await? } else { None };
    let mut types: Vec<_> = planned.iter().map(|(firing, _)| firing.definition.task_type.clone()).collect();
    types.sort_unstable();
    types.dedup();
    types.truncate(TYPES_TOLD_MAX);
    Ok((Firings::Done(Fired { runs: planned.len(), types, more, now, next_due }, begun), dues))
}

fn is_begun(fate: &Fate) -> bool {
    matches!(fate, Fate::Start | Fate::Queue)
}

fn told(missed: Missed) -> String {
    let (first, last) = (rfc3339(missed.first), rfc3339(missed.last));
    format!("{} due times from {first} to {last} were missed, of which {} fired", missed.count, missed.fired)
}

const DUE: &str = "
SELECT t.id, t.schedule_id, t.next_due, t.spec, s.tenant, s.definition
FROM task_timer t JOIN task_schedule s ON s.id = t.schedule_id AND s.version = t.version
WHERE t.next_due <= ? ORDER BY t.next_due, t.id LIMIT ?";

/// Locks timers that are due: how many there were, what is to be done about each, and the cursors of those that cannot fire.
async fn due_timers(session: &mut dyn Session, max: usize) -> Attempted<(usize, Vec<DueTimer>, Vec<Row>)> {
    let now = session.now();
    let kinds = [Kind::Number, Kind::Number, Kind::Number, Kind::Text, Kind::Text, Kind::Text];
    let rows = session.rows(&plain(DUE).bind(now.0).bind(max as i64).lock_free("t"), &kinds).await?;
    let found = rows.len();
    let (mut timers, mut stopped) = (Vec::with_capacity(found), Vec::new());
    for mut row in rows {
        let (id, schedule_id, cursor) = (row.number()?, row.number()?, Time(row.number()?));
        let (timer, tenant) = (read_json::<Timer>(&row.text()?), row.text()?);
        let definition = read_json::<Definition>(&row.text()?);
        let rhythm = broken::timer(id, timer.ok().and_then(|timer| rhythm(&timer).ok()));
        match (rhythm, definition) {
            (Some(rhythm), Ok(definition)) => {
                let due = rhythm.misfire(cursor, now, definition.misfire);
                timers.push(DueTimer { id, schedule_id, tenant, definition, rhythm, due });
            }
            _ => {
                tracing::error!(
                    timer = id,
                    schedule = schedule_id,
                    "a timer cannot be read, and does not fire any more"
                );
                stopped.push(row![id, cursor, None::<Time>]);
            }
        }
    }
    Ok((found, timers, stopped))
}

async fn next_due(session: &mut dyn Session) -> Attempted<Option<Time>> {
    // Not MIN: beside "IS NOT NULL" MariaDB reads all of the index for that.
    let find = plain("SELECT next_due FROM task_timer WHERE next_due IS NOT NULL ORDER BY next_due LIMIT 1");
    let found = session.rows(&find, &[Kind::Number]).await?.into_iter().next();
    Ok(found.map(|mut row| row.number()).transpose()?.map(Time))
}

/// Of earlier firings of this very batch, the last one replaces the others.
fn replace_planned(planned: &mut [(Firing<'_>, Fate)], schedule_id: i64) {
    for (firing, fate) in planned {
        if firing.schedule_id == schedule_id && is_begun(fate) {
            *fate = Fate::skip("replaced");
        }
    }
}

/// What goes on of schedules that do not let two runs go on, all of them locked.
struct Overlaps {
    living: HashMap<i64, Living>,
    replaced: HashSet<i64>,
}

impl Overlaps {
    async fn of<'d>(
        session: &mut dyn Session,
        schedules: impl Iterator<Item = (i64, &'d Definition)>,
    ) -> Attempted<Overlaps> {
        let strict = schedules.filter(|(_, definition)| definition.overlap != Overlap::Allow);
        let mut ids: Vec<_> = strict.map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Overlaps { living: HashMap::new(), replaced: HashSet::new() });
        }
        lock_schedules(session, &ids).await?;
        Ok(Overlaps { living: living(session, &ids).await?, replaced: HashSet::new() })
    }

    /// What becomes of the next firing of a schedule.
    fn fate(&mut self, schedule_id: i64, tenant: &str, definition: &Definition, at: &Moment<'_>) -> Fate {
        if definition.shards.is_some() && at.roots(definition, tenant, at.now).is_empty() {
            return Fate::skip("no_workers");
        }
        if definition.overlap == Overlap::Allow {
            return Fate::Start;
        }
        let live = self.living.entry(schedule_id).or_default();
        match definition.overlap.admit(live.running, live.queued) {
            Admission::Skip { reason } => return Fate::skip(reason),
            Admission::Wait => {
                live.queued += 1;
                return Fate::Queue;
            }
            Admission::Replace => {
                self.replaced.insert(schedule_id);
            }
            Admission::Begin => {}
        }
        live.running += 1;
        Fate::Start
    }

    /// The schedules whose runs are replaced.
    fn replaced(&self) -> Vec<i64> {
        let mut ids: Vec<_> = self.replaced.iter().copied().collect();
        ids.sort_unstable();
        ids
    }
}

/// Runs a schedule because somebody asked for it.
pub(super) async fn run_now(
    session: &mut dyn Session,
    memory: &Memory,
    by: &Actor,
    tenant: Option<&str>,
    id: i64,
) -> Attempted<(Option<RunNow>, Vec<LaneDue>)> {
    let now = session.now();
    let Some(schedule) = schedules::get(session, tenant, id).await? else { return Ok((None, Vec::new())) };
    let definition = &schedule.definition;
    let types = memory.types.get(session).await?;
    let workers = if definition.shards.is_some() { session.workers().await? } else { Vec::new() };
    let moment = Moment { types: &types, workers: &workers, now };
    let mut overlaps = Overlaps::of(session, [(id, definition)].into_iter()).await?;
    let fate = match overlaps.fate(id, &schedule.tenant, definition, &moment) {
        Fate::Skip { reason: "no_workers", .. } => return Ok((Some(RunNow::NoWorkers), Vec::new())),
        Fate::Skip { reason: "queue_full", .. } => return Ok((Some(RunNow::QueueFull), Vec::new())),
        Fate::Skip { .. } => return Ok((Some(RunNow::Overlaps), Vec::new())),
        fate => fate,
    };
    let mut dues = Vec::new();
    for schedule_id in overlaps.replaced() {
        dues.extend(records::replace(session, memory, &types, schedule_id).await?);
    }
    let run_id = schedules::next_ids(session, 1).await?;
    let firing =
        Firing { schedule_id: id, tenant: &schedule.tenant, timer_id: None, definition, due: now, rearms: false };
    let mut launch = Launch::default();
    launch.fire(run_id, &firing, &fate, &moment);
    dues.extend(launch.write(session).await?);
    let line = AuditEntry::new(now, by, Some(&schedule.tenant), "schedule.run", id.to_string());
    access::write_line(session, AuditEntry { detail: json!({"run_id": run_id}), ..line }).await?;
    let run = records::get(session, None, run_id).await?;
    Ok((Some(RunNow::Run(run.unwrap_or_else(|| records::unrecorded(run_id, &schedule, now)))), dues))
}
