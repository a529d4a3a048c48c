//! Act: what people do to tasks, one by one or over all that a filter matches. Each task is decided by itself.

use super::renew::{load, of_tenant};
use super::step::{self, Hosts, Leaving};
use super::watermark::LaneDue;
use super::{Memory, access, ends, runs};
use crate::options::Dialect;
use crate::people::{Acted, Action, BulkChunk, BulkRequest, Edit};
use crate::rows::{Change, Changes, ContentRow, Place, Record};
use crate::search::{Cursor, Search, Sort};
use crate::session::{Attempted, Session};
use crate::verbs::Outlived;
use std::collections::{HashMap, HashSet};
use taskwheel_model::{Event, Life, Refusal, Rules, State, TaskId, Time, decide, limits};

pub(super) async fn act(
    session: &mut dyn Session,
    memory: &Memory,
    tenant: Option<&str>,
    ids: &[TaskId],
    action: &Action,
) -> Attempted<(Vec<Acted>, Vec<LaneDue>)> {
    act_on(session, memory, |record| of_tenant(record, tenant), ids, action).await
}

/// Acts on those that are still wanted when they are locked.
async fn act_on(
    session: &mut dyn Session,
    memory: &Memory,
    is_wanted: impl Fn(&Record) -> bool,
    ids: &[TaskId],
    action: &Action,
) -> Attempted<(Vec<Acted>, Vec<LaneDue>)> {
    let (now, types) = (session.now(), memory.types.get(session).await?);
    let mut records = load(session, ids.iter().copied()).await?;
    let taken = taken_keys(session, action, records.values()).await?;
    let workers = session.workers().await?;
    let hosts = Hosts::new(&workers, &types);
    let mut keys = HashSet::new();
    let mut changes = Changes::default();
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(record) = records.get_mut(id).filter(|record| is_wanted(record)) else {
            answers.push(Acted::NotFound);
            continue;
        };
        let status = record.life().status();
        let rules = record.rules(types.settings(&record.task_type));
        let change = match one(record, &rules, action, &hosts, now) {
            Ok(change) => change,
            Err(Refusal::Unchanged) => {
                answers.push(Acted::Unchanged(status));
                continue;
            }
            Err(_) => {
                answers.push(Acted::Conflict(status));
                continue;
            }
        };
        if revives(&change) && (taken.contains(id) || !unique(record).is_none_or(|key| keys.insert(key))) {
            answers.push(Acted::UniqueKeyTaken(status));
            continue;
        }
        let removed = change.after.is_none();
        changes.push(record, change);
        answers.push(Acted::Changed(if removed { status } else { record.life().status() }));
        if removed {
            records.remove(id);
        }
    }
    session.write(changes.as_slice()).await?;
    let mut dues: Vec<_> = changes.as_slice().iter().filter_map(step::lane_due).collect();
    dues.extend(runs::advance(session, memory, ends::of(changes.as_slice())).await?);
    Ok((answers, dues))
}

/// The tasks of the next chunk of a bulk action, and where the one after it starts.
pub(super) async fn matching(
    session: &mut dyn Session,
    memory: &Memory,
    dialect: Dialect,
    request: &BulkRequest,
) -> Attempted<(Vec<TaskId>, Option<TaskId>)> {
    let category_types = match &request.filter.category {
        Some(category) => memory.types.seen(session).await?.of_category(category),
        None => Vec::new(),
    };
    let search = Search {
        tenant: request.tenant.clone(),
        filter: request.filter.clone(),
        sort: Sort::IdAscending,
        limit: limits::CHUNK_ROWS_MAX,
        cursor: Some(Cursor::at(request.after)),
        up_to: Some(request.up_to),
        category_types,
    };
    search.ids(session, dialect).await
}

/// Does a chunk of a bulk action.
pub(super) async fn bulk(
    session: &mut dyn Session,
    memory: &Memory,
    request: &BulkRequest,
    ids: &[TaskId],
    mut chunk: BulkChunk,
) -> Attempted<(BulkChunk, Vec<LaneDue>)> {
    // Asked before: what is deleted has no tenant afterwards.
    let labels = if request.audit.is_some() { access::labels_of(session, ids).await? } else { HashMap::new() };
    // Who asks for what waits shall not stop what was claimed since it was found.
    let statuses = &request.filter.statuses;
    let is_wanted = |record: &Record| {
        of_tenant(record, request.tenant.as_deref())
            && (statuses.is_empty() || statuses.contains(&record.life().status()))
    };
    let (answers, dues) = act_on(session, memory, is_wanted, ids, &request.action).await?;
    let is_changed = |acted: &Acted| matches!(acted, Acted::Changed(_));
    chunk.changed = answers.iter().filter(|acted| is_changed(acted)).count() as u64;
    if let Some(audit) = &request.audit {
        let acted = ids.iter().zip(&answers);
        let of_tenants = acted.filter_map(|(id, acted)| Some((&*labels.get(id)?.tenant, is_changed(acted))));
        chunk.lines = access::bulk_lines(session, audit, of_tenants).await?;
    }
    Ok((chunk, dues))
}

