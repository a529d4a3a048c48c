//! A transaction under way: what it has locked, what the model decided, and what it will write.

use crate::call::{Act, Answer, Call};
use crate::mistake::Mistake;
use crate::store::{Key, Place, Row, Run, RunNumber, Schedule, Store, TaskNumber, TimerNumber, TimerRow, WorkerNumber};
use std::collections::BTreeMap;
use taskwheel_model::timer::Due;
use taskwheel_model::{Event, ExecId, Life, Outcome, Refusal, Rules, State, Status, Step, Time, decide};

/// What the witness is told when the transaction is committed.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// The model decided about a task.
    Stepped { task: TaskNumber, event: Event, step: Step, worker: Option<WorkerNumber> },
    /// A report was refused.
    Refused { task: TaskNumber, exec_id: ExecId },
    /// A timer fired, or what it missed was recorded.
    Fired { timer: TimerNumber, cursor: Time, misfire: taskwheel_model::Misfire, due: Due, inserted: Vec<Time> },
    /// A timer has a cursor that does not follow from the one before.
    Set { timer: TimerNumber, cursor: Option<Time> },
    /// A run began.
    Began { run: RunNumber },
    /// A node of a run began.
    Started { task: TaskNumber },
}

pub(crate) struct Draft {
    pub(crate) at: Time,
    pub(crate) call: Call,
    pub(crate) mistake: Option<Mistake>,
    pub(crate) locks: BTreeMap<Key, u64>,
    pub(crate) tasks: BTreeMap<TaskNumber, Row>,
    pub(crate) log: Vec<(ExecId, Outcome)>,
    pub(crate) seen: BTreeMap<WorkerNumber, Option<Time>>,
    pub(crate) schedules: BTreeMap<usize, Schedule>,
    pub(crate) timers: BTreeMap<TimerNumber, Option<TimerRow>>,
    pub(crate) runs: BTreeMap<RunNumber, Run>,
    pub(crate) paused: Option<(usize, bool)>,
    pub(crate) notes: Vec<Note>,
    pub(crate) answer: Answer,
}

impl Draft {
    /// Decides a call by what the store holds now.
    pub(crate) fn of(call: Call, store: &Store, at: Time, mistake: Option<Mistake>) -> Draft {
        let mut draft = Draft {
            at,
            mistake,
            locks: BTreeMap::new(),
            tasks: BTreeMap::new(),
            log: Vec::new(),
            seen: BTreeMap::new(),
            schedules: BTreeMap::new(),
            timers: BTreeMap::new(),
            runs: BTreeMap::new(),
            paused: None,
            notes: Vec::new(),
            answer: Answer::Done,
            call: call.clone(),
        };
        match call {
            Call::Submit { row, .. } => draft.submit(store, *row),
            Call::Claim { worker, heartbeat_ms, kinds, max } => draft.claim(store, worker, heartbeat_ms, &kinds, max),
            Call::Beat { worker } => draft.hear(store, worker),
            Call::Renew { worker, task, exec_id } => draft.renew(store, worker, task, exec_id),
            Call::Report { worker, task, exec_id, outcome, retry_after_ms } => {
                let event = Event::Report { exec_id, outcome, retry_after_ms };
                draft.report(store, worker, task, event, exec_id, outcome);
            }
            Call::Rescue => draft.rescue(store),
            Call::Act { task, act } => draft.act(store, task, &act),
            Call::Pause { kind, is_paused } => draft.paused = Some((kind, is_paused)),
            Call::Fire { skipped, max } => draft.fire(store, skipped, max),
            Call::Switch { schedule, is_online } => draft.switch(store, schedule, is_online),
            Call::Retime { schedule, rhythm } => draft.retime(store, schedule, rhythm),
        }
        draft.advance(store);
        draft
    }

    pub(crate) fn is_firing(&self) -> bool {
        matches!(self.call, Call::Fire { .. })
    }

    pub(crate) fn is_claim(&self) -> bool {
        matches!(self.call, Call::Claim { .. })
    }

    pub(crate) fn is_rescue(&self) -> bool {
        matches!(self.call, Call::Rescue)
    }

    pub(crate) fn lock(&mut self, store: &Store, key: Key) {
        self.locks.entry(key).or_insert_with(|| store.version(key));
    }

    /// A task as this transaction sees it, not locked.
    pub(crate) fn peek<'a>(&'a self, store: &'a Store, task: TaskNumber) -> Option<&'a Row> {
        self.tasks.get(&task).or_else(|| store.tasks.get(&task))
    }

