//! Schedules: making, changing and reading them.
//!
//! An edit is a new version of the schedule and of all its timers, in one transaction that locks the timers first. A firing locks its
//! timer and joins the schedule of the same version: so it fires from the one or from the other, never from half of each.

use super::access::{difference, write_line};
use crate::access::{Actor, AuditEntry};
use crate::plain::{self, Column, IDS, Kind, Plain, PlainRow, plain, row, update};
use crate::schedule::{NewSchedule, Schedule, ScheduleEdit, ScheduleQuery, TimerState};
use crate::session::{Attempted, Session};
use crate::{StoreError, export};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use taskwheel_model::field::FieldError;
use taskwheel_model::schedule::Overlap;
use taskwheel_model::{Definition, Rhythm, RunStatus, ScheduleStatus, Time, Timer, limits};

/// Hands out ids of schedules, timers and runs, and says the first.
pub(super) async fn next_ids(session: &mut dyn Session, count: usize) -> Attempted<i64> {
    let count = count as i64;
    session.execute(&plain("UPDATE task_sequence SET next_id = next_id + ?").bind(count)).await?;
    let next = session.rows(&plain("SELECT next_id FROM task_sequence"), &[Kind::Number]).await?.into_iter().next();
    match next {
        Some(mut row) => Ok(row.number()? - count),
        None => Err(StoreError::Database("the sequence of ids is gone".into()).into()),
    }
}

/// A schedule with the version it has.
struct Stored {
    schedule: Schedule,
    version: i64,
}

const INSERT: &str = "
INSERT INTO task_schedule (id, tenant, name, type, status, definition, version, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)";

pub(super) async fn create(session: &mut dyn Session, by: &Actor, new: &NewSchedule) -> Attempted<Schedule> {
    let now = session.now();
    let id = next_ids(session, 1 + new.timers.len()).await?;
    let is_online = new.status == ScheduleStatus::Online;
    let timers = new.timers.iter().zip(id + 1..).map(|(timer, id)| fresh(id, timer.clone(), is_online, now));
    let schedule = Schedule {
        id,
        tenant: new.tenant.clone(),
        definition: new.definition.clone(),
        timers: timers.collect::<Result<_, _>>().map_err(StoreError::from)?,
        status: new.status,
        created_at: now,
        updated_at: now,
    };
    let insert = plain(INSERT).bind(id).bind(new.tenant.as_str()).bind(new.definition.name.as_str());
    let insert = insert.bind(new.definition.task_type.as_str()).bind(new.status.word());
    session.execute(&insert.bind(text(&new.definition)).bind(now.0).bind(now.0)).await?;
    insert_timers(session, id, 1, &placed(&schedule.timers).collect::<Vec<_>>()).await?;
    let line = AuditEntry::new(now, by, Some(&new.tenant), "schedule.create", id.to_string());
    write_line(session, AuditEntry { after: shown(&schedule), ..line }).await?;
    Ok(schedule)
}

const EDIT: &str = "
UPDATE task_schedule SET name = ?, type = ?, status = ?, definition = ?, version = ?, updated_at = ? WHERE id = ?";

