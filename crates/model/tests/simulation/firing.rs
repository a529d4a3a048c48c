//! Schedules in a transaction: timers that fire, runs that go on when a task of theirs ends, and what people switch.

use crate::draft::{Draft, Note};
use crate::mistake::Mistake;
use crate::store::{Given, Key, Place, Run, RunNumber, ScheduleNumber, Store, TimerNumber, TimerRow};
use std::collections::BTreeSet;
use std::rc::Rc;
use taskwheel_model::schedule::{Admission, Definition, Overlap, Progress, Shards, Step, progress};
use taskwheel_model::{Rhythm, RunStatus, Status, Time};

impl Draft {
    pub(crate) fn fire(&mut self, store: &Store, skipped: usize, max: usize) {
        let is_due = |timer: &TimerRow| timer.next_due.is_some_and(|due| due <= self.at);
        let mut due: Vec<_> =
            store.timers.iter().filter(|(_, timer)| is_due(timer)).map(|(number, _)| *number).collect();
        if self.mistake == Some(Mistake::TimerPassedOver) {
            due.retain(|number| !number.is_multiple_of(3));
        }
        for number in due.into_iter().skip(skipped).take(max) {
            let timer = self.timer(store, number);
            let Some(cursor) = timer.next_due else { continue };
            let definition = self.definition(store, timer.schedule);
            let due = timer.rhythm.misfire(cursor, self.at, definition.misfire);
            let mut inserted = Vec::new();
            let mut is_begun = false;
            for at in &due.fire {
                if self.mistake == Some(Mistake::FiringDropped) {
                    continue;
                }
                is_begun = self.begin(store, number, timer.schedule, &definition, *at);
                inserted.push(*at);
            }
            let next = match due.next {
                // A fixed delay that did not begin has no run that could bring its next due time.
                None if timer.rhythm.waits_for_run() && !is_begun => timer.rhythm.due_after_run(self.at),
                next => next,
            };
            self.timers.insert(number, Some(TimerRow { cursor: next, next_due: next, ..timer }));
            self.notes.push(Note::Fired { timer: number, cursor, misfire: definition.misfire, due, inserted });
        }
    }

    /// Begins a run, or lets it wait, or records that it was skipped. Says whether it will end some time.
    fn begin(
        &mut self,
        store: &Store,
        timer: TimerNumber,
        schedule: ScheduleNumber,
        definition: &Rc<Definition>,
        due: Time,
    ) -> bool {
        let admission = if definition.overlap == Overlap::Allow {
            Admission::Begin
        } else {
            self.lock(store, Key::Schedule(schedule));
            let (running, queued) = self.living(store, schedule);
            definition.overlap.admit(running.len(), queued.len())
        };
        if admission == Admission::Replace {
            let (running, queued) = self.living(store, schedule);
            for old in running.into_iter().chain(queued) {
                self.call_off(store, old);
            }
        }
        let status = match admission {
            Admission::Begin | Admission::Replace => RunStatus::Running,
            Admission::Wait => RunStatus::Queued,
            Admission::Skip { .. } => RunStatus::Skipped,
        };
        let run = store.next();
        self.runs.insert(run, Run { schedule, timer, due, status, definition: Rc::clone(definition) });
        if status == RunStatus::Running {
            self.start_root(store, run);
        }
        status.lives()
    }

    fn start_root(&mut self, store: &Store, run: RunNumber) {
        let Run { definition, due, .. } = self.run(store, run);
        let shards = match definition.shards {
            Some(Shards::Fixed(shards)) => shards,
            _ => 1,
        };
        let root = definition.root("default", due);
        let given = Given { retry: root.retry, max_attempts: root.max_attempts, timeout_ms: root.timeout_ms };
        for shard in 0..shards {
            let place = Place { run, path: Vec::new(), shard };
            self.start(store, place, kind(&root.task_type), given.clone(), due);
        }
        self.notes.push(Note::Began { run });
    }

    fn call_off(&mut self, store: &Store, number: RunNumber) {
        self.lock(store, Key::Run(number));
        for task in self.tasks_of(store, number) {
            self.cancel(store, task);
        }
        let run = self.run(store, number);
        self.runs.insert(number, Run { status: RunStatus::Cancelled, ..run.clone() });
        self.rearm(store, &run);
    }

    /// The runs of a schedule that go on, and those that wait.
    fn living(&self, store: &Store, schedule: ScheduleNumber) -> (Vec<RunNumber>, Vec<RunNumber>) {
        let stored = store.running.range((schedule, 0)..(schedule + 1, 0)).map(|(_, run)| *run);
        let new = self.runs.iter().filter(|(_, run)| run.schedule == schedule).map(|(number, _)| *number);
        let all: BTreeSet<_> = stored.chain(new).collect();
        let of = |wanted: RunStatus| all.iter().copied().filter(|run| self.run(store, *run).status == wanted).collect();
        (of(RunStatus::Running), of(RunStatus::Queued))
    }

    /// Lets the runs go on of which a task ended, or lives again.
    pub(crate) fn advance(&mut self, store: &Store) {
        let mut runs = BTreeSet::new();
        for (task, row) in &self.tasks {
            let before = store.tasks.get(task).map(|row| row.life.status());
            let ended = |status: Status| status.is_finished() || status == Status::Pending;
            let is_news = before.is_some_and(|before| before != row.life.status())
                && (before.is_some_and(ended) || ended(row.life.status()));
            runs.extend(row.step.as_ref().filter(|_| is_news).map(|place| place.run));
        }
        for number in runs {
            self.lock(store, Key::Run(number));
            let run = self.run(store, number);
            if matches!(run.status, RunStatus::Cancelled | RunStatus::Skipped | RunStatus::Queued) {
                continue;
            }
            let status = match progress(&run.definition, &self.steps(store, number)) {
                Progress::GoesOn { start } => {
                    for path in start {
                        self.follow(store, number, &run.definition, path);
                    }
                    RunStatus::Running
                }
                Progress::Ended { is_done: true } => RunStatus::Done,
                Progress::Ended { is_done: false } => RunStatus::Failed,
            };
            self.runs.insert(number, Run { status, ..run.clone() });
            if !status.lives() {
                self.end(store, &run);
            }
        }
    }

