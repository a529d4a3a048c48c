//! The life of a task: every state it can be in and the one function that decides every transition.
//!
//! ```text
//!            claim                 success
//!  Waiting ---------> Executing ------------> Success          (Completed first, where a callback is owed)
//!     ^  ^               |
//!     |  +---------------+--- error, timeout, lost lease, retry, release
//!     |                  +--- attempts used up -----> Failure, or Pending where the type asks for a person
//!     +---- retry ------ Failure, Cancelled, Pending
//! ```
//!
//! [`decide`] is total: each event in each state has one answer, a [`Step`] to carry out or a [`Refusal`]. It does
//! nothing itself. Whoever calls it holds the task's row locked and writes what comes back in the same transaction.
//!
//! Two clocks end an execution that its worker does not end. The *time limit* is fixed when the attempt starts and never
//! moves. *Liveness* says that the worker is there: by its heartbeat, or by a lease that renewing the task extends.

use crate::{ExecId, Outcome, Rules, Status, Time, limits};

/// What a task is doing. A state carries only the data that is legal in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for its time, for a worker, or for both. Shown as New, or Error after an error of this round.
    Waiting {
        /// After a cancel while running and a retry: who may still be running it.
        hold: Option<Hold>,
    },
    /// A worker has it.
    Executing(Execution),
    /// Done, the callback is owed.
    Completed,
    /// Waits for a person.
    Pending,
    /// Ended, with one of the finished statuses.
    Finished {
        /// Success, Failure, ManuallyProcessed or Cancelled.
        status: Status,
        /// After a cancel while running: who may still be running it.
        hold: Option<Hold>,
    },
}

/// A cancelled execution whose worker may not know it yet. The task is not handed out again before the time, unless
/// that worker speaks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The cancelled execution.
    pub exec_id: ExecId,
    /// When its lease ends.
    pub until: Time,
}

/// One execution of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its id: the fence.
    pub exec_id: ExecId,
    /// When it was claimed.
    pub started_at: Time,
    /// The hard end of this attempt, never extended.
    pub deadline: Option<Time>,
    /// How its worker shows that it is there.
    pub liveness: Liveness,
}

/// How a worker shows that it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The worker calls in at least every so often; any of its calls counts.
    Heartbeat {
        /// The interval it promised, in milliseconds.
        every_ms: i64,
        /// Whether the worker has named this execution since the claim: then it surely got the claim's answer.
        named: bool,
    },
    /// The worker promised nothing: the lease ends unless the task itself is renewed.
    Lease {
        /// When it ends.
        until: Time,
    },
}

/// A task as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// What it is doing.
    pub state: State,
    /// When it is due; while it executes, the time it was due.
    pub due: Time,
    /// After this it is not started any more.
    pub expire_at: Option<Time>,
    /// Which round it is in: 1, and one more with each retry by a person.
    pub round: u32,
    /// Executions started in this round, less those given back.
    pub attempts: u32,
    /// Those that ended by error, time limit or lost lease.
    pub error_count: u32,
}

/// What can happen to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker asks for it.
    Claim {
        /// The id of the new execution.
        exec_id: ExecId,
        /// The worker's heartbeat in milliseconds, if it promised one.
        heartbeat_ms: Option<i64>,
    },
    /// Its worker names it, and is there.
    Renew {
        /// The execution that speaks.
        exec_id: ExecId,
    },
    /// Its worker says how it went.
    Report {
        /// The execution that speaks.
        exec_id: ExecId,
        /// How it went.
        outcome: Outcome,
        /// For [`Outcome::Retry`]: after how many milliseconds.
        retry_after_ms: Option<i64>,
    },
    /// Somebody looks at the clocks.
    Clock {
        /// When its worker last called, as far as it is known.
        worker_seen_at: Option<Time>,
    },
    /// A person or program calls it off. `worker_seen_at` as for [`Event::Clock`].
    Cancel {
        /// When its worker last called, as far as it is known.
        worker_seen_at: Option<Time>,
    },
    /// A person or program wants it run again from the start.
    Retry,
    /// A person or program wants it run at once.
    RunNow,
    /// A person has dealt with it.
    Resolve,
}

/// A decision to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The task afterwards.
    pub life: Life,
    /// How the execution that was running ended, if one did: a line for the log of attempts.
    pub ended: Option<Outcome>,
    /// Why the task failed, where the task itself gives no error: `expired`, or that its attempts are used up.
    pub reason: Option<&'static str>,
}

