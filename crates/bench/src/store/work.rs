//! What submitters and workers do in every measurement: load tasks, and drain them.

use crate::floor::Result;
use std::sync::Arc;
use std::time::Instant;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::Store;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report, Reported};

/// The type of the tasks that are drained.
pub(crate) const TYPE: &str = "mail";
const LOAD_BATCH: u64 = 1_000;
/// So many submitters load side by side; it also opens the connections that a drain will use.
const LOADERS: u64 = 4;

/// A drain's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) batch: usize,
    pub(crate) clients: usize,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {}", self.batch, self.clients)
    }
}

/// A task as the floor loads them too: a key and a small payload.
pub(crate) fn task(number: u64) -> NewTask {
    NewTask {
        key: Some(format!("key{number}")),
        payload: Some(format!("{{\"order\":{number},\"note\":\"a small payload of about sixty bytes\"}}")),
        ..NewTask::new(TYPE)
    }
}

/// A claim of one worker for tasks of some types.
pub(crate) fn request(worker: &str, types: &[&str], max: usize) -> ClaimRequest {
    ClaimRequest {
        worker_id: worker.to_owned(),
        host: "bench".to_owned(),
        types: types.iter().map(ToString::to_string).collect(),
        tenant: Some(NewTask::TENANT_DEFAULT.to_owned()),
        max,
        ..ClaimRequest::default()
    }
}

/// Submits tasks, a thousand at a time.
pub(crate) async fn load(store: &Arc<dyn Store>, tasks: u64) -> Result<()> {
    let mut loaders = Vec::new();
    for loader in 0..LOADERS {
        let store = store.clone();
        loaders.push(tokio::spawn(async move {
            let mut first = loader * LOAD_BATCH;
            while first < tasks {
                store.submit((first..tasks.min(first + LOAD_BATCH)).map(task).collect()).await?;
                first += LOADERS * LOAD_BATCH;
            }
            Result::Ok(())
        }));
    }
    for loader in loaders {
        loader.await??;
    }
    Ok(())
}

/// Drains what was loaded, until every client finds nothing more, and returns the rate.
pub(super) async fn drain(store: &Arc<dyn Store>, tasks: u64, setting: Setting) -> Result<f64> {
    let clock = Instant::now();
    let mut clients = Vec::new();
    for number in 0..setting.clients {
        clients.push(tokio::spawn(client(store.clone(), format!("worker{number}"), setting.batch)));
    }
    let mut drained = 0;
    for client in clients {
        drained += client.await??;
    }
    let elapsed = clock.elapsed();
    if drained != tasks {
        return Err(format!("loaded {tasks} tasks, drained {drained}").into());
    }
    Ok(tasks as f64 / elapsed.as_secs_f64())
}

async fn client(store: Arc<dyn Store>, worker: String, batch: usize) -> Result<u64> {
    let mut drained = 0;
    loop {
        let claimed = claim(store.as_ref(), &worker, batch).await?;
        if claimed.is_empty() {
            return Ok(drained);
        }
        drained += claimed.len() as u64;
        finish(store.as_ref(), &claimed).await?;
    }
}

/// One claim of one worker.
pub(super) async fn claim(store: &dyn Store, worker: &str, max: usize) -> Result<Vec<ClaimedTask>> {
    let mut answers = store.claim(vec![request(worker, &[TYPE], max)]).await?;
    Ok(answers.pop().ok_or("a claim without an answer")?)
}

/// Reports success, and insists that each report counted.
pub(crate) async fn finish(store: &dyn Store, claimed: &[ClaimedTask]) -> Result<()> {
    report(store, claimed, Outcome::Success).await
}

/// Reports an outcome of claimed tasks, and insists that each report counted.
pub(super) async fn report(store: &dyn Store, claimed: &[ClaimedTask], outcome: Outcome) -> Result<()> {
    let reports = claimed.iter().map(|task| Report::new(task.id, task.exec_id, outcome)).collect();
    let answers = store.finish(reports).await?;
    match answers.iter().find(|answer| !matches!(answer, Reported::Accepted(_))) {
        None => Ok(()),
        Some(refused) => Err(format!("a report was not accepted: {refused:?}").into()),
    }
}

/// Insists that the database has so many tasks, all of them in the wanted status.
pub(crate) async fn expect(store: &dyn Store, status: taskwheel_model::Status, tasks: u64) -> Result<()> {
    let counts = store.counts(None).await?;
    let (wanted, all) = counts.iter().fold((0, 0), |(wanted, all), count| {
        (wanted + if count.status == status { count.tasks } else { 0 }, all + count.tasks)
    });
    if (wanted, all) == (tasks, tasks) {
        return Ok(());
    }
    Err(format!("expected {tasks} tasks with status {status}; there are {wanted}, of {all} in all").into())
}
