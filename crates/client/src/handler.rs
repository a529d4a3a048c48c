//! Handlers: what runs a task, and how it may end.

use crate::backend::Claimed;
use crate::context::TaskContext;
use crate::execution::Execution;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use taskwheel_model::{field, limits};
use tracing::Instrument;

/// How a handler ended: with a result, or with how it goes on.
pub(crate) type Ended = Result<Option<Box<RawValue>>, TaskError>;

/// A handler of any payload.
pub(crate) type Handler = Arc<dyn Fn(TaskContext) -> Running + Send + Sync>;

/// Runs a handler for an execution. What it logs says of which task it is.
pub(crate) fn run(handler: &Handler, execution: &Arc<Execution>) -> impl Future<Output = Ended> + Send + use<> {
    let Claimed { id, exec_id, attempt, task_type, .. } = &execution.task;
    let span = tracing::info_span!("task", task_id = id.0, %exec_id, attempt, "type" = task_type.as_str());
    handler(TaskContext(execution.clone())).instrument(span)
}

/// What a handler that does not succeed says about how its task goes on.
///
/// Any error becomes one by `?`, and the task is tried again by its retry policy. The other ways are said by name:
///
/// ```
/// use std::time::Duration;
/// use taskwheel_client::{TaskContext, TaskError};
///
/// async fn charge(_: TaskContext, cents: String) -> Result<(), TaskError> {
///     let cents: u32 = cents.parse()?; // tried again by the task's policy
///     if cents == 0 {
///         return Err(TaskError::fail("nothing to charge")); // never tried again
///     }
///     if cents > 100_000 {
///         return Err(TaskError::retry_after(Duration::from_secs(3_600)).because("over the limit of this hour"));
///     }
///     Ok(())
/// }
/// ```
pub struct TaskError {
    pub(crate) way: Way,
    pub(crate) message: Option<String>,
}

/// How a task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By its retry policy.
    Error,
    /// Not at all.
    Failure,
    /// After so long; `None` as the policy says.
    Retry(Option<Duration>),
    /// As if it had not been started.
    Release,
}

impl TaskError {
    /// It went wrong, and is tried again by the task's retry policy. `?` does the same.
    pub fn new(message: impl fmt::Display) -> TaskError {
        TaskError { way: Way::Error, message: Some(message.to_string()) }
    }

    /// It went wrong, and trying again is of no use.
    pub fn fail(message: impl fmt::Display) -> TaskError {
        TaskError { way: Way::Failure, message: Some(message.to_string()) }
    }

    /// Not now: again after so long. The attempt counts, but not as an error.
    #[must_use]
    pub fn retry_after(delay: Duration) -> TaskError {
        TaskError { way: Way::Retry(Some(delay)), message: None }
    }

    /// Not here: another worker, or this one later, shall do it. The attempt does not count.
    #[must_use]
    pub fn release() -> TaskError {
        TaskError { way: Way::Release, message: None }
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, message: impl fmt::Display) -> TaskError {
        self.message = Some(message.to_string());
        self
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> TaskError {
        let error = error.into();
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        TaskError::new(message)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.message, self.way) {
            (Some(message), _) => f.write_str(message),
            (None, Way::Retry(Some(delay))) => write!(f, "again after {delay:?}"),
            (None, way) => write!(f, "{way:?}"),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.way)
    }
}

/// Makes a handler of one payload a handler of any.
pub(crate) fn erase<F, Fut, T, R, E>(handler: F) -> Handler
where
    F: Fn(TaskContext, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
    E: Into<TaskError> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |context| {
        let handler = handler.clone();
        Running(Some(Box::pin(async move {
            // A worker of another version may understand it, so that it is tried again.
            let payload = context
                .payload()
                .map_err(|error| TaskError::new(format_args!("the payload is not what the handler takes: {error}")))?;
            let result = handler(context, payload).await.map_err(Into::into)?;
            answer(&result)
        })))
    })
}

/// The result as it is stored. One that cannot be stored fails the task: the work is done, and again would be no better.
fn answer(result: &impl Serialize) -> Ended {
    let json = to_raw_value(result).map_err(|error| TaskError::fail(format_args!("the result is no JSON: {error}")))?;
    if json.get() == "null" {
        return Ok(None);
    }
    field::json("result", json.get(), limits::RESULT_BYTES_MAX).map_err(TaskError::fail)?;
    Ok(Some(json))
}

/// A handler that runs. Its panic is an error of its task alone, also when it is dropped where it waits.
pub(crate) struct Running(Option<Pin<Box<dyn Future<Output = Ended> + Send>>>);

impl Future for Running {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        // Until it is dropped there is one. After a panic it is never polled again.
        let Some(handler) = &mut self.0 else { return Poll::Pending };
        catch(|| handler.as_mut().poll(context))
            .unwrap_or_else(|why| Poll::Ready(Err(TaskError::new(format_args!("the handler panicked: {why}")))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let handler = self.0.take();
        if let Err(why) = catch(|| drop(handler)) {
            tracing::warn!("the handler panicked when it was dropped: {why}");
        }
    }
}

/// Does something that may panic, and says why it did.
fn catch<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("it says not why").to_owned();
        // What it panicked with may do so too when it is dropped. What that panics with is left alone, or there would be no end.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = anyhow::anyhow!("connection refused").context("the mail server");
        let error = TaskError::from(error);
        assert_eq!((error.to_string().as_str(), error.way), ("the mail server: connection refused", Way::Error));
    }

    #[test]
    fn the_other_ways_are_kept_through_the_question_mark() {
        let through = || -> Result<(), TaskError> { Err(TaskError::fail("no"))? };
        assert_eq!(through().unwrap_err().way, Way::Failure);
    }
}
