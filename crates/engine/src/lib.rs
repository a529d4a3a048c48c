//! Taskwheel's engine: the loops that bring tasks and workers together, over a [`Store`].
//!
//! ```text
//!  submit --> store --> woken -----------\
//!  news   --> (plain SQL, other nodes) ---+--> dispatch --> a waiting claim looks into the store
//!  due    --> (the near future) ----------+
//!  rescue --> store --> woken -----------/
//! ```
//!
//! The store is the truth: whatever the engine remembers is there to be faster, can be thrown away at any time, and is built
//! again from the store. Any number of engines share one PostgreSQL or MySQL database; any of them may die at any time.
//!
//! An application can run an engine in its own process, on its own database: open a store, start an [`Engine`] on it, and
//! call it.

mod dispatch;
mod due;
mod health;
mod history;
mod news;
mod rescue;
mod schedules;
mod statistics;
mod ticket;

pub use taskwheel_store as store;

use dispatch::Dispatch;
use due::Due;
use health::Health;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, TaskId};
use taskwheel_store::access::{Actor, BulkAudit, TypeChange};
use taskwheel_store::people::{Acted, Action, BulkRequest};
use taskwheel_store::search::Filter;
use taskwheel_store::task::{Submitted, Task};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Heartbeat, Renewal, Renewed, Report, Reported};
use taskwheel_store::{Result, Retention, Store, StoreError, TaskType};
use ticket::Kept;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How an engine behaves.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// How often it looks for what came by plain SQL or through another node, while workers wait.
    pub look_every: Duration,
    /// How often it looks at the clocks of executions and of workers.
    pub rescue_every: Duration,
    /// How long finished tasks are kept.
    pub retention: Retention,
    /// How long the records of runs are kept after their end, in milliseconds. `None` is for ever.
    pub keep_runs_ms: Option<i64>,
    /// How long the log of changes is kept, in milliseconds. `None` is for ever.
    pub keep_audit_ms: Option<i64>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            look_every: Duration::from_millis(100),
            rescue_every: Duration::from_millis(500),
            retention: Retention::default(),
            keep_runs_ms: None,
            keep_audit_ms: None,
        }
    }
}

/// A running engine. Its loops end with [`Engine::stop`], or when it is dropped.
pub struct Engine {
    inner: Arc<Inner>,
    loops: tokio::sync::Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

/// What the loops and the calls share.
struct Inner {
    store: Arc<dyn Store>,
    options: EngineOptions,
    dispatch: Dispatch,
    due: Due,
    health: Health,
    counters: Counters,
}

/// What only an engine sees, counted since it started.
#[derive(Default)]
struct Counters {
    leases_lost: AtomicU64,
    timed_out: AtomicU64,
    never_arrived: AtomicU64,
    expired: AtomicU64,
    superseded: AtomicU64,
}

/// What an engine counted since it started, and how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineReadings {
    /// Claims that wait for a task.
    pub waiting_claims: usize,
    /// Executions whose worker went silent.
    pub leases_lost: u64,
    /// Executions whose time limit ran out.
    pub timed_out: u64,
    /// Executions that never reached their worker, and were given back.
    pub never_arrived: u64,
    /// Tasks that expired before they started.
    pub expired: u64,
    /// Reports that came too late.
    pub superseded: u64,
}