/// Why nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The task already is what was asked for.
    Unchanged,
    /// The execution that speaks is not the current one.
    Superseded,
    /// The execution that speaks was cancelled.
    Cancelled,
    /// The task's status does not allow it.
    Conflict,
    /// It is not time yet.
    TooEarly,
}

/// The error text of a task that expired.
pub const EXPIRED: &str = "expired";
/// The error text of a task that used up its attempts without an error at the last: it asked to be tried again, or its maximum was
/// lowered to what it had already used.
pub const USED_UP: &str = "attempts used up";

/// Decides what an event does to a task at a time, by its rules.
pub fn decide(life: &Life, rules: &Rules, event: &Event, now: Time) -> Result<Step, Refusal> {
    match event {
        Event::Claim { exec_id, heartbeat_ms } => claim(life, rules, *exec_id, *heartbeat_ms, now),
        Event::Renew { exec_id } => renew(life, *exec_id, now),
        Event::Report { exec_id, outcome, retry_after_ms } => {
            current(life, *exec_id)?;
            Ok(end(life, rules, *outcome, *retry_after_ms, now))
        }
        Event::Clock { worker_seen_at } => clock(life, rules, *worker_seen_at, now),
        Event::Cancel { worker_seen_at } => cancel(life, *worker_seen_at, now),
        Event::Retry => retry(life, now),
        Event::RunNow => run_now(life, now),
        Event::Resolve => resolve(life),
    }
}

impl Life {
    /// A task that was just submitted.
    #[must_use]
    pub fn new(due: Time, expire_at: Option<Time>) -> Life {
        Life { state: State::Waiting { hold: None }, due, expire_at, round: 1, attempts: 0, error_count: 0 }
    }

    /// The status that people see.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.state {
            State::Waiting { .. } if self.error_count > 0 => Status::Error,
            State::Waiting { .. } => Status::New,
            State::Executing(_) => Status::Executing,
            State::Completed => Status::Completed,
            State::Pending => Status::Pending,
            State::Finished { status, .. } => *status,
        }
    }

    /// The task after a cancelled execution spoke up: it knows now that it was cancelled, so that nothing has to be held
    /// back for it any longer. `None` where no hold names that execution.
    #[must_use]
    pub fn without_hold(&self, exec_id: ExecId, now: Time) -> Option<Life> {
        let mut life = self.clone();
        match &mut life.state {
            State::Waiting { hold } if hold.is_some_and(|hold| hold.exec_id == exec_id) => {
                let until = hold.take().map(|hold| hold.until);
                // A later time was set by a person since, and stays.
                if until == Some(life.due) {
                    life.due = now.min(life.due);
                }
                Some(life)
            }
            State::Finished { hold, .. } if hold.is_some_and(|hold| hold.exec_id == exec_id) => {
                *hold = None;
                Some(life)
            }
            _ => None,
        }
    }

    /// When the clocks must be looked at next: of a waiting task its expiry, of an execution the first of its two
    /// clocks. `None` is never.
    #[must_use]
    pub fn check_at(&self, worker_seen_at: Option<Time>) -> Option<Time> {
        match &self.state {
            State::Waiting { .. } => self.expire_at,
            State::Executing(execution) => Some(execution.check_at(worker_seen_at)),
            State::Completed | State::Pending | State::Finished { .. } => None,
        }
    }
}

impl Execution {
    /// When its worker counts as gone, as far as is known.
    #[must_use]
    pub fn lease_until(&self, worker_seen_at: Option<Time>) -> Time {
        match self.liveness {
            Liveness::Heartbeat { every_ms, named } => {
                let seen_at = worker_seen_at.filter(|_| named).unwrap_or(self.started_at);
                seen_at.max(self.started_at).plus_ms(every_ms.saturating_mul(limits::HEARTBEATS_MISSED_MAX))
            }
            Liveness::Lease { until } => until,
        }
    }

    /// When the first of its two clocks runs out.
    fn check_at(&self, worker_seen_at: Option<Time>) -> Time {
        let lease_until = self.lease_until(worker_seen_at);
        self.deadline.map_or(lease_until, |deadline| deadline.min(lease_until))
    }
}

