//! The verbs of schedules, as calls of the store.

use super::core::Claims;
use super::fire::{self, Firings};
use super::watermark::LaneDue;
use super::{SqlStore, check_each, records, schedules};
use crate::access::Actor;
use crate::schedule::{Fired, NewSchedule, Run, RunNow, RunQuery, Schedule, ScheduleEdit, ScheduleQuery, Schedules};
use crate::session::{Database, Repeat};
use crate::worker::{ClaimRequest, ClaimedTask};
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::field;
use taskwheel_model::{Time, limits};
use tokio::sync::Notify;

/// Most ids of runs that are taken at a time.
const IDS_AT_ONCE_MAX: usize = 1_024;
/// Ids are used for so long after they were taken: so their order is that of time, nearly.
const IDS_FRESH: Duration = Duration::from_secs(1);

/// Ids of runs that were taken and not used yet. They are taken in a transaction of their own, so that no firing waits for another's: as
/// many as are needed, and more where those were soon used up.
#[derive(Default)]
pub(super) struct RunIds(Mutex<Option<Taken>>);

struct Taken {
    unused: Range<i64>,
    at: Instant,
    count: usize,
}

impl RunIds {
    fn lock(&self) -> MutexGuard<'_, Option<Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left of those that were taken a moment ago, for one firing alone.
    fn unused(&self) -> Range<i64> {
        let mut taken = self.lock();
        let fresh = taken.as_mut().filter(|taken| taken.at.elapsed() < IDS_FRESH);
        fresh.map_or(0..0, |taken| std::mem::replace(&mut taken.unused, 0..0))
    }

    /// How many to take where so many are needed.
    fn count(&self, needed: usize) -> usize {
        let again =
            self.lock().as_ref().filter(|taken| taken.at.elapsed() < IDS_FRESH).map_or(0, |taken| 2 * taken.count);
        needed.max(again.min(IDS_AT_ONCE_MAX))
    }

    fn taken(&self, unused: Range<i64>) {
        let count = usize::try_from(unused.end - unused.start).unwrap_or(0);
        *self.lock() = Some(Taken { unused, at: Instant::now(), count });
    }

    /// Gives back what was not used, unless others were taken meanwhile.
    fn give_back(&self, unused: Range<i64>) {
        if let Some(taken) = self.lock().as_mut().filter(|taken| taken.unused.is_empty()) {
            taken.unused = unused;
        }
    }
}

/// What runs began since somebody asked, by type.
#[derive(Default)]
pub(super) struct Launched {
    tasks: Mutex<HashMap<String, usize>>,
    some: Notify,
}

impl Launched {
    /// To be called after the commit.
    pub(super) fn add(&self, dues: &[LaneDue]) {
        if dues.iter().all(|due| due.launched == 0) {
            return;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        for due in dues {
            let of_type = tasks.entry(due.task_type().to_owned()).or_default();
            *of_type = of_type.saturating_add(due.launched);
        }
        drop(tasks);
        self.some.notify_one();
    }

    async fn next(&self) -> HashMap<String, usize> {
        loop {
            let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            if !tasks.is_empty() {
                return tasks;
            }
            self.some.notified().await;
        }
    }
}

#[async_trait]
impl<D: Database> Schedules for SqlStore<D> {
    async fn create_schedule(&self, by: Actor, new: NewSchedule) -> Result<Schedule> {
        field::name("tenant", &new.tenant, limits::NAME_CHARS_MAX)?;
        new.definition.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
        schedules::validate_timers(new.timers.iter())?;
        let work = self.core.change("create_schedule", Repeat::Harmful, (by, new), |session, input| {
            Box::pin(async move { schedules::create(session, &input.0, &input.1).await })
        });
        self.timers_changed(work.await)
    }

    async fn edit_schedule(
        &self,
        by: Actor,
        tenant: Option<String>,
        id: i64,
        edit: ScheduleEdit,
    ) -> Result<Option<Schedule>> {
        schedules::validate_timers(edit.timers.as_deref().unwrap_or_default().iter().map(|(_, timer)| timer))?;
        let work = self.core.change("edit_schedule", Repeat::Harmless, (by, tenant, id, edit), |session, input| {
            Box::pin(async move {
                let (by, tenant, id, edit) = &*input;
                schedules::edit(session, by, tenant.as_deref(), *id, edit).await
            })
        });
        self.timers_changed(work.await)
    }

