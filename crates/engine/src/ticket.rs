//! Tickets: how a claim that waits stands, and how it is kept for what is on its way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask};
use tokio::sync::Notify;

/// A claim that waits.
pub(crate) struct Ticket {
    pub(crate) request: Arc<ClaimRequest>,
    state: Mutex<State>,
    pub(crate) changed: Notify,
    /// It shall look once more, and sleep on.
    pub(crate) look: Notify,
}

/// How a claim that waits stands.
pub(crate) enum State {
    /// It looks into the store.
    Looking,
    /// It has found nothing.
    Asleep,
    /// It sleeps, and is kept for what is on its way. A wake-up of this type has found nobody else meanwhile.
    Kept(Option<String>),
    /// Something may be there for it, of a type.
    Woken(String),
    /// It was handed these.
    Handed(Vec<ClaimedTask>),
    /// Nobody waits any more.
    Gone,
}

impl Ticket {
    pub(crate) fn new(request: Arc<ClaimRequest>) -> Ticket {
        Ticket { request, state: Mutex::new(State::Looking), changed: Notify::new(), look: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes it, unless it is awake already.
    pub(crate) fn wake(&self, task_type: &str) -> bool {
        let mut state = self.state();
        let wakes = matches!(*state, State::Looking | State::Asleep);
        if wakes {
            *state = State::Woken(task_type.to_owned());
            self.changed.notify_one();
        }
        wakes
    }

    /// Lets it look, unless it is awake already or kept.
    pub(crate) fn look(&self) -> bool {
        let may_look = matches!(*self.state(), State::Looking | State::Asleep);
        if may_look {
            self.look.notify_one();
        }
        may_look
    }

    /// Keeps it, if it sleeps.
    pub(crate) fn keep(&self) -> bool {
        let mut state = self.state();
        let sleeps = matches!(*state, State::Asleep);
        if sleeps {
            *state = State::Kept(None);
        }
        sleeps
    }

    /// It has been kept too long, with a wake-up missed: it looks for itself.
    pub(crate) fn free(&self) {
        let mut state = self.state();
        if let State::Kept(missed @ Some(_)) = &mut *state {
            *state = missed.take().map_or(State::Asleep, State::Woken);
            self.changed.notify_one();
        }
    }

    /// A wake-up has found nobody: it gets it, if it is only kept, when it is not kept any more.
    pub(crate) fn note(&self, task_type: &str) {
        if let State::Kept(missed) = &mut *self.state() {
            missed.get_or_insert_with(|| task_type.to_owned());
        }
    }
}

/// A sleeping claim that is kept for what is on its way: nobody else wakes it.
pub(crate) struct Kept(pub(crate) Arc<Ticket>);

impl Kept {
    /// What it asks for.
    pub(crate) fn request(&self) -> Arc<ClaimRequest> {
        self.0.request.clone()
    }

    /// Hands tasks to it. They come back where it has gone.
    pub(crate) fn hand(self, tasks: Vec<ClaimedTask>) -> Vec<ClaimedTask> {
        let mut state = self.0.state();
        match *state {
            State::Kept(_) if !tasks.is_empty() => {
                *state = State::Handed(tasks);
                self.0.changed.notify_one();
                Vec::new()
            }
            _ => tasks,
        }
    }
}

impl Drop for Kept {
    /// It sleeps on where it was handed nothing and missed no wake-up.
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let State::Kept(missed) = &mut *state {
            let missed = missed.take();
            if missed.is_some() {
                self.0.changed.notify_one();
            }
            *state = missed.map_or(State::Asleep, State::Woken);
        }
    }
}
