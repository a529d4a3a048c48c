//! One execution, as its handler and its worker share it.
//!
//! ```text
//!  handler --notes--> checkpoint, progress --renew, report--> the server
//!  handler <--lost, aborted, stopping----- the worker
//! ```
//!
//! The server is the authority on whether the task is still this execution's; `lost` is what it said last. What the handler
//! notes has a revision, so that what was noted while a renew was under way is saved by the next one.

use crate::backend::{Claimed, Renewal};
use crate::context::renewal;
use serde_json::value::RawValue;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// In `standing`: the server said that it is not the task's current execution.
const LOST: u8 = 1;
/// In `standing`: the worker drops the handler.
const ABORTED: u8 = 2;

pub(crate) struct Execution {
    pub(crate) task: Claimed,
    standing: AtomicU8,
    notes: Mutex<Notes>,
    /// The standing has changed, or something was saved.
    changed: Notify,
    worker: Arc<Bell>,
}

/// What a worker and its handlers wake each other with.
#[derive(Default)]
pub(crate) struct Bell {
    stopping: AtomicU8,
    stops: Notify,
    /// Somebody waits for a checkpoint to be saved.
    pub(crate) save: Notify,
}

#[derive(Default)]
struct Notes {
    checkpoint: Option<Box<RawValue>>,
    progress: Option<Box<RawValue>>,
    /// The revision of the last note, of the last checkpoint and progress, and of what was saved.
    noted: u64,
    checkpoint_noted: u64,
    progress_noted: u64,
    saved: u64,
}

impl Notes {
    /// The checkpoint, where it was noted after a revision. That is looked at first: one may be large.
    fn checkpoint_since(&self, revision: u64) -> Option<Box<RawValue>> {
        if self.checkpoint_noted > revision { self.checkpoint.clone() } else { None }
    }

    fn unsaved_progress(&self) -> Option<Box<RawValue>> {
        if self.progress_noted > self.saved { self.progress.clone() } else { None }
    }
}

impl Bell {
    pub(crate) fn stop(&self) {
        self.stopping.store(1, Ordering::SeqCst);
        self.stops.notify_waiters();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst) != 0
    }

    pub(crate) async fn stopping(&self) {
        until(&self.stops, || self.is_stopping()).await;
    }

    /// Waits for so long, and from when the worker stops for `hurried` at most.
    pub(crate) async fn wait(&self, usual: Duration, hurried: Duration) {
        let stopped = async {
            self.stopping().await;
            sleep(hurried).await;
        };
        // Whichever is over first.
        let _ = timeout(usual, stopped).await;
    }
}

impl Execution {
    pub(crate) fn new(mut task: Claimed, worker: Arc<Bell>) -> Execution {
        let notes = Notes { checkpoint: task.checkpoint.take(), ..Notes::default() };
        let (standing, changed) = (AtomicU8::new(0), Notify::new());
        Execution { task, standing, notes: Mutex::new(notes), changed, worker }
    }

    pub(crate) fn checkpoint(&self) -> Option<Box<RawValue>> {
        self.notes().checkpoint.clone()
    }

    pub(crate) fn note_checkpoint(&self, checkpoint: Box<RawValue>) {
        let mut notes = self.notes();
        notes.noted += 1;
        notes.checkpoint_noted = notes.noted;
        notes.checkpoint = Some(checkpoint);
    }

    pub(crate) fn note_progress(&self, progress: Box<RawValue>) {
        let mut notes = self.notes();
        notes.noted += 1;
        notes.progress_noted = notes.noted;
        notes.progress = Some(progress);
    }

    /// The renewal with what was noted since the last one, and the revision that it saves.
    pub(crate) fn renewal(&self) -> (Renewal, u64) {
        let notes = self.notes();
        let (checkpoint, progress) = (notes.checkpoint_since(notes.saved), notes.unsaved_progress());
        (Renewal { checkpoint, progress, ..renewal(&self.task) }, notes.noted)
    }

    pub(crate) fn is_unsaved(&self) -> bool {
        let notes = self.notes();
        notes.noted > notes.saved
    }

    /// The last checkpoint that it noted itself, saved or not. Of two renewals that are under way at once, as when the
    /// worker stops, the older one may arrive last; a report is the last word.
    pub(crate) fn own_checkpoint(&self) -> Option<Box<RawValue>> {
        self.notes().checkpoint_since(0)
    }

    /// The progress that no renewal has saved.
    pub(crate) fn unsaved_progress(&self) -> Option<Box<RawValue>> {
        self.notes().unsaved_progress()
    }

