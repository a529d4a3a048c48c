//! The witness: sees every commit and every answer, keeps books of its own, and says when a promise is broken.
//!
//! It believes nothing of what the store holds that it can count itself: which executions may still run, how many attempts
//! were started, who has a unique key, what was acknowledged.

use crate::call::{Answer, Call};
use crate::clockwork::Clockwork;
use crate::draft::{Draft, Note, rules};
use crate::store::{Row, Store, TaskNumber, WorkerNumber};
use std::collections::{BTreeMap, BTreeSet};
use taskwheel_model::{Event, ExecId, Outcome, State, Status, Step, Time, limits};

/// What must hold whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    AcknowledgedSubmitSurvives,
    EveryTaskEndsOrWaits,
    OneLiveExecution,
    SupersededReportChangesNothing,
    AcknowledgedResultStays,
    FinalStatusIsLeftByRetryAlone,
    AttemptsStayWithinTheMaximum,
    UniqueKeyLivesOnce,
    DueTimeFiresOnce,
    DueTimeIsAccountedFor,
    OverlapIsKept,
    NodeStartsOnceAfterItsParent,
    EveryRunEnds,
}

/// A promise that was broken, and how.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) promise: Promise,
    pub(crate) how: String,
}

pub(crate) fn broken(promise: Promise, how: String) -> Result<(), Broken> {
    Err(Broken { promise, how })
}

/// An execution whose worker may be at it.
struct Execution {
    exec_id: ExecId,
    worker: WorkerNumber,
    started_at: Time,
    deadline: Option<Time>,
    heartbeat_ms: Option<i64>,
    /// Since when its worker surely knows of it, or has renewed it.
    renewed_at: Option<Time>,
    lease_ms: i64,
    /// It was cancelled, and counts as gone from then on.
    cancelled_until: Option<Time>,
}

impl Execution {
    /// When its worker counts as gone, if nothing more is heard.
    fn until(&self, seen_at: Option<Time>) -> Time {
        let lease = match self.heartbeat_ms {
            Some(every_ms) => {
                let heard = self.renewed_at.and(seen_at).unwrap_or(self.started_at).max(self.started_at);
                heard.plus_ms(every_ms * limits::HEARTBEATS_MISSED_MAX)
            }
            None => self.renewed_at.unwrap_or(self.started_at).plus_ms(self.lease_ms),
        };
        self.cancelled_until.unwrap_or_else(|| self.deadline.map_or(lease, |deadline| deadline.min(lease)))
    }
}

#[derive(Default)]
pub(crate) struct Witness {
    executions: BTreeMap<TaskNumber, Vec<Execution>>,
    attempts: BTreeMap<TaskNumber, u32>,
    seen: BTreeMap<WorkerNumber, Time>,
    holders: BTreeMap<usize, BTreeSet<TaskNumber>>,
    submitted: Vec<TaskNumber>,
    results: Vec<(ExecId, Outcome)>,
    clockwork: Clockwork,
}

