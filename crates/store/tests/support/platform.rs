//! A store on a fresh database, and verbs that read like prose.

use super::{Dialect, Raw, TestDatabase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, Outcome, Status, TaskId, Time};
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::task::{Attempt, Submitted, Task};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewal, Renewed, Report, Reported};
use taskwheel_store::{Clock, Options, Rescued, Result, Store};

/// A store on a fresh database.
pub(crate) struct Platform {
    pub(crate) store: Arc<dyn Store>,
    database: TestDatabase,
    clock: Clock,
    maximum_lowered: AtomicBool,
}

/// A task of a type, with nothing else given.
pub(crate) fn task(task_type: &str) -> NewTask {
    NewTask::new(task_type)
}

/// A task of a type that is due at a time.
pub(crate) fn due_at(task_type: &str, time: Time) -> NewTask {
    NewTask { run_at: RunAt::At(time), ..task(task_type) }
}

/// A task of a type that is due after so many milliseconds.
pub(crate) fn due_in(task_type: &str, ms: i64) -> NewTask {
    NewTask { run_at: RunAt::After(ms), ..task(task_type) }
}

/// A worker without a heartbeat that asks for all it can get of these types.
pub(crate) fn worker(types: &[&str]) -> ClaimRequest {
    ClaimRequest {
        worker_id: "worker".into(),
        host: "host".into(),
        types: types.iter().map(ToString::to_string).collect(),
        max: 1_000,
        ..ClaimRequest::default()
    }
}

impl Platform {
    /// A store whose time stands still until the test moves it. It starts at the real time, because a plain INSERT takes
    /// the database's.
    pub(crate) async fn open(dialect: Dialect) -> Arc<Platform> {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
        let now = Time(i64::try_from(since_1970.as_millis()).expect("milliseconds fit"));
        let database = TestDatabase::create(dialect).await;
        let clock = Clock::manual(now);
        let options = Options { clock: clock.clone(), ..Options::new(&database.url) };
        let store = taskwheel_store::open(options).await.expect("the store opens");
        Arc::new(Platform { store, database, clock, maximum_lowered: AtomicBool::new(false) })
    }

    /// Another store on the same database and the same clock.
    pub(crate) async fn open_again(&self, change: impl FnOnce(&mut Options)) -> Result<Arc<dyn Store>> {
        let mut options = Options { clock: self.clock.clone(), ..Options::new(&self.database.url) };
        change(&mut options);
        taskwheel_store::open(options).await
    }

    /// Another store on the same database, by the database's own clock.
    pub(crate) async fn with_real_clock(&self) -> Arc<dyn Store> {
        self.open_again(|options| options.clock = Clock::Database).await.expect("the store opens again")
    }

