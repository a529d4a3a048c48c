//! Rules that a build for the fault harness can be told to break, one at a time, so that the harness's checker is seen to notice. In
//! any other build each of these hands on what it was given.

use crate::people::{Acted, Action};
use crate::session::{Attempted, Session};
use crate::task::TaskDetail;
use crate::worker::{ClaimRequest, Report};
use std::borrow::Cow;
use std::sync::Arc;
use taskwheel_model::NewTask;

#[cfg(not(feature = "faults"))]
mod rules {
    use super::{Acted, Action, Arc, Attempted, ClaimRequest, Cow, NewTask, Report, Session, TaskDetail};

    #[inline(always)]
    pub(in crate::verb) fn is_sound() -> bool {
        true
    }

    #[inline(always)]
    pub(in crate::verb) fn tasks(tasks: Vec<Arc<NewTask>>) -> Vec<Arc<NewTask>> {
        tasks
    }

    #[inline(always)]
    pub(in crate::verb) fn requests(requests: Vec<ClaimRequest>) -> Vec<ClaimRequest> {
        requests
    }

    #[inline(always)]
    pub(in crate::verb) async fn reports<'r>(
        _: &mut dyn Session,
        reports: &'r [Report],
    ) -> Attempted<Cow<'r, [Report]>> {
        Ok(Cow::Borrowed(reports))
    }

    #[inline(always)]
    pub(in crate::verb) fn firings<T>(_: &mut Vec<T>, _: impl Fn(&T) -> T) {}

    #[inline(always)]
    pub(in crate::verb) fn timer<T>(_: i64, rhythm: Option<T>) -> Option<T> {
        rhythm
    }

    #[inline(always)]
    pub(in crate::verb) fn action(_: &Action, _: Option<&str>, _: Option<&TaskDetail>) -> Option<Acted> {
        None
    }
}

#[cfg(feature = "faults")]
mod rules {
    use super::{Acted, Action, Arc, Attempted, ClaimRequest, Cow, NewTask, Report, Session, TaskDetail};
    use crate::faults::{Rule, is_broken, now_and_then};
    use crate::plain::plain;
    use crate::verb::renew::load;
    use taskwheel_model::{Outcome, State, Status};

    /// Whether reports are taken as they should be.
    pub(in crate::verb) fn is_sound() -> bool {
        ![Rule::Commit, Rule::Result, Rule::Fence, Rule::Place].into_iter().any(is_broken)
    }

    /// Keys that are told apart, and no maximum of attempts.
    pub(in crate::verb) fn tasks(mut tasks: Vec<Arc<NewTask>>) -> Vec<Arc<NewTask>> {
        for task in tasks.iter_mut().map(Arc::make_mut) {
            if is_broken(Rule::Unique) {
                task.unique_key = task.unique_key.take().map(|key| format!("{key} {}", uuid::Uuid::new_v4()));
            }
            if is_broken(Rule::Attempts) {
                task.max_attempts = Some(-1);
            }
        }
        tasks
    }

    /// Any tenant's tasks, a lease that ends before its time, and one that never does.
    pub(in crate::verb) fn requests(mut requests: Vec<ClaimRequest>) -> Vec<ClaimRequest> {
        for request in &mut requests {
            if is_broken(Rule::Tenant) {
                request.tenant = None;
            }
            if is_broken(Rule::Lease) {
                request.heartbeat_ms = Some(50);
            }
            if is_broken(Rule::Rescue) {
                request.heartbeat_ms = Some(3_600_000);
            }
        }
        requests
    }

    const MISLAY: &str = "DELETE FROM task_waiting WHERE id IN (SELECT MIN(id) FROM task_waiting)";

    /// Reports that count for whatever execution there is, and successes that are taken and not kept; and a task that is mislaid.
    pub(in crate::verb) async fn reports<'r>(
        session: &mut dyn Session,
        reports: &'r [Report],
    ) -> Attempted<Cow<'r, [Report]>> {
        let mut reports = reports.to_vec();
        if is_broken(Rule::Fence) {
            let records = load(session, reports.iter().map(|report| report.id)).await?;
            for report in &mut reports {
                if let Some(State::Executing(execution)) = records.get(&report.id).map(|record| record.life().state) {
                    report.exec_id = execution.exec_id;
                }
            }
        }
        if is_broken(Rule::Result) {
            for report in &mut reports {
                if report.outcome == Outcome::Success && now_and_then() {
                    report.outcome = Outcome::Retry;
                }
            }
        }
        if is_broken(Rule::Place) && now_and_then() {
            session.execute(&plain(MISLAY)).await?;
        }
        Ok(Cow::Owned(reports))
    }

    /// Firings that come twice, and some that never come.
    pub(in crate::verb) fn firings<T>(planned: &mut Vec<T>, again: impl Fn(&T) -> T) {
        if is_broken(Rule::Once) {
            planned.extend(planned.iter().map(again).collect::<Vec<_>>());
        }
        if is_broken(Rule::Firing) {
            planned.retain(|_| !now_and_then());
        }
    }

    /// Every third timer counts as one that cannot be read: its cursor stays where it is, and nobody looks at it again.
    pub(in crate::verb) fn timer<T>(id: i64, rhythm: Option<T>) -> Option<T> {
        rhythm.filter(|_| !is_broken(Rule::Timer) || id % 3 != 0)
    }

    /// What is answered to a cancel that is not done, and to a retry of what was cancelled. It is every one: in a short run there are
    /// few.
    pub(in crate::verb) fn action(action: &Action, tenant: Option<&str>, task: Option<&TaskDetail>) -> Option<Acted> {
        let is_own = task.is_some_and(|detail| tenant.is_none_or(|tenant| detail.task.tenant == tenant));
        match action {
            Action::Cancel if is_own && is_broken(Rule::Action) => Some(Acted::Changed(Status::Cancelled)),
            Action::Retry if is_own && is_broken(Rule::Commit) => {
                let is_cancelled = task.is_some_and(|detail| detail.task.status == Status::Cancelled);
                is_cancelled.then_some(Acted::Changed(Status::New))
            }
            _ => None,
        }
    }
}

pub(super) use rules::{action, firings, is_sound, reports, requests, tasks, timer};
