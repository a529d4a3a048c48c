//! Ends: what the end of a task means for the run that it is part of.

use crate::rows::{Change, Place, status};
use crate::session::Ended;
use taskwheel_model::{Outcome, Status, TaskId};

/// How a task of a run stands now: it ended, or lives again.
#[derive(Clone, Debug)]
pub(super) struct StepEnd {
    pub task_id: TaskId,
    pub run_id: i64,
    pub status: Status,
    pub result: Option<String>,
    pub error: Option<String>,
    pub host: Option<String>,
    pub timed_out: bool,
}

/// What executions that ended their task well mean for runs.
pub(super) fn of_well(ended: &[Ended], result: impl Fn(TaskId) -> Option<String>) -> Vec<StepEnd> {
    let end = |one: &Ended| {
        Some(StepEnd {
            task_id: one.id,
            run_id: one.run_id?,
            status: Status::Success,
            result: result(one.id),
            error: None,
            host: one.host.clone(),
            timed_out: false,
        })
    };
    ended.iter().filter_map(end).collect()
}

/// What changes of tasks mean for runs.
pub(super) fn of(changes: &[Change]) -> Vec<StepEnd> {
    changes.iter().filter_map(end).collect()
}

fn end(change: &Change) -> Option<StepEnd> {
    let lived = match &change.before {
        Place::Live(row) => status(row.status) != Status::Pending,
        Place::History(_) => false,
    };
    match (&change.before, change.after.as_ref()?) {
        (Place::History(before), Place::History(after)) if before.status == after.status => None,
        (_, Place::History(after)) => Some(StepEnd {
            task_id: after.id,
            run_id: after.run_id?,
            status: status(after.status),
            result: after.result.clone(),
            error: after.error_info.clone(),
            host: after.host.clone(),
            timed_out: after.outcome == Some(Outcome::Timeout.code()),
        }),
        (before, Place::Live(after)) => {
            let is_parked = status(after.status) == Status::Pending;
            (is_parked == lived).then_some(())?;
            Some(StepEnd {
                task_id: after.id,
                run_id: after.run_id?,
                status: status(after.status),
                result: None,
                error: after.error_info.clone().filter(|_| is_parked),
                host: match before {
                    Place::Live(row) => row.host.clone(),
                    Place::History(row) => row.host.clone(),
                },
                timed_out: change.attempt.as_ref().is_some_and(|line| line.outcome == Outcome::Timeout.code()),
            })
        }
    }
}