fn claim(life: &Life, rules: &Rules, exec_id: ExecId, heartbeat: Option<i64>, now: Time) -> Result<Step, Refusal> {
    let State::Waiting { hold } = &life.state else { return Err(Refusal::Conflict) };
    if expired(life, now) {
        return Ok(expire(life, *hold, now));
    }
    if life.due > now || hold.is_some_and(|hold| hold.until > now) {
        return Err(Refusal::TooEarly);
    }
    if rules.used_up(life.attempts) {
        return Ok(give_up(life, rules, Some(USED_UP)));
    }
    let liveness = match heartbeat {
        Some(every_ms) => Liveness::Heartbeat { every_ms, named: false },
        None => Liveness::Lease { until: now.plus_ms(rules.timeout_ms.unwrap_or(limits::LEASE_MS_DEFAULT)) },
    };
    let deadline = rules.timeout_ms.map(|ms| now.plus_ms(ms));
    let execution = Execution { exec_id, started_at: now, deadline, liveness };
    let life = Life { state: State::Executing(execution), attempts: life.attempts + 1, ..life.clone() };
    Ok(step(life))
}

fn renew(life: &Life, exec_id: ExecId, now: Time) -> Result<Step, Refusal> {
    let mut execution = current(life, exec_id)?;
    match &mut execution.liveness {
        Liveness::Heartbeat { named, .. } => *named = true,
        // As long as when it started: an edit since is for the next attempt.
        Liveness::Lease { until } => {
            let limit_ms = execution.deadline.map(|deadline| deadline.ms_since(execution.started_at));
            *until = now.plus_ms(limit_ms.unwrap_or(limits::LEASE_MS_DEFAULT));
        }
    }
    Ok(step(Life { state: State::Executing(execution), ..life.clone() }))
}

/// The current execution, if it is the one that speaks.
fn current(life: &Life, exec_id: ExecId) -> Result<Execution, Refusal> {
    match &life.state {
        State::Executing(execution) if execution.exec_id == exec_id => Ok(*execution),
        State::Waiting { hold: Some(hold) } | State::Finished { hold: Some(hold), .. } if hold.exec_id == exec_id => {
            Err(Refusal::Cancelled)
        }
        _ => Err(Refusal::Superseded),
    }
}

fn clock(life: &Life, rules: &Rules, worker_seen_at: Option<Time>, now: Time) -> Result<Step, Refusal> {
    match &life.state {
        State::Waiting { hold } if expired(life, now) => Ok(expire(life, *hold, now)),
        State::Executing(execution) => {
            if execution.deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(end(life, rules, Outcome::Timeout, None, now));
            }
            if execution.lease_until(worker_seen_at) > now {
                return Err(Refusal::TooEarly);
            }
            let outcome = match execution.liveness {
                Liveness::Heartbeat { every_ms, named: false } if alive(worker_seen_at, every_ms, now) => {
                    // A worker that lives calls with every heartbeat. One that does not may have died right after the claim, and
                    // soon shows which: it calls, or its silence is as long as it may be.
                    let beaten =
                        execution.started_at.plus_ms(every_ms.saturating_mul(limits::HEARTBEATS_MISSED_MAX - 1));
                    if worker_seen_at.is_none_or(|seen| seen < beaten) {
                        return Err(Refusal::TooEarly);
                    }
                    // Its worker is alive and has never named it: the claim's answer was lost on the way.
                    Outcome::Release
                }
                _ => Outcome::Lost,
            };
            Ok(end(life, rules, outcome, None, now))
        }
        _ => Err(Refusal::TooEarly),
    }
}

fn alive(worker_seen_at: Option<Time>, every_ms: i64, now: Time) -> bool {
    worker_seen_at.is_some_and(|seen| now.ms_since(seen) < every_ms.saturating_mul(limits::HEARTBEATS_MISSED_MAX))
}

