//! What a worker has in hand: tasks that wait for a slot, that run, and that are not reported yet.
//!
//! An execution is in hand from its claim until its report is answered; so long the heartbeat names it. There is room for as many
//! as run and wait at once. Claims are made for a quarter of the queue at least, so that they come in batches; and none is made
//! while so much is unreported that the server must be away.

use crate::backend::{Claimed, Report};
use crate::execution::{Bell, Execution, until, until_some};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use taskwheel_model::{ExecId, limits};
use tokio::sync::{Notify, Semaphore};

/// Most reports in one call.
const REPORT_BATCH: usize = 1_000;

pub(super) struct Hands {
    /// Most that may run and wait.
    room_max: usize,
    /// Fewest that a claim asks for.
    claim_min: usize,
    pub(super) bell: Arc<Bell>,
    state: Mutex<State>,
    /// One for each that waits.
    waiting: Semaphore,
    /// There is room or nothing in hand: the first claim looks again.
    changed: Notify,
    /// The same while there is a backlog: the other claims do. Without one they sleep on.
    more: Notify,
    /// There is something to report.
    pub(super) ended: Notify,
}

#[derive(Default)]
struct State {
    in_hand: HashMap<ExecId, Arc<Execution>, BuildHasherDefault<Tail>>,
    waiting: VecDeque<Arc<Execution>>,
    running: usize,
    /// Asked for by claims under way.
    claiming: usize,
    unsent: Vec<Report>,
    /// Whether the last claim brought all that it asked for.
    is_backlog: bool,
    settled: u64,
}

/// The end of an execution id, which is random: to hash it again for each task would be work in vain.
#[derive(Default)]
struct Tail(u64);

