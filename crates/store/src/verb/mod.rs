//! The verbs, written once for all databases.
//!
//! Each file has one verb or a few that belong together: what it loads, what it asks the model, what it writes. The
//! statements themselves are the dialects'.

mod access;
mod act;
mod authority;
mod claim;
mod finish;
mod read;
mod renew;
mod rescue;
mod statistics;
mod step;
mod submit;
mod types;
mod watch;
mod watermark;
mod workers;

pub(crate) use submit::{Plan, submit_on, unique_keys};
pub(crate) use types::Types;

use crate::access::TypeChange;
use crate::coalesce::Coalescer;
use crate::options::{Dialect, Options};
use crate::people::{Acted, Action, BulkChunk, BulkRequest};
use crate::search::{Listing, Page};
use crate::session::{Database, News, Repeat};
use crate::task::{Submitted, Task, TaskDetail};
use crate::verbs::{
    Access as _, Ahead, Count, Inspection, Rescued, Retention, Statistics, StatisticsRange, Store, TaskType, Upcoming,
};
use crate::worker::{ClaimRequest, ClaimedTask, Renewal, Renewed, Report, Reported, Worker};
use crate::{Result, StoreError};
use async_trait::async_trait;
use statistics::Ledger;
use std::sync::Arc;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{DatabaseNumber, NewTask, Ran, TaskId, Time, TypeSettings, limits};
use types::TypeCache;
use watermark::{LaneDue, Watermarks};
use workers::WorkerCache;

/// A store on a SQL database.
///
/// Calls of the four verbs that workers and submitters make all day are coalesced; large ones are batches already.
pub(crate) struct SqlStore<D> {
    core: Arc<Core<D>>,
    submits: Coalescer<NewTask, (Submitted, Time)>,
    claims: Coalescer<ClaimRequest, Vec<ClaimedTask>>,
    renews: Coalescer<(Vec<String>, Vec<Renewal>), Vec<Renewed>>,
    finishes: Coalescer<Report, Reported>,
}

/// The verbs as they run, one transaction each.
struct Core<D> {
    database: D,
    dialect: Dialect,
    keep_success: bool,
    memory: Arc<Memory>,
}

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
}

