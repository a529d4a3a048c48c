//! The checker. It reads the history and the final state, and holds them against the promises, each law by itself.

pub(crate) mod firings;
mod laws;
#[cfg(test)]
mod tests;

use crate::history::{Fact, Line};
use std::collections::BTreeMap;
use std::time::Duration;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    /// Nothing acknowledged is lost.
    SubmitKept,
    /// No task has two live executions at a time.
    OneExecution,
    /// No superseded result took effect.
    FencedOff,
    /// No accepted result is lost or undone.
    ResultKept,
    /// No acknowledged action is lost.
    ActionKept,
    /// There are no more attempts than the maximum, and each is recorded.
    AttemptsBounded,
    /// Every task has ended or waits visibly.
    NoneStuck,
    /// After the faults the backlog drains in time, without anybody's help.
    Drains,
    /// A unique key is never live twice.
    UniqueOnce,
    /// Every due time fires once, and none is missing beyond its policy.
    FiresOnce,
    /// Tenants are never mixed.
    TenantsApart,
    /// No task is in two places at once, or in none.
    InOnePlace,
}

pub(crate) const LAWS: [Law; 12] = [
    Law::SubmitKept,
    Law::OneExecution,
    Law::FencedOff,
    Law::ResultKept,
    Law::ActionKept,
    Law::AttemptsBounded,
    Law::NoneStuck,
    Law::Drains,
    Law::UniqueOnce,
    Law::FiresOnce,
    Law::TenantsApart,
    Law::InOnePlace,
];

impl Law {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Law::SubmitKept => "nothing acknowledged is lost",
            Law::OneExecution => "no task has two live executions at a time",
            Law::FencedOff => "no superseded result took effect",
            Law::ResultKept => "no accepted result is lost or undone",
            Law::ActionKept => "no acknowledged action is lost",
            Law::AttemptsBounded => "attempts stay within the maximum, and each is recorded",
            Law::NoneStuck => "every task has ended or waits visibly",
            Law::Drains => "the backlog drains in time after the faults",
            Law::UniqueOnce => "a unique key is never live twice",
            Law::FiresOnce => "every due time fires once, none is missing beyond its policy",
            Law::TenantsApart => "tenants are never mixed",
            Law::InOnePlace => "no task is in two places at once, or in none",
        }
    }
}

/// A law that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) law: Law,
    pub(crate) what: String,
}

/// A task as the database has it in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Final {
    pub(crate) id: i64,
    pub(crate) tenant: String,
    pub(crate) key: Option<String>,
    /// Its status as a word.
    pub(crate) status: String,
    /// The execution that its result names.
    pub(crate) result_of: Option<String>,
    pub(crate) finished_at: Option<i64>,
    pub(crate) attempts: Vec<FinalAttempt>,
}

/// One attempt as the database has it in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinalAttempt {
    pub(crate) round: u32,
    pub(crate) exec: String,
    pub(crate) outcome: Option<String>,
    pub(crate) started_at: i64,
    pub(crate) finished_at: Option<i64>,
}

/// Says that the backlog did not drain.
pub(crate) fn drains(drained: Option<Duration>, within: Duration) -> Option<Violation> {
    let what = format!("something was still to be done after {} s", within.as_secs());
    drained.is_none_or(|drained| drained > within).then_some(Violation { law: Law::Drains, what })
}

/// Says how many tasks are in two places at once, or in none.
pub(crate) fn in_one_place(contradictions: u64) -> Option<Violation> {
    let what = format!("{contradictions} tasks are not in one place");
    (contradictions > 0).then_some(Violation { law: Law::InOnePlace, what })
}

/// Holds a history against what came of it.
pub(crate) fn check(lines: &[Line], tasks: &[Final]) -> Vec<Violation> {
    laws::check(lines, tasks)
}

/// On SQLite a commit is answered by the file system, and there is none that is not.
pub(crate) const OUTCOME_UNKNOWN: &str = "a commit was not answered, and its caller was told so";

/// What protects the promises must have been put to use, or a run proves less than it should: how often each was.
pub(crate) fn guards(lines: &[Line], tasks: &[Final], misfires: usize) -> BTreeMap<&'static str, usize> {
    let facts = |wanted: fn(&Fact) -> bool| lines.iter().filter(|line| wanted(&line.fact)).count();
    let attempts = |outcome: &str| {
        let all = tasks.iter().flat_map(|task| &task.attempts);
        all.filter(|attempt| attempt.outcome.as_deref() == Some(outcome)).count()
    };
    let statuses = |status: &str| tasks.iter().filter(|task| task.status == status).count();
    BTreeMap::from([
        (
            "a stale report was told superseded",
            facts(|fact| matches!(fact, Fact::Reported { state, .. } if state == "superseded")),
        ),
        (
            "a renew was told superseded",
            facts(|fact| match fact {
                Fact::Renewed { items, .. } => items.iter().any(|(_, _, state)| state == "superseded"),
                _ => false,
            }),
        ),
        ("a repeated report was accepted again", laws::repeated(lines)),
        ("a unique key was live already", facts(|fact| matches!(fact, Fact::Submitted { created: false, .. }))),
        ("a call was not answered", facts(|fact| matches!(fact, Fact::Unanswered { .. }))),
        ("a submit was repeated, and made nothing", facts(|fact| matches!(fact, Fact::Repeated { .. }))),
        (
            "another tenant's task was refused",
            facts(|fact| matches!(fact, Fact::Trespassed { status, .. } if laws::is_refused(*status))),
        ),
        (
            OUTCOME_UNKNOWN,
            facts(|fact| matches!(fact, Fact::Unanswered { code: Some(code), .. } if code == "outcome_unknown")),
        ),
        ("a due time was missed", misfires),
        ("a lease ran out", attempts("lost")),
        ("a time limit ran out", attempts("timeout")),
        ("an execution was given back", attempts("release")),
        ("a cancel was acknowledged", facts(|fact| matches!(fact, Fact::Acted { action, .. } if action == "cancel"))),
        ("a running task was cancelled", attempts("cancelled")),
        ("a task used up its attempts", statuses("Failure")),
        ("a task waits for a person", statuses("Pending")),
    ])
}
