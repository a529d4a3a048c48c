//! Threads that do jobs, for a database that makes its callers wait.

use crate::{Result, StoreError};
use std::thread::{Builder, JoinHandle};
use tokio::sync::mpsc;

/// A thread that does jobs, or several. When this is dropped they do what they have, close their connections and end: the last one to
/// close brings the journal into the file, which is then all there is.
pub(crate) struct Threads<J> {
    jobs: Option<mpsc::Sender<J>>,
    running: Vec<JoinHandle<()>>,
}

impl<J> Threads<J> {
    /// Starts a thread for each piece of work, which goes on as long as there may be jobs.
    pub(crate) fn start<W>(name: &str, jobs: mpsc::Sender<J>, works: impl IntoIterator<Item = W>) -> Result<Threads<J>>
    where
        W: FnOnce() + Send + 'static,
    {
        let mut threads = Threads { jobs: Some(jobs), running: Vec::new() };
        for work in works {
            let started = Builder::new().name(name.to_owned()).spawn(work);
            let unavailable = |error| StoreError::Unavailable(format!("a thread cannot be started: {error}"));
            threads.running.push(started.map_err(unavailable)?);
        }
        Ok(threads)
    }

    /// Where to hand over jobs; `None` when it is over.
    pub(crate) fn jobs(&self) -> Option<&mpsc::Sender<J>> {
        self.jobs.as_ref()
    }
}

impl<J> Drop for Threads<J> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.running.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
