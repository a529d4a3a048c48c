//! A slot: runs one handler after the other.

use super::Shop;
use crate::backend::{Report, ReportedOutcome};
use crate::error::Result;
use crate::execution::Execution;
use crate::handler::{Ended, TaskError, Way, run as run_handler};
use crate::new_task::milliseconds;
use std::sync::Arc;
use taskwheel_model::{field, limits};

/// Runs handlers until the worker stops.
pub(super) async fn run(shop: Arc<Shop>) -> Result<()> {
    while let Some(execution) = shop.hands.next().await {
        let report = handle(&shop, &execution).await;
        shop.hands.end(&execution, report);
    }
    Ok(())
}

/// Runs the handler of an execution. Nothing is reported of a task that was lost meanwhile.
async fn handle(shop: &Shop, execution: &Arc<Execution>) -> Option<Report> {
    let Some(handler) = shop.handlers.get(&execution.task.task_type) else {
        return Some(report(execution, Err(TaskError::release())));
    };
    let ended = tokio::select! {
        biased;
        ended = run_handler(handler, execution) => ended,
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
        checkpoint: if outcome == ReportedOutcome::Success { None } else { execution.own_checkpoint() },
        progress: execution.unsaved_progress(),
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use crate::{Client, NewTask, TaskContext, TaskError, Worker};
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_a_handler_logs_says_of_which_task_it_is() {
        let (log, lines) = (Log::default(), Log::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
        let client = Client::embedded(url).await.unwrap();
        let id = client.submit(NewTask::new("mail", &())).await.unwrap().id;
        let seen = lines.clone();
        let say = move |ctx: TaskContext, (): ()| {
            let mut seen = seen.clone();
            async move {
                tokio::task::yield_now().await;
                tracing::info!("a mail is sent");
                write!(seen, "task{{task_id={} exec_id={} attempt=1 type=\"mail\"}}", ctx.task_id(), ctx.exec_id())?;
                Ok::<(), TaskError>(())
            }
        };
        Worker::new(&client).handle("mail", say).run_until_idle().await.unwrap();
        let text = |log: &Log| String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let (log, span) = (text(&log), text(&lines));
        let line = log.lines().find(|line| line.contains("a mail is sent")).expect("it is in the log");
        assert!(span.contains(&id.to_string()) && line.contains(&span), "{span} is in {line}");
    }
}