    /// A renewal was accepted.
    pub(crate) fn was_saved(&self, revision: u64) {
        let mut notes = self.notes();
        if revision > notes.saved {
            notes.saved = revision;
            drop(notes);
            self.changed.notify_waiters();
        }
    }

    /// Waits until what is noted now is saved; `false` when it was lost before.
    pub(crate) async fn saved(&self) -> bool {
        let wanted = self.notes().noted;
        let is_saved = || self.notes().saved >= wanted;
        if !is_saved() {
            self.worker.save.notify_one();
            until(&self.changed, || is_saved() || self.is(LOST | ABORTED)).await;
        }
        is_saved()
    }

    /// The server says that the task is not this execution's any more.
    pub(crate) fn lose(&self) {
        self.mark(LOST);
    }

    /// The worker has no more time for the handler.
    pub(crate) fn abort(&self) {
        self.mark(ABORTED);
    }

    fn mark(&self, what: u8) {
        self.standing.fetch_or(what, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    fn is(&self, what: u8) -> bool {
        self.standing.load(Ordering::SeqCst) & what != 0
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is(LOST)
    }

    pub(crate) async fn lost(&self) {
        until(&self.changed, || self.is_lost()).await;
    }

    /// Resolves when the handler is to be dropped: at once when it is aborted, after a grace period when its task is lost.
    pub(crate) async fn over(&self, grace: Duration) {
        until(&self.changed, || self.is(LOST | ABORTED)).await;
        let aborted = until(&self.changed, || self.is(ABORTED));
        // Whichever comes first.
        let _ = timeout(grace, aborted).await;
    }

    pub(crate) async fn stopping(&self) {
        self.worker.stopping().await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.worker.is_stopping()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until something is so, where every change of it is told to all who wait.
pub(crate) async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    until_some(changed, || is_so().then_some(())).await;
}

/// Waits until there is something, where every change of it is told to all who wait.
pub(crate) async fn until_some<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        let mut told = pin!(changed.notified());
        // First on the list, then the look: what changes in between is told.
        told.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        told.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::{Ended, TaskError};
    use crate::worker::report_of;
    use serde_json::{Value, json};
    use uuid::Uuid;

    fn execution(checkpoint: &Value) -> Execution {
        let task = json!({"id": 1, "exec_id": Uuid::now_v7(), "tenant": "default", "type": "mail", "round": 1,
            "attempt": 2, "run_at": "2030-01-01T00:00:00Z", "checkpoint": checkpoint});
        Execution::new(serde_json::from_str(&task.to_string()).unwrap(), Arc::default())
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn a_report_carries_the_last_checkpoint_though_it_was_saved() {
        let execution = execution(&json!(1));
        let carried = |ended: Ended| report_of(&execution, ended).checkpoint.map(|checkpoint| checkpoint.to_string());
        let released = || carried(Err(TaskError::release()));
        assert_eq!(released(), None, "what it was given is there already");
        execution.note_checkpoint(raw("2"));
        let (renewal, revision) = execution.renewal();
        execution.note_checkpoint(raw("3"));
        execution.was_saved(execution.renewal().1);
        // Only now the older one is answered, and may be what is stored.
        execution.was_saved(revision);
        assert_eq!(renewal.checkpoint.map(|checkpoint| checkpoint.to_string()).as_deref(), Some("2"));
        assert!(!execution.is_unsaved() && execution.renewal().0.checkpoint.is_none());
        assert_eq!(released().as_deref(), Some("3"));
        assert_eq!(carried(Err(TaskError::new("it went wrong"))).as_deref(), Some("3"));
        assert_eq!(carried(Ok(None)), None, "what succeeded has nothing to go on from");
    }

    #[test]
    fn progress_goes_with_the_end_unless_it_was_saved() {
        let execution = execution(&Value::Null);
        let left = || report_of(&execution, Ok(None)).progress.map(|progress| progress.to_string());
        assert_eq!(left(), None, "nothing was noted");
        execution.note_progress(raw("7"));
        assert_eq!(left().as_deref(), Some("7"));
        execution.was_saved(execution.renewal().1);
        execution.note_checkpoint(raw("2"));
        assert_eq!(left(), None, "it was saved before");
        assert!(execution.renewal().0.progress.is_none(), "and is not told again with another note");
        execution.note_progress(raw("8"));
        assert_eq!(left().as_deref(), Some("8"));
    }
}
