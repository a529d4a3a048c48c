//! The verbs, written once for all databases.
//!
//! Each file has one verb or a few that belong together: what it loads, what it asks the model, what it writes. The
//! statements themselves are the dialects'.

mod access;
mod act;
mod authority;
mod backlog;
mod broken;
mod calendar;
mod claim;
mod core;
mod ends;
mod finish;
mod fire;
mod handover;
mod launch;
mod quotas;
mod read;
mod records;
mod renew;
mod rescue;
mod runs;
mod schedules;
mod statistics;
mod step;
mod submit;
pub(crate) mod types;
mod watch;
mod watermark;
mod workers;

pub(crate) use submit::{Plan, shared, submit_on, undone, unique_keys};
pub(crate) use types::Types;

use self::core::Core;
use crate::access::TypeChange;
use crate::coalesce::Coalescer;
use crate::meter::{Meter, Readings};
use crate::options::{Dialect, Options};
use crate::people::{Acted, Action, BulkChunk, BulkRequest};
use crate::search::{Listing, Page};
use crate::session::{Database, News, Repeat};
use crate::task::{Submitted, Task, TaskDetail};
use crate::verbs::{
    Access as _, Ahead, Backlog, Count, Inspection, Outlived, Rescued, Retention, Statistics, StatisticsRange, Store,
    TaskType, Upcoming,
};
use crate::worker::{ClaimRequest, ClaimedTask, Heartbeat, Renewal, Renewed, Report, Reported, Worker};
use crate::{Result, StoreError};
use async_trait::async_trait;
use calendar::{Launched, RunIds};
use quotas::Quotas;
use statistics::Ledger;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{DatabaseNumber, NewTask, TaskId, Time, TypeSettings, limits};
use tokio::sync::Notify;
use types::TypeCache;
use watermark::{LaneDue, Watermarks};
use workers::WorkerCache;

/// A store on a SQL database.
///
/// Calls of the four verbs that workers and submitters make all day are coalesced; large ones are batches already.
pub(crate) struct SqlStore<D> {
    core: Arc<Core<D>>,
    submits: Coalescer<Submission, Stored>,
    claims: Coalescer<ClaimRequest, Vec<ClaimedTask>>,
    renews: Coalescer<(Vec<Heartbeat>, Vec<Renewal>), Vec<Renewed>>,
    finishes: Coalescer<Report, Reported>,
}

/// A task to submit, and a claim that waits for it.
type Submission = (Arc<NewTask>, Option<Arc<ClaimRequest>>);
/// What was answered, when, and what the claim that waited was handed.
type Stored = (Submitted, Time, Vec<ClaimedTask>);

/// Most items in a coalesced batch; a call with as many is not coalesced.
const COALESCED_ITEMS_MAX: usize = 500;
/// Most claims in a coalesced batch: they run one after the other in it.
const COALESCED_CLAIMS_MAX: usize = 32;
/// A claim for as many tasks is a batch by itself.
const COALESCED_CLAIM_TASKS_MAX: usize = 50;

/// What a store remembers to be faster. All of it can be thrown away at any time.
#[derive(Default)]
struct Memory {
    types: TypeCache,
    watermarks: Watermarks,
    workers: WorkerCache,
    ledger: Ledger,
    meter: Meter,
    run_ids: RunIds,
    launched: Launched,
    /// Whether the last successes were of runs, whose end takes a transaction.
    ends_runs: AtomicBool,
    quotas: Quotas,
    /// Tells who waits for timers that some may be due earlier than they were.
    timers: Notify,
    /// Whether a transaction under way moved some.
    timers_moved: AtomicBool,
}

impl<D: Database> SqlStore<D> {
    pub(crate) fn new(database: D, dialect: Dialect, options: &Options) -> SqlStore<D> {
        let core = Arc::new(Core { database, dialect, keep_success: options.keep_success, memory: Arc::default() });
        let (submit, claim, renew, finish) = (core.clone(), core.clone(), core.clone(), core.clone());
        SqlStore {
            submits: Coalescer::new(COALESCED_ITEMS_MAX, move |submissions| {
                let core = submit.clone();
                Box::pin(async move { store_all(&core, submissions).await })
            }),
            claims: Coalescer::new(COALESCED_CLAIMS_MAX, move |requests| {
                let core = claim.clone();
                Box::pin(async move { core.claim(requests).await })
            }),
            renews: Coalescer::new(COALESCED_ITEMS_MAX, move |calls| {
                let core = renew.clone();
                Box::pin(async move { core.renew(calls).await })
            }),
            finishes: Coalescer::new(COALESCED_ITEMS_MAX, move |reports| {
                let core = finish.clone();
                Box::pin(async move { core.finish(reports).await })
            }),
            core,
        }
    }
}

