//! What is known about task types, remembered for a second so that hot verbs need not read it each time.
//!
//! The database is the authority. A change made through this store is seen at once, one made elsewhere within a second.

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

#[derive(Default)]
pub(super) struct TypeCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    known: Option<(Instant, Arc<Types>)>,
    /// Counts the changes made here, so that a list that was read before one is not remembered after it.
    changes: u64,
}

impl TypeCache {
    pub(super) async fn get(&self, session: &mut dyn Session) -> Attempted<Arc<Types>> {
        let (read_at, changes) = {
            let cached = self.lock();
            if let Some((read_at, types)) = &cached.known
                && read_at.elapsed() < FRESH
            {
                return Ok(types.clone());
            }
            (Instant::now(), cached.changes)
        };
        let types = Arc::new(Types::new(session.types().await?));
        let mut cached = self.lock();
        if cached.changes == changes {
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
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
