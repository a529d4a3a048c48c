//! A slot: runs one handler after the other.

use super::Shop;
use crate::backend::{Report, ReportedOutcome};
use crate::context::TaskContext;
use crate::execution::Execution;
use crate::handler::{Ended, TaskError, Way};
use crate::new_task::milliseconds;
use std::sync::Arc;
use taskwheel_model::{field, limits};

/// Runs handlers until the worker stops.
pub(super) async fn run(shop: Arc<Shop>) {
    while let Some(execution) = shop.hands.next().await {
        let report = handle(&shop, &execution).await;
        shop.hands.end(&execution, report);
    }
}

/// Runs the handler of an execution. Nothing is reported of a task that was lost meanwhile.
async fn handle(shop: &Shop, execution: &Arc<Execution>) -> Option<Report> {
    let Some(handler) = shop.handlers.get(&execution.task.task_type) else {
        return Some(report(execution, Err(TaskError::release())));
    };
    let ended = tokio::select! {
        biased;
        ended = handler(TaskContext(execution.clone())) => ended,
        () = execution.over(shop.settings.grace) => Err(TaskError::release()),
    };
    (!execution.is_lost()).then(|| report(execution, ended))
}

/// How an execution ended, as it is told to the server.
pub(crate) fn report(execution: &Execution, ended: Ended) -> Report {
    let (outcome, result, retry_after, error) = match ended {
        Ok(result) => (ReportedOutcome::Success, result, None, None),
        Err(TaskError { way, message }) => {
            let (outcome, retry_after) = match way {
                Way::Error => (ReportedOutcome::Error, None),
                Way::Failure => (ReportedOutcome::Failure, None),
                Way::Retry(delay) => (ReportedOutcome::Retry, delay),
                Way::Release => (ReportedOutcome::Release, None),
            };
            (outcome, None, retry_after, message)
        }
    };
    Report {
        id: execution.task.id,
        exec_id: execution.task.exec_id,
        outcome,
        result,
        error: error.map(|error| field::cut(&error, limits::ERROR_BYTES_MAX)),
        retry_after_ms: retry_after.map(|delay| milliseconds(delay).min(limits::RETRY_DELAY_MS_MAX)),
        // What succeeded has nothing to go on from.
        checkpoint: execution.unsaved_checkpoint().filter(|_| outcome != ReportedOutcome::Success),
    }
}
