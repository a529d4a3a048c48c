//! Does each operation to the store and to lives in memory.

use crate::operation::Operation;
use crate::support::{Platform, due_in, worker};
use std::collections::HashMap;
use std::sync::Arc;
use taskwheel_model::{
    Event, ExecId, Execution, Life, Liveness, NewTask, Outcome, Refusal, Rules, State, Step, TaskId, Time,
    TypeSettings, decide,
};
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::worker::{ClaimRequest, Renewal, Renewed, Report, Reported};

const HEARTBEAT_MS: i64 = 1_000;
/// The store need not write a call down while the last one is younger than a tenth of the heartbeat, and gives a worker up that much later.
const SILENT_MS: i64 = 3 * HEARTBEAT_MS + HEARTBEAT_MS / 10;
const TASKS_MAX: usize = 4;

/// A task as the model knows it.
struct Known {
    id: TaskId,
    rules: Rules,
    life: Life,
    /// Its executions, oldest first, and whether the worker with the heartbeat has them.
    executions: Vec<(ExecId, bool)>,
    /// How executions ended that were reported or given back.
    ends: HashMap<ExecId, Outcome>,
}

pub(crate) struct Driver {
    platform: Arc<Platform>,
    number: usize,
    settings: TypeSettings,
    tasks: Vec<Known>,
    /// When the worker with the heartbeat last called, while it is known.
    seen_at: Option<Time>,
}

impl Driver {
    pub(crate) async fn new(platform: Arc<Platform>, number: usize, need_manual: bool) -> Driver {
        let settings = TypeSettings { need_manual, ..TypeSettings::default() };
        let task_type = format!("case-{number}");
        platform.store.put_type(task_type, settings.clone()).await.expect("the type is stored");
        Driver { platform, number, settings, tasks: Vec::new(), seen_at: None }
    }

    fn task_type(&self) -> String {
        format!("case-{}", self.number)
    }

    fn worker_id(&self, beating: bool) -> String {
        format!("{}-{}", if beating { "beating" } else { "plain" }, self.number)
    }

    pub(crate) async fn step(&mut self, operation: &Operation) {
        let now = self.platform.now();
        match operation {
            Operation::Submit { .. } => self.submit(operation, now).await,
            Operation::Claim { beating } => self.claim(*beating, now).await,
            Operation::Renew { task, execution } => self.renew(*task, *execution, now).await,
            Operation::Report { task, execution, outcome, retry_after_ms } => {
                self.report(*task, *execution, *outcome, *retry_after_ms, now).await;
            }
            Operation::Heartbeat => {
                self.platform.heartbeat(&self.worker_id(true)).await;
                self.seen_at = self.seen_at.map(|_| now);
            }
            Operation::Rescue => self.rescue(now).await,
            Operation::Cancel { task } => {
                let seen_at = self.called_at();
                self.act(*task, Action::Cancel, now, |_| Event::Cancel { worker_seen_at: seen_at }).await;
            }
            Operation::Retry { task } => self.act(*task, Action::Retry, now, |_| Event::Retry).await,
            Operation::RunNow { task } => self.act(*task, Action::RunNow, now, |_| Event::RunNow).await,
            Operation::Resolve { task } => {
                let resolve = Action::Resolve { remark: None, result: None };
                self.act(*task, resolve, now, |_| Event::Resolve).await;
            }
            Operation::EditRunAt { task, in_ms } => self.edit_run_at(*task, now.plus_ms(*in_ms)).await,
            Operation::Advance { ms } => self.platform.advance_ms(*ms),
        }
    }

    /// What the store shows must be what the model holds.
    pub(crate) async fn compare(&self, operation: &Operation) -> Result<(), String> {
        for known in &self.tasks {
            let shown = self.platform.task(known.id).await;
            let stored = (shown.status, shown.attempts, shown.error_count, shown.round, shown.run_at, shown.expire_at);
            let life = &known.life;
            let held = (life.status(), life.attempts, life.error_count, life.round, life.due, life.expire_at);
            if stored != held {
                return Err(format!("after {operation:?} task {} is {stored:?}, the model says {held:?}", known.id));
            }
            let executing = match &life.state {
                State::Executing(execution) => Some(execution.exec_id),
                _ => None,
            };
            if executing.is_some() && shown.exec_id != executing {
                return Err(format!("after {operation:?} task {} is executed by {:?}", known.id, shown.exec_id));
            }
        }
        Ok(())
    }

