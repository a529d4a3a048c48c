//! The calls that submitters and workers make.

use super::http::Connection;
use crate::floor::Result;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// The type of the tasks that are due at once.
pub(crate) const TYPE: &str = "mail";
const LOAD_BATCH: u64 = 1_000;
/// So many load side by side.
const LOADERS: u64 = 4;

#[derive(Deserialize)]
struct ClaimAnswer<'a> {
    #[serde(borrow)]
    tasks: Vec<ClaimedTask<'a>>,
}

#[derive(Deserialize)]
struct ClaimedTask<'a> {
    id: u64,
    exec_id: &'a str,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ReportAnswer<'a> {
    #[serde(borrow)]
    items: Vec<ReportedTask<'a>>,
}

#[derive(Deserialize)]
struct ReportedTask<'a> {
    state: &'a str,
}

/// Tasks in a worker's hands.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) tasks: usize,
    /// Those payloads that are a number.
    pub(crate) numbers: Vec<i64>,
    /// The report that they succeeded.
    report: String,
}

/// A task with a key and a small payload, as the store's benchmark has them.
pub(crate) fn task(number: u64) -> String {
    format!(
        "{{\"type\":\"{TYPE}\",\"key\":\"key{number}\",\
         \"payload\":{{\"order\":{number},\"note\":\"a small payload of about sixty bytes\"}}}}"
    )
}

/// A claim of a worker for tasks of a type.
pub(crate) fn claim(worker: &str, task_type: &str, max: usize, wait: Duration) -> Vec<u8> {
    format!(
        "{{\"worker_id\":\"{worker}\",\"host\":\"bench\",\"types\":[\"{task_type}\"],\"max\":{max},\"wait_ms\":{}}}",
        wait.as_millis()
    )
    .into_bytes()
}

/// Submits one task.
pub(crate) async fn submit(connection: &mut Connection, task: &str) -> Result<()> {
    connection.expect(201, "/v1/tasks", task.as_bytes()).await.map(drop)
}

/// Makes a claim.
pub(crate) async fn take(connection: &mut Connection, claim: &[u8]) -> Result<Claimed> {
    let answer: ClaimAnswer<'_> = serde_json::from_slice(connection.expect(200, "/v1/worker/claim", claim).await?)?;
    let mut claimed = Claimed { tasks: answer.tasks.len(), ..Claimed::default() };
    claimed.report.push_str("{\"items\":[");
    for (place, task) in answer.tasks.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let ClaimedTask { id, exec_id, payload } = task;
        write!(claimed.report, "{comma}{{\"id\":{id},\"exec_id\":\"{exec_id}\",\"outcome\":\"success\"}}")?;
        claimed.numbers.extend(payload.and_then(|payload| payload.get().parse::<i64>().ok()));
    }
    claimed.report.push_str("]}");
    Ok(claimed)
}

/// Reports success, and insists that each report counted.
pub(crate) async fn finish(connection: &mut Connection, claimed: &Claimed) -> Result<()> {
    let answer = connection.expect(200, "/v1/worker/report", claimed.report.as_bytes()).await?;
    let answer: ReportAnswer<'_> = serde_json::from_slice(answer)?;
    let accepted = answer.items.iter().filter(|item| item.state == "accepted").count();
    if accepted == claimed.tasks {
        return Ok(());
    }
    Err(format!("{accepted} of {} reports were accepted", claimed.tasks).into())
}

/// Submits tasks in batches, and answers once all are acknowledged.
pub(crate) async fn load(
    address: SocketAddr,
    tasks: u64,
    task: impl Fn(u64) -> String + Copy + Send + 'static,
) -> Result<()> {
    let mut loaders = Vec::new();
    for loader in 0..LOADERS {
        loaders.push(tokio::spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut first = loader * LOAD_BATCH;
            while first < tasks {
                let batch: Vec<_> = (first..tasks.min(first + LOAD_BATCH)).map(task).collect();
                let body = format!("{{\"tasks\":[{}]}}", batch.join(","));
                connection.expect(201, "/v1/tasks/batch", body.as_bytes()).await?;
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