    /// Ends a test: fails as the test did, or else when it leaked something.
    pub(crate) async fn conclude(self: Arc<Platform>, ended: Result<(), tokio::task::JoinError>) {
        let leaked = match &ended {
            Ok(()) => {
                let platform = self.clone();
                tokio::spawn(async move { platform.assert_nothing_leaked().await }).await
            }
            Err(_) => Ok(()),
        };
        match Arc::into_inner(self) {
            Some(Platform { store, database, .. }) => {
                drop(store);
                database.remove().await;
            }
            None => assert!(ended.is_err() || leaked.is_err(), "the test left something running"),
        }
        for result in [ended, leaked] {
            if let Err(error) = result {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.database.dialect
    }

    pub(crate) fn url(&self) -> &str {
        &self.database.url
    }

    /// A connection past the store.
    pub(crate) async fn raw(&self) -> Raw {
        self.database.raw().await
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.clock.fixed().expect("the clock is a manual one"))
    }

    pub(crate) fn advance_ms(&self, ms: i64) {
        self.clock.advance_ms(ms);
    }

    /// The test lowers a maximum below what was used already, so that having used more is no leak.
    pub(crate) fn maximum_is_lowered(&self) {
        self.maximum_lowered.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_maximum_lowered(&self) -> bool {
        self.maximum_lowered.load(Ordering::SeqCst)
    }

    /// Submits a task that must be new.
    pub(crate) async fn submit(&self, task: NewTask) -> TaskId {
        self.submit_all(vec![task]).await[0]
    }

    /// Submits tasks that must all be new.
    pub(crate) async fn submit_all(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let submitted = self.store.submit(tasks).await.expect("the submit goes through");
        assert!(submitted.iter().all(|one| one.created), "a task was there already: {submitted:?}");
        submitted.into_iter().map(|one| one.id).collect()
    }

    /// Submits a task that may be there already.
    pub(crate) async fn offer(&self, task: NewTask) -> Submitted {
        self.store.submit(vec![task]).await.expect("the submit goes through")[0]
    }

    /// All due tasks of a type go to the usual worker.
    pub(crate) async fn claim(&self, task_type: &str) -> Vec<ClaimedTask> {
        self.claim_for(worker(&[task_type])).await
    }

    /// A worker gets what it asks for.
    pub(crate) async fn claim_for(&self, request: ClaimRequest) -> Vec<ClaimedTask> {
        self.store.claim(vec![request]).await.expect("the claim goes through").remove(0)
    }

    /// The ids that a worker gets.
    pub(crate) async fn claim_ids(&self, request: ClaimRequest) -> Vec<TaskId> {
        self.claim_for(request).await.into_iter().map(|claimed| claimed.id).collect()
    }

    /// The only due task of a type.
    pub(crate) async fn claim_one(&self, task_type: &str) -> ClaimedTask {
        self.claim_one_for(worker(&[task_type])).await
    }

    /// The only task that a worker can get.
    pub(crate) async fn claim_one_for(&self, request: ClaimRequest) -> ClaimedTask {
        let mut claimed = self.claim_for(request).await;
        assert_eq!(claimed.len(), 1, "one task was to be claimed: {claimed:?}");
        claimed.remove(0)
    }

    /// Submits a task and claims it, where nothing else of its type is due.
    pub(crate) async fn start(&self, task: NewTask) -> ClaimedTask {
        let task_type = task.task_type.clone();
        self.submit(task).await;
        self.claim_one(&task_type).await
    }

    /// The worker reports an outcome and nothing else.
    pub(crate) async fn finish(&self, claimed: &ClaimedTask, outcome: Outcome) -> Reported {
        self.report(Report::new(claimed.id, claimed.exec_id, outcome)).await
    }

    pub(crate) async fn report(&self, report: Report) -> Reported {
        self.store.finish(vec![report]).await.expect("the report goes through")[0]
    }

    /// The usual worker names a task, and nothing else.
    pub(crate) async fn renew(&self, claimed: &ClaimedTask) -> Renewed {
        self.renew_with(renewal(claimed)).await
    }

    pub(crate) async fn renew_with(&self, item: Renewal) -> Renewed {
        self.store.renew(vec!["worker".into()], vec![item]).await.expect("the renewal goes through")[0]
    }

    /// A worker calls and names nothing.
    pub(crate) async fn heartbeat(&self, worker_id: &str) {
        self.store.renew(vec![worker_id.into()], Vec::new()).await.expect("the heartbeat goes through");
    }

    /// How many a look at the clocks found.
    pub(crate) async fn rescue(&self) -> Rescued {
        Rescued { tasks: Vec::new(), ..self.rescue_by_name().await }
    }

    /// Which tasks a look at the clocks found.
    pub(crate) async fn rescue_by_name(&self) -> Rescued {
        self.store.rescue().await.expect("the rescue goes through")
    }

    pub(crate) async fn act(&self, id: TaskId, action: Action) -> Acted {
        self.store.act(None, vec![id], action).await.expect("the action goes through")[0]
    }

    pub(crate) async fn task(&self, id: TaskId) -> Task {
        self.store.get(None, id).await.expect("the read goes through").expect("the task is there").task
    }

    pub(crate) async fn log(&self, id: TaskId) -> Vec<Attempt> {
        self.store.get(None, id).await.expect("the read goes through").expect("the task is there").attempts_log
    }

    pub(crate) async fn status(&self, id: TaskId) -> Status {
        self.task(id).await.status
    }
}

/// The renewal of an execution that says nothing but that it is there.
pub(crate) fn renewal(claimed: &ClaimedTask) -> Renewal {
    Renewal { id: claimed.id, exec_id: claimed.exec_id, tenant: None, checkpoint: None, progress: None }
}
