//! The world: servers with calls under way, workers, people, a clock, and what goes wrong.

use crate::call::{Act, Answer, Call};
use crate::draft::Draft;
use crate::making::{self, KINDS};
use crate::mistake::Mistake;
use crate::random::{Fingerprint, Random};
use crate::store::{Store, TaskNumber, WorkerNumber};
use crate::witness::{Broken, Witness};
use std::rc::Rc;
use taskwheel_model::{ExecId, Outcome, Time};

const SERVERS: usize = 4;
const WORKERS: usize = 6;
/// People submit less when there is so much to do.
const LIVE_MAX: usize = 60;
/// How often all that was acknowledged is looked for.
const LOOK_BACK_EVENTS: usize = 500;

struct Worker {
    number: WorkerNumber,
    heartbeat_ms: Option<i64>,
    kinds: Rc<[usize]>,
    /// What it is at.
    has: Vec<(TaskNumber, ExecId)>,
    silent_until: Time,
}

pub(crate) struct World {
    random: Random,
    now: Time,
    store: Store,
    witness: Witness,
    mistake: Option<Mistake>,
    servers: Vec<Option<Draft>>,
    workers: Vec<Worker>,
    /// Executions of workers that are gone, which somebody may report all the same.
    ghosts: Vec<(WorkerNumber, TaskNumber, ExecId)>,
    /// Calls whose callers heard nothing.
    unheard: Vec<Call>,
    fingerprint: Fingerprint,
    commits: usize,
}