pub(super) async fn edit(
    session: &mut dyn Session,
    by: &Actor,
    tenant: Option<&str>,
    id: i64,
    edit: &ScheduleEdit,
) -> Attempted<Option<Schedule>> {
    let now = session.now();
    let Some(Stored { schedule: before, version }) = locked(session, tenant, id).await? else { return Ok(None) };
    let definition = edited(&before.definition, &edit.fields)?;
    let status = edit.status.unwrap_or(before.status);
    let timers = match &edit.timers {
        Some(timers) => replaced(session, &before.timers, timers).await?,
        None => before.timers.clone(),
    };
    let waiting = waiting_for_runs(session, &timers).await?;
    let timers = timers.into_iter().map(|timer| moved(timer, (before.status, status), &waiting, now));
    let timers: Vec<_> = timers.collect::<Result<_, _>>().map_err(StoreError::from)?;
    let after = Schedule { definition, timers, status, updated_at: now, ..before.clone() };
    if (Schedule { updated_at: before.updated_at, ..after.clone() }) == before {
        return Ok(Some(before));
    }
    let set = plain(EDIT).bind(after.definition.name.as_str()).bind(after.definition.task_type.as_str());
    let set = set.bind(status.word()).bind(text(&after.definition)).bind(version + 1).bind(now.0).bind(id);
    session.execute(&set).await?;
    let (kept, added): (Vec<_>, Vec<_>) =
        placed(&after.timers).partition(|(_, state)| before.timers.iter().any(|timer| timer.id == state.id));
    let gone = before.timers.iter().filter(|timer| !kept.iter().any(|(_, state)| state.id == timer.id));
    for timer in gone {
        session.execute(&plain("DELETE FROM task_timer WHERE id = ?").bind(timer.id)).await?;
    }
    if !kept.is_empty() {
        let moved = |(place, state): &Placed<'_>| {
            row![state.id, *place, i64::from(state.has_begun), state.cursor, state.next_due]
        };
        session.execute(&update("task_timer", 1, MOVED, kept.iter().map(moved).collect())).await?;
    }
    let renew = plain("UPDATE task_timer SET version = ? WHERE schedule_id = ?").bind(version + 1).bind(id);
    session.execute(&renew).await?;
    insert_timers(session, id, version + 1, &added).await?;
    if after.definition.overlap == Overlap::Queue {
        // What is queued from now on begins when these end.
        const QUEUE: &str = "UPDATE task_run SET overlap = ? WHERE schedule_id = ? AND status <= 2 AND overlap <> ?";
        session.execute(&plain(QUEUE).bind("queue").bind(id).bind("queue")).await?;
    }
    let action = match (edit.status, edit.fields.is_empty() && edit.timers.is_none()) {
        (Some(ScheduleStatus::Online), true) => "schedule.online",
        (Some(ScheduleStatus::Offline), true) => "schedule.offline",
        _ => "schedule.edit",
    };
    let (was, became) = difference(shown(&before), Some(shown(&after)));
    let line = AuditEntry::new(now, by, Some(&after.tenant), action, id.to_string());
    write_line(session, AuditEntry { before: was, after: became, ..line }).await?;
    Ok(Some(after))
}

pub(super) async fn delete(session: &mut dyn Session, by: &Actor, tenant: Option<&str>, id: i64) -> Attempted<bool> {
    let now = session.now();
    let Some(Stored { schedule, .. }) = locked(session, tenant, id).await? else { return Ok(false) };
    session.execute(&plain("DELETE FROM task_timer WHERE schedule_id = ?").bind(id)).await?;
    session.execute(&plain("DELETE FROM task_schedule WHERE id = ?").bind(id)).await?;
    const CANCEL: &str = "
UPDATE task_run SET status = ?, reason = ?, finished_at = ? WHERE schedule_id = ? AND status = ?";
    let cancel = plain(CANCEL).bind(RunStatus::Cancelled.code()).bind("schedule_deleted").bind(now.0).bind(id);
    session.execute(&cancel.bind(RunStatus::Queued.code())).await?;
    let line = AuditEntry::new(now, by, Some(&schedule.tenant), "schedule.delete", id.to_string());
    write_line(session, AuditEntry { before: shown(&schedule), ..line }).await?;
    Ok(true)
}

const SCHEDULE: &str = "
SELECT s.id, s.tenant, s.status, s.definition, s.version, s.created_at, s.updated_at FROM task_schedule s WHERE ";
const SCHEDULE_KINDS: &[Kind] =
    &[Kind::Number, Kind::Text, Kind::Text, Kind::Text, Kind::Number, Kind::Number, Kind::Number];

pub(super) async fn get(session: &mut dyn Session, tenant: Option<&str>, id: i64) -> Attempted<Option<Schedule>> {
    Ok(find(session, plain(SCHEDULE).and("s.id = ?").bind(id), tenant).await?.map(|stored| stored.schedule))
}

/// The same, locked, with its timers.
async fn locked(session: &mut dyn Session, tenant: Option<&str>, id: i64) -> Attempted<Option<Stored>> {
    const TIMERS: &str = "SELECT t.id FROM task_timer t WHERE t.schedule_id = ? ORDER BY t.id";
    let timers = plain(TIMERS).bind(id).lock("t");
    session.rows(&timers, &[Kind::Number]).await?;
    let schedule = plain("SELECT s.id FROM task_schedule s WHERE s.id = ?").bind(id).lock("s");
    session.rows(&schedule, &[Kind::Number]).await?;
    // Another edit that was waited for may have brought other timers, which may be firing.
    session.rows(&timers, &[Kind::Number]).await?;
    find(session, plain(SCHEDULE).and("s.id = ?").bind(id), tenant).await
}

async fn find(session: &mut dyn Session, query: Plain, tenant: Option<&str>) -> Attempted<Option<Stored>> {
    let found = read(session, &query).await?;
    Ok(found.into_iter().next().filter(|one| tenant.is_none_or(|tenant| one.schedule.tenant == tenant)))
}

