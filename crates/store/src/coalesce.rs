//! Coalescing: many calls at once become few transactions.
//!
//! ```text
//!  call ---\                        /--> batch in a transaction --> each caller answered after the commit
//!  call ----+--> [ bounded queue ] +
//!  call ---/                        \--> at most `AT_ONCE` under way
//! ```
//!
//! A call that comes alone is run at once, and nothing ever waits for a clock. While batches are under way calls pile up for
//! the next; so batches grow with the load by themselves.
//!
//! Nothing here is the truth: a caller that goes away loses only its answer, and when the process dies nobody was told
//! anything that is not committed. When a batch of several calls is refused for a reason of its own, each call is run by itself,
//! so that one caller's fault is not another's.

use crate::{Result, StoreError};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Batches of one kind under way at the same time.
const AT_ONCE: usize = 2;
/// As many items are shared out among the batches that may start, so that they run side by side.
const SHARED_ITEMS_MIN: usize = 16;
/// Calls that may wait for a batch; further ones wait to be let in.
const CALLS_MAX: usize = 10_000;

/// A batch under way.
type Running<O> = Pin<Box<dyn Future<Output = Result<Vec<O>>> + Send>>;

/// Turns concurrent calls into batches.
pub(crate) struct Coalescer<I, O> {
    calls: mpsc::Sender<Call<I, O>>,
}

struct Call<I, O> {
    items: Vec<I>,
    answer: oneshot::Sender<Result<Vec<O>>>,
}

