//! Submits that share calls: what is submitted while calls are under way goes together with the next one.
//!
//! A submit that comes alone goes at once, and nothing ever waits for a clock. A caller that goes away before its task was sent takes it
//! along. When a call with several tasks is refused, each is sent by itself, so that one caller's fault is not another's; once one of them is
//! not answered, the rest are not tried.

use super::nodes::{Nodes, Repeat};
use super::wire::{Answered, Batch};
use super::{complete, submit_one};
use crate::error::{Error, Result};
use crate::task::Submitted;
use reqwest::Method;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// So many calls are under way at once.
const AT_ONCE: usize = 2;
/// Most tasks in a call.
const TASKS_MAX: usize = 1_000;
/// Most bytes in a call, unless a single task has more.
const BYTES_MAX: usize = 1024 * 1024;

/// Tasks that are submitted one by one.
pub(super) struct Together(Arc<Shared>);

struct Shared {
    nodes: Arc<Nodes>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// How many tasks each call under way has.
    under_way: Vec<usize>,
}

struct Waiting {
    task: Box<RawValue>,
    answer: oneshot::Sender<Result<Submitted>>,
}

impl Together {
    pub(super) fn new(nodes: Arc<Nodes>) -> Together {
        Together(Arc::new(Shared { nodes, queue: Mutex::default() }))
    }

    /// Submits a task, given as JSON.
    pub(super) async fn submit(&self, task: Box<RawValue>) -> Result<Submitted> {
        let (answer, answered) = oneshot::channel();
        self.0.queue().waiting.push_back(Waiting { task, answer });
        // A call that is answered lets many callers go on at once: the first of them shall not go alone.
        yield_now().await;
        self.0.start();
        answered.await.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the call was ended".into())))
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts as many calls as may be.
    fn start(self: &Arc<Shared>) {
        // Without a runtime nobody waits any more.
        let Ok(runtime) = Handle::try_current() else { return };
        loop {
            let Some(call) = self.queue().next() else { return };
            let place = Place { shared: self.clone(), tasks: call.len() };
            runtime.spawn(async move { place.send(call).await });
        }
    }
}

impl Queue {
    /// The tasks of the next call. A second one is worth its commit when it has as many tasks as the first; until then, or until that
    /// one has ended, it grows. All that are there are shared out, so that calls run side by side.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let is_worth_it = self.under_way.iter().min().is_none_or(|smallest| self.waiting.len() >= *smallest);
        if self.waiting.is_empty() || self.under_way.len() == AT_ONCE || !is_worth_it {
            return None;
        }
        let all = self.waiting.len() + self.under_way.iter().sum::<usize>();
        let share = all.div_ceil(AT_ONCE).min(TASKS_MAX);
        let (mut call, mut bytes) = (Vec::new(), 0);
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| {
            call.is_empty() || call.len() < share && bytes + waiting.task.get().len() <= BYTES_MAX
        }) {
            if !waiting.answer.is_closed() {
                bytes += waiting.task.get().len();
                call.push(waiting);
            }
        }
        if call.is_empty() {
            return None;
        }
        self.under_way.push(call.len());
        Some(call)
    }

    /// A call with so many tasks has ended.
    fn ended(&mut self, tasks: usize) {
        if let Some(place) = self.under_way.iter().position(|under_way| *under_way == tasks) {
            self.under_way.swap_remove(place);
        }
    }
}

/// The place of a call under way. When it is free, the next one starts.
struct Place {
    shared: Arc<Shared>,
    tasks: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.queue().ended(self.tasks);
        self.shared.start();
    }
}

impl Place {
    /// A caller that has gone meanwhile loses only the answer.
    async fn send(self, call: Vec<Waiting>) {
        let nodes = &*self.shared.nodes;
        if call.len() > 1 {
            match batch(nodes, &call).await {
                Ok(submitted) => {
                    for (Waiting { answer, .. }, submitted) in call.into_iter().zip(submitted) {
                        let _ = answer.send(Ok(submitted));
                    }
                    return;
                }
                Err(error @ Error::OutcomeUnknown(_)) => {
                    for Waiting { answer, .. } in call {
                        let _ = answer.send(Err(error.clone()));
                    }
                    return;
                }
                Err(error) => tracing::debug!(%error, tasks = call.len(), "tasks are submitted one by one"),
            }
        }
        let mut given_up = None;
        for Waiting { task, answer } in call {
            let answered = match given_up.clone() {
                None => submit_one(nodes, &task, None, None).await,
                Some(why) => Err(why),
            };
            if let Err(Error::Unavailable(why) | Error::OutcomeUnknown(why)) = &answered {
                given_up = Some(Error::Unavailable(why.clone()));
            }
            let _ = answer.send(answered);
        }
    }
}

async fn batch(nodes: &Nodes, tasks: &[Waiting]) -> Result<Vec<Submitted>> {
    let body = Batch { tasks: tasks.iter().map(|waiting| &*waiting.task).collect() };
    let call = nodes.call(Method::POST, &["tasks", "batch"]).repeat(Repeat::IfUndone).body(&body)?;
    complete(call.send::<Answered<Submitted>>().await?.items, tasks.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks of a size, whose callers wait as long as the receivers live.
    fn submit(queue: &mut Queue, tasks: usize, bytes: usize) -> Vec<oneshot::Receiver<Result<Submitted>>> {
        let submit = |_| {
            let (answer, answered) = oneshot::channel();
            let task = RawValue::from_string("1".repeat(bytes)).unwrap();
            queue.waiting.push_back(Waiting { task, answer });
            answered
        };
        (0..tasks).map(submit).collect()
    }

    fn next(queue: &mut Queue) -> Option<usize> {
        queue.next().map(|call| call.len())
    }

    #[test]
    fn one_that_comes_alone_goes_at_once() {
        let mut queue = Queue::default();
        let _callers = submit(&mut queue, 1, 10);
        assert_eq!(next(&mut queue), Some(1));
        assert_eq!(next(&mut queue), None);
    }

    #[test]
    fn many_are_shared_out_among_the_calls_and_a_small_call_waits_beside_a_large_one() {
        let mut queue = Queue::default();
        let _callers = submit(&mut queue, 64, 10);
        assert_eq!((next(&mut queue), next(&mut queue), next(&mut queue)), (Some(32), Some(32), None));
        queue.ended(32);
        let mut callers = submit(&mut queue, 31, 10);
        assert_eq!(next(&mut queue), None, "31 are not worth a call beside 32");
        callers.extend(submit(&mut queue, 1, 10));
        assert_eq!(next(&mut queue), Some(32));
    }

    #[test]
    fn who_has_gone_has_no_place_in_a_call() {
        let mut queue = Queue::default();
        let mut callers = submit(&mut queue, 3, 10);
        callers.remove(1);
        assert_eq!(next(&mut queue), Some(2));
        drop(submit(&mut queue, 3, 10));
        queue.ended(2);
        assert_eq!(next(&mut queue), None);
    }

    #[test]
    fn a_call_has_a_limit_and_a_large_task_goes_alone() {
        let mut queue = Queue::default();
        let _callers = submit(&mut queue, 3, BYTES_MAX);
        let _others = submit(&mut queue, 4 * TASKS_MAX, 10);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(1), Some(1)));
        queue.ended(1);
        assert_eq!(next(&mut queue), Some(1));
        queue.ended(1);
        assert_eq!(next(&mut queue), Some(TASKS_MAX));
    }
}