impl Witness {
    /// A transaction is about to be committed.
    pub(crate) fn commit(&mut self, store: &Store, draft: &Draft) -> Result<(), Broken> {
        for note in &draft.notes {
            match note {
                Note::Stepped { task, event, step, worker } => self.step(store, draft, *task, event, step, *worker)?,
                Note::Refused { task, exec_id } => self.refused(store, draft, *task, *exec_id)?,
                note => self.clockwork.note(store, draft, note)?,
            }
        }
        self.told(draft);
        self.clockwork.revive(store, draft);
        for (worker, seen) in &draft.seen {
            self.seen.extend(seen.map(|at| (*worker, at)));
        }
        for (task, row) in &draft.tasks {
            self.hold(*task, row)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        store: &Store,
        draft: &Draft,
        task: TaskNumber,
        event: &Event,
        step: &Step,
        worker: Option<WorkerNumber>,
    ) -> Result<(), Broken> {
        let Some(row) = store.tasks.get(&task) else { return Ok(()) };
        let (before, after) = (row.life.status(), step.life.status());
        let by_person = match event {
            Event::Retry => after == Status::New,
            Event::Resolve => (before, after) == (Status::Failure, Status::ManuallyProcessed),
            _ => false,
        };
        if before.is_finished() && !by_person {
            let how = format!("{event:?} took task {task} from {before} to {after}");
            return broken(Promise::FinalStatusIsLeftByRetryAlone, how);
        }
        match event {
            Event::Claim { exec_id, heartbeat_ms } if matches!(step.life.state, State::Executing(_)) => {
                self.started(store, draft.at, task, row, *exec_id, *heartbeat_ms, worker)?;
            }
            Event::Renew { exec_id } => {
                let all = self.executions.entry(task).or_default();
                if let Some(execution) = all.iter_mut().find(|one| one.exec_id == *exec_id) {
                    execution.renewed_at = Some(draft.at);
                }
            }
            Event::Report { .. } => self.reported(draft, task)?,
            Event::Clock { .. } if step.ended.is_some() => self.run_out(draft.at, task)?,
            Event::Cancel { .. } => self.cancelled(task),
            Event::Retry => {
                self.attempts.insert(task, 0);
            }
            _ => {}
        }
        if step.ended == Some(Outcome::Release) {
            let attempts = self.attempts.entry(task).or_default();
            *attempts = attempts.saturating_sub(1);
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of a start")]
    fn started(
        &mut self,
        store: &Store,
        at: Time,
        task: TaskNumber,
        row: &Row,
        exec_id: ExecId,
        heartbeat_ms: Option<i64>,
        worker: Option<WorkerNumber>,
    ) -> Result<(), Broken> {
        let seen = &self.seen;
        let all = self.executions.entry(task).or_default();
        all.retain(|one| one.until(seen.get(&one.worker).copied()) > at);
        if let Some(other) = all.first() {
            let how = format!("task {task} was started again while {} may still run", other.exec_id);
            return broken(Promise::OneLiveExecution, how);
        }
        let rules = rules(store, row);
        all.push(Execution {
            exec_id,
            worker: worker.unwrap_or_default(),
            started_at: at,
            deadline: rules.timeout_ms.map(|ms| at.plus_ms(ms)),
            heartbeat_ms,
            renewed_at: None,
            lease_ms: rules.timeout_ms.unwrap_or(limits::LEASE_MS_DEFAULT),
            cancelled_until: None,
        });
        let attempts = self.attempts.entry(task).or_default();
        *attempts += 1;
        if rules.max_attempts.is_some_and(|max| *attempts > max) {
            let how = format!("task {task} was started {attempts} times, of {:?}", rules.max_attempts);
            return broken(Promise::AttemptsStayWithinTheMaximum, how);
        }
        Ok(())
    }

    /// A report changed a task: it must be the word of the execution that runs.
    fn reported(&mut self, draft: &Draft, task: TaskNumber) -> Result<(), Broken> {
        let Call::Report { exec_id, .. } = &draft.call else { return Ok(()) };
        let all = self.executions.entry(task).or_default();
        let count = all.len();
        all.retain(|one| one.exec_id != *exec_id || one.cancelled_until.is_some());
        if all.len() == count {
            let how = format!("a report of {exec_id} changed task {task}, which it does not run");
            return broken(Promise::SupersededReportChangesNothing, how);
        }
        Ok(())
    }

    /// A clock ended the execution that ran: it must have run out.
    fn run_out(&mut self, at: Time, task: TaskNumber) -> Result<(), Broken> {
        let all = self.executions.entry(task).or_default();
        let Some(place) = all.iter().position(|one| one.cancelled_until.is_none()) else { return Ok(()) };
        let ended = all.remove(place);
        let until = ended.until(self.seen.get(&ended.worker).copied());
        if until > at {
            let how = format!("{} of task {task} was ended at {at:?}, and lasts until {until:?}", ended.exec_id);
            return broken(Promise::OneLiveExecution, how);
        }
        Ok(())
    }

    fn cancelled(&mut self, task: TaskNumber) {
        for one in self.executions.entry(task).or_default() {
            one.cancelled_until = Some(one.until(self.seen.get(&one.worker).copied()));
        }
    }

    /// A worker that speaks for a cancelled execution is told so, and stops.
    fn told(&mut self, draft: &Draft) {
        if let Call::Report { task, exec_id, .. } | Call::Renew { task, exec_id, .. } = &draft.call {
            let all = self.executions.entry(*task).or_default();
            all.retain(|one| one.exec_id != *exec_id || one.cancelled_until.is_none());
        }
    }

    fn refused(&self, store: &Store, draft: &Draft, task: TaskNumber, exec_id: ExecId) -> Result<(), Broken> {
        let (Some(before), Some(after)) = (store.tasks.get(&task), draft.tasks.get(&task)) else { return Ok(()) };
        // That nothing has to be held back for it is all that a refused report may leave behind.
        let known = before.life.without_hold(exec_id, draft.at);
        if after.life != before.life && Some(&after.life) != known.as_ref() {
            let how = format!("a refused report of {exec_id} changed task {task}");
            return broken(Promise::SupersededReportChangesNothing, how);
        }
        Ok(())
    }

    fn hold(&mut self, task: TaskNumber, row: &Row) -> Result<(), Broken> {
        let Some(key) = row.unique else { return Ok(()) };
        let holders = self.holders.entry(key).or_default();
        if row.life.status().is_live() {
            holders.insert(task)
        } else {
            holders.remove(&task)
        };
        if holders.len() > 1 {
            return broken(Promise::UniqueKeyLivesOnce, format!("key {key} lives in {holders:?}"));
        }
        Ok(())
    }

    /// A caller has its answer.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Submitted { task } => self.submitted.push(*task),
            Answer::Reported { exec_id, outcome, is_accepted: true, .. } => self.results.push((*exec_id, *outcome)),
            _ => {}
        }
    }

    /// After a commit: what the store holds of runs.
    pub(crate) fn committed(&self, store: &Store, draft: &Draft) -> Result<(), Broken> {
        self.clockwork.committed(store, draft)
    }

    /// When all timers have been looked at.
    pub(crate) fn timers_go_on(&self, store: &Store, now: Time) -> Result<(), Broken> {
        self.clockwork.all_go_on(store, now)
    }

    /// Looks whether all that was ever acknowledged is there.
    pub(crate) fn look_back(&self, store: &Store) -> Result<(), Broken> {
        if let Some(task) = self.submitted.iter().find(|task| !store.tasks.contains_key(task)) {
            return broken(Promise::AcknowledgedSubmitSurvives, format!("task {task} is gone"));
        }
        match self.results.iter().find(|(exec_id, outcome)| store.log.get(exec_id) != Some(outcome)) {
            Some((exec_id, outcome)) => {
                let how = format!("{exec_id} reported {outcome:?}, and the log has {:?}", store.log.get(exec_id));
                broken(Promise::AcknowledgedResultStays, how)
            }
            None => Ok(()),
        }
    }

    /// When faults have stopped and time has gone on. Tasks of types without a worker wait for one.
    pub(crate) fn at_the_end(&self, store: &Store, has_worker: impl Fn(usize) -> bool) -> Result<(), Broken> {
        self.look_back(store)?;
        for task in &store.live {
            let row = &store.tasks[task];
            let status = row.life.status();
            let waits_visibly = status == Status::Pending || status.is_waiting() && !has_worker(row.kind);
            if !waits_visibly {
                return broken(Promise::EveryTaskEndsOrWaits, format!("task {task} is stuck: {:?}", row.life));
            }
        }
        match store.running.first() {
            Some((schedule, run)) => {
                let how = format!("run {run} of schedule {schedule} is {:?}", store.runs[run].status);
                broken(Promise::EveryRunEnds, how)
            }
            None => Ok(()),
        }
    }
}