impl Hasher for Tail {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(tail) = bytes.last_chunk() {
            // The fixed bits of a UUID come first, where a table minds them least.
            self.0 = u64::from_be_bytes(*tail);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hands {
    pub(super) fn new(concurrency: usize, queue: usize) -> Hands {
        Hands {
            room_max: concurrency + queue,
            claim_min: (queue / 4).clamp(1, limits::CLAIM_BATCH_MAX),
            bell: Arc::default(),
            state: Mutex::default(),
            waiting: Semaphore::new(0),
            changed: Notify::new(),
            more: Notify::new(),
            ended: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, state: &State) -> usize {
        let places = self.room_max.saturating_sub(state.waiting.len() + state.running + state.claiming);
        places.min((2 * self.room_max).saturating_sub(state.in_hand.len() + state.claiming))
    }

    /// Waits until a claim is worth it, and answers how many it may ask for. A second claim at once is worth it only when
    /// more is waiting than the first could take.
    pub(super) async fn room_for_claim(&self, is_first: bool) -> usize {
        until_some(if is_first { &self.changed } else { &self.more }, || {
            let mut state = self.state();
            let room = self.room(&state);
            if room < self.claim_min || !(is_first || state.is_backlog) {
                return None;
            }
            // With several at once, none shall take all the room.
            let share = if state.is_backlog { self.room_max.div_ceil(2) } else { self.room_max };
            let asked = room.min(share.max(self.claim_min)).min(limits::CLAIM_BATCH_MAX);
            state.claiming += asked;
            Some(asked)
        })
        .await
    }

    /// A claim that asked for so many brought these.
    pub(super) fn claimed(&self, asked: usize, tasks: Vec<Claimed>) {
        let count = tasks.len();
        let executions: Vec<_> =
            tasks.into_iter().map(|task| Arc::new(Execution::new(task, self.bell.clone()))).collect();
        let mut state = self.state();
        state.claiming -= asked;
        state.is_backlog = asked > 0 && count >= asked;
        for execution in executions {
            state.in_hand.insert(execution.task.exec_id, execution.clone());
            state.waiting.push_back(execution);
        }
        let is_backlog = state.is_backlog;
        drop(state);
        self.waiting.add_permits(count);
        self.tell(is_backlog);
    }

    /// Has those look again who wait for a change.
    fn tell(&self, is_backlog: bool) {
        self.changed.notify_waiters();
        if is_backlog {
            self.more.notify_waiters();
        }
    }

    /// The next execution to run, when there is one; `None` once the worker stops.
    pub(super) async fn next(&self) -> Option<Arc<Execution>> {
        loop {
            self.waiting.acquire().await.ok()?.forget();
            let mut state = self.state();
            // It was given back when the worker began to stop.
            let Some(execution) = state.waiting.pop_front() else { continue };
            if execution.is_lost() {
                state.in_hand.remove(&execution.task.exec_id);
                let is_backlog = state.is_backlog;
                drop(state);
                self.tell(is_backlog);
                continue;
            }
            state.running += 1;
            return Some(execution);
        }
    }

    /// An execution has ended, with something to report unless its task is lost.
    pub(super) fn end(&self, execution: &Execution, report: Option<Report>) {
        let mut state = self.state();
        state.running -= 1;
        match report {
            Some(report) => state.unsent.push(report),
            None => drop(state.in_hand.remove(&execution.task.exec_id)),
        }
        // Who reports waits for the first, and then for enough of them or the last: to be woken for each would cost more than the report.
        let is_told = !(2..REPORT_BATCH).contains(&state.unsent.len()) || state.waiting.is_empty();
        let is_worth_it = self.room(&state) >= self.claim_min || state.in_hand.is_empty();
        let is_backlog = state.is_backlog;
        drop(state);
        if is_told {
            self.ended.notify_one();
        }
        if is_worth_it {
            self.tell(is_backlog);
        }
    }

    /// Whether more reports will come in a moment.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state();
        !state.waiting.is_empty() && state.unsent.len() < REPORT_BATCH
    }

    /// The next reports, of so many bytes at most but at least one, if there is one.
    pub(super) fn take_reports(&self, bytes_max: usize) -> Vec<Report> {
        let mut state = self.state();
        let mut bytes = 0;
        let is_within = |report: &&Report| {
            bytes += report.bytes();
            bytes <= bytes_max
        };
        let count = state.unsent.iter().take(REPORT_BATCH).take_while(is_within).count();
        let count = count.max(1).min(state.unsent.len());
        if count == state.unsent.len() {
            // As many again will follow under load: what holds them need not grow anew, under the lock.
            return std::mem::replace(&mut state.unsent, Vec::with_capacity(count));
        }
        let reports = state.unsent.drain(..count).collect();
        drop(state);
        // For the other one who reports.
        self.ended.notify_one();
        reports
    }

    /// Reports were answered.
    pub(super) fn settle(&self, reports: &[Report]) {
        let mut state = self.state();
        // To let go of them takes longer than to find them, and slots wait for the lock.
        let settled: Vec<_> = reports.iter().filter_map(|report| state.in_hand.remove(&report.exec_id)).collect();
        state.settled += 1;
        let is_backlog = state.is_backlog;
        drop(state);
        self.tell(is_backlog);
        drop(settled);
    }

    /// Everything in hand that some wish is about.
    pub(super) fn all(&self, wanted: impl Fn(&Execution) -> bool) -> Vec<Arc<Execution>> {
        self.state().in_hand.values().filter(|execution| wanted(execution)).cloned().collect()
    }

    /// Waits until nothing is in hand.
    pub(super) async fn empty(&self) {
        until(&self.changed, || self.state().in_hand.is_empty()).await;
    }

    /// Waits until nothing is in hand and no claim is under way.
    pub(super) async fn idle(&self) {
        until(&self.changed, || {
            let state = self.state();
            state.in_hand.is_empty() && state.claiming == 0
        })
        .await;
    }

    /// How often reports have been answered: each may have made a task due again.
    pub(super) fn settled(&self) -> u64 {
        self.state().settled
    }

    pub(super) fn count(&self) -> usize {
        self.state().in_hand.len()
    }

    /// Hands out nothing more, and gives back what has not been started.
    pub(super) fn stop(&self, give_back: impl Fn(&Execution) -> Report) {
        self.waiting.close();
        let mut state = self.state();
        let waiting = std::mem::take(&mut state.waiting);
        for execution in waiting {
            if execution.is_lost() {
                state.in_hand.remove(&execution.task.exec_id);
            } else {
                state.unsent.push(give_back(&execution));
            }
        }
        drop(state);
        // Last: a handler that ends at this shall find nothing more to start.
        self.bell.stop();
        self.ended.notify_one();
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::report_of;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::timeout;
    use uuid::Uuid;

    fn tasks(count: usize) -> Vec<Claimed> {
        let task = || {
            json!({"id": 1, "exec_id": Uuid::now_v7(), "tenant": "default", "type": "mail", "round": 1, "attempt": 1,
                "run_at": "2030-01-01T00:00:00Z"})
        };
        (0..count).map(|_| serde_json::from_value(task()).unwrap()).collect()
    }

    /// What claims under way ask for, as many as are made at once.
    async fn claims(hands: &Hands) -> Vec<usize> {
        let mut claims = Vec::new();
        while let Ok(asked) = timeout(Duration::ZERO, hands.room_for_claim(true)).await {
            claims.push(asked);
        }
        claims
    }

    #[tokio::test]
    async fn no_more_is_in_hand_than_there_is_room_for() {
        let (concurrency, queue) = (2, 3);
        let hands = Hands::new(concurrency, queue);
        let mut unanswered = Vec::new();
        let mut in_hand = Vec::new();
        for _ in 0..6 {
            for asked in claims(&hands).await {
                hands.claimed(asked, tasks(asked));
            }
            let held = hands.count() - unanswered.len();
            assert!(held <= concurrency + queue, "{held} run or wait");
            in_hand.push(hands.count());
            for _ in 0..concurrency.min(held) {
                let execution = hands.next().await.unwrap();
                let report = report_of(&execution, Ok(None));
                unanswered.push(report.clone());
                hands.end(&execution, Some(report));
            }
        }
        assert_eq!(in_hand, [5, 7, 9, 10, 10, 10], "while nothing is answered, twice as many at most");
        hands.settle(&unanswered);
        assert_eq!(hands.count() + claims(&hands).await.iter().sum::<usize>(), concurrency + queue);
    }
}
