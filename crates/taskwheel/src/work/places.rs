//! The worker's places: which executions it holds, and which of their commands run.

use super::protocol::{Renewal, Task};
use std::collections::HashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The executions that take a place, by their ids.
#[derive(Default)]
pub(super) struct Places {
    executions: HashMap<String, Execution>,
}

/// An execution that takes a place.
pub(super) struct Execution {
    pub(super) id: u64,
    pub(super) task_type: String,
    pub(super) begin: Instant,
    /// Kills the command while it runs.
    kill: Option<oneshot::Sender<()>>,
    /// It is no longer this worker's: it is not named, nor reported when it ends.
    is_abandoned: bool,
}

impl Places {
    pub(super) fn taken(&self) -> usize {
        self.executions.len()
    }

    /// Takes a place for a task. The receiver hears when its command shall be killed.
    pub(super) fn take(&mut self, task: &Task) -> oneshot::Receiver<()> {
        let (kill, killed) = oneshot::channel();
        let (id, task_type) = (task.id, task.task_type.clone());
        let execution = Execution { id, task_type, begin: Instant::now(), kill: Some(kill), is_abandoned: false };
        self.executions.insert(task.exec_id.clone(), execution);
        killed
    }

    /// Its command has ended. Gives the task's id where that is to be reported; else the place is free.
    pub(super) fn end(&mut self, exec_id: &str) -> Option<u64> {
        let execution = self.executions.get_mut(exec_id)?;
        execution.kill = None;
        if !execution.is_abandoned {
            return Some(execution.id);
        }
        self.leave(exec_id);
        None
    }

    /// Frees a place.
    pub(super) fn leave(&mut self, exec_id: &str) -> Option<Execution> {
        self.executions.remove(exec_id)
    }

    /// The executions to be named to the server: also those that have ended, until their reports have arrived, or it would
    /// give their tasks to somebody else. No task is among them twice.
    pub(super) fn renewals(&self) -> Vec<Renewal> {
        self.held().map(|(exec_id, execution)| Renewal { id: execution.id, exec_id: exec_id.clone() }).collect()
    }

    /// The executions that are this worker's, as far as it knows.
    fn held(&self) -> impl Iterator<Item = (&String, &Execution)> {
        self.executions.iter().filter(|(_, execution)| !execution.is_abandoned)
    }

    /// Kills all commands. They are reported.
    pub(super) fn kill_all(&mut self) {
        for kill in self.executions.values_mut().filter_map(|execution| execution.kill.take()) {
            // It fails when the command has ended by itself in this moment.
            let _ = kill.send(());
        }
    }

    /// The execution of a task that is this worker's.
    pub(super) fn held_of(&self, id: u64) -> Option<String> {
        self.held().find(|(_, execution)| execution.id == id).map(|(exec_id, _)| exec_id.clone())
    }

    /// Kills the command of an execution that is no longer this worker's, and gives it if it ran. Its end is not reported.
    pub(super) fn abandon(&mut self, exec_id: &str) -> Option<&Execution> {
        let execution = self.executions.get_mut(exec_id)?;
        execution.is_abandoned = true;
        let kill = execution.kill.take()?;
        // As above.
        let _ = kill.send(());
        Some(execution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: u64, exec_id: &str) -> Task {
        serde_json::from_value(serde_json::json!({ "id": id, "exec_id": exec_id, "type": "mail", "attempt": 1 }))
            .unwrap()
    }

    #[test]
    fn a_place_is_taken_until_its_report_is_answered() {
        let mut places = Places::default();
        let _killed = places.take(&task(7, "a"));
        assert_eq!((places.taken(), places.renewals().len()), (1, 1));
        assert_eq!(places.end("a"), Some(7));
        assert_eq!((places.taken(), places.renewals().len()), (1, 1), "it is named until then");
        assert!(places.leave("a").is_some());
        assert_eq!((places.taken(), places.renewals().len()), (0, 0));
    }

    #[test]
    fn an_abandoned_execution_is_killed_and_not_reported() {
        let mut places = Places::default();
        let mut killed = places.take(&task(7, "a"));
        assert_eq!(places.held_of(7).as_deref(), Some("a"));
        assert!(places.abandon("a").is_some());
        assert_eq!(places.held_of(7), None);
        assert_eq!(killed.try_recv(), Ok(()));
        let mut killed = places.take(&task(7, "b"));
        assert_eq!(places.end("a"), None);
        assert!(killed.try_recv().is_err(), "the new execution goes on");
        assert_eq!(places.taken(), 1);
    }

    #[test]
    fn a_task_that_comes_again_is_named_once() {
        let mut places = Places::default();
        let _killed = places.take(&task(7, "a"));
        places.end("a");
        assert!(places.abandon("a").is_none(), "there is nothing to kill");
        let _killed = places.take(&task(7, "b"));
        assert_eq!(places.renewals().into_iter().map(|renewal| renewal.exec_id).collect::<Vec<_>>(), ["b"]);
        assert!(places.leave("a").is_some(), "its report is still to be answered");
    }

    #[test]
    fn what_is_killed_at_the_end_is_reported() {
        let mut places = Places::default();
        let mut killed = places.take(&task(7, "a"));
        places.kill_all();
        assert_eq!(killed.try_recv(), Ok(()));
        assert_eq!(places.end("a"), Some(7));
    }
}