    fn steps(&self, store: &Store, run: RunNumber) -> Vec<Step> {
        let rows = self.tasks_of(store, run).into_iter().filter_map(|task| self.peek(store, task));
        let steps =
            rows.filter_map(|row| Some(Step { path: row.step.as_ref()?.path.clone(), status: row.life.status() }));
        let is_known = |step: &Step| {
            self.mistake != Some(Mistake::StartForgotten) || step.path.is_empty() || step.status.is_finished()
        };
        steps.filter(is_known).collect()
    }

    fn follow(&mut self, store: &Store, run: RunNumber, definition: &Definition, path: Vec<usize>) {
        let Some(child) = definition.child(&path) else { return };
        let task = definition.follower(child, "default");
        let given = Given { timeout_ms: task.timeout_ms, ..Given::default() };
        self.start(store, Place { run, path, shard: 0 }, kind(&task.task_type), given, self.at);
    }

    /// What follows from the end of a run: the next in the queue begins, and a timer that waited for it is set.
    fn end(&mut self, store: &Store, run: &Run) {
        if run.definition.overlap == Overlap::Queue && self.mistake != Some(Mistake::QueueForgotten) {
            self.lock(store, Key::Schedule(run.schedule));
            let (running, queued) = self.living(store, run.schedule);
            if let (true, Some(next)) = (running.is_empty(), queued.first().copied()) {
                self.lock(store, Key::Run(next));
                let queued = self.run(store, next);
                self.runs.insert(next, Run { status: RunStatus::Running, ..queued });
                self.start_root(store, next);
            }
        }
        self.rearm(store, run);
    }

    fn rearm(&mut self, store: &Store, run: &Run) {
        // The timer may be gone by an edit.
        if !store.timers.contains_key(&run.timer) {
            return;
        }
        let timer = self.timer(store, run.timer);
        if timer.cursor.is_none()
            && let Some(cursor) = timer.rhythm.due_after_run(self.at)
        {
            let is_online = store.schedules[timer.schedule].is_online;
            self.set(run.timer, timer, Some(cursor), is_online);
        }
    }

    fn set(&mut self, number: TimerNumber, timer: TimerRow, cursor: Option<Time>, is_online: bool) {
        let next_due = cursor.filter(|_| is_online);
        self.timers
            .insert(number, Some(TimerRow { cursor, next_due, has_begun: timer.has_begun || is_online, ..timer }));
        self.notes.push(Note::Set { timer: number, cursor });
    }

    pub(crate) fn switch(&mut self, store: &Store, number: ScheduleNumber, is_online: bool) {
        self.lock(store, Key::Schedule(number));
        let mut schedule = store.schedules[number].clone();
        if schedule.is_online == is_online {
            return;
        }
        schedule.is_online = is_online;
        for timer_number in &schedule.timers {
            let timer = self.timer(store, *timer_number);
            let cursor = match timer.cursor {
                cursor if !is_online => cursor,
                _ if !timer.has_begun => timer.rhythm.first_due(self.at),
                Some(cursor) => timer.rhythm.resume(cursor, self.at),
                None if timer.rhythm.waits_for_run() && !self.is_awaited(store, *timer_number) => {
                    timer.rhythm.first_due(self.at)
                }
                None => None,
            };
            self.set(*timer_number, timer, cursor, is_online);
        }
        self.schedules.insert(number, schedule);
    }

    /// Whether a run of a timer lives, whose end will bring the next due time.
    fn is_awaited(&self, store: &Store, timer: TimerNumber) -> bool {
        store.running.iter().any(|(_, run)| self.run(store, *run).timer == timer)
    }

    /// Replaces the first timer of a schedule. The new one starts anew.
    pub(crate) fn retime(&mut self, store: &Store, number: ScheduleNumber, rhythm: Rc<Rhythm>) {
        self.lock(store, Key::Schedule(number));
        let mut schedule = store.schedules[number].clone();
        let old = schedule.timers[0];
        self.lock(store, Key::Timer(old));
        self.timers.insert(old, None);
        schedule.timers[0] = store.next();
        let cursor = schedule.is_online.then(|| rhythm.first_due(self.at)).flatten();
        let timer = TimerRow { schedule: number, rhythm, has_begun: false, cursor: None, next_due: None };
        self.set(schedule.timers[0], timer, cursor, schedule.is_online);
        self.schedules.insert(number, schedule);
    }

    fn definition(&self, store: &Store, schedule: ScheduleNumber) -> Rc<Definition> {
        Rc::clone(&store.schedules[schedule].definition)
    }

    fn timer(&mut self, store: &Store, number: TimerNumber) -> TimerRow {
        self.lock(store, Key::Timer(number));
        self.timers.get(&number).cloned().flatten().unwrap_or_else(|| store.timers[&number].clone())
    }

    fn run(&self, store: &Store, number: RunNumber) -> Run {
        self.runs.get(&number).unwrap_or_else(|| &store.runs[&number]).clone()
    }
}

/// Types are named by their numbers.
fn kind(task_type: &str) -> usize {
    task_type.parse().unwrap_or(0)
}