    async fn delete_schedule(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<bool> {
        self.core
            .change("delete_schedule", Repeat::Harmless, (by, tenant, id), |session, input| {
                Box::pin(async move { schedules::delete(session, &input.0, input.1.as_deref(), input.2).await })
            })
            .await
    }

    async fn schedule(&self, tenant: Option<String>, id: i64) -> Result<Option<(Schedule, Time)>> {
        self.core
            .look("schedule", (tenant, id), |session, input| {
                Box::pin(async move {
                    let found = schedules::get(session, input.0.as_deref(), input.1).await?;
                    Ok(found.map(|schedule| (schedule, session.now())))
                })
            })
            .await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>> {
        self.core
            .look("schedules", query, |session, query| Box::pin(async move { schedules::list(session, &query).await }))
            .await
    }

    async fn run_schedule(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<Option<RunNow>> {
        let input = (self.core.memory.clone(), by, tenant, id);
        let work = self.core.change("run_schedule", Repeat::Harmful, input, |session, input| {
            Box::pin(async move {
                let (memory, by, tenant, id) = &*input;
                fire::run_now(session, memory, by, tenant.as_deref(), *id).await
            })
        });
        self.core.made_due(work).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>> {
        self.core
            .look("runs", query, |session, query| Box::pin(async move { records::list(session, &query).await }))
            .await
    }

    async fn run(&self, tenant: Option<String>, id: i64) -> Result<Option<Run>> {
        self.core
            .look("run", (tenant, id), |session, input| {
                Box::pin(async move { records::get(session, input.0.as_deref(), input.1).await })
            })
            .await
    }

    async fn cancel_run(&self, by: Actor, tenant: Option<String>, id: i64) -> Result<Option<Run>> {
        let input = (self.core.memory.clone(), by, tenant, id);
        let work = self.core.change("cancel_run", Repeat::Harmless, input, |session, input| {
            Box::pin(async move {
                let (memory, by, tenant, id) = &*input;
                records::cancel(session, memory, by, tenant.as_deref(), *id).await
            })
        });
        self.core.made_due(work).await
    }

    async fn fire_and_claim(
        &self,
        max: usize,
        claims: Vec<Arc<ClaimRequest>>,
    ) -> Result<(Fired, Vec<Vec<ClaimedTask>>)> {
        let requests: Vec<_> = claims.iter().map(|request| ClaimRequest::clone(request)).collect();
        check_each(&requests, ClaimRequest::validate)?;
        if !requests.is_empty() {
            let fired = self.fire_to(max, requests).await;
            // What is wrong with a claim is none of the firing's, and what may have fired does not fire again.
            if matches!(fired, Ok(_) | Err(StoreError::Unavailable(_))) {
                return fired;
            }
        }
        self.fire_to(max, Vec::new()).await
    }

    async fn launched(&self) -> HashMap<String, usize> {
        self.core.memory.launched.next().await
    }

    async fn timers_moved(&self) {
        self.core.memory.timers.notified().await;
    }

    async fn purge_runs(&self, keep_ms: i64) -> Result<u64> {
        self.core
            .change("purge_runs", Repeat::Harmless, keep_ms, |session, keep_ms| {
                Box::pin(async move { records::purge(session, *keep_ms).await })
            })
            .await
    }
}

impl<D: Database> SqlStore<D> {
    async fn fire_to(&self, max: usize, requests: Vec<ClaimRequest>) -> Result<(Fired, Vec<Vec<ClaimedTask>>)> {
        // A second try finds the cursors moved, and the ids used, where the first was committed and not answered. What was claimed then
        // would get to nobody.
        let repeat = if requests.is_empty() { Repeat::Harmless } else { Repeat::Harmful };
        loop {
            let ids = self.core.memory.run_ids.unused();
            let begun = Arc::new(AtomicU32::new(0));
            let claims = Claims::new(requests.clone());
            let input = (self.core.memory.clone(), ids.clone(), max, begun.clone(), claims);
            let work = self.core.change("fire", repeat, input, |session, input| {
                Box::pin(async move {
                    let (memory, ids, max, begun, claims) = &*input;
                    let is_first = begun.fetch_add(1, Ordering::Relaxed) == 0;
                    let ids = if is_first { ids.clone() } else { 0..0 };
                    let (firings, mut dues) = fire::fire(session, memory, ids, *max).await?;
                    let mut ran = Vec::new();
                    let claimed = match &firings {
                        Firings::Done(fired, begun) if fired.runs > 0 && !fired.more => {
                            claims.take(session, memory, begun, (&mut dues, &mut ran)).await?
                        }
                        _ => Vec::new(),
                    };
                    Ok(((firings, claimed), dues, ran))
                })
            });
            let work = self.core.made_due(self.core.counted(work));
            let (firings, claimed) = work.await.inspect_err(|_| self.core.memory.watermarks.forget())?;
            if begun.load(Ordering::Relaxed) > 1 {
                // What an earlier try learned was rolled back with it.
                self.core.memory.watermarks.forget();
            }
            match firings {
                Firings::Done(fired, _) => {
                    if begun.load(Ordering::Relaxed) == 1 {
                        self.core.memory.run_ids.give_back(ids.start + fired.runs as i64..ids.end);
                    }
                    return Ok((fired, self.core.claimed(claimed)));
                }
                Firings::NeedsIds(needed) => self.take_run_ids(needed).await?,
            }
        }
    }

    async fn take_run_ids(&self, needed: usize) -> Result<()> {
        let count = self.core.memory.run_ids.count(needed);
        let work = self.core.change("take_run_ids", Repeat::Harmless, count, |session, count| {
            Box::pin(async move { schedules::next_ids(session, *count).await })
        });
        let first = work.await?;
        self.core.memory.run_ids.taken(first..first + count as i64);
        Ok(())
    }

    /// Tells who waits for timers that they may be due earlier than they were.
    fn timers_changed<T>(&self, answer: Result<T>) -> Result<T> {
        self.core.memory.timers.notify_one();
        answer
    }
}