impl<D: Database> SqlStore<D> {
    pub(crate) fn new(database: D, dialect: Dialect, options: &Options) -> SqlStore<D> {
        let core = Arc::new(Core { database, dialect, keep_success: options.keep_success, memory: Arc::default() });
        let (submit, claim, renew, finish) = (core.clone(), core.clone(), core.clone(), core.clone());
        SqlStore {
            submits: Coalescer::new(COALESCED_ITEMS_MAX, move |tasks| {
                let core = submit.clone();
                Box::pin(async move { core.submit(tasks).await })
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
        let submitted = if tasks.len() >= COALESCED_ITEMS_MAX {
            self.core.submit(tasks).await
        } else {
            self.submits.call(tasks).await
        };
        Ok(submitted?.into_iter().map(|(submitted, _)| submitted).collect())
    }

    async fn submit_and_show(&self, task: NewTask) -> Result<(Submitted, Option<Task>)> {
        task.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
        let answers = self.submits.call(vec![task.clone()]).await?;
        let Some((submitted, at)) = answers.first().copied() else {
            return Err(StoreError::Database("a task was not stored".into()));
        };
        let types = self.core.memory.types.known().filter(|_| submitted.created);
        Ok((submitted, types.map(|types| submit::shown(task, submitted.id, at, &types))))
    }

    async fn submit_once(&self, key: String, task: NewTask) -> Result<Submitted> {
        field::name("idempotency_key", &key, limits::KEY_CHARS_MAX).map_err(StoreError::field)?;
        task.validate().map_err(|errors| StoreError::Invalid { index: 0, errors })?;
        let (memory, input) = (self.core.memory.clone(), Arc::new((key, vec![task])));
        // A second try finds the first one's answer.
        let work = self.core.database.transact(Repeat::Harmless, move |session| {
            let (memory, input) = (memory.clone(), input.clone());
            Box::pin(async move {
                let types = memory.types.get(session).await?;
                let submitted = submit::submit_once(session, &input.0, &input.1, &types).await?;
                Ok((submitted, LaneDue::of(&input.1, session.now())))
            })
        });
        self.core.made_due(work).await
    }

    async fn forget_answers(&self) -> Result<u64> {
        self.core.database.transact(Repeat::Harmless, |session| Box::pin(submit::forget_answers(session))).await
    }

    async fn claim(&self, requests: Vec<ClaimRequest>) -> Result<Vec<Vec<ClaimedTask>>> {
        check_each(&requests, ClaimRequest::validate)?;
        if requests.iter().map(|request| request.max).sum::<usize>() >= COALESCED_CLAIM_TASKS_MAX {
            self.core.claim(requests).await
        } else {
            self.claims.call(requests).await
        }
    }

    async fn renew(&self, workers: Vec<String>, items: Vec<Renewal>) -> Result<Vec<Renewed>> {
        check_batch("items", items.len(), limits::REPORT_BATCH_MAX)?;
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

    async fn watch(&self, is_unbroken: bool) -> Result<bool> {
        self.core.database.transact(Repeat::Harmless, move |session| Box::pin(watch::watch(session, is_unbroken))).await
    }

    async fn rescue(&self) -> Result<Rescued> {
        let memory = self.core.memory.clone();
        let work = self.core.database.transact(Repeat::Harmless, move |session| {
            let memory = memory.clone();
            Box::pin(async move { rescue::rescue(session, &memory).await })
        });
        self.core.made_due(self.core.counted(work)).await
    }

    async fn upcoming(&self, types: Vec<String>, within_ms: i64, max: usize) -> Result<Ahead> {
        let types = Arc::new(types);
        self.core
            .database
            .read(move |session| {
                let types = types.clone();
                Box::pin(async move {
                    let now = session.now();
                    Ok(Ahead { now, dues: session.upcoming(&types, now.plus_ms(within_ms), max).await? })
                })
            })
            .await
    }

    async fn news(&self) -> Upcoming {
        self.core.database.news().next().await
    }

    async fn act(&self, tenant: Option<String>, ids: Vec<TaskId>, action: Action) -> Result<Vec<Acted>> {
        check_batch("ids", ids.len(), limits::CHUNK_ROWS_MAX)?;
        action.validate().map_err(StoreError::field)?;
        let (memory, input) = (self.core.memory.clone(), Arc::new((tenant, ids, action)));
        let work = self.core.database.transact(Repeat::Harmful, move |session| {
            let (memory, input) = (memory.clone(), input.clone());
            Box::pin(async move { act::act(session, &memory, input.0.as_deref(), &input.1, &input.2).await })
        });
        self.core.made_due(work).await
    }

    async fn bulk(&self, request: BulkRequest) -> Result<BulkChunk> {
        request.filter.validate().map_err(StoreError::field)?;
        request.action.validate().map_err(StoreError::field)?;
        let (memory, request, dialect) = (self.core.memory.clone(), Arc::new(request), self.core.dialect);
        let work = self.core.database.transact(Repeat::Harmful, move |session| {
            let (memory, request) = (memory.clone(), request.clone());
            Box::pin(async move { act::bulk(session, &memory, dialect, &request).await })
        });
        self.core.made_due(work).await
    }

    async fn get(&self, tenant: Option<String>, id: TaskId) -> Result<Option<TaskDetail>> {
        let memory = self.core.memory.clone();
        let found = self
            .core
            .database
            .read(move |session| {
                let memory = memory.clone();
                Box::pin(async move { read::get(session, &memory, id).await })
            })
            .await?;
        Ok(found.filter(|detail| tenant.is_none_or(|tenant| detail.task.tenant == tenant)))
    }

    async fn list(&self, listing: Listing) -> Result<Page> {
        listing.validate().map_err(StoreError::field)?;
        let (memory, listing, dialect) = (self.core.memory.clone(), Arc::new(listing), self.core.dialect);
        self.core
            .database
            .read(move |session| {
                let (memory, listing) = (memory.clone(), listing.clone());
                Box::pin(async move { read::list(session, &memory, dialect, &listing).await })
            })
            .await
    }

    async fn counts(&self, tenant: Option<String>) -> Result<Vec<Count>> {
        let tenant = Arc::new(tenant);
        self.core
            .database
            .read(move |session| {
                let tenant = tenant.clone();
                Box::pin(async move { session.counts(tenant.as_deref()).await })
            })
            .await
    }

    async fn highest_id(&self) -> Result<TaskId> {
        self.core.database.read(|session| Box::pin(async move { session.highest_id().await })).await
    }

    async fn put_type(&self, task_type: String, settings: TypeSettings) -> Result<TaskType> {
        self.change_type(None, TypeChange { task_type, settings: Some(settings), paused: None }).await
    }

    async fn pause_type(&self, task_type: String, paused: bool) -> Result<TaskType> {
        self.change_type(None, TypeChange { task_type, settings: None, paused: Some(paused) }).await
    }

    async fn types(&self) -> Result<Vec<TaskType>> {
        self.core.database.read(|session| Box::pin(async move { session.types().await })).await
    }

    async fn workers(&self) -> Result<Vec<Worker>> {
        self.core.database.read(|session| Box::pin(async move { session.workers().await })).await
    }

    async fn outlived(&self, retention: Retention) -> Result<Vec<TaskId>> {
        self.core.database.read(move |session| Box::pin(async move { read::outlived(session, &retention).await })).await
    }

    async fn purge(&self, ids: Vec<TaskId>) -> Result<u64> {
        let acted = self.act(None, ids, Action::Delete).await?;
        Ok(acted.iter().filter(|acted| matches!(acted, Acted::Changed(_))).count() as u64)
    }

    async fn write_statistics(&self) -> Result<()> {
        let counted = Arc::new(self.core.memory.ledger.unwritten());
        if counted.is_empty() {
            return Ok(());
        }
        let (memory, input) = (self.core.memory.clone(), counted.clone());
        let work = self.core.database.transact(Repeat::Harmless, move |session| {
            let (memory, counted) = (memory.clone(), input.clone());
            Box::pin(async move { statistics::write(session, &memory.ledger, &counted).await })
        });
        let now = work.await?;
        self.core.memory.ledger.written(&counted, now);
        Ok(())
    }

    async fn statistics(&self, wanted: StatisticsRange) -> Result<Vec<Statistics>> {
        let wanted = Arc::new(wanted);
        self.core
            .database
            .read(move |session| {
                let wanted = wanted.clone();
                Box::pin(async move { statistics::read(session, &wanted).await })
            })
            .await
    }

    async fn inspect(&self) -> Result<Inspection> {
        self.core.database.read(|session| Box::pin(async move { session.inspect().await })).await
    }

    async fn contradictions(&self) -> Result<u64> {
        self.core.database.read(|session| Box::pin(async move { session.contradictions().await })).await
    }
}

impl<D: Database> Core<D> {
    /// Submits tasks; with each answer comes the time at which its task was created.
    async fn submit(&self, tasks: Vec<NewTask>) -> Result<Vec<(Submitted, Time)>> {
        // With a unique key on each task a second try finds the first one's tasks.
        let repeat =
            if tasks.iter().all(|task| task.unique_key.is_some()) { Repeat::Harmless } else { Repeat::Harmful };
        let (memory, tasks) = (self.memory.clone(), Arc::new(tasks));
        let work = self.database.insert(repeat, tasks.len(), move |session| {
            let (memory, tasks) = (memory.clone(), tasks.clone());
            Box::pin(async move {
                let types = memory.types.get(session).await?;
                let (submitted, now) = (submit_on(session, &tasks, &types).await?, session.now());
                let submitted = submitted.into_iter().map(|submitted| (submitted, now)).collect();
                Ok((submitted, LaneDue::of(&tasks, now)))
            })
        });
        self.made_due(work).await
    }

    async fn claim(&self, requests: Vec<ClaimRequest>) -> Result<Vec<Vec<ClaimedTask>>> {
        let (memory, requests) = (self.memory.clone(), Arc::new(requests));
        self.database
            .transact(Repeat::Harmful, move |session| {
                let (memory, requests) = (memory.clone(), requests.clone());
                Box::pin(async move {
                    let mut answers = Vec::with_capacity(requests.len());
                    for request in requests.iter() {
                        answers.push(claim::claim(session, &memory, request).await?);
                    }
                    Ok(answers)
                })
            })
            .await
    }

    async fn renew(&self, calls: Vec<(Vec<String>, Vec<Renewal>)>) -> Result<Vec<Vec<Renewed>>> {
        let (memory, calls) = (self.memory.clone(), Arc::new(calls));
        self.database
            .transact(Repeat::Harmless, move |session| {
                let (memory, calls) = (memory.clone(), calls.clone());
                Box::pin(async move {
                    let workers: Vec<_> = calls.iter().flat_map(|(workers, _)| workers.iter().cloned()).collect();
                    let items: Vec<_> = calls.iter().flat_map(|(_, items)| items.iter()).collect();
                    let mut answers = renew::renew(session, &memory, &workers, &items).await?.into_iter();
                    Ok(calls.iter().map(|(_, items)| answers.by_ref().take(items.len()).collect()).collect())
                })
            })
            .await
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Reported>> {
        let (memory, reports, keep) = (self.memory.clone(), Arc::new(reports), self.keep_success);
        let work = self.database.transact(Repeat::Harmless, move |session| {
            let (memory, reports) = (memory.clone(), reports.clone());
            Box::pin(async move { finish::finish(session, &memory, &reports, keep).await })
        });
        self.made_due(self.counted(work)).await
    }

    /// Counts the executions that a verb ended, once it is committed.
    async fn counted<T>(
        &self,
        work: impl Future<Output = Result<(T, Vec<LaneDue>, Vec<Ran>)>>,
    ) -> Result<(T, Vec<LaneDue>)> {
        let (answer, dues, ran) = work.await?;
        self.memory.ledger.add(&ran);
        Ok((answer, dues))
    }

    /// Lets claims see what a verb made due, once it is committed, here and at other nodes.
    async fn made_due<T>(&self, work: impl Future<Output = Result<(T, Vec<LaneDue>)>>) -> Result<T> {
        let (answer, dues) = work.await?;
        self.memory.watermarks.lower(&dues);
        self.database.news().tell(&mut dues.iter().map(|due| (due.task_type(), due.due)));
        Ok(answer)
    }
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
