//! Coalescing: many calls at once become few transactions.
//!
//! ```text
//!  call ---\                        /--> batch in a transaction --> each caller answered after the commit
//!  call ----+--> [ bounded queue ] +
//!  call ---/                        \--> at most `AT_ONCE` under way
//! ```
//!
//! A call that comes alone is run at once: nothing is ever held back to wait for company. While batches are under way,
//! calls pile up, and all of them are in the next batch; so batches grow with the load by themselves.
//!
//! Nothing here is the truth: a caller that goes away loses only its answer, and when the process dies nobody was told
//! anything that is not committed. When a batch of several calls is refused for a reason of its own, each call is run by itself,
//! so that one caller's fault is not another's.

use crate::{Result, StoreError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Batches of one kind under way at the same time.
const AT_ONCE: usize = 2;
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
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store is shutting down".into());
        self.calls.send(Call { items, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Takes calls while there are any and batches may run.
async fn gather<I, O, F>(mut waiting: mpsc::Receiver<Call<I, O>>, items_max: usize, run: Arc<F>)
where
    I: Clone + Send + 'static,
    O: Send + 'static,
    F: Fn(Vec<I>) -> Running<O> + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut held_over = None;
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let first = match held_over.take() {
            Some(call) => call,
            None => match waiting.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let mut items = first.items.len();
        let mut batch = vec![first];
        while items < items_max {
            let Ok(call) = waiting.try_recv() else { break };
            items += call.items.len();
            if items > items_max {
                held_over = Some(call);
                break;
            }
            batch.push(call);
        }
        let run = run.clone();
        tokio::spawn(async move {
            run_batch(batch, &*run).await;
            drop(place);
        });
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
        while coalescer.calls.capacity() > CALLS_MAX - 10 {
            tokio::task::yield_now().await;
        }
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
        while coalescer.calls.capacity() > CALLS_MAX - 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..AT_ONCE {
            hold.notify_one();
        }
        assert_eq!(good.await.unwrap().unwrap(), [6]);
        assert!(bad.await.unwrap().is_err());
        for call in held {
            assert_eq!(call.await.unwrap().unwrap(), [0]);
        }
    }
}