    async fn submit(&mut self, operation: &Operation, now: Time) {
        let Operation::Submit { delay_ms, expire_ms, max_attempts, timeout_ms, retry } = operation else { return };
        if self.tasks.len() == TASKS_MAX {
            return;
        }
        let expire_at = expire_ms.map(|ms| now.plus_ms(ms));
        let given = NewTask {
            expire_at,
            max_attempts: Some(*max_attempts),
            timeout_ms: *timeout_ms,
            retry: Some(retry.clone()),
            ..due_in(&self.task_type(), *delay_ms)
        };
        let rules = Rules::of(given.retry.clone(), given.max_attempts, given.timeout_ms, Some(&self.settings));
        let id = self.platform.submit(given).await;
        let life = Life::new(now.plus_ms(*delay_ms), expire_at);
        self.tasks.push(Known { id, rules, life, executions: Vec::new(), ends: HashMap::new() });
    }

    async fn claim(&mut self, beating: bool, now: Time) {
        let heartbeat_ms = beating.then_some(HEARTBEAT_MS);
        let request = ClaimRequest { worker_id: self.worker_id(beating), heartbeat_ms, ..worker(&[&self.task_type()]) };
        let claimed = self.platform.claim_for(request).await;
        if beating {
            self.seen_at = Some(now);
        }
        let mut expected = Vec::new();
        for known in self.tasks.iter_mut().filter(|known| known.life.due <= now) {
            let handed_out = claimed.iter().find(|one| one.id == known.id);
            let exec_id = handed_out.map_or(ExecId::new(now, [0; 10]), |one| one.exec_id);
            let Ok(Step { life, .. }) = decide(&known.life, &known.rules, &Event::Claim { exec_id, heartbeat_ms }, now)
            else {
                continue;
            };
            if matches!(life.state, State::Executing(_)) {
                expected.push((known.life.due, known.id));
                known.executions.push((exec_id, beating));
            }
            known.life = life;
        }
        expected.sort_unstable();
        let got: Vec<_> = claimed.iter().map(|one| (one.run_at, one.id)).collect();
        assert_eq!(got, expected, "what a claim hands out");
    }

    /// A task and one of its executions, counted back from the latest.
    fn pick(&self, task: usize, execution: usize) -> Option<(usize, ExecId, bool)> {
        let task = task.checked_rem(self.tasks.len())?;
        let executions = &self.tasks[task].executions;
        let back = execution.checked_rem(executions.len())?;
        let (exec_id, beating) = executions[executions.len() - 1 - back];
        Some((task, exec_id, beating))
    }

    async fn renew(&mut self, task: usize, execution: usize, now: Time) {
        let Some((task, exec_id, beating)) = self.pick(task, execution) else { return };
        let worker_id = self.worker_id(beating);
        let known = &mut self.tasks[task];
        let item = Renewal { id: known.id, exec_id, tenant: None, checkpoint: None, progress: None };
        let answer =
            self.platform.store.renew(vec![worker_id.into()], vec![item]).await.expect("a renewal goes through")[0];
        if beating {
            self.seen_at = self.seen_at.map(|_| now);
        }
        match decide(&known.life, &known.rules, &Event::Renew { exec_id }, now) {
            Ok(step) => {
                let State::Executing(execution) = &step.life.state else { unreachable!("a renewed task executes") };
                assert_eq!(answer, Renewed::Ok(execution.lease_until(Some(now))));
                known.life = step.life;
            }
            Err(refusal) => {
                assert!(!matches!(answer, Renewed::Ok(_)), "{refusal:?}");
                if refusal == Refusal::Cancelled {
                    assert_eq!(answer, Renewed::Cancelled);
                    known.life = known.life.without_hold(exec_id, now).unwrap_or(known.life.clone());
                }
            }
        }
    }