impl<I, O> Coalescer<I, O>
where
    I: Clone + Send + 'static,
    O: Send + 'static,
{
    /// A coalescer whose batches have at most so many items, unless a single call has more, and are run by `run`, which
    /// answers each item.
    pub(crate) fn new(items_max: usize, run: impl Fn(Vec<I>) -> Running<O> + Send + Sync + 'static) -> Coalescer<I, O> {
        let (calls, waiting) = mpsc::channel(CALLS_MAX);
        tokio::spawn(gather(waiting, items_max, Arc::new(run)));
        Coalescer { calls }
    }

    /// Runs items in a batch with those of others, and answers each.
    pub(crate) async fn call(&self, items: Vec<I>) -> Result<Vec<O>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store is shutting down".into());
        self.calls.send(Call { items, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Takes calls and starts batches, until nobody can call any more.
async fn gather<I, O, F>(mut waiting: mpsc::Receiver<Call<I, O>>, items_max: usize, run: Arc<F>)
where
    I: Clone + Send + 'static,
    O: Send + 'static,
    F: Fn(Vec<I>) -> Running<O> + Send + Sync + 'static,
{
    let mut pending = Pending { calls: VecDeque::new(), items: 0 };
    let mut batches = JoinSet::new();
    let mut sizes = HashMap::new();
    loop {
        tokio::select! {
            call = waiting.recv(), if pending.items < items_max => match call {
                Some(call) => pending.push(call),
                None => break,
            },
            Some(ended) = batches.join_next_with_id() => {
                sizes.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
        }
        while pending.items < items_max
            && let Ok(call) = waiting.try_recv()
        {
            pending.push(call);
        }
        // A second batch is worth its transaction when it is as large as the first; until then, or until that one has ended,
        // it grows.
        while pending.items > 0
            && sizes.len() < AT_ONCE
            && sizes.values().min().is_none_or(|smallest| pending.items >= *smallest)
        {
            let places = AT_ONCE - sizes.len();
            let share = if pending.items < SHARED_ITEMS_MIN { pending.items } else { pending.items.div_ceil(places) };
            let batch = pending.take(share.min(items_max));
            let size = batch.iter().map(|call| call.items.len()).sum();
            let run = run.clone();
            let started = batches.spawn(async move { run_batch(batch, &*run).await });
            sizes.insert(started.id(), size);
        }
    }
    // Nobody waits for these any more, but a caller that went away loses only its answer.
    while pending.items > 0 {
        run_batch(pending.take(items_max), &*run).await;
    }
    batches.detach_all();
}

/// Calls that wait for a batch.
struct Pending<I, O> {
    calls: VecDeque<Call<I, O>>,
    items: usize,
}

impl<I, O> Pending<I, O> {
    fn push(&mut self, call: Call<I, O>) {
        self.items += call.items.len();
        self.calls.push_back(call);
    }

    /// The oldest calls, as long as they have at most so many items; at least one.
    fn take(&mut self, items_max: usize) -> Vec<Call<I, O>> {
        let mut batch = Vec::new();
        let mut items = 0;
        while let Some(call) = self.calls.pop_front_if(|call| items == 0 || items + call.items.len() <= items_max) {
            items += call.items.len();
            batch.push(call);
        }
        self.items -= items;
        batch
    }
}

async fn run_batch<I, O, F>(mut batch: Vec<Call<I, O>>, run: &F)
where
    I: Clone,
    F: Fn(Vec<I>) -> Running<O>,
{
    if batch.len() == 1 {
        let Some(Call { items, answer }) = batch.pop() else { return };
        // A caller that is gone loses only the answer.
        let _ = answer.send(run(items).await);
        return;
    }
    let all: Vec<I> = batch.iter().flat_map(|call| call.items.iter().cloned()).collect();
    match run(all).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for Call { items, answer } in batch {
                let _ = answer.send(Ok(answers.by_ref().take(items.len()).collect()));
            }
        }
        Err(error) if error.is_transient() => {
            for call in batch {
                let _ = call.answer.send(Err(error.clone()));
            }
        }
        Err(_) => {
            for Call { items, answer } in batch {
                let _ = answer.send(run(items).await);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::Notify;

    /// A coalescer that doubles numbers, notes the sizes of its batches, and holds the first until it is let go.
    fn doubling(hold: Arc<Notify>) -> (Coalescer<i32, i32>, Arc<Mutex<Vec<usize>>>) {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let noted = sizes.clone();
        let coalescer = Coalescer::new(100, move |items: Vec<i32>| {
            noted.lock().unwrap().push(items.len());
            let hold = hold.clone();
            Box::pin(async move {
                if items.contains(&0) {
                    hold.notified().await;
                }
                if items.contains(&-1) {
                    return Err(StoreError::Database("refused".into()));
                }
                Ok(items.iter().map(|item| item * 2).collect())
            }) as Running<i32>
        });
        (coalescer, sizes)
    }

    /// Waits until so many batches have begun.
    async fn begun(sizes: &Mutex<Vec<usize>>, batches: usize) {
        while sizes.lock().unwrap().len() < batches {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until every call has gone as far as it can; on one thread, without I/O, a few turns are enough.
    async fn settled() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_lone_call_is_run_at_once() {
        let (coalescer, sizes) = doubling(Arc::default());
        assert_eq!(coalescer.call(vec![7]).await.unwrap(), [14]);
        assert_eq!(*sizes.lock().unwrap(), [1]);
    }

    #[tokio::test]
    async fn calls_that_come_meanwhile_share_a_batch_and_each_gets_its_own_answers() {
        let hold = Arc::new(Notify::new());
        let (coalescer, sizes) = doubling(hold.clone());
        let coalescer = Arc::new(coalescer);
        let call = |items: Vec<i32>| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.call(items).await.unwrap() })
        };
        let mut held = Vec::new();
        while held.len() < AT_ONCE {
            held.push(call(vec![0]));
            begun(&sizes, held.len()).await;
        }
        let others: Vec<_> = (1..=10).map(|number| call(vec![number, -2 * number])).collect();
        settled().await;
        for _ in 0..AT_ONCE {
            hold.notify_one();
        }
        for call in held {
            assert_eq!(call.await.unwrap(), [0]);
        }
        for (number, call) in (1..=10).zip(others) {
            assert_eq!(call.await.unwrap(), [2 * number, -4 * number]);
        }
        assert_eq!(*sizes.lock().unwrap(), [1, 1, 20]);
    }

    #[tokio::test]
    async fn one_callers_fault_is_not_anothers() {
        let hold = Arc::new(Notify::new());
        let (coalescer, sizes) = doubling(hold.clone());
        let coalescer = Arc::new(coalescer);
        let call = |item: i32| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.call(vec![item]).await })
        };
        let mut held = Vec::new();
        while held.len() < AT_ONCE {
            held.push(call(0));
            begun(&sizes, held.len()).await;
        }
        let (good, bad) = (call(3), call(-1));
        settled().await;
        for _ in 0..AT_ONCE {
            hold.notify_one();
        }
        assert_eq!(good.await.unwrap().unwrap(), [6]);
        assert!(bad.await.unwrap().is_err());
        for call in held {
            assert_eq!(call.await.unwrap().unwrap(), [0]);
        }
    }

    #[tokio::test]
    async fn a_second_batch_grows_until_it_is_as_large_as_the_first() {
        let hold = Arc::new(Notify::new());
        let (coalescer, sizes) = doubling(hold.clone());
        let coalescer = Arc::new(coalescer);
        let call = |items: Vec<i32>| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.call(items).await.unwrap() })
        };
        let first = call(vec![0, 1, 2]);
        begun(&sizes, 1).await;
        let others = [call(vec![3]), call(vec![4])];
        settled().await;
        assert_eq!(*sizes.lock().unwrap(), [3], "two are not worth a transaction beside three");
        let last = call(vec![5]);
        settled().await;
        assert_eq!(*sizes.lock().unwrap(), [3, 3]);
        for (call, answer) in others.into_iter().chain([last]).zip([6, 8, 10]) {
            assert_eq!(call.await.unwrap(), [answer]);
        }
        hold.notify_one();
        assert_eq!(first.await.unwrap(), [0, 2, 4]);
    }

    #[tokio::test]
    async fn many_calls_are_shared_out_among_the_batches_that_may_start() {
        let (coalescer, sizes) = doubling(Arc::default());
        let coalescer = Arc::new(coalescer);
        let callers: Vec<_> = (1..=20)
            .map(|number| {
                let coalescer = coalescer.clone();
                tokio::spawn(async move { coalescer.call(vec![number]).await.unwrap() })
            })
            .collect();
        for (number, caller) in (1..=20).zip(callers) {
            assert_eq!(caller.await.unwrap(), [2 * number]);
        }
        assert_eq!(*sizes.lock().unwrap(), [10, 10]);
    }

    #[tokio::test]
    async fn a_call_without_items_is_answered() {
        let (coalescer, _) = doubling(Arc::default());
        assert_eq!(coalescer.call(Vec::new()).await.unwrap(), [0; 0]);
    }
}
