//! Dispatch: workers that wait for tasks, and who of them is woken.
//!
//! A claim that finds nothing leaves a ticket here and waits. Whoever learns that something is due for a type wakes as many
//! tickets as there are tasks; a woken claim looks into the store, which alone decides who gets what. A wake-up is a hint: one
//! too many finds nothing and waits again, one too few is made good by the next look of `due`. So losing this registry loses
//! nothing.
//!
//! A task that comes while a claim sleeps is submitted with that claim, and so are those that a timer fires: the store may then hand
//! it over in the transaction that stores it. What is handed to a claim that has gone meanwhile is given back.

use crate::Inner;
use crate::ticket::{Kept, State, Ticket};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::Result;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report};
use tokio::sync::{oneshot, watch};
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

impl Dispatch {
    /// So many tasks of a type are due: wakes as many waiting claims, longest waiting first.
    pub(crate) fn wake(&self, task_type: &str, tasks: usize) {
        self.wake_by(task_type, tasks, |_| 1);
    }

    /// The same for tasks that came together: wakes as many claims as want them all.
    pub(crate) fn wake_for_all(&self, task_type: &str, tasks: usize) {
        self.wake_by(task_type, tasks, |ticket| ticket.request.max);
    }

    fn wake_by(&self, task_type: &str, tasks: usize, takes: fn(&Ticket) -> usize) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = tasks;
        if let Some(tickets) = waiting.by_type.get(task_type) {
            wake_first(tickets, task_type, &mut left, takes);
        }
        wake_first(&waiting.by_category, task_type, &mut left, takes);
    }

    /// Keeps a claim for a task that is about to be submitted: the one that has slept longest for its type.
    pub(crate) fn keep(&self, task: &NewTask) -> Option<Kept> {
        self.keep_first(&task.task_type, |ClaimRequest { tenant, creator, .. }| {
            tenant.as_ref().is_none_or(|tenant| *tenant == task.tenant)
                && (creator.is_none() || *creator == task.creator)
        })
    }

    /// Keeps a claim for what may be about to begin of a type.
    pub(crate) fn keep_any(&self, task_type: &str) -> Option<Kept> {
        self.keep_first(task_type, |_| true)
    }

    fn keep_first(&self, task_type: &str, is_for: impl Fn(&ClaimRequest) -> bool) -> Option<Kept> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tickets = waiting.by_type.get(task_type)?.iter();
        tickets.find(|ticket| is_for(&ticket.request) && ticket.keep()).map(|ticket| Kept(ticket.clone()))
    }

    /// Something may have come that nobody told us of: lets one claim of each type look, and one that asks for categories. They sleep on,
    /// so that they can be handed what comes meanwhile.
    pub(crate) fn look_one_of_each(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (task_type, tickets) in &waiting.by_type {
            tickets.iter().for_each(|ticket| ticket.free());
            look_first(tickets, task_type);
        }
        look_first(&waiting.by_category, "");
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

    fn enter(&self, request: &Arc<ClaimRequest>) -> Entry<'_> {
        let ticket = Arc::new(Ticket::new(request.clone()));
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.claims += 1;
        for task_type in &request.types {
            waiting.by_type.entry(task_type.clone()).or_default().push_back(ticket.clone());
        }
        if !request.categories.is_empty() {
            waiting.by_category.push_back(ticket.clone());
        }
        Entry { dispatch: self, ticket, used: false }
    }

    fn leave(&self, ticket: &Arc<Ticket>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.claims -= 1;
        for task_type in &ticket.request.types {
            if let Some(tickets) = waiting.by_type.get_mut(task_type) {
                tickets.retain(|other| !Arc::ptr_eq(other, ticket));
                if tickets.is_empty() {
                    waiting.by_type.remove(task_type);
                }
            }
        }
        if !ticket.request.categories.is_empty() {
            waiting.by_category.retain(|other| !Arc::ptr_eq(other, ticket));
        }
    }
}

/// Wakes the first tickets that sleep, as long as there are tasks left for them.
fn wake_first(tickets: &VecDeque<Arc<Ticket>>, task_type: &str, left: &mut usize, takes: fn(&Ticket) -> usize) {
    for ticket in tickets {
        if *left == 0 {
            return;
        }
        if ticket.wake(task_type) {
            *left = left.saturating_sub(takes(ticket));
        }
    }
    tickets.iter().for_each(|ticket| ticket.note(task_type));
}

