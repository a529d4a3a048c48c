//! The verbs as they run: one transaction each, timed, and what follows from their commit.

use super::finish::Succeeded;
use super::watermark::LaneDue;
use super::workers::{Calls, write_seen};
use super::{Memory, broken, claim, finish, renew, submit_on};
use crate::faults::{self, Point};
use crate::options::Dialect;
use crate::session::{Attempted, Database, Inserted, News, Repeat, Session, Succeed, Work};
use crate::task::Submitted;
use crate::worker::{ClaimRequest, ClaimedTask, Heartbeat, Renewal, Renewed, Report, Reported};
use crate::{Result, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use taskwheel_model::{NewTask, Outcome, Ran, Status, TaskId, Time};

pub(super) struct Core<D> {
    pub(super) database: D,
    pub(super) dialect: Dialect,
    pub(super) keep_success: bool,
    pub(super) memory: Arc<Memory>,
}

impl<D: Database> Core<D> {
    /// Reads with some input.
    pub(super) async fn look<T, I, F>(&self, verb: &'static str, input: I, work: F) -> Result<T>
    where
        T: Send + 'static,
        I: Send + Sync + 'static,
        F: for<'s> Fn(&'s mut dyn Session, Arc<I>) -> Work<'s, T> + Send + Sync + 'static,
    {
        let input = Arc::new(input);
        self.timed(verb, self.database.read(move |session| work(session, input.clone()))).await
    }

    /// Changes something with some input.
    pub(super) async fn change<T, I, F>(&self, verb: &'static str, repeat: Repeat, input: I, work: F) -> Result<T>
    where
        T: Send + 'static,
        I: Send + Sync + 'static,
        F: for<'s> Fn(&'s mut dyn Session, Arc<I>) -> Work<'s, T> + Send + Sync + 'static,
    {
        let input = Arc::new(input);
        self.timed(verb, self.database.transact(repeat, move |session| work(session, input.clone()))).await
    }

    async fn timed<T>(&self, verb: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let answer = work.await;
        // What a caller got wrong is no error of the store.
        let is_ok = matches!(answer, Ok(_) | Err(StoreError::Invalid { .. }));
        self.memory.meter.verb(verb, began.elapsed(), is_ok);
        answer
    }

    /// Submits tasks; with each answer comes the time at which its task was created.
    pub(super) async fn submit(&self, tasks: Vec<Arc<NewTask>>) -> Result<Vec<(Submitted, Time)>> {
        let tasks = Arc::new(broken::tasks(tasks));
        let (memory, input) = (self.memory.clone(), tasks.clone());
        let size = Inserted::of(&tasks);
        // Unique keys do not make a second try harmless: the first one's task may have ended already.
        let work = self.database.insert(Repeat::Harmful, size, move |session| {
            let (memory, tasks) = (memory.clone(), input.clone());
            Box::pin(async move {
                let types = memory.types.get(session).await?;
                let (submitted, now) = (submit_on(session, &tasks, &types).await?, session.now());
                let submitted: Vec<_> = submitted.into_iter().map(|submitted| (submitted, now)).collect();
                Ok((submitted, LaneDue::of(&tasks, now)))
            })
        });
        let submitted = self.made_due(self.timed("submit", work)).await?;
        let created = tasks.iter().zip(&submitted).filter(|(_, (submitted, _))| submitted.created);
        self.memory.meter.submitted(created.map(|(task, _)| task.task_type.as_str()));
        Ok(submitted)
    }

    pub(super) async fn claim(&self, requests: Vec<ClaimRequest>) -> Result<Vec<Vec<ClaimedTask>>> {
        let input = (self.memory.clone(), Claims::new(requests));
        let work = self.change("claim", Repeat::Harmful, input, |session, input| {
            Box::pin(async move { input.1.answer(session, &input.0).await })
        });
        Ok(self.claimed(self.made_due(self.counted(self.remembered(work))).await?))
    }

    pub(super) async fn is_due(&self, request: ClaimRequest) -> Result<bool> {
        let input = Arc::new((self.memory.clone(), request));
        let look = self.database.lone(move |session| {
            let input = input.clone();
            Box::pin(async move { claim::is_due(session, &input.0, &input.1).await })
        });
        self.timed("is_due", look).await
    }

    /// Counts what was claimed, once that is committed.
    pub(super) fn claimed(&self, claimed: Vec<Vec<ClaimedTask>>) -> Vec<Vec<ClaimedTask>> {
        if claimed.iter().any(|tasks| !tasks.is_empty()) {
            faults::at(Point::AfterClaim);
        }
        self.memory.meter.claimed(claimed.iter().flatten());
        claimed
    }

    pub(super) async fn renew(&self, calls: Vec<(Vec<Heartbeat>, Vec<Renewal>)>) -> Result<Vec<Vec<Renewed>>> {
        let work = self.change("renew", Repeat::Harmless, (self.memory.clone(), calls), |session, input| {
            Box::pin(async move {
                let (memory, calls) = &*input;
                let workers: Vec<_> = calls.iter().flat_map(|(workers, _)| workers.iter().cloned()).collect();
                let items: Vec<_> = calls.iter().flat_map(|(_, items)| items.iter()).collect();
                let ((answers, dues), written) = renew::renew(session, memory, &workers, &items).await?;
                let mut answers = answers.into_iter();
                let answers = calls.iter().map(|(_, items)| answers.by_ref().take(items.len()).collect()).collect();
                Ok(((answers, dues), written))
            })
        });
        self.made_due(self.remembered(work)).await
    }

    pub(super) async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Reported>> {
        // Where a task is not kept, a repeated report cannot be told from one of another's: whether all of a call was done must be sure.
        let at_once = D::SUCCEEDS_AT_ONCE && self.keep_success && broken::is_sound();
        let of_runs = self.memory.ends_runs.load(Ordering::Relaxed);
        let reported = if at_once && !of_runs && finish::are_of_success(&reports) {
            self.succeed(Arc::new(reports)).await
        } else {
            self.end(reports).await
        };
        faults::at(Point::BeforeAnswer);
        reported
    }

    /// Ends what was successful by one statement, and in a transaction what that leaves.
    async fn succeed(&self, reports: Arc<Vec<Report>>) -> Result<Vec<Reported>> {
        let (input, how) = (reports.clone(), Succeed { keep: self.keep_success, leaves_runs: true });
        let work = self.database.lone(move |session| {
            let reports = input.clone();
            Box::pin(async move { Ok((finish::succeed(session, &reports, how).await?, session.now())) })
        });
        let (Succeeded { executions, callers, ran, .. }, now) = self.timed("report", work).await?;
        self.memory.ledger.add(&ran);
        self.memory.meter.ran(&ran);
        if executions.is_empty() {
            self.memory.ends_runs.store(true, Ordering::Relaxed);
        }
        self.write_seen(self.memory.workers.stale(callers, now)).await;
        let has_ended = |report: &Report| executions.contains(&(report.id, report.exec_id));
        let rest: Vec<_> = reports.iter().filter(|report| !has_ended(report)).cloned().collect();
        let mut others = if rest.is_empty() { Vec::new() } else { self.end(rest).await? }.into_iter();
        let answer = |report| if has_ended(report) { Some(Reported::Accepted(Status::Success)) } else { others.next() };
        Ok(reports.iter().filter_map(answer).collect())
    }

    /// Notes that the clocks are looked at, as they were a moment ago.
    pub(super) async fn note_watch(&self) -> Result<()> {
        let note = self.database.lone(|session| Box::pin(async move { session.note_watch().await }));
        self.timed("watch", note).await
    }

    /// Writes down that workers called. Where that fails, their next calls write it.
    async fn write_seen(&self, worker_ids: Vec<String>) {
        if worker_ids.is_empty() {
            return;
        }
        let work = self.database.lone(move |session| {
            let worker_ids = worker_ids.clone();
            Box::pin(async move { write_seen(session, worker_ids).await })
        });
        if let Ok(calls) = work.await {
            self.memory.workers.remember(calls);
        }
    }

    async fn end(&self, reports: Vec<Report>) -> Result<Vec<Reported>> {
        // A success that is not kept leaves nothing by which its report could be known again.
        let leaves_nothing = !self.keep_success && reports.iter().any(|report| report.outcome == Outcome::Success);
        let repeat = if leaves_nothing { Repeat::Harmful } else { Repeat::Harmless };
        let input = (self.memory.clone(), reports, self.keep_success);
        let work = self.change("report", repeat, input, |session, input| {
            Box::pin(async move {
                let reports = broken::reports(session, &input.1).await?;
                finish::finish(session, &input.0, &reports, input.2).await
            })
        });
        self.made_due(self.counted(self.remembered(work))).await
    }

    /// Remembers what a verb wrote of workers' calls, once it is committed.
    pub(super) async fn remembered<T>(&self, work: impl Future<Output = Result<(T, Calls)>>) -> Result<T> {
        let (answer, calls) = work.await.inspect_err(|_| self.memory.watermarks.forget())?;
        self.memory.workers.remember(calls);
        Ok(answer)
    }

    /// Counts the executions that a verb ended, once it is committed.
    pub(super) async fn counted<T>(
        &self,
        work: impl Future<Output = Result<(T, Vec<LaneDue>, Vec<Ran>)>>,
    ) -> Result<(T, Vec<LaneDue>)> {
        let (answer, dues, ran) = work.await?;
        self.memory.ledger.add(&ran);
        self.memory.meter.ran(&ran);
        Ok((answer, dues))
    }

    /// Lets claims see what a verb made due, once it is committed, here and at other nodes.
    pub(super) async fn made_due<T>(&self, work: impl Future<Output = Result<(T, Vec<LaneDue>)>>) -> Result<T> {
        let (answer, dues) = work.await?;
        if self.memory.timers_moved.swap(false, Ordering::AcqRel) {
            self.memory.timers.notify_one();
        }
        self.are_due(&dues);
        Ok(answer)
    }

    pub(super) fn are_due(&self, dues: &[LaneDue]) {
        self.memory.launched.add(dues);
        self.memory.watermarks.lower(dues);
        self.database.news().tell(&mut dues.iter().map(|due| (due.task_type(), due.due)));
    }
}

/// Claims that share a transaction.
pub(super) struct Claims {
    requests: Vec<ClaimRequest>,
    begun: AtomicBool,
}

impl Claims {
    pub(super) fn new(requests: Vec<ClaimRequest>) -> Claims {
        Claims { requests: broken::requests(requests), begun: AtomicBool::new(false) }
    }

    /// Answers them.
    pub(super) async fn answer(&self, session: &mut dyn Session, memory: &Memory) -> Attempted<(Answers, Calls)> {
        self.begin(memory);
        claim_all(session, memory, &self.requests).await
    }

    /// Answers them in a transaction that has begun tasks, of whose lanes are these: what they take of those is for nobody else to be
    /// woken for. Schedules are locked then, so that no worker may be: one whose call is to be written down gets nothing.
    pub(super) async fn take(
        &self,
        session: &mut dyn Session,
        memory: &Memory,
        begun: &[TaskId],
        (dues, ran): (&mut Vec<LaneDue>, &mut Vec<Ran>),
    ) -> Attempted<Vec<Vec<ClaimedTask>>> {
        self.begin(memory);
        let now = session.now();
        let mut claimed = Vec::with_capacity(self.requests.len());
        for request in &self.requests {
            let is_known = memory.workers.knows(request, now);
            let tasks = if is_known { claim::claim(session, memory, request, (dues, ran)).await? } else { Vec::new() };
            for task in tasks.iter().filter(|task| begun.contains(&task.id)) {
                if let Some(due) = dues.iter_mut().find(|due| due.launched > 0 && due.task_type() == task.task_type) {
                    due.launched -= 1;
                }
            }
            claimed.push(tasks);
        }
        Ok(claimed)
    }

    /// What an earlier try learned was rolled back with it.
    fn begin(&self, memory: &Memory) {
        if self.begun.swap(true, Ordering::Relaxed) {
            memory.watermarks.forget();
        }
    }
}

/// What each claim gets, what became due by the end of tasks that may not start any more, and those themselves.
type Answers = (Vec<Vec<ClaimedTask>>, Vec<LaneDue>, Vec<Ran>);

/// Answers claims, one after the other.
async fn claim_all(
    session: &mut dyn Session,
    memory: &Memory,
    requests: &[ClaimRequest],
) -> Attempted<(Answers, Calls)> {
    // In the order of their ids, as every verb locks workers.
    let mut callers: Vec<_> = requests.iter().collect();
    callers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
    let mut calls = Calls::default();
    for request in callers {
        memory.workers.register(session, request, &mut calls).await?;
    }
    let (mut answers, mut dues, mut ran) = (Vec::<Vec<_>>::with_capacity(requests.len()), Vec::new(), Vec::new());
    for (place, request) in requests.iter().enumerate() {
        // Of claims for the same tasks, the first that gets less than it wants has got the last.
        let exhausted = |earlier: usize| {
            answers[earlier].len() < requests[earlier].max && request.wants_the_same(&requests[earlier])
        };
        if (0..place).any(exhausted) {
            answers.push(Vec::new());
        } else {
            answers.push(claim::claim(session, memory, request, (&mut dues, &mut ran)).await?);
        }
    }
    Ok(((answers, dues, ran), calls))
}