pub(super) async fn list(session: &mut dyn Session, query: &ScheduleQuery) -> Attempted<Vec<Schedule>> {
    let mut find = plain(SCHEDULE).and("s.id < ?").bind(query.before.unwrap_or(i64::MAX));
    let filters = [
        (" AND s.tenant = ?", &query.tenant),
        (" AND s.name = ?", &query.name),
        (" AND s.type = ?", &query.task_type),
        (" AND s.status = ?", &query.status.map(|status| status.word().to_owned())),
    ];
    for (filter, value) in filters {
        if let Some(value) = value {
            find = find.and(filter).bind(value.as_str());
        }
    }
    let find = find.and(" ORDER BY s.id DESC LIMIT ?").bind(query.limit as i64);
    Ok(read(session, &find).await?.into_iter().map(|stored| stored.schedule).collect())
}

async fn read(session: &mut dyn Session, query: &Plain) -> Attempted<Vec<Stored>> {
    let mut found = Vec::new();
    for row in session.rows(query, SCHEDULE_KINDS).await? {
        found.push(stored(row)?);
    }
    if found.is_empty() {
        return Ok(found);
    }
    const TIMERS: &str = " JOIN task_timer t ON t.schedule_id = n.id ORDER BY t.schedule_id, t.place";
    let ids = plain::ids(found.iter().map(|stored| stored.schedule.id));
    let timers = plain("SELECT t.schedule_id, t.id, t.spec, t.has_begun, t.cursor_at, t.next_due FROM ");
    let kinds = [Kind::Number, Kind::Number, Kind::Text, Kind::Number, Kind::Number, Kind::Number];
    let mut by_schedule: HashMap<i64, Vec<TimerState>> = HashMap::new();
    for mut row in session.rows(&timers.rows(IDS, ids).and(TIMERS), &kinds).await? {
        let schedule_id = row.number()?;
        by_schedule.entry(schedule_id).or_default().push(TimerState {
            id: row.number()?,
            timer: read_json(&row.text()?)?,
            has_begun: row.number()? != 0,
            cursor: row.maybe_number()?.map(Time),
            next_due: row.maybe_number()?.map(Time),
        });
    }
    for stored in &mut found {
        stored.schedule.timers = by_schedule.remove(&stored.schedule.id).unwrap_or_default();
    }
    Ok(found)
}

fn stored(mut row: PlainRow) -> Attempted<Stored> {
    let (id, tenant, status) = (row.number()?, row.text()?, row.text()?);
    let definition = read_json(&row.text()?)?;
    let version = row.number()?;
    let schedule = Schedule {
        id,
        tenant,
        definition,
        timers: Vec::new(),
        status: ScheduleStatus::from_word(&status).unwrap_or(ScheduleStatus::Offline),
        created_at: Time(row.number()?),
        updated_at: Time(row.number()?),
    };
    Ok(Stored { schedule, version })
}

/// Reads what this store wrote as JSON.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(text: &str) -> Attempted<T> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::Database(format!("a schedule cannot be read: {error}")).into())
}

pub(super) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a schedule is plain JSON")
}

/// A stored timer that knows its due times. It names its time zone itself.
pub(super) fn rhythm(timer: &Timer) -> Result<Rhythm, FieldError> {
    timer.rhythm("timer", "UTC")
}

/// A timer that has just been made or edited.
fn fresh(id: i64, timer: Timer, is_online: bool, now: Time) -> Result<TimerState, FieldError> {
    let cursor = if is_online { rhythm(&timer)?.first_due(now) } else { None };
    Ok(TimerState { id, timer, has_begun: is_online, cursor, next_due: cursor })
}

/// A timer as it is when its schedule's status changes, or stays.
fn moved(
    state: TimerState,
    (before, after): (ScheduleStatus, ScheduleStatus),
    waiting: &[i64],
    now: Time,
) -> Result<TimerState, FieldError> {
    use ScheduleStatus::Online;
    if after != Online {
        return Ok(TimerState { next_due: None, ..state });
    }
    if !state.has_begun {
        return fresh(state.id, state.timer, true, now);
    }
    if before == Online {
        return Ok(state);
    }
    let rhythm = rhythm(&state.timer)?;
    let cursor = match state.cursor {
        Some(cursor) => rhythm.resume(cursor, now),
        // No run will end that could bring its next due time.
        None if rhythm.waits_for_run() && !waiting.contains(&state.id) => rhythm.first_due(now),
        None => None,
    };
    Ok(TimerState { cursor, next_due: cursor, ..state })
}