    fn load(&mut self, store: &Store, task: TaskNumber) -> Option<Row> {
        self.lock(store, Key::Task(task));
        self.peek(store, task).cloned()
    }

    fn seen_at(&mut self, store: &Store, worker: Option<WorkerNumber>) -> Option<Time> {
        let worker = worker?;
        self.lock(store, Key::Worker(worker));
        store.seen.get(&worker).copied()
    }

    fn hear(&mut self, store: &Store, worker: WorkerNumber) {
        self.lock(store, Key::Worker(worker));
        self.seen.insert(worker, Some(self.at));
    }

    /// Asks the model about a task, and keeps what it says.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        task: TaskNumber,
        mut row: Row,
        event: &Event,
    ) -> Result<Life, Refusal> {
        let rules = rules(store, &row);
        let at = if matches!((self.mistake, event), (Some(Mistake::RescueTooEarly), Event::Clock { .. })) {
            self.at.plus_ms(3_600_000)
        } else {
            self.at
        };
        let mut step = decide(&row.life, &rules, event, at)?;
        let started = matches!((event, &step.life.state), (Event::Claim { .. }, State::Executing(_)));
        match self.mistake {
            Some(Mistake::AttemptsNotCounted) if started => step.life.attempts = row.life.attempts,
            Some(Mistake::HoldForgotten) if *event == Event::Retry => {
                step.life = Life { state: State::Waiting { hold: None }, due: self.at, ..step.life };
            }
            _ => {}
        }
        if let (Some(outcome), State::Executing(execution)) = (step.ended, &row.life.state) {
            self.log.push((execution.exec_id, outcome));
        }
        row.life = step.life.clone();
        let worker = row.worker;
        self.put(store, task, row);
        self.notes.push(Note::Stepped { task, event: event.clone(), worker, step: step.clone() });
        Ok(step.life)
    }

    pub(crate) fn put(&mut self, store: &Store, task: TaskNumber, row: Row) {
        if let Some(key) = row.unique {
            self.lock(store, Key::Unique(key));
        }
        self.tasks.insert(task, row);
    }

    pub(crate) fn insert(&mut self, store: &Store, row: Row) -> TaskNumber {
        let task = store.next();
        self.put(store, task, row);
        task
    }

    fn submit(&mut self, store: &Store, row: Row) {
        let holder = row.unique.filter(|_| self.mistake != Some(Mistake::UniqueNotChecked)).and_then(|key| {
            self.lock(store, Key::Unique(key));
            store.unique.get(&key).copied()
        });
        let task = holder.unwrap_or_else(|| self.insert(store, row));
        self.answer = Answer::Submitted { task };
    }

    fn claim(&mut self, store: &Store, worker: WorkerNumber, heartbeat: Option<i64>, kinds: &[usize], max: usize) {
        if heartbeat.is_some() {
            self.hear(store, worker);
        }
        let is_wanted = |row: &Row| {
            row.life.status().is_waiting()
                && row.life.due <= self.at
                && kinds.contains(&row.kind)
                && !store.paused[row.kind]
        };
        let wanted = store.live.iter().filter(|task| is_wanted(&store.tasks[task]));
        let mut due: Vec<_> = wanted
            .map(|task| {
                let row = &store.tasks[task];
                (std::cmp::Reverse(row.priority), row.life.due, *task)
            })
            .collect();
        due.sort_unstable();
        let mut claimed = Vec::new();
        for (_, _, task) in due {
            let (Some(row), exec_id) = (self.load(store, task), store.next_exec_id()) else { continue };
            let row = Row { worker: Some(worker), ..row };
            let event = Event::Claim { exec_id, heartbeat_ms: heartbeat };
            if let Ok(Life { state: State::Executing(_), .. }) = self.step(store, task, row, &event) {
                claimed.push((task, exec_id));
            }
            if claimed.len() == max {
                break;
            }
        }
        self.answer = Answer::Claimed { worker, executions: claimed };
    }

    fn renew(&mut self, store: &Store, worker: WorkerNumber, task: TaskNumber, exec_id: ExecId) {
        if store.seen.contains_key(&worker) {
            self.hear(store, worker);
        }
        let Some(row) = self.load(store, task) else { return };
        let goes_on = match self.step(store, task, row.clone(), &Event::Renew { exec_id }) {
            Ok(_) => true,
            Err(refusal) => {
                self.tell(store, task, row, exec_id, refusal);
                false
            }
        };
        self.answer = Answer::Renewed { worker, exec_id, goes_on };
    }

    fn report(
        &mut self,
        store: &Store,
        worker: WorkerNumber,
        task: TaskNumber,
        mut event: Event,
        exec_id: ExecId,
        outcome: Outcome,
    ) {
        let Some(row) = self.load(store, task) else { return };
        if let (Some(Mistake::ExecutionNotCompared), State::Executing(current), Event::Report { exec_id, .. }) =
            (self.mistake, &row.life.state, &mut event)
        {
            *exec_id = current.exec_id;
        }
        let is_accepted = match self.step(store, task, row.clone(), &event) {
            Ok(_) => {
                if store.seen.contains_key(&worker) {
                    self.hear(store, worker);
                }
                true
            }
            Err(refusal) => {
                let is_repeated = store.log.get(&exec_id) == Some(&outcome);
                self.tell(store, task, row, exec_id, refusal);
                is_repeated
            }
        };
        if !is_accepted {
            self.notes.push(Note::Refused { task, exec_id });
        }
        self.answer = Answer::Reported { worker, exec_id, outcome, is_accepted };
    }

    /// A cancelled execution knows now that it was, so that nothing is held back for it.
    fn tell(&mut self, store: &Store, task: TaskNumber, mut row: Row, exec_id: ExecId, refusal: Refusal) {
        if refusal == Refusal::Cancelled
            && let Some(life) = row.life.without_hold(exec_id, self.at)
        {
            row.life = life;
            self.put(store, task, row);
        }
    }

    fn rescue(&mut self, store: &Store) {
        if self.mistake == Some(Mistake::RescueNever) {
            return;
        }
        for task in &store.live {
            let row = &store.tasks[task];
            if !(row.life.status().is_waiting() && row.life.expire_at.is_none()) {
                // The model says that it is too early for nearly all of them; those are not locked.
                let worker_seen_at = row.worker.and_then(|worker| store.seen.get(&worker).copied());
                if self.step(store, *task, row.clone(), &Event::Clock { worker_seen_at }).is_ok() {
                    self.lock(store, Key::Task(*task));
                    self.seen_at(store, row.worker);
                }
            }
        }
    }

    fn act(&mut self, store: &Store, task: TaskNumber, act: &Act) {
        let Some(mut row) = self.load(store, task) else { return };
        let is_finished = row.life.status().is_finished();
        let event = match act {
            Act::Cancel => Event::Cancel { worker_seen_at: self.seen_at(store, row.worker) },
            Act::Retry => {
                let holder = row.unique.and_then(|key| store.unique.get(&key));
                if is_finished && holder.is_some() && self.mistake != Some(Mistake::UniqueNotChecked) {
                    return;
                }
                Event::Retry
            }
            Act::RunNow => Event::RunNow,
            Act::Resolve => Event::Resolve,
            Act::Edit { run_at, max_attempts, priority } => {
                if !is_finished && row.life.status() != Status::Completed {
                    row.life.due = match &row.life.state {
                        State::Waiting { hold: Some(hold) } => hold.until.max(*run_at),
                        _ => *run_at,
                    };
                    (row.given.max_attempts, row.priority) = (Some(*max_attempts), *priority);
                    self.put(store, task, row);
                }
                return;
            }
        };
        let _ = self.step(store, task, row, &event);
    }

    pub(crate) fn cancel(&mut self, store: &Store, task: TaskNumber) {
        if let Some(row) = self.load(store, task) {
            let event = Event::Cancel { worker_seen_at: self.seen_at(store, row.worker) };
            let _ = self.step(store, task, row, &event);
        }
    }

    /// The tasks of a run, those among them that this transaction makes.
    pub(crate) fn tasks_of(&self, store: &Store, run: RunNumber) -> Vec<TaskNumber> {
        let is_new = |(task, row): &(&TaskNumber, &Row)| {
            !store.tasks.contains_key(task) && row.step.as_ref().is_some_and(|place| place.run == run)
        };
        let stored = store.tasks_of.get(&run).into_iter().flatten().copied();
        stored.chain(self.tasks.iter().filter(is_new).map(|(task, _)| *task)).collect()
    }

    pub(crate) fn start(&mut self, store: &Store, place: Place, kind: usize, given: crate::store::Given, due: Time) {
        let life = Life::new(due, None);
        let row = Row { life, kind, given, priority: 1, unique: None, worker: None, step: Some(place) };
        let task = self.insert(store, row);
        self.notes.push(Note::Started { task });
    }
}

/// The rules that hold for a task.
pub(crate) fn rules(store: &Store, row: &Row) -> Rules {
    let given = row.given.clone();
    Rules::of(given.retry, given.max_attempts, given.timeout_ms, Some(&store.kinds[row.kind]))
}
