//! What is known about task types, remembered for a second so that hot verbs need not read it each time.
//!
//! The database is the authority. A change made through this store is seen at once, one made elsewhere within a second.

use crate::session::{Attempted, Session};
use crate::verbs::TaskType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
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
pub(super) struct TypeCache(Mutex<Option<(Instant, Arc<Types>)>>);

impl TypeCache {
    pub(super) async fn get(&self, session: &mut dyn Session) -> Attempted<Arc<Types>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read_at, types)) = known
            && read_at.elapsed() < FRESH
        {
            return Ok(types);
        }
        let read_at = Instant::now();
        let types = Arc::new(Types::new(session.types().await?));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((read_at, types.clone()));
        Ok(types)
    }

    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