    async fn report(&mut self, task: usize, execution: usize, outcome: Outcome, after: Option<i64>, now: Time) {
        let Some((task, exec_id, beating)) = self.pick(task, execution) else { return };
        let known = &mut self.tasks[task];
        let report = Report { retry_after_ms: after, ..Report::new(known.id, exec_id, outcome) };
        let answer = self.platform.report(report).await;
        let event = Event::Report { exec_id, outcome, retry_after_ms: after };
        match decide(&known.life, &known.rules, &event, now) {
            Ok(step) => {
                known.life = step.life;
                known.ends.insert(exec_id, outcome);
                if beating {
                    self.seen_at = self.seen_at.map(|_| now);
                }
                assert_eq!(answer, Reported::Accepted(known.life.status()));
            }
            Err(refusal) => {
                let status = known.life.status();
                if refusal == Refusal::Cancelled {
                    known.life = known.life.without_hold(exec_id, now).unwrap_or(known.life.clone());
                }
                let repeated = known.ends.get(&exec_id) == Some(&outcome);
                let expected = if repeated { Reported::Accepted(status) } else { Reported::Superseded(Some(status)) };
                assert_eq!(answer, expected);
            }
        }
    }

    /// When the worker last called, at the latest: the store leaves some calls unwritten.
    fn called_at(&self) -> Option<Time> {
        self.seen_at.map(|seen| seen.plus_ms(HEARTBEAT_MS / 10))
    }

    async fn rescue(&mut self, now: Time) {
        while self.platform.rescue().await.more {}
        if self.seen_at.is_some_and(|seen| now.ms_since(seen) >= SILENT_MS) {
            self.seen_at = None;
        }
        let called_at = self.called_at();
        for known in &mut self.tasks {
            if self.seen_at.is_some_and(|seen| is_named_and_in_time(&known.life, seen, now)) {
                continue;
            }
            let event = Event::Clock { worker_seen_at: called_at };
            if let Ok(step) = decide(&known.life, &known.rules, &event, now) {
                // Given back by the clock is given back: a worker that says the same is right.
                if let (Some(Outcome::Release), State::Executing(execution)) = (step.ended, &known.life.state) {
                    known.ends.insert(execution.exec_id, Outcome::Release);
                }
                known.life = step.life;
            }
        }
    }

    async fn act(&mut self, task: usize, action: Action, now: Time, event: impl Fn(&Known) -> Event) {
        let Some(task) = task.checked_rem(self.tasks.len()) else { return };
        let known = &mut self.tasks[task];
        let acted = self.platform.act(known.id, action).await;
        match decide(&known.life, &known.rules, &event(known), now) {
            Ok(step) => {
                known.life = step.life;
                assert_eq!(acted, Acted::Changed(known.life.status()));
            }
            Err(Refusal::Unchanged) => assert_eq!(acted, Acted::Unchanged(known.life.status())),
            Err(_) => assert_eq!(acted, Acted::Conflict(known.life.status())),
        }
    }

    async fn edit_run_at(&mut self, task: usize, run_at: Time) {
        let Some(task) = task.checked_rem(self.tasks.len()) else { return };
        let known = &mut self.tasks[task];
        let edit = Edit { run_at: Some(run_at), ..Edit::default() };
        let acted = self.platform.act(known.id, Action::Edit(edit)).await;
        let due = match &known.life.state {
            State::Completed | State::Finished { .. } => {
                assert_eq!(acted, Acted::Conflict(known.life.status()));
                return;
            }
            State::Waiting { hold: Some(hold) } => run_at.max(hold.until),
            _ => run_at,
        };
        known.life.due = due;
        assert!(matches!(acted, Acted::Changed(_) | Acted::Unchanged(_)), "{acted:?}");
    }
}

/// Whether the store does not look at an execution yet: its worker has named it and is not silent for long enough.
fn is_named_and_in_time(life: &Life, seen_at: Time, now: Time) -> bool {
    matches!(&life.state, State::Executing(Execution { liveness: Liveness::Heartbeat { named: true, .. }, deadline, .. })
        if now.ms_since(seen_at) < SILENT_MS && deadline.is_none_or(|deadline| deadline > now))
}