#[async_trait]
impl<D: Database> Store for SqlStore<D> {
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        check_batch("tasks", tasks.len(), limits::SUBMIT_BATCH_MAX)?;
        for (index, task) in tasks.iter().enumerate() {
            task.validate().map_err(|errors| StoreError::Invalid { index, errors })?;
        }
        let tasks = tasks.into_iter().map(Arc::new);
        if tasks.len() >= COALESCED_ITEMS_MAX {
            let submitted = self.core.submit(tasks.collect()).await?;
            return Ok(submitted.into_iter().map(|(submitted, _)| submitted).collect());
        }
        let stored = self.submits.call(tasks.map(|task| (task, None)).collect()).await?;
        Ok(stored.into_iter().map(|(submitted, ..)| submitted).collect())
    }

    async fn submit_and_show(
        &self,
        task: NewTask,
        waits: Option<Arc<ClaimRequest>>,
    ) -> Result<(Submitted, Option<Task>, Vec<ClaimedTask>)> {
        task.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
        if let Some(request) = &waits {
            check_each(std::slice::from_ref(&**request), ClaimRequest::validate)?;
        }
        let task = Arc::new(task);
        let mut answers = self.submits.call(vec![(task.clone(), waits)]).await?;
        let Some((submitted, at, claimed)) = answers.pop() else {
            return Err(StoreError::Database("a task was not stored".into()));
        };
        let types = self.core.memory.types.known().filter(|_| submitted.created);
        Ok((submitted, types.map(|types| submit::shown(task, submitted.id, at, &types)), claimed))
    }

    async fn submit_once(&self, key: String, task: NewTask) -> Result<Submitted> {
        field::name(submit::IDEMPOTENCY_KEY, &key, limits::KEY_CHARS_MAX)?;
        task.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
        let task_type = task.task_type.clone();
        let input = (self.core.memory.clone(), key, Arc::new(task));
        // A second try finds the first one's answer.
        let work = self.core.change("submit_once", Repeat::Harmless, input, |session, input| {
            Box::pin(async move {
                let (memory, key, task) = &*input;
                let types = memory.types.get(session).await?;
                let submitted = submit::submit_once(session, key, task, &types).await?;
                Ok((submitted, LaneDue::of(std::slice::from_ref(task), session.now())))
            })
        });
        let (submitted, is_new) = self.core.made_due(work).await?;
        self.core.memory.meter.submitted(is_new.then_some(task_type.as_str()).into_iter());
        Ok(submitted)
    }

    async fn answer(&self, tenant: String, key: String, fingerprint: i64) -> Result<Option<Submitted>> {
        self.core
            .look("answer", (tenant, key, fingerprint), |session, input| {
                Box::pin(async move {
                    let (tenant, key, fingerprint) = &*input;
                    submit::answered(session, &submit::Call { tenant, key, fingerprint: *fingerprint }).await
                })
            })
            .await
    }

    async fn forget_answers(&self) -> Result<u64> {
        self.core
            .change("forget_answers", Repeat::Harmless, (), |session, _| Box::pin(submit::forget_answers(session)))
            .await
    }

    async fn claim(&self, requests: Vec<ClaimRequest>) -> Result<Vec<Vec<ClaimedTask>>> {
        check_each(&requests, ClaimRequest::validate)?;
        if requests.iter().map(|request| request.max).sum::<usize>() >= COALESCED_CLAIM_TASKS_MAX {
            self.core.claim(requests).await
        } else {
            self.claims.call(requests).await
        }
    }

    async fn is_due(&self, request: ClaimRequest) -> Result<bool> {
        self.core.is_due(request).await
    }

    async fn renew(&self, workers: Vec<Heartbeat>, items: Vec<Renewal>) -> Result<Vec<Renewed>> {
        check_batch("items", items.len(), limits::REPORT_BATCH_MAX)?;
        check_each(&workers, Heartbeat::validate)?;
        check_each(&items, Renewal::validate)?;
        let mut answers = self.renews.call(vec![(workers, items)]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Reported>> {
        check_batch("items", reports.len(), limits::REPORT_BATCH_MAX)?;
        check_each(&reports, Report::validate)?;
        if reports.len() >= COALESCED_ITEMS_MAX {
            self.core.finish(reports).await
        } else {
            self.finishes.call(reports).await
        }
    }

    async fn rescue(&self) -> Result<Rescued> {
        let work = self.core.change("rescue", Repeat::Harmless, self.core.memory.clone(), |session, memory| {
            Box::pin(async move { rescue::rescue(session, &memory).await })
        });
        self.core.made_due(self.core.counted(work)).await
    }

    async fn watch(&self, is_unbroken: bool) -> Result<bool> {
        if is_unbroken {
            return self.core.note_watch().await.map(|()| false);
        }
        self.core
            .change("watch", Repeat::Harmless, (), |session, _| Box::pin(async move { watch::resume(session).await }))
            .await
    }

    async fn upcoming(&self, types: Vec<String>, within_ms: i64, max: usize) -> Result<Ahead> {
        self.core
            .look("upcoming", (types, within_ms, max), |session, input| {
                Box::pin(async move {
                    let (types, within_ms, max) = &*input;
                    let until = session.now().plus_ms(*within_ms);
                    let dues = session.upcoming(types, until, *max).await?;
                    let clock_us = session.clock_us().await?;
                    Ok(Ahead { dues, clock_us, read_at: Instant::now() })
                })
            })
            .await
    }

    async fn news(&self) -> Upcoming {
        self.core.database.news().next().await
    }

    async fn act(&self, tenant: Option<String>, ids: Vec<TaskId>, action: Action) -> Result<Vec<Acted>> {
        check_batch("ids", ids.len(), limits::CHUNK_ROWS_MAX)?;
        action.validate()?;
        let input = (self.core.memory.clone(), tenant, ids, action);
        let work = self.core.change("act", Repeat::Harmful, input, |session, input| {
            Box::pin(async move {
                let (memory, tenant, ids, action) = &*input;
                act::act(session, memory, tenant.as_deref(), ids, action).await
            })
        });
        self.core.made_due(work).await
    }

    async fn bulk(&self, request: BulkRequest) -> Result<BulkChunk> {
        request.filter.validate()?;
        request.action.validate()?;
        let input = (self.core.memory.clone(), self.core.dialect, request.clone());
        // By one snapshot: what goes between two statements would take others along.
        let found = self.core.look("bulk_ids", input, |session, input| {
            Box::pin(async move { act::matching(session, &input.0, input.1, &input.2).await })
        });
        let (ids, next) = found.await?;
        let chunk = BulkChunk { matched: ids.len() as u64, next, ..BulkChunk::default() };
        if request.dry_run || ids.is_empty() {
            return Ok(chunk);
        }
        let input = (self.core.memory.clone(), request, ids, chunk);
        let work = self.core.change("bulk", Repeat::Harmful, input, |session, input| {
            Box::pin(async move { act::bulk(session, &input.0, &input.1, &input.2, input.3.clone()).await })
        });
        self.core.made_due(work).await
    }

    async fn get(&self, tenant: Option<String>, id: TaskId) -> Result<Option<TaskDetail>> {
        let input = (self.core.memory.clone(), id);
        let work = self
            .core
            .look("get", input, |session, input| Box::pin(async move { read::get(session, &input.0, input.1).await }));
        Ok(work.await?.filter(|detail| tenant.is_none_or(|tenant| detail.task.tenant == tenant)))
    }

    async fn list(&self, listing: Listing) -> Result<Page> {
        listing.validate()?;
        let input = (self.core.memory.clone(), self.core.dialect, listing);
        self.core
            .look("list", input, |session, input| {
                Box::pin(async move { read::list(session, &input.0, input.1, &input.2).await })
            })
            .await
    }

    async fn counts(&self, tenant: Option<String>) -> Result<Vec<Count>> {
        self.core
            .look("counts", tenant, |session, tenant| Box::pin(async move { session.counts(tenant.as_deref()).await }))
            .await
    }

    async fn highest_id(&self) -> Result<TaskId> {
        self.core.look("highest_id", (), |session, _| Box::pin(async move { session.highest_id().await })).await
    }

    async fn put_type(&self, task_type: String, settings: TypeSettings) -> Result<TaskType> {
        self.change_type(None, TypeChange { task_type, settings: Some(settings), paused: None }).await
    }

    async fn pause_type(&self, task_type: String, paused: bool) -> Result<TaskType> {
        self.change_type(None, TypeChange { task_type, settings: None, paused: Some(paused) }).await
    }

    async fn types(&self) -> Result<Vec<TaskType>> {
        self.core.look("types", (), |session, _| Box::pin(types::all(session))).await
    }

    async fn workers(&self) -> Result<Vec<Worker>> {
        self.core.look("workers", (), |session, _| Box::pin(async move { session.workers().await })).await
    }

    async fn executing(&self) -> Result<HashMap<String, u64>> {
        self.core.look("executing", (), |session, _| Box::pin(workers::executing(session))).await
    }

    async fn outlived(&self, retention: Retention) -> Result<Vec<Outlived>> {
        self.core
            .look("outlived", retention, |session, retention| {
                Box::pin(async move { read::outlived(session, &retention).await })
            })
            .await
    }

    async fn purge(&self, tasks: Vec<Outlived>) -> Result<u64> {
        check_batch("tasks", tasks.len(), limits::CHUNK_ROWS_MAX)?;
        self.core
            .change("purge", Repeat::Harmless, tasks, |session, tasks| {
                Box::pin(async move { act::purge(session, &tasks).await })
            })
            .await
    }

    async fn write_statistics(&self) -> Result<()> {
        let counted = Arc::new(self.core.memory.ledger.unwritten());
        if counted.is_empty() {
            return Ok(());
        }
        let input = (self.core.memory.clone(), counted.clone());
        let work = self.core.change("write_statistics", Repeat::Harmless, input, |session, input| {
            Box::pin(async move { statistics::write(session, &input.0.ledger, &input.1).await })
        });
        let now = work.await?;
        self.core.memory.ledger.written(&counted, now);
        Ok(())
    }

    async fn statistics(&self, wanted: StatisticsRange) -> Result<Vec<Statistics>> {
        self.core
            .look("statistics", wanted, |session, wanted| {
                Box::pin(async move { statistics::read(session, &wanted).await })
            })
            .await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.core.look("backlog", (), |session, _| Box::pin(backlog::backlog(session))).await
    }

    fn readings(&self) -> Readings {
        Readings { connections: self.core.database.connections(), ..self.core.memory.meter.readings() }
    }

    async fn inspect(&self) -> Result<Inspection> {
        self.core.look("inspect", (), |session, _| Box::pin(async move { session.inspect().await })).await
    }

    async fn contradictions(&self) -> Result<u64> {
        self.core.look("contradictions", (), |session, _| Box::pin(async move { session.contradictions().await })).await
    }
}

/// Stores what was submitted. A task that comes alone is handed to the claim that waits for it in the same transaction; where
/// there are many, claims of their own are faster.
async fn store_all<D: Database>(core: &Core<D>, submissions: Vec<Submission>) -> Result<Vec<Stored>> {
    // A task with a unique key may turn out to be there already.
    if let [(task, Some(request))] = &*submissions
        && task.unique_key.is_none()
    {
        match core.hand_over(task.clone(), request).await {
            // What is wrong with the claim is none of the submit's.
            Err(error) if !error.is_transient() => {}
            stored => return stored.map(|((submitted, now), claimed)| vec![(submitted, now, claimed)]),
        }
    }
    let submitted = core.submit(submissions.into_iter().map(|(task, _)| task).collect()).await?;
    Ok(submitted.into_iter().map(|(submitted, now)| (submitted, now, Vec::new())).collect())
}

fn check_batch(field: &str, items: usize, max: usize) -> Result<()> {
    if items > max {
        return Err(StoreError::field(FieldError::new(field, format!("must have at most {max} items, has {items}"))));
    }
    Ok(())
}

fn check_each<T>(items: &[T], check: impl Fn(&T) -> Result<(), FieldError>) -> Result<()> {
    items
        .iter()
        .enumerate()
        .try_for_each(|(index, item)| check(item).map_err(|error| StoreError::Invalid { index, errors: vec![error] }))
}

const NO_TABLES: &str =
    "there are no tables of taskwheel in this database: name another, or make them with `taskwheel migrate`";

/// Whether a schema at `version`, 0 where there is none, may be brought to `known` if it is not there yet.
pub(crate) fn check_migration(version: i32, known: i32, makes_schema: bool) -> Result<()> {
    if makes_schema || version >= known {
        return Ok(());
    }
    Err(StoreError::Schema(match version {
        0 => NO_TABLES.into(),
        _ => format!("the database's schema is at version {version}: bring it to {known} with `taskwheel migrate`"),
    }))
}

/// Whether a program that knows migrations up to `known` may run on a database at `version`, which asks for programs that
/// know at least `oldest`, and whether the database has the number that it is asked to have.
pub(crate) fn check_schema(known: i32, version: i32, oldest: i32, stored: i32, number: DatabaseNumber) -> Result<()> {
    if oldest > known {
        return Err(StoreError::Schema(format!(
            "the database's schema is at version {version} and needs a newer taskwheel than this one, which knows \
             version {known}: start the newer program, or restore a database that fits this one"
        )));
    }
    if stored != i32::from(number.get()) {
        return Err(StoreError::Schema(format!(
            "the database has number {stored}, fixed at its first migration, and cannot become number {}",
            number.get()
        )));
    }
    Ok(())
}
