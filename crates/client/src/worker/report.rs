//! Reports, many in one call.
//!
//! What ends while a report is under way goes with the next one. While tasks wait for their slots more will end in a moment,
//! so that a report then waits a little for company; a lone one goes at once.
//!
//! A report says nothing of progress. What was noted of it and not saved goes before it in a renewal, for which no report
//! waits long. One that comes after the report is of an execution that has ended, and changes nothing.

use super::Shop;
use super::claim::{PAUSE_MAX, PAUSE_MIN};
use crate::backend::{Renewal, Report, Reported, ReportedOutcome};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// So many reports are under way at once.
pub(super) const REPORTS_MAX: usize = 2;
/// A report with more is sent in several.
const BYTES_MAX: usize = 1024 * 1024;
/// How long a report waits for company.
const COMPANY: Duration = Duration::from_millis(10);
/// How long a report waits for the progress of its tasks to be saved.
const PROGRESS_TIME_MAX: Duration = Duration::from_secs(1);
/// The longest pause between two tries while the worker stops.
const HURRIED_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Reports until it is aborted, or until a report is refused for good: while its worker lives, that task would stay with it and
/// never be run again.
pub(super) async fn run(shop: Arc<Shop>) -> Result<()> {
    loop {
        shop.hands.ended.notified().await;
        let company = async {
            while shop.hands.is_busy() {
                shop.hands.ended.notified().await;
            }
        };
        // Whichever comes first: enough, or the time.
        let _ = timeout(COMPANY, company).await;
        let reports = shop.hands.take_reports(BYTES_MAX);
        if !reports.is_empty() {
            save_progress(&shop, &reports).await;
            let sent = send(&shop, &reports).await;
            shop.hands.settle(&reports);
            sent?;
        }
    }
}

/// Saves how far executions came, where that is not saved. It is for people who look at the task, and worth one try.
async fn save_progress(shop: &Shop, reports: &[Report]) {
    let renewal = |report: &Report| {
        let progress = Some(report.progress.clone()?);
        Some(Renewal { id: report.id, exec_id: report.exec_id, checkpoint: None, progress })
    };
    let items: Vec<_> = reports.iter().filter_map(renewal).collect();
    if items.is_empty() {
        return;
    }
    let saving = shop.client.backend.renew(&shop.worker_id, &items, shop.settings.heartbeat);
    match timeout(PROGRESS_TIME_MAX, saving).await {
        // Whose task is lost is told so by the answer to its report.
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the last progress was not saved"),
        Err(_) => tracing::debug!("the last progress was not saved in time"),
    }
}

/// Tells how executions ended, until there is an answer. What is wrong with several may be the fault of one, so that
/// each is then told by itself. Any other refusal is no fault of the results, and makes no errors of them.
async fn send(shop: &Shop, reports: &[Report]) -> Result<()> {
    match (tell(shop, reports).await, reports) {
        (Ok(answers), _) => {
            reports.iter().zip(answers).for_each(|(report, answer)| note(report, answer));
            Ok(())
        }
        (Err(error @ Error::Invalid(_)), [report]) => refused(shop, report, &error).await,
        (Err(Error::Invalid(_)), _) => {
            let mut outcome = Ok(());
            for report in reports {
                outcome = outcome.and(Box::pin(send(shop, std::slice::from_ref(report))).await);
            }
            outcome
        }
        (Err(error), _) => Err(error),
    }
}

async fn tell(shop: &Shop, reports: &[Report]) -> Result<Vec<Reported>> {
    let (bell, mut pause) = (&shop.hands.bell, PAUSE_MIN);
    loop {
        match shop.client.backend.report(reports, bell).await {
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, reports = reports.len(), "results cannot be reported; trying again until they can");
                bell.wait(pause, HURRIED_PAUSE_MAX).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            answer => return answer,
        }
    }
}

/// A report that nobody takes as it is: its task must not stay with a worker that is done with it.
async fn refused(shop: &Shop, report: &Report, error: &Error) -> Result<()> {
    tracing::error!(%error, task_id = report.id.0, exec_id = %report.exec_id, "a report was refused");
    let plain = Report {
        outcome: ReportedOutcome::Error,
        result: None,
        error: Some(format!("the report was refused: {error}")),
        retry_after_ms: None,
        checkpoint: None,
        ..report.clone()
    };
    let answers = tell(shop, std::slice::from_ref(&plain)).await?;
    answers.into_iter().for_each(|answer| note(&plain, answer));
    Ok(())
}

fn note(report: &Report, answer: Reported) {
    let (task_id, exec_id) = (report.id.0, report.exec_id);
    match answer {
        Reported::Accepted(status) => tracing::trace!(task_id, %exec_id, %status, "reported"),
        Reported::Superseded => tracing::info!(task_id, %exec_id, "the result came too late and is dropped"),
    }
}