/// Ends the running execution with an outcome.
fn end(life: &Life, rules: &Rules, outcome: Outcome, retry_after_ms: Option<i64>, now: Time) -> Step {
    let mut life = life.clone();
    life.state = State::Waiting { hold: None };
    if matches!(outcome, Outcome::Error | Outcome::Timeout | Outcome::Lost) {
        life.error_count += 1;
    }
    let step = match outcome {
        Outcome::Completed if rules.callback => step(Life { state: State::Completed, ..life }),
        Outcome::Success | Outcome::Completed => step(finish(&life, Status::Success)),
        Outcome::Cancelled => step(finish(&life, Status::Cancelled)),
        Outcome::Failure => fail(&life, None),
        Outcome::Release => step(Life { attempts: life.attempts.saturating_sub(1), ..life }),
        Outcome::Error | Outcome::Timeout | Outcome::Retry | Outcome::Lost if rules.used_up(life.attempts) => {
            give_up(&life, rules, (outcome == Outcome::Retry).then_some(USED_UP))
        }
        Outcome::Lost => step(Life { due: now, ..life }),
        Outcome::Error | Outcome::Timeout => {
            let due = now.plus_ms(rules.retry.delay_ms(life.error_count));
            step(Life { due, ..life })
        }
        Outcome::Retry => {
            let due = now.plus_ms(retry_after_ms.unwrap_or_else(|| rules.retry.delay_ms(1)));
            step(Life { due, ..life })
        }
    };
    Step { ended: Some(outcome), ..step }
}

fn cancel(life: &Life, worker_seen_at: Option<Time>, now: Time) -> Result<Step, Refusal> {
    let (hold, ended) = match &life.state {
        State::Waiting { hold } => (*hold, None),
        State::Pending => (None, None),
        State::Executing(execution) => {
            let until = execution.check_at(worker_seen_at);
            (Some(Hold { exec_id: execution.exec_id, until }), Some(Outcome::Cancelled))
        }
        State::Finished { status: Status::Cancelled, .. } => return Err(Refusal::Unchanged),
        State::Completed | State::Finished { .. } => return Err(Refusal::Conflict),
    };
    let hold = hold.filter(|hold| hold.until > now);
    let life = Life { state: State::Finished { status: Status::Cancelled, hold }, ..life.clone() };
    Ok(Step { ended, ..step(life) })
}

fn retry(life: &Life, now: Time) -> Result<Step, Refusal> {
    let hold = match &life.state {
        State::Pending => None,
        State::Finished { status: Status::Failure | Status::Cancelled, hold } => *hold,
        State::Waiting { .. } if life.status() == Status::New => return Err(Refusal::Unchanged),
        _ => return Err(Refusal::Conflict),
    };
    let hold = hold.filter(|hold| hold.until > now);
    Ok(step(Life {
        state: State::Waiting { hold },
        due: hold.map_or(now, |hold| hold.until),
        expire_at: life.expire_at.filter(|expire_at| *expire_at > now),
        round: life.round + 1,
        attempts: 0,
        error_count: 0,
    }))
}

fn run_now(life: &Life, now: Time) -> Result<Step, Refusal> {
    let State::Waiting { hold } = &life.state else { return Err(Refusal::Conflict) };
    let due = hold.map_or(now, |hold| hold.until.max(now));
    if life.due <= due {
        return Err(Refusal::Unchanged);
    }
    Ok(step(Life { due, ..life.clone() }))
}

fn resolve(life: &Life) -> Result<Step, Refusal> {
    match &life.state {
        State::Pending | State::Finished { status: Status::Failure, .. } => {
            Ok(step(finish(life, Status::ManuallyProcessed)))
        }
        State::Finished { status: Status::ManuallyProcessed, .. } => Err(Refusal::Unchanged),
        _ => Err(Refusal::Conflict),
    }
}

fn expired(life: &Life, now: Time) -> bool {
    life.expire_at.is_some_and(|expire_at| expire_at <= now)
}

/// The end of a task whose attempts are used up.
fn give_up(life: &Life, rules: &Rules, reason: Option<&'static str>) -> Step {
    if rules.need_manual {
        Step { reason, ..step(Life { state: State::Pending, ..life.clone() }) }
    } else {
        fail(life, reason)
    }
}

/// The end of a task whose time is over. Somebody may still be running it, who was cancelled before.
fn expire(life: &Life, hold: Option<Hold>, now: Time) -> Step {
    let hold = hold.filter(|hold| hold.until > now);
    let life = Life { state: State::Finished { status: Status::Failure, hold }, ..life.clone() };
    Step { reason: Some(EXPIRED), ..step(life) }
}

fn fail(life: &Life, reason: Option<&'static str>) -> Step {
    Step { reason, ..step(finish(life, Status::Failure)) }
}

fn finish(life: &Life, status: Status) -> Life {
    Life { state: State::Finished { status, hold: None }, ..life.clone() }
}

fn step(life: Life) -> Step {
    Step { life, ended: None, reason: None }
}