impl Engine {
    /// Starts an engine on a store.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, options: EngineOptions) -> Engine {
        let (stopping, stopped) = watch::channel(false);
        let inner = Arc::new(Inner {
            store,
            options,
            dispatch: Dispatch::default(),
            due: Due::default(),
            health: Health::default(),
            counters: Counters::default(),
        });
        let mut loops = JoinSet::new();
        loops.spawn(due::look(inner.clone(), stopped.clone()));
        loops.spawn(due::ring(inner.clone(), stopped.clone()));
        loops.spawn(news::run(inner.clone(), stopped.clone()));
        loops.spawn(rescue::run(inner.clone(), stopped.clone()));
        loops.spawn(history::run(inner.clone(), stopped.clone()));
        loops.spawn(schedules::run(inner.clone(), stopped.clone()));
        loops.spawn(schedules::wake(inner.clone(), stopped.clone()));
        loops.spawn(statistics::run(inner.clone(), stopped));
        Engine { inner, loops: tokio::sync::Mutex::new(loops), stopping }
    }

    /// The store it runs on, for whatever is not the engine's: reading, and types.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    /// Whether the last look of each of its loops into the store succeeded, and none hangs.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.inner.health.is_good()
    }

    /// What it counted since it started.
    #[must_use]
    pub fn readings(&self) -> EngineReadings {
        let Counters { leases_lost, timed_out, never_arrived, expired, superseded } = &self.inner.counters;
        let [leases_lost, timed_out, never_arrived, expired, superseded] =
            [leases_lost, timed_out, never_arrived, expired, superseded].map(|one| one.load(Ordering::Relaxed));
        let waiting_claims = self.inner.dispatch.waiting();
        EngineReadings { waiting_claims, leases_lost, timed_out, never_arrived, expired, superseded }
    }

    /// Ends the loops, and answers every waiting claim with nothing.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let mut loops = self.loops.lock().await;
        while loops.join_next().await.is_some() {}
    }

    /// Stores tasks, all or none, and wakes who waits for them.
    pub async fn submit(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        if tasks.len() == 1
            && let Some(task) = tasks.pop()
        {
            return self.submit_and_show(task).await.map(|(submitted, _)| vec![submitted]);
        }
        let arrivals: Vec<_> = tasks.iter().map(|task| (task.task_type.clone(), task.run_at)).collect();
        let submitted = self.inner.store.submit(tasks).await?;
        for ((task_type, run_at), submitted) in arrivals.into_iter().zip(&submitted) {
            if submitted.created {
                self.inner.arrived(&task_type, run_at);
            }
        }
        Ok(submitted)
    }

    /// Stores a task, hands it to who waits for it, and shows it; `None` where its unique key was already live.
    pub async fn submit_and_show(&self, task: NewTask) -> Result<(Submitted, Option<Task>)> {
        if self.inner.due.after(task.run_at).is_zero()
            && let Some(kept) = self.inner.dispatch.keep(&task)
        {
            return hand_over(self.inner.clone(), task, kept).await;
        }
        let (task_type, run_at) = (task.task_type.clone(), task.run_at);
        let (submitted, shown, _) = self.inner.store.submit_and_show(task, None).await?;
        if submitted.created {
            self.inner.arrived(&task_type, run_at);
        }
        Ok((submitted, shown))
    }

    /// Stores a task for a call with an idempotency key: the same key answers the same for 24 hours.
    pub async fn submit_once(&self, key: String, task: NewTask) -> Result<Submitted> {
        let (task_type, run_at) = (task.task_type.clone(), task.run_at);
        let submitted = self.inner.store.submit_once(key, task).await?;
        // A repeated call wakes somebody in vain.
        self.inner.arrived(&task_type, run_at);
        Ok(submitted)
    }

    /// Hands out due tasks, at once when there are any, and otherwise waits for some.
    ///
    /// A caller that goes away while its claim is under way gives back what it would have got.
    pub async fn claim(&self, request: ClaimRequest, wait: Duration) -> Result<Vec<ClaimedTask>> {
        dispatch::claim(&self.inner, self.stopping.subscribe(), request, wait).await
    }

    /// Keeps executions alive, with their checkpoints and progress.
    pub async fn renew(&self, worker: Heartbeat, items: Vec<Renewal>) -> Result<Vec<Renewed>> {
        self.inner.store.renew(vec![worker], items).await
    }

    /// Takes the reports of workers on how executions ended.
    pub async fn report(&self, reports: Vec<Report>) -> Result<Vec<Reported>> {
        let reported = self.inner.store.finish(reports).await?;
        let waits = |reported: &Reported| matches!(reported, Reported::Accepted(status) if status.is_waiting());
        let superseded = reported.iter().filter(|one| matches!(one, Reported::Superseded(_))).count();
        self.inner.counters.superseded.fetch_add(superseded as u64, Ordering::Relaxed);
        if reported.iter().any(waits) {
            self.inner.due.look_now();
        }
        Ok(reported)
    }

    /// Changes a type: its settings, or whether its tasks are handed out.
    pub async fn change_type(&self, by: Option<Actor>, change: TypeChange) -> Result<TaskType> {
        let changed = self.inner.store.change_type(by, change).await?;
        self.inner.due.look_now();
        Ok(changed)
    }

    /// Does something to a task, in the name of somebody.
    pub async fn act(&self, by: Actor, tenant: Option<String>, id: TaskId, action: Action) -> Result<Acted> {
        let acted = self.inner.store.act_as(by, tenant, id, action).await?;
        self.inner.due.look_now();
        Ok(acted)
    }

    /// Does something to everything a filter matches among the tasks that exist now, chunk by chunk, with a line in the log for each
    /// tenant that grows with each chunk. Where nobody is named for the log it only counts.
    pub async fn bulk(
        &self,
        tenant: Option<String>,
        filter: Filter,
        action: Action,
        mut audit: Option<BulkAudit>,
    ) -> Result<(u64, u64)> {
        let up_to = self.inner.store.highest_id().await?;
        let (mut matched, mut changed, mut after) = (0, 0, TaskId(0));
        loop {
            let request = BulkRequest {
                tenant: tenant.clone(),
                filter: filter.clone(),
                action: action.clone(),
                after,
                up_to,
                dry_run: audit.is_none(),
                audit: audit.clone(),
            };
            let chunk = self.inner.store.bulk(request).await?;
            matched += chunk.matched;
            changed += chunk.changed;
            if let Some(audit) = &mut audit {
                audit.lines.extend(chunk.lines);
            }
            self.inner.due.look_now();
            match chunk.next {
                Some(next) => after = next,
                None => return Ok((matched, changed)),
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stopping.send_replace(true);
    }
}

impl Inner {
    /// A task was stored through this engine.
    fn arrived(&self, task_type: &str, run_at: RunAt) {
        match self.due.after(run_at) {
            Duration::ZERO => self.dispatch.wake(task_type, 1),
            after => self.due.add(task_type, after),
        }
    }
}

/// Submits a task with a claim that waits for it, in a task of its own: when the caller goes away meanwhile, what was claimed still
/// gets to its worker.
async fn hand_over(inner: Arc<Inner>, task: NewTask, kept: Kept) -> Result<(Submitted, Option<Task>)> {
    let running = tokio::spawn(async move {
        let task_type = task.task_type.clone();
        let stored = inner.store.submit_and_show(task, Some(kept.request())).await;
        // One whose fate is not known may be there.
        let is_left = stored.as_ref().map_or(true, |(submitted, _, claimed)| {
            submitted.created && claimed.iter().all(|task| task.id != submitted.id)
        });
        let answer = match stored {
            Ok((submitted, shown, claimed)) => {
                dispatch::give_back(&inner, kept.hand(claimed)).await;
                Ok((submitted, shown))
            }
            Err(error) => Err(error),
        };
        if is_left {
            inner.dispatch.wake(&task_type, 1);
        }
        answer
    });
    running.await.map_err(|error| StoreError::Database(format!("a submit ended early: {error}")))?
}

/// Sleeps, or ends early with `false` when the engine stops.
async fn rest(duration: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(duration) => true,
        _ = stopped.wait_for(|stopped| *stopped) => false,
    }
}
