//! The final state: every task with its attempts, as the database has it when everything has stopped.

use crate::check::{Final, FinalAttempt};
use anyhow::{Context, Result};
use serde_json::Value;
use std::sync::Arc;
use taskwheel_store::Store;
use taskwheel_store::search::{Listing, Sort};
use taskwheel_store::task::TaskDetail;
use tokio::task::JoinSet;

const PAGE_ROWS: usize = 500;
const AT_ONCE: usize = 8;

pub(crate) async fn read(store: &Arc<dyn Store>) -> Result<Vec<Final>> {
    let mut listing = Listing { limit: PAGE_ROWS, sort: Sort::IdAscending, ..Listing::default() };
    let mut tasks = Vec::new();
    loop {
        let page = store.list(listing.clone()).await?;
        let ids: Vec<_> = page.items.iter().map(|task| task.id).collect();
        for ids in ids.chunks(AT_ONCE) {
            let mut reading = JoinSet::new();
            for id in ids.iter().copied() {
                let store = store.clone();
                reading.spawn(async move { store.get(None, id).await });
            }
            for read in reading.join_all().await {
                tasks.push(shaped(&read?.context("a task is in the list and not there")?));
            }
        }
        match page.next {
            Some(next) => listing.cursor = Some(next),
            None => return Ok(tasks),
        }
    }
}

fn shaped(TaskDetail { task, attempts_log }: &TaskDetail) -> Final {
    let result = task.result.as_deref().and_then(|result| serde_json::from_str::<Value>(result).ok());
    let attempts = attempts_log.iter().map(|attempt| FinalAttempt {
        round: attempt.round,
        exec: attempt.exec_id.to_string(),
        outcome: attempt.outcome.map(|outcome| outcome.word().to_owned()),
        started_at: attempt.started_at.0,
        finished_at: attempt.finished_at.map(|time| time.0),
    });
    Final {
        id: task.id.0,
        tenant: task.tenant.clone(),
        key: task.key.clone(),
        status: task.status.word().to_owned(),
        result_of: result.and_then(|result| result["exec"].as_str().map(str::to_owned)),
        finished_at: task.finished_at.map(|time| time.0),
        attempts: attempts.collect(),
    }
}
