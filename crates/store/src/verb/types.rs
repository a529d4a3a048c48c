//! What is known about task types, remembered for a second so that hot verbs need not read it each time.
//!
//! The database is the authority. A change made through this store is seen at once, one made elsewhere within a second.

use crate::access::TypeChange;
use crate::plain::{Kind, Plain, PlainRow, plain};
use crate::rows::read_policy;
use crate::session::{Attempted, Session};
use crate::verbs::TaskType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::TypeSettings;

const FRESH: Duration = Duration::from_secs(1);

/// The configured types.
#[derive(Debug, Default)]
pub(crate) struct Types(HashMap<String, TaskType>);

impl Types {
    pub(crate) fn new(types: Vec<TaskType>) -> Types {
        Types(types.into_iter().map(|one| (one.task_type.clone(), one)).collect())
    }

    pub(crate) fn settings(&self, task_type: &str) -> Option<&TypeSettings> {
        self.0.get(task_type).map(|one| &one.settings)
    }

    pub(crate) fn is_paused(&self, task_type: &str) -> bool {
        self.0.get(task_type).is_some_and(|one| one.paused)
    }

    pub(crate) fn paused(&self) -> Vec<String> {
        self.0.values().filter(|one| one.paused).map(|one| one.task_type.clone()).collect()
    }

    pub(crate) fn of_category(&self, category: &str) -> Vec<String> {
        let wanted = |one: &&TaskType| one.settings.category.as_deref() == Some(category);
        self.0.values().filter(wanted).map(|one| one.task_type.clone()).collect()
    }
}

const ALL: &str = "
SELECT type, name, category, retry, max_attempts, timeout_ms, need_manual, priority, paused FROM task_type ORDER BY type";

/// The query of all configured types, and the kinds of its columns.
pub(crate) fn query() -> (Plain, [Kind; 9]) {
    use Kind::{Flag, Number, Text};
    (plain(ALL), [Text, Text, Text, Text, Number, Number, Flag, Number, Flag])
}

/// All configured types.
pub(crate) async fn all(session: &mut dyn Session) -> Attempted<Vec<TaskType>> {
    let (query, kinds) = query();
    session.rows(&query, &kinds).await?.into_iter().map(read).collect()
}

/// A row of the query.
pub(crate) fn read(mut row: PlainRow) -> Attempted<TaskType> {
    Ok(TaskType {
        task_type: row.text()?,
        settings: TypeSettings {
            name: row.maybe_text()?,
            category: row.maybe_text()?,
            retry: read_policy(row.maybe_text()?.as_deref()),
            max_attempts: row.maybe_number()?.and_then(|attempts| i32::try_from(attempts).ok()),
            timeout_ms: row.maybe_number()?,
            need_manual: row.flag()?,
            priority: row.maybe_number()?.and_then(|priority| u8::try_from(priority).ok()),
        },
        paused: row.flag()?,
    })
}

const SET: &str = "
UPDATE task_type SET name = ?, category = ?, retry = ?, max_attempts = ?, timeout_ms = ?, need_manual = ?, priority = ?,
  updated_at = ? WHERE type = ?";
const PAUSE: &str = "UPDATE task_type SET paused = ?, updated_at = ? WHERE type = ?";
const ADD: &str = "INSERT INTO task_type (type, updated_at) VALUES (?, ?)";

/// Writes what changes of a type, and leaves the rest as it is. Where another transaction adds the type at the same time, the next
/// try finds it there.
pub(super) async fn put(session: &mut dyn Session, change: &TypeChange) -> Attempted<()> {
    let now = session.now().0;
    let mut changes = Vec::new();
    if let Some(settings) = &change.settings {
        let retry =
            settings.retry.as_ref().map(|policy| serde_json::to_string(policy).expect("a policy is plain JSON"));
        let set = plain(SET).bind(settings.name.clone()).bind(settings.category.clone()).bind(retry);
        let set = set.bind(settings.max_attempts.map(i64::from)).bind(settings.timeout_ms).bind(settings.need_manual);
        changes.push(set.bind(settings.priority.map(i64::from)).bind(now).bind(&*change.task_type));
    }
    if let Some(paused) = change.paused {
        changes.push(plain(PAUSE).bind(paused).bind(now).bind(&*change.task_type));
    }
    for change_it in changes {
        if session.execute(&change_it).await? == 0 {
            session.execute(&plain(ADD).bind(&*change.task_type).bind(now)).await?;
            session.execute(&change_it).await?;
        }
    }
    Ok(())
}

#[derive(Default)]
pub(super) struct TypeCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    known: Option<(Instant, Arc<Types>)>,
    /// Counts the changes made here, so that a list that was read before one is not remembered after it.
    changes: u64,
    /// When the last of them was.
    changed_at: Option<Instant>,
}

impl TypeCache {
    pub(super) async fn get(&self, session: &mut dyn Session) -> Attempted<Arc<Types>> {
        self.read(session, |_, _| true).await
    }

    /// The same for who only looks, and goes by a snapshot: it may be older than a change that was made a moment ago, and is not
    /// remembered then.
    pub(super) async fn seen(&self, session: &mut dyn Session) -> Attempted<Arc<Types>> {
        self.read(session, |changed_at, read_at| changed_at.is_none_or(|changed_at| changed_at + FRESH < read_at)).await
    }

    async fn read(
        &self,
        session: &mut dyn Session,
        is_sure: fn(Option<Instant>, Instant) -> bool,
    ) -> Attempted<Arc<Types>> {
        let (read_at, changes) = {
            let cached = self.lock();
            if let Some((read_at, types)) = &cached.known
                && read_at.elapsed() < FRESH
            {
                return Ok(types.clone());
            }
            (Instant::now(), cached.changes)
        };
        let types = Arc::new(Types::new(all(session).await?));
        let mut cached = self.lock();
        if cached.changes == changes && is_sure(cached.changed_at, read_at) {
            cached.known = Some((read_at, types.clone()));
        }
        Ok(types)
    }

    /// What was known last.
    pub(super) fn known(&self) -> Option<Arc<Types>> {
        self.lock().known.as_ref().map(|(_, types)| types.clone())
    }

    /// To be called after a change is committed.
    pub(super) fn forget(&self) {
        let mut cached = self.lock();
        cached.known = None;
        cached.changes += 1;
        cached.changed_at = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
