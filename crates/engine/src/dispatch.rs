//! Dispatch: workers that wait for tasks, and who of them is woken.
//!
//! A claim that finds nothing leaves a ticket here and waits. Whoever learns that something is due for a type wakes as many
//! tickets as there are tasks; a woken claim looks into the store, which alone decides who gets what. A wake-up is a hint: one
//! too many finds nothing and waits again, one too few is made good by the next look of `due`. So losing this registry loses
//! nothing.

use crate::Inner;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use taskwheel_model::Outcome;
use taskwheel_store::Result;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// The tickets of waiting claims.
#[derive(Default)]
pub(crate) struct Dispatch(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// By type, longest waiting first.
    by_type: HashMap<String, VecDeque<Arc<Ticket>>>,
    /// Claims that ask for categories: anything may be for them.
    by_category: VecDeque<Arc<Ticket>>,
    claims: usize,
}

/// A claim that waits.
struct Ticket {
    types: Vec<String>,
    by_category: bool,
    /// How many tasks its claim wants.
    max: usize,
    woken: Notify,
    /// For which type it was woken.
    woken_for: Mutex<Option<String>>,
}

impl Ticket {
    /// Wakes it, unless it is awake already.
    fn wake(&self, task_type: &str) -> bool {
        let mut woken_for = self.woken_for.lock().unwrap_or_else(PoisonError::into_inner);
        if woken_for.is_some() {
            return false;
        }
        *woken_for = Some(task_type.to_owned());
        self.woken.notify_one();
        true
    }
}

impl Dispatch {
    /// So many tasks of a type are due: wakes as many waiting claims, longest waiting first.
    pub(crate) fn wake(&self, task_type: &str, tasks: usize) {
        self.wake_by(task_type, tasks, |_| 1);
    }

    /// The same for tasks that came together: wakes as many claims as want them all.
    pub(crate) fn wake_for_all(&self, task_type: &str, tasks: usize) {
        self.wake_by(task_type, tasks, |ticket| ticket.max);
    }

    fn wake_by(&self, task_type: &str, tasks: usize, takes: fn(&Ticket) -> usize) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = tasks;
        if let Some(tickets) = waiting.by_type.get_mut(task_type) {
            wake_first(tickets, task_type, &mut left, takes);
        }
        wake_first(&mut waiting.by_category, task_type, &mut left, takes);
    }

    /// Something may have come that nobody told us of: wakes one claim of each type, and one that asks for categories.
    pub(crate) fn wake_one_of_each(&self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (task_type, tickets) in &mut waiting.by_type {
            wake_first(tickets, task_type, &mut 1, |_| 1);
        }
        wake_first(&mut waiting.by_category, "", &mut 1, |_| 1);
    }

    /// The types that claims wait for.
    pub(crate) fn types(&self) -> Vec<String> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.by_type.keys().cloned().collect()
    }

    /// How many claims wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).claims
    }

    /// Whether no claim waits.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.by_type.is_empty() && waiting.by_category.is_empty()
    }

    fn enter(&self, request: &ClaimRequest) -> Entry<'_> {
        let ticket = Arc::new(Ticket {
            types: request.types.clone(),
            by_category: !request.categories.is_empty(),
            max: request.max,
            woken: Notify::new(),
            woken_for: Mutex::default(),
        });
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.claims += 1;
        for task_type in &ticket.types {
            waiting.by_type.entry(task_type.clone()).or_default().push_back(ticket.clone());
        }
        if ticket.by_category {
            waiting.by_category.push_back(ticket.clone());
        }
        Entry { dispatch: self, ticket, used: false }
    }

    fn leave(&self, ticket: &Arc<Ticket>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.claims -= 1;
        for task_type in &ticket.types {
            if let Some(tickets) = waiting.by_type.get_mut(task_type) {
                tickets.retain(|other| !Arc::ptr_eq(other, ticket));
                if tickets.is_empty() {
                    waiting.by_type.remove(task_type);
                }
            }
        }
        if ticket.by_category {
            waiting.by_category.retain(|other| !Arc::ptr_eq(other, ticket));
        }
    }
}

/// Wakes the first tickets that sleep, as long as there are tasks left for them.
fn wake_first(tickets: &mut VecDeque<Arc<Ticket>>, task_type: &str, left: &mut usize, takes: fn(&Ticket) -> usize) {
    for ticket in tickets {
        if *left == 0 {
            return;
        }
        if ticket.wake(task_type) {
            *left = left.saturating_sub(takes(ticket));
        }
    }
}