impl World {
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>) -> World {
        let mut random = Random::new(seed);
        let mut store = Store::new(making::kinds());
        making::schedules(&mut random, &mut store);
        let online = (0..store.schedules.len()).map(|schedule| Call::Switch { schedule, is_online: true });
        let mut world = World {
            unheard: online.collect(),
            random,
            now: Time(1_800_000_000_000),
            store,
            witness: Witness::default(),
            mistake,
            servers: (0..SERVERS).map(|_| None).collect(),
            workers: Vec::new(),
            ghosts: Vec::new(),
            fingerprint: Fingerprint::new(),
            commits: 0,
        };
        for _ in 0..WORKERS {
            let worker = world.worker();
            world.workers.push(worker);
        }
        world
    }

    fn worker(&mut self) -> Worker {
        let skipped = self.random.below(KINDS);
        Worker {
            number: self.store.next(),
            heartbeat_ms: self.random.maybe(70, |random| random.pick(&[500, 2_000, 10_000])),
            kinds: (0..KINDS - 1).filter(|kind| *kind != skipped).collect(),
            has: Vec::new(),
            silent_until: self.now,
        }
    }

    pub(crate) fn outcome(&self) -> (Fingerprint, usize) {
        (self.fingerprint, self.commits)
    }

    /// So many random events.
    pub(crate) fn live(&mut self, events: usize) -> Result<(), Broken> {
        for event in 0..events {
            let dice = self.random.below(1_000);
            self.fingerprint.add(dice as i64);
            match dice {
                0..60 => self.pass_time(),
                60..500 => {
                    let server = self.busy_server();
                    self.commit(server)?;
                }
                500..510 => self.crash_server()?,
                _ => {
                    if let Some(call) = self.next_call() {
                        self.ask(call)?;
                    }
                }
            }
            if event % LOOK_BACK_EVENTS == 0 {
                self.witness.look_back(&self.store)?;
            }
        }
        Ok(())
    }

    /// A server with a call under way, if there is one.
    fn busy_server(&mut self) -> usize {
        let busy: Vec<_> = (0..SERVERS).filter(|server| self.servers[*server].is_some()).collect();
        if busy.is_empty() { 0 } else { self.random.pick(&busy) }
    }

    fn pass_time(&mut self) {
        let ms = match self.random.below(1_000) {
            0..700 => self.random.ms(0..500),
            700..990 => self.random.ms(500..5_000),
            990..999 => self.random.ms(5_000..300_000),
            _ => self.random.ms(300_000..7_200_000),
        };
        self.now = self.now.plus_ms(ms);
        self.fingerprint.add(ms);
    }

    /// What somebody wants next.
    fn next_call(&mut self) -> Option<Call> {
        if !self.unheard.is_empty() && self.random.percent(30) {
            let place = self.random.below(self.unheard.len());
            return Some(self.unheard.swap_remove(place));
        }
        match self.random.below(100) {
            0..10 if self.store.live.len() < LIVE_MAX => {
                let row = Box::new(making::task(&mut self.random, self.now));
                Some(Call::Submit { row })
            }
            0..72 => self.worker_call(),
            72..80 => Some(Call::Rescue),
            80..90 => Some(Call::Fire { skipped: self.random.below(3), max: 1 + self.random.below(3) }),
            90..98 => self.person_call(),
            _ => self.ghost_call(),
        }
    }

    fn worker_call(&mut self) -> Option<Call> {
        let place = self.random.below(self.workers.len());
        let dice = self.random.below(200);
        if dice < 2 {
            self.crash_worker(place);
            return None;
        }
        let worker = &mut self.workers[place];
        if dice < 4 {
            worker.silent_until = self.now.plus_ms(self.random.ms(1_000..60_000));
        }
        if worker.silent_until > self.now {
            return None;
        }
        let number = worker.number;
        if worker.has.is_empty() || dice < 50 && worker.has.len() < 4 {
            let (heartbeat_ms, kinds) = (worker.heartbeat_ms, Rc::clone(&worker.kinds));
            return Some(Call::Claim { worker: number, heartbeat_ms, kinds, max: 1 + self.random.below(3) });
        }
        let (task, exec_id) = self.random.pick(&worker.has);
        match dice {
            0..90 => Some(Call::Renew { worker: number, task, exec_id }),
            90..110 if worker.heartbeat_ms.is_some() => Some(Call::Beat { worker: number }),
            _ => Some(self.report(number, task, exec_id)),
        }
    }

    fn report(&mut self, worker: WorkerNumber, task: TaskNumber, exec_id: ExecId) -> Call {
        let outcome = making::outcome(&mut self.random);
        let retry_after_ms = self.random.maybe(50, |random| random.ms(0..5_000));
        Call::Report { worker, task, exec_id, outcome, retry_after_ms }
    }

    /// Another worker comes in its place.
    fn crash_worker(&mut self, place: usize) {
        let new = self.worker();
        let old = std::mem::replace(&mut self.workers[place], new);
        self.ghosts.extend(old.has.into_iter().map(|(task, exec_id)| (old.number, task, exec_id)));
    }

    /// What a worker that counts as gone says all the same, late or never.
    fn ghost_call(&mut self) -> Option<Call> {
        if self.ghosts.is_empty() {
            return None;
        }
        let place = self.random.below(self.ghosts.len());
        let (worker, task, exec_id) = self.ghosts.swap_remove(place);
        match self.random.below(3) {
            0 => None,
            1 => Some(Call::Renew { worker, task, exec_id }),
            _ => Some(self.report(worker, task, exec_id)),
        }
    }

    fn person_call(&mut self) -> Option<Call> {
        match self.random.below(20) {
            0 => {
                let (schedule, is_online) = (self.random.below(self.store.schedules.len()), self.random.percent(80));
                return Some(Call::Switch { schedule, is_online });
            }
            1 => {
                let (schedule, rhythm) =
                    (self.random.below(self.store.schedules.len()), making::rhythm(&mut self.random));
                return Some(Call::Retime { schedule, rhythm });
            }
            2 => return Some(Call::Pause { kind: self.random.below(KINDS), is_paused: self.random.percent(10) }),
            _ => {}
        }
        // Mostly a task of late, finished or not.
        let newest = self.store.tasks.last_key_value().map(|(task, _)| *task)?;
        let from = newest.saturating_sub(self.random.pick(&[30, 200, 2_000]));
        let span = newest - from + 1;
        let (task, _) = self.store.tasks.range(from + self.random.below(span)..).next()?;
        let act = match self.random.below(10) {
            0..3 => Act::Cancel,
            3..6 => Act::Retry,
            6 => Act::RunNow,
            7 => Act::Resolve,
            _ => Act::Edit {
                run_at: self.now.plus_ms(self.random.ms(-5_000..20_000)),
                max_attempts: self.random.pick(&[-1, 1, 2, 3]),
                priority: self.random.pick(&[1, 9]),
            },
        };
        Some(Call::Act { task: *task, act })
    }

    /// A server that is free takes the call; without one the caller hears nothing.
    fn ask(&mut self, call: Call) -> Result<(), Broken> {
        let Some(server) = (0..SERVERS).find(|server| self.servers[*server].is_none()) else {
            return self.refuse(call);
        };
        let draft = Draft::of(call, &self.store, self.now, self.mistake);
        if matches!((self.mistake, &draft.call), (Some(Mistake::SubmitAnsweredEarly), Call::Submit { .. })) {
            self.witness.answer(&draft.answer);
        }
        self.servers[server] = Some(draft);
        Ok(())
    }

    fn refuse(&mut self, call: Call) -> Result<(), Broken> {
        if call.is_repeated() {
            self.unheard.push(call);
        }
        Ok(())
    }

    fn commit(&mut self, server: usize) -> Result<(), Broken> {
        let Some(draft) = self.servers[server].take() else { return Ok(()) };
        match self.write(draft)? {
            Ok(answer) => self.hear(&answer),
            // Somebody was faster: it is decided again.
            Err(draft) => self.ask(draft.call)?,
        }
        Ok(())
    }

    /// Commits a transaction, unless somebody else has changed what it locked.
    fn write(&mut self, draft: Draft) -> Result<Result<Answer, Draft>, Broken> {
        if !self.store.accepts(&draft, self.mistake) {
            return Ok(Err(draft));
        }
        self.witness.commit(&self.store, &draft)?;
        self.store.apply(&draft, self.mistake);
        self.witness.committed(&self.store, &draft)?;
        self.commits += 1;
        for (task, row) in &draft.tasks {
            let life = &row.life;
            let words =
                [*task as i64, life.status().code().into(), life.due.0, life.attempts.into(), life.round.into()];
            words.into_iter().for_each(|word| self.fingerprint.add(word));
        }
        for (run, row) in &draft.runs {
            [*run as i64, row.status.code(), row.due.0].into_iter().for_each(|word| self.fingerprint.add(word));
        }
        Ok(Ok(draft.answer))
    }

    /// The server dies before its commit or after it. The caller hears nothing either way.
    fn crash_server(&mut self) -> Result<(), Broken> {
        let server = self.busy_server();
        let Some(draft) = self.servers[server].take() else { return Ok(()) };
        let call = draft.call.clone();
        if self.random.percent(50) {
            let _ = self.write(draft)?;
        }
        self.refuse(call)
    }

    fn hear(&mut self, answer: &Answer) {
        self.witness.answer(answer);
        let (number, done) = match answer {
            Answer::Claimed { worker, executions } => {
                if let Some(worker) = self.workers.iter_mut().find(|one| one.number == *worker) {
                    worker.has.extend(executions);
                }
                return;
            }
            Answer::Renewed { worker, exec_id, goes_on: false } => (worker, exec_id),
            Answer::Reported { worker, exec_id, .. } => (worker, exec_id),
            _ => return,
        };
        if let Some(worker) = self.workers.iter_mut().find(|one| one.number == *number) {
            worker.has.retain(|(_, exec_id)| exec_id != done);
        }
    }

    /// Faults stop, schedules end, and time goes on until nothing is left to do.
    pub(crate) fn settle(&mut self) -> Result<(), Broken> {
        self.finish_calls()?;
        for call in std::mem::take(&mut self.unheard) {
            self.carry_out(call)?;
        }
        // Schedules are still online, and every timer is looked at: one that is due after that stands still.
        self.carry_out(Call::Fire { skipped: 0, max: usize::MAX })?;
        self.witness.timers_go_on(&self.store, self.now)?;
        for schedule in 0..self.store.schedules.len() {
            self.carry_out(Call::Switch { schedule, is_online: false })?;
        }
        for kind in 0..KINDS {
            self.carry_out(Call::Pause { kind, is_paused: false })?;
        }
        for place in 0..self.workers.len() {
            self.crash_worker(place);
            self.workers[place].kinds = (0..KINDS - 1).collect();
        }
        while let Some(next) = self.next_time() {
            self.now = next.max(self.now.plus_ms(1));
            self.carry_out(Call::Rescue)?;
            self.work()?;
        }
        self.witness.at_the_end(&self.store, |kind| kind < KINDS - 1)
    }

    /// One call from begin to end.
    fn carry_out(&mut self, call: Call) -> Result<(), Broken> {
        self.ask(call)?;
        self.finish_calls()
    }

    /// Lets every call under way end, also one that is decided again.
    fn finish_calls(&mut self) -> Result<(), Broken> {
        while let Some(server) = self.servers.iter().position(Option::is_some) {
            self.commit(server)?;
        }
        Ok(())
    }

    /// The next time at which something can be done, if anything can.
    fn next_time(&self) -> Option<Time> {
        let time = |task: &TaskNumber| {
            let row = &self.store.tasks[task];
            let seen_at = row.worker.and_then(|worker| self.store.seen.get(&worker).copied());
            let claim = row.life.status().is_waiting() && row.kind < KINDS - 1;
            let claim = claim.then_some(row.life.due);
            let check = row.life.check_at(seen_at).filter(|_| self.mistake != Some(Mistake::RescueNever));
            claim.into_iter().chain(check).min()
        };
        self.store.live.iter().filter_map(time).min()
    }

    /// A worker takes what is due, and ends it well.
    fn work(&mut self) -> Result<(), Broken> {
        let (worker, kinds) = (self.workers[0].number, Rc::clone(&self.workers[0].kinds));
        self.carry_out(Call::Claim { worker, heartbeat_ms: None, kinds, max: LIVE_MAX })?;
        for (task, exec_id) in std::mem::take(&mut self.workers[0].has) {
            let outcome = Outcome::Success;
            self.carry_out(Call::Report { worker, task, exec_id, outcome, retry_after_ms: None })?;
        }
        Ok(())
    }
}
