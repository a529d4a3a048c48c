//! Work without end on a store, and a record of what it acknowledged.

use crate::support::{task, worker};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{Outcome, Status, TaskId};
use taskwheel_store::search::{Listing, Sort};
use taskwheel_store::task::Task;
use taskwheel_store::worker::{ClaimRequest, Report, Reported};
use taskwheel_store::{Store, StoreError};
use tokio::task::JoinSet;

const SUBMITTERS: usize = 4;
const WORKERS: usize = 4;

/// Something that the store said is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    Submitted(TaskId),
    Finished(TaskId),
}

/// Submits, claims and finishes until the set is dropped. Each acknowledgement is told at once.
pub(crate) fn start(store: &Arc<dyn Store>, told: &Arc<dyn Fn(Acknowledged) + Send + Sync>) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for number in 0..SUBMITTERS {
        callers.spawn(submit_for_ever(store.clone(), 1 + number % 3, told.clone()));
    }
    for number in 0..WORKERS {
        callers.spawn(work_for_ever(store.clone(), number, told.clone()));
    }
    callers
}

async fn submit_for_ever(store: Arc<dyn Store>, batch: usize, told: Arc<dyn Fn(Acknowledged) + Send + Sync>) {
    loop {
        match store.submit(vec![task("mail"); batch]).await {
            Ok(submitted) => submitted.iter().for_each(|one| told(Acknowledged::Submitted(one.id))),
            Err(error) => rest(&error).await,
        }
    }
}

async fn work_for_ever(store: Arc<dyn Store>, number: usize, told: Arc<dyn Fn(Acknowledged) + Send + Sync>) {
    let request = ClaimRequest { worker_id: format!("worker-{number}"), max: 3, ..worker(&["mail"]) };
    loop {
        let claimed = match store.claim(vec![request.clone()]).await {
            Ok(mut answers) => answers.remove(0),
            Err(error) => {
                rest(&error).await;
                continue;
            }
        };
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let reports: Vec<_> = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
        match store.finish(reports).await {
            Ok(answers) => {
                for (one, answer) in claimed.iter().zip(answers) {
                    assert_eq!(answer, Reported::Accepted(Status::Success), "nobody else has task {}", one.id);
                    told(Acknowledged::Finished(one.id));
                }
            }
            Err(error) => rest(&error).await,
        }
    }
}

/// A database that went away is an error that says "later"; any other one is a fault.
async fn rest(error: &StoreError) {
    assert!(error.is_transient(), "{error}");
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Everything acknowledged must be in the store, once.
pub(crate) async fn assert_all_there(store: &dyn Store, acknowledged: &[Acknowledged]) {
    let mut tasks: HashMap<TaskId, Task> = HashMap::new();
    let mut listing = Listing { sort: Sort::IdAscending, limit: 500, ..Listing::default() };
    loop {
        let page = store.list(listing.clone()).await.expect("the list answers");
        for task in page.items {
            assert!(tasks.insert(task.id, task).is_none(), "a task is in the list twice");
        }
        let Some(next) = page.next else { break };
        listing.cursor = Some(next);
    }
    let mut seen = std::collections::HashSet::new();
    for one in acknowledged {
        match one {
            Acknowledged::Submitted(id) => {
                assert!(seen.insert(*id), "id {id} was given to two tasks");
                assert!(tasks.contains_key(id), "task {id} was acknowledged and is gone");
            }
            Acknowledged::Finished(id) => {
                let task = tasks.get(id).unwrap_or_else(|| panic!("task {id} was finished and is gone"));
                assert_eq!((task.status, task.attempts), (Status::Success, 1), "task {id}");
            }
        }
    }
    assert_eq!(store.contradictions().await.expect("the check answers"), 0);
}