/// A ticket while its claim waits. When the claim goes away with a wake-up that it has not used, the next one gets it.
struct Entry<'d> {
    dispatch: &'d Dispatch,
    ticket: Arc<Ticket>,
    used: bool,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.dispatch.leave(&self.ticket);
        let woken_for = self.ticket.woken_for.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(task_type), false) = (woken_for, self.used) {
            self.dispatch.wake(&task_type, 1);
        }
    }
}

/// Claims, and waits while there is nothing.
pub(crate) async fn claim(
    inner: &Arc<Inner>,
    mut stopped: watch::Receiver<bool>,
    request: ClaimRequest,
    wait: Duration,
) -> Result<Vec<ClaimedTask>> {
    // Every call of a worker must come within its heartbeat, so that an empty answer comes in time for the next.
    let heartbeat = request.heartbeat_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    let until = Instant::now() + heartbeat.map_or(wait, |heartbeat| heartbeat.min(wait));
    loop {
        if *stopped.borrow() {
            return Ok(Vec::new());
        }
        // The ticket first, then the look: what arrives in between wakes it.
        let mut entry = inner.dispatch.enter(&request);
        let tasks = look(inner, request.clone()).await?;
        if !tasks.is_empty() || Instant::now() >= until {
            drop(entry);
            if tasks.len() == request.max {
                // There may be more than this claim could take.
                request.types.iter().for_each(|task_type| inner.dispatch.wake(task_type, 1));
            }
            return Ok(tasks);
        }
        tokio::select! {
            () = entry.ticket.woken.notified() => entry.used = true,
            () = tokio::time::sleep_until(until) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }
}

/// One look into the store, in a task of its own: when the caller goes away meanwhile, what it got is given back.
async fn look(inner: &Arc<Inner>, request: ClaimRequest) -> Result<Vec<ClaimedTask>> {
    let (answer, answered) = oneshot::channel();
    let inner = inner.clone();
    tokio::spawn(async move {
        let claimed = inner.store.claim(vec![request]).await.map(|mut claimed| claimed.pop().unwrap_or_default());
        if let Err(Ok(unwanted)) = answer.send(claimed) {
            give_back(&inner, unwanted).await;
        }
    });
    answered.await.unwrap_or_else(|_| Ok(Vec::new()))
}

async fn give_back(inner: &Inner, tasks: Vec<ClaimedTask>) {
    if tasks.is_empty() {
        return;
    }
    let reports = tasks.iter().map(|task| Report::new(task.id, task.exec_id, Outcome::Release)).collect();
    // If this fails, the lease runs out by itself.
    if inner.store.finish(reports).await.is_ok() {
        tasks.iter().for_each(|task| inner.dispatch.wake(&task.task_type, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(types: &[&str]) -> ClaimRequest {
        ClaimRequest { types: types.iter().map(ToString::to_string).collect(), max: 1, ..ClaimRequest::default() }
    }

    fn is_woken(entry: &Entry<'_>) -> bool {
        entry.ticket.woken_for.lock().unwrap().is_some()
    }

    #[test]
    fn a_task_wakes_the_claim_that_has_waited_longest_for_its_type() {
        let dispatch = Dispatch::default();
        let (other, first, second) =
            (dispatch.enter(&wants(&["sms"])), dispatch.enter(&wants(&["mail"])), dispatch.enter(&wants(&["mail"])));
        dispatch.wake("mail", 1);
        assert!(is_woken(&first) && !is_woken(&second) && !is_woken(&other));
        dispatch.wake("mail", 1);
        assert!(is_woken(&second) && !is_woken(&other), "who is awake already is passed over");
    }

    #[test]
    fn a_claim_that_goes_away_passes_its_wake_up_on() {
        let dispatch = Dispatch::default();
        let (first, second) = (dispatch.enter(&wants(&["mail"])), dispatch.enter(&wants(&["mail"])));
        dispatch.wake("mail", 1);
        drop(first);
        assert!(is_woken(&second));
    }

    #[test]
    fn a_claim_that_used_its_wake_up_keeps_it() {
        let dispatch = Dispatch::default();
        let (mut first, second) = (dispatch.enter(&wants(&["mail"])), dispatch.enter(&wants(&["mail"])));
        dispatch.wake("mail", 1);
        first.used = true;
        drop(first);
        assert!(!is_woken(&second));
    }

    #[test]
    fn nothing_is_left_of_claims_that_are_gone() {
        let dispatch = Dispatch::default();
        drop(dispatch.enter(&wants(&["mail", "sms"])));
        assert!(dispatch.is_idle());
        assert!(dispatch.types().is_empty());
    }
}