/// Lets the first ticket look that sleeps.
fn look_first(tickets: &VecDeque<Arc<Ticket>>, task_type: &str) {
    if !tickets.iter().any(|ticket| ticket.look()) {
        tickets.iter().for_each(|ticket| ticket.note(task_type));
    }
}

/// A ticket while its claim waits. When the claim goes away with a wake-up that it has not used, the next one gets it.
struct Entry<'d> {
    dispatch: &'d Dispatch,
    ticket: Arc<Ticket>,
    used: bool,
}

impl Entry<'_> {
    /// Sleeps, unless it was woken meanwhile, until it is woken or handed something.
    async fn sleep(&mut self) -> Vec<ClaimedTask> {
        {
            let mut state = self.ticket.state();
            if let State::Looking = *state {
                *state = State::Asleep;
            }
        }
        self.ticket.changed.notified().await;
        self.used = true;
        self.handed()
    }

    /// What it was handed.
    fn handed(&self) -> Vec<ClaimedTask> {
        match &mut *self.ticket.state() {
            State::Handed(tasks) => std::mem::take(tasks),
            _ => Vec::new(),
        }
    }

    /// Waits no more, and says what it was handed and did not take.
    fn end(&mut self) -> Vec<ClaimedTask> {
        let state = std::mem::replace(&mut *self.ticket.state(), State::Gone);
        if !matches!(state, State::Gone) {
            self.dispatch.leave(&self.ticket);
        }
        match state {
            State::Woken(task_type) | State::Kept(Some(task_type)) if !self.used => {
                self.dispatch.wake(&task_type, 1);
                Vec::new()
            }
            State::Handed(tasks) => tasks,
            _ => Vec::new(),
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.end();
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
    let request = Arc::new(request);
    'ticket: loop {
        if *stopped.borrow() {
            return Ok(Vec::new());
        }
        // The ticket first, then the look: what arrives in between wakes it.
        let mut waiter = Waiter { inner, entry: inner.dispatch.enter(&request) };
        let ticket = waiter.entry.ticket.clone();
        loop {
            let tasks = look(inner, ClaimRequest::clone(&request)).await?;
            if !tasks.is_empty() || Instant::now() >= until {
                drop(waiter);
                if tasks.len() == request.max {
                    // There may be more than this claim could take.
                    request.types.iter().for_each(|task_type| inner.dispatch.wake(task_type, 1));
                }
                return Ok(tasks);
            }
            loop {
                tokio::select! {
                    // What it was handed comes before everything else.
                    biased;
                    tasks = waiter.entry.sleep() => {
                        if !tasks.is_empty() {
                            return Ok(tasks);
                        }
                        continue 'ticket;
                    }
                    () = ticket.look.notified() => {}
                    () = tokio::time::sleep_until(until) => continue 'ticket,
                    _ = stopped.wait_for(|stopped| *stopped) => continue 'ticket,
                }
                if inner.store.is_due(ClaimRequest::clone(&request)).await? {
                    break;
                }
            }
        }
    }
}