/// Those of some timers that have a run which lives.
async fn waiting_for_runs(session: &mut dyn Session, timers: &[TimerState]) -> Attempted<Vec<i64>> {
    if timers.is_empty() {
        return Ok(Vec::new());
    }
    let find = plain("SELECT r.timer_id FROM ").rows(IDS, plain::ids(timers.iter().map(|timer| timer.id)));
    let find = find.and(" JOIN task_run r ON r.timer_id = n.id WHERE r.status <= ?").bind(RunStatus::Running.code());
    session.rows(&find, &[Kind::Number]).await?.iter_mut().map(PlainRow::number).collect()
}

/// The timers of an edit. One that is there and equal stays as it is; every other is a new one.
async fn replaced(
    session: &mut dyn Session,
    before: &[TimerState],
    given: &[(Option<i64>, Timer)],
) -> Attempted<Vec<TimerState>> {
    let mut next_id = next_ids(session, given.len()).await?;
    let mut timers: Vec<TimerState> = Vec::with_capacity(given.len());
    for (place, (id, timer)) in given.iter().enumerate() {
        let known = before.iter().find(|state| Some(state.id) == *id);
        if id.is_some() && known.is_none() {
            let error = FieldError::new(format!("timers[{place}].id"), "is not a timer of this schedule");
            return Err(StoreError::from(error).into());
        }
        let kept = known.filter(|state| state.timer == *timer && !timers.iter().any(|earlier| earlier.id == state.id));
        timers.push(kept.cloned().unwrap_or_else(|| {
            next_id += 1;
            let timer = timer.clone();
            TimerState { id: next_id - 1, timer, has_begun: false, cursor: None, next_due: None }
        }));
    }
    Ok(timers)
}

/// A definition with some of its fields changed.
fn edited(definition: &Definition, fields: &Map<String, Value>) -> Attempted<Definition> {
    let mut value = serde_json::to_value(definition).expect("a definition is plain JSON");
    if let Value::Object(object) = &mut value {
        object.extend(fields.clone());
    }
    let read: Result<Definition, _> = serde_json::from_value(value);
    let definition = read.map_err(|error| StoreError::from(FieldError::new("schedule", error.to_string())))?;
    definition.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
    Ok(definition)
}

const TIMER: &[Column] = &[
    ("id", Kind::Number),
    ("place", Kind::Number),
    ("spec", Kind::Text),
    ("has_begun", Kind::Number),
    ("cursor_at", Kind::Number),
    ("next_due", Kind::Number),
];
const MOVED: &[Column] = &[
    ("id", Kind::Number),
    ("place", Kind::Number),
    ("has_begun", Kind::Number),
    ("cursor_at", Kind::Number),
    ("next_due", Kind::Number),
];

/// A timer, and its place among those of its schedule.
type Placed<'t> = (i64, &'t TimerState);

fn placed(timers: &[TimerState]) -> impl Iterator<Item = Placed<'_>> {
    (0..).zip(timers)
}

async fn insert_timers(session: &mut dyn Session, schedule: i64, version: i64, timers: &[Placed<'_>]) -> Attempted<()> {
    if timers.is_empty() {
        return Ok(());
    }
    let insert = plain(
        "INSERT INTO task_timer (id, schedule_id, version, place, spec, has_begun, cursor_at, next_due)
         SELECT n.id, ?, ?, n.place, n.spec, n.has_begun, n.cursor_at, n.next_due FROM ",
    );
    let row = |(place, state): &Placed<'_>| {
        let has_begun = i64::from(state.has_begun);
        row![state.id, *place, text(&state.timer), has_begun, state.cursor, state.next_due]
    };
    let insert = insert.bind(schedule).bind(version).rows(TIMER, timers.iter().map(row).collect());
    session.execute(&insert).await.map(drop)
}

/// A schedule as the log of changes has it.
fn shown(schedule: &Schedule) -> Value {
    let mut value = serde_json::to_value(&schedule.definition).expect("a definition is plain JSON");
    value["status"] = json!(schedule.status);
    value["timers"] = schedule.timers.iter().map(|state| json!(state.timer)).collect();
    value["created_at"] = json!(export::rfc3339(schedule.created_at));
    value
}

/// Checks a list of timers, named as in the request.
pub(super) fn validate_timers<'t>(timers: impl ExactSizeIterator<Item = &'t Timer>) -> Result<(), FieldError> {
    if timers.len() > limits::TIMERS_MAX {
        return Err(FieldError::new("timers", format!("must be at most {}", limits::TIMERS_MAX)));
    }
    timers.enumerate().try_for_each(|(place, timer)| timer.validate(&format!("timers[{place}]")))
}