fn one(record: &Record, rules: &Rules, action: &Action, hosts: &Hosts<'_>, now: Time) -> Result<Change, Refusal> {
    let life = record.life();
    let decided = |event: &Event, leaving: &Leaving| {
        decide(&life, rules, event, now).map(|step| step::change(record, &step, leaving, hosts, now))
    };
    match action {
        Action::Cancel => decided(&Event::Cancel { worker_seen_at: record.worker_seen_at }, &Leaving::default()),
        Action::Retry => decided(&Event::Retry, &Leaving::default()),
        Action::RunNow => decided(&Event::RunNow, &Leaving::default()),
        Action::Resolve { remark, result } => {
            let leaving = Leaving { result: result.clone(), ..Leaving::default() };
            let mut change = decided(&Event::Resolve, &leaving)?;
            if remark.is_some() {
                change.content = Some(ContentRow { remark: remark.clone(), ..record.content.clone() });
            }
            Ok(change)
        }
        Action::Edit(edit) => self::edit(record, &life, edit, hosts, now),
        Action::Delete if life.status().is_finished() => Ok(removal(record)),
        Action::Delete => Err(Refusal::Conflict),
    }
}

fn removal(record: &Record) -> Change {
    Change { before: record.place.clone(), after: None, attempt: None, content: None, payload: None }
}

/// Removes finished tasks that are still as they were seen: one that was retried meanwhile may have ended anew.
pub(super) async fn purge(session: &mut dyn Session, tasks: &[Outlived]) -> Attempted<u64> {
    let records = load(session, tasks.iter().map(|task| task.id)).await?;
    let unchanged = |task: &Outlived| {
        let record = records.get(&task.id)?;
        let Place::History(row) = &record.place else { return None };
        ((row.round, row.updated_at) == (task.round, task.updated_at)).then(|| removal(record))
    };
    let changes: Vec<_> = tasks.iter().filter_map(unchanged).collect();
    session.write(&changes).await?;
    Ok(changes.len() as u64)
}

fn edit(record: &Record, life: &Life, edit: &Edit, hosts: &Hosts<'_>, now: Time) -> Result<Change, Refusal> {
    let editable = !matches!(life.state, State::Completed | State::Finished { .. });
    if !editable && !edit.is_remark_only() {
        return Err(Refusal::Conflict);
    }
    let mut content = record.content.clone();
    if let Some(priority) = edit.priority {
        content.priority = priority;
    }
    if let Some(run_at) = edit.run_at {
        content.run_at = match &life.state {
            State::Waiting { hold: Some(hold) } => run_at.max(hold.until),
            _ => run_at,
        };
    }
    content.expire_at = edit.expire_at.unwrap_or(content.expire_at);
    content.max_attempts = edit.max_attempts.unwrap_or(content.max_attempts);
    content.timeout_ms = edit.timeout_ms.unwrap_or(content.timeout_ms);
    if let Some(policy) = &edit.retry {
        content.retry = policy.as_ref().map(|policy| serde_json::to_string(policy).expect("a policy is plain JSON"));
    }
    content.remark = edit.remark.clone().unwrap_or(content.remark);
    let after = match &record.place {
        Place::Live(row) => {
            let mut next = row.clone();
            next.rank = 9 - i16::from(content.priority);
            next.set_life(&Life { due: content.run_at, expire_at: content.expire_at, ..life.clone() }, now);
            if matches!(life.state, State::Waiting { .. }) {
                step::place_in_lane(&mut next, hosts, now);
            }
            Place::Live(next)
        }
        Place::History(row) => Place::History(crate::rows::HistoryRow { updated_at: now, ..row.clone() }),
    };
    if content == record.content && edit.payload.is_none() {
        return Err(Refusal::Unchanged);
    }
    Ok(Change {
        before: record.place.clone(),
        after: Some(after),
        attempt: None,
        content: (content != record.content).then_some(content),
        payload: edit.payload.clone(),
    })
}

fn revives(change: &Change) -> bool {
    matches!((&change.before, &change.after), (Place::History(_), Some(Place::Live(_))))
}

fn unique(record: &Record) -> Option<(String, String, String)> {
    let key = record.unique_key.clone()?;
    Some((record.tenant().to_owned(), record.task_type.clone(), key))
}

/// The finished tasks whose unique key is live in another task, so that they cannot be retried.
async fn taken_keys(
    session: &mut dyn Session,
    action: &Action,
    records: impl Iterator<Item = &Record>,
) -> Attempted<HashSet<TaskId>> {
    if *action != Action::Retry {
        return Ok(HashSet::new());
    }
    let finished = |record: &&Record| matches!(record.place, Place::History(_));
    let owned: Vec<_> =
        records.filter(finished).filter_map(|record| unique(record).map(|key| (record.id(), key))).collect();
    if owned.is_empty() {
        return Ok(HashSet::new());
    }
    let keys: Vec<_> = owned.iter().map(|(_, key)| (key.0.as_str(), key.1.as_str(), key.2.as_str())).collect();
    let live = session.live_unique(&keys).await?;
    Ok(owned.iter().zip(live).filter_map(|((id, _), holder)| holder.map(|_| *id)).collect())
}