/// A claim that waits. What it was handed and did not take is given back.
struct Waiter<'i> {
    inner: &'i Arc<Inner>,
    entry: Entry<'i>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let unwanted = self.entry.end();
        if !unwanted.is_empty() {
            let inner = self.inner.clone();
            tokio::spawn(async move { give_back(&inner, unwanted).await });
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

/// Gives back what nobody takes.
pub(crate) async fn give_back(inner: &Inner, tasks: Vec<ClaimedTask>) {
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
    use taskwheel_model::{ExecId, TaskId, Time};
    use taskwheel_store::worker::Context;

    fn wants(types: &[&str]) -> Arc<ClaimRequest> {
        let types = types.iter().map(ToString::to_string).collect();
        Arc::new(ClaimRequest { types, max: 1, ..ClaimRequest::default() })
    }

    fn is_woken(entry: &Entry<'_>) -> bool {
        matches!(*entry.ticket.state(), State::Woken(_))
    }

    fn is_kept(entry: &Entry<'_>) -> bool {
        matches!(*entry.ticket.state(), State::Kept(_))
    }

    /// Lets a claim that found nothing sleep.
    fn falls_asleep(entry: &Entry<'_>) {
        *entry.ticket.state() = State::Asleep;
    }

    fn task() -> ClaimedTask {
        ClaimedTask {
            id: TaskId(7),
            exec_id: ExecId::new(Time(0), [0; 10]),
            tenant: "default".into(),
            task_type: "mail".into(),
            key: None,
            payload: None,
            category: None,
            creator: None,
            priority: 1,
            run_at: Time(0),
            round: 1,
            attempt: 1,
            checkpoint: None,
            lease_until: Time(1),
            timeout_ms: -1,
            started_at: Time(0),
            trace_parent: None,
            context: Context::default(),
        }
    }

    #[test]
    fn only_a_claim_that_sleeps_and_wants_the_task_is_kept_for_it() {
        let dispatch = Dispatch::default();
        let other = ClaimRequest { tenant: Some("other".into()), ..ClaimRequest::clone(&wants(&["mail"])) };
        let (other, looks, sleeps) =
            (dispatch.enter(&Arc::new(other)), dispatch.enter(&wants(&["mail"])), dispatch.enter(&wants(&["mail"])));
        falls_asleep(&other);
        falls_asleep(&sleeps);
        let kept = dispatch.keep(&NewTask::new("mail")).expect("one sleeps");
        assert!(is_kept(&sleeps) && !is_kept(&other) && !is_kept(&looks));
        assert!(dispatch.keep(&NewTask::new("mail")).is_none(), "it is kept already");
        assert_eq!(kept.hand(vec![task()]), []);
        assert_eq!(sleeps.handed(), [task()]);
    }

    #[test]
    fn what_is_handed_to_a_claim_that_has_gone_comes_back() {
        let dispatch = Dispatch::default();
        let entry = dispatch.enter(&wants(&["mail"]));
        falls_asleep(&entry);
        let kept = dispatch.keep(&NewTask::new("mail")).expect("it sleeps");
        drop(entry);
        assert_eq!(kept.hand(vec![task()]), [task()]);
    }

    #[test]
    fn a_claim_that_was_kept_for_nothing_sleeps_on() {
        let dispatch = Dispatch::default();
        let entry = dispatch.enter(&wants(&["mail"]));
        falls_asleep(&entry);
        drop(dispatch.keep_any("mail").expect("it sleeps"));
        assert!(matches!(*entry.ticket.state(), State::Asleep));
    }

    #[tokio::test]
    async fn a_wake_up_that_found_only_a_kept_claim_is_not_lost() {
        let dispatch = Dispatch::default();
        let mut entry = dispatch.enter(&wants(&["mail"]));
        falls_asleep(&entry);
        let kept = dispatch.keep_any("mail").expect("it sleeps");
        dispatch.wake("mail", 1);
        assert!(!is_woken(&entry), "it is kept");
        assert_eq!(kept.hand(Vec::new()), []);
        assert!(is_woken(&entry));
        assert_eq!(entry.sleep().await, []);
        falls_asleep(&entry);
        let kept = dispatch.keep_any("mail").expect("it sleeps");
        dispatch.look_one_of_each();
        assert!(!is_woken(&entry), "it may be handed something yet");
        dispatch.look_one_of_each();
        assert!(is_woken(&entry), "it is not kept for ever");
        assert_eq!(kept.hand(vec![task()]), [task()]);
        entry.sleep().await;
        falls_asleep(&entry);
        let (_kept, other) = (dispatch.keep_any("mail").expect("it sleeps"), dispatch.enter(&wants(&["mail"])));
        dispatch.wake("mail", 1);
        dispatch.wake("mail", 1);
        assert!(is_woken(&other));
        entry.used = false;
        falls_asleep(&other);
        drop(entry);
        assert!(is_woken(&other), "the one that it missed is passed on");
    }

    #[tokio::test]
    async fn who_is_asleep_and_looks_can_be_handed_what_comes_meanwhile() {
        let dispatch = Dispatch::default();
        let (looks, other) = (dispatch.enter(&wants(&["mail"])), dispatch.enter(&wants(&["mail"])));
        falls_asleep(&looks);
        falls_asleep(&other);
        dispatch.look_one_of_each();
        looks.ticket.look.notified().await;
        assert!(!is_woken(&looks) && !is_woken(&other));
        let kept = dispatch.keep_any("mail").expect("it sleeps");
        assert!(is_kept(&looks));
        dispatch.look_one_of_each();
        other.ticket.look.notified().await;
        assert_eq!(kept.hand(vec![task()]), []);
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
