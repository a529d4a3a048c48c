//! The laws about tasks.

use super::{Final, Law, Violation};
use crate::history::{Fact, Line};
use crate::worker::LEASE_MS;
use std::collections::{BTreeMap, HashMap, HashSet};
use taskwheel_model::Rules;

/// What clients call a success, and the database an outcome.
const SUCCESS: &str = "success";
/// What people do to a task.
const CANCEL: &str = "cancel";
const RETRY: &str = "retry";

type Execution<'a> = (i64, &'a str);

pub(super) fn check(lines: &[Line], tasks: &[Final]) -> Vec<Violation> {
    let by_id: HashMap<i64, &Final> = tasks.iter().map(|task| (task.id, task)).collect();
    let mut violations = Vec::new();
    let mut broken = |law: Law, what: String| violations.push(Violation { law, what });
    submits_kept(lines, &by_id, &mut broken);
    submits_once(lines, tasks, &mut broken);
    unique_once(lines, &by_id, &mut broken);
    tenants_apart(lines, tasks, &mut broken);
    results_kept(lines, &by_id, &mut broken);
    actions_kept(lines, &by_id, &mut broken);
    attempts_bounded(lines, tasks, &mut broken);
    one_execution(lines, tasks, &mut broken);
    for task in tasks.iter().filter(|task| !is_at_rest(&task.status)) {
        broken(Law::NoneStuck, format!("task {} is still {}", task.id, task.status));
    }
    violations
}

fn is_at_rest(status: &str) -> bool {
    matches!(status, "Success" | "Failure" | "Cancelled" | "ManuallyProcessed" | "Pending")
}

/// What was submitted, by key.
fn submits(lines: &[Line]) -> HashMap<&str, (&str, Option<&str>, u32)> {
    let submits = lines.iter().filter_map(|line| match &line.fact {
        Fact::Submitting { key, tenant, unique, attempts_max } => {
            Some((key.as_str(), (tenant.as_str(), unique.as_deref(), *attempts_max)))
        }
        _ => None,
    });
    submits.collect()
}

fn submits_kept(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    for line in lines {
        let Fact::Submitted { key, id, created } = &line.fact else { continue };
        match tasks.get(id) {
            None => broken(Law::SubmitKept, format!("task {id} of \"{key}\" was acknowledged and is not there")),
            Some(task) if *created && task.key.as_deref() != Some(key) => {
                broken(Law::SubmitKept, format!("task {id} was acknowledged for \"{key}\" and is {:?}", task.key));
            }
            Some(_) => {}
        }
    }
}

/// Whoever has no idempotency key does not repeat a call, and with one a repetition makes nothing: no key has two tasks.
fn submits_once(lines: &[Line], tasks: &[Final], broken: &mut impl FnMut(Law, String)) {
    let mut made: HashMap<&str, i64> = HashMap::new();
    for (task, key) in tasks.iter().filter_map(|task| task.key.as_deref().map(|key| (task, key))) {
        if let Some(other) = made.insert(key, task.id) {
            broken(Law::SubmitKept, format!("tasks {other} and {} were both made for \"{key}\"", task.id));
        }
    }
    let mut told: HashMap<&str, i64> = HashMap::new();
    for line in lines {
        match &line.fact {
            Fact::Submitted { key, id, .. } => drop(told.insert(key, *id)),
            Fact::Repeated { key, id } if told.get(key.as_str()) != Some(id) => {
                broken(Law::SubmitKept, format!("\"{key}\" was acknowledged, and then again as task {id}"));
            }
            _ => {}
        }
    }
}

/// A task surely lives from when its submit was acknowledged until the transaction that ended it began. When it was created is no
/// measure: a transaction that waited for the key says when it began.
fn unique_once(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    /// From when to when, and which task.
    type Lives = Vec<(i64, i64, i64)>;
    let submits = submits(lines);
    let mut lives: BTreeMap<(&str, &str), Lives> = BTreeMap::new();
    for line in lines {
        let Fact::Submitted { key, id, created: true } = &line.fact else { continue };
        if let (Some((tenant, Some(unique), _)), Some(task)) = (submits.get(key.as_str()), tasks.get(id)) {
            let end = task.finished_at.unwrap_or(i64::MAX);
            lives.entry((tenant, unique)).or_default().push((line.at, end, *id));
        }
    }
    for ((tenant, unique), mut lives) in lives {
        lives.retain(|(start, end, _)| start < end);
        lives.sort_unstable();
        for pair in lives.windows(2) {
            let ((_, end, first), (start, _, second)) = (pair[0], pair[1]);
            if start < end {
                broken(Law::UniqueOnce, format!("tasks {first} and {second} of {tenant} both had \"{unique}\""));
            }
        }
    }
}

fn tenants_apart(lines: &[Line], tasks: &[Final], broken: &mut impl FnMut(Law, String)) {
    let submits = submits(lines);
    for task in tasks {
        if let Some((tenant, ..)) = task.key.as_deref().and_then(|key| submits.get(key))
            && *tenant != task.tenant
        {
            broken(Law::TenantsApart, format!("task {} of {tenant} is one of {}", task.id, task.tenant));
        }
    }
    let of: HashMap<i64, &str> = tasks.iter().map(|task| (task.id, task.tenant.as_str())).collect();
    for line in lines {
        match &line.fact {
            Fact::Claimed { tenant, id, of_tenant, .. }
                if tenant != of_tenant || of.get(id).is_some_and(|of| of != tenant) =>
            {
                broken(Law::TenantsApart, format!("a worker of {tenant} was given task {id} of {of_tenant}"));
            }
            Fact::Trespassed { tenant, id, status } if !is_refused(*status) => {
                broken(Law::TenantsApart, format!("somebody of {tenant} was answered {status} about task {id}"));
            }
            _ => {}
        }
    }
}

/// Whether a call about another tenant's task was answered as it should be: as if there was none.
pub(super) fn is_refused(status: u16) -> bool {
    status == 404
}

/// What was said of each execution: outcomes that were accepted or superseded, and how many reports were not answered.
#[derive(Default)]
struct Said<'a> {
    accepted: Vec<&'a str>,
    superseded: Vec<&'a str>,
    unanswered: i64,
}

fn said(lines: &[Line]) -> HashMap<Execution<'_>, Said<'_>> {
    let mut all: HashMap<Execution<'_>, Said<'_>> = HashMap::new();
    for line in lines {
        match &line.fact {
            Fact::Reporting { id, exec, .. } => all.entry((*id, exec)).or_default().unanswered += 1,
            Fact::Reported { id, exec, outcome, state } => {
                let said = all.entry((*id, exec)).or_default();
                said.unanswered -= 1;
                match state.as_str() {
                    "accepted" => said.accepted.push(outcome),
                    _ => said.superseded.push(outcome),
                }
            }
            _ => {}
        }
    }
    all
}

/// How many reports were accepted that had been accepted before.
pub(super) fn repeated(lines: &[Line]) -> usize {
    said(lines).values().map(|said| said.accepted.len().saturating_sub(1)).sum()
}

fn results_kept(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    for ((id, exec), said) in said(lines) {
        let Some(task) = tasks.get(&id) else {
            if !said.accepted.is_empty() {
                broken(Law::ResultKept, format!("a result of task {id} was accepted, and the task is not there"));
            }
            continue;
        };
        let recorded = task.attempts.iter().find(|attempt| attempt.exec == exec).and_then(|one| one.outcome.as_deref());
        for outcome in &said.accepted {
            if recorded != Some(outcome) {
                broken(Law::ResultKept, format!("task {id}: {outcome} of {exec} was accepted, and is {recorded:?}"));
            }
            if *outcome == SUCCESS && (task.status != "Success" || task.result_of.as_deref() != Some(exec)) {
                let what = format!("task {id}: the success of {exec} was accepted, and it is {}", task.status);
                broken(Law::ResultKept, format!("{what} with the result of {:?}", task.result_of));
            }
        }
        // A report that was not answered may have been taken, and only its repetition be superseded.
        let is_stale = !said.superseded.is_empty() && said.accepted.is_empty() && said.unanswered <= 0;
        if is_stale && task.result_of.as_deref() == Some(exec) {
            broken(Law::FencedOff, format!("task {id} has the result of {exec}, which was told that it is superseded"));
        }
        // Whoever says again what is recorded is accepted, so that what was told superseded is not what is recorded.
        if let Some(outcome) = recorded.filter(|outcome| is_stale && said.superseded.contains(outcome)) {
            broken(Law::FencedOff, format!("task {id}: {outcome} of {exec} was told superseded, and is recorded"));
        }
    }
    for task in tasks.values() {
        let Some(result_of) = task.result_of.as_deref() else { continue };
        let last = task.attempts.iter().rfind(|attempt| attempt.outcome.as_deref() == Some(SUCCESS));
        if last.is_none_or(|attempt| attempt.exec != result_of) {
            let of = last.map(|attempt| &attempt.exec);
            broken(Law::FencedOff, format!("task {} has the result of {result_of}, and succeeded by {of:?}", task.id));
        }
    }
}

fn actions_kept(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    retries_kept(lines, tasks, broken);
    cancels_kept(lines, tasks, broken);
}

/// A task that was retried after its last cancel is not cancelled in the end. A cancel that was not acknowledged before the retry was
/// sent may have been done after it.
fn retries_kept(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    #[derive(Default)]
    struct People {
        cancels_sent: usize,
        cancels_done: usize,
        /// How many cancels had been acknowledged when each retry was sent.
        retries_sent: Vec<usize>,
        retries_done: usize,
    }
    let mut all: BTreeMap<i64, People> = BTreeMap::new();
    for line in lines {
        match &line.fact {
            Fact::Acting { id, action } if action == CANCEL => all.entry(*id).or_default().cancels_sent += 1,
            Fact::Acted { id, action } if action == CANCEL => all.entry(*id).or_default().cancels_done += 1,
            Fact::Acting { id, action } if action == RETRY => {
                let people = all.entry(*id).or_default();
                people.retries_sent.push(people.cancels_done);
            }
            Fact::Acted { id, action } if action == RETRY => all.entry(*id).or_default().retries_done += 1,
            _ => {}
        }
    }
    for (id, people) in all {
        // Of several retries nobody knows which one was acknowledged: the first sees the fewest cancels.
        let before = people.retries_sent.first().copied().unwrap_or_default();
        let is_last = before > 0 && before == people.cancels_sent;
        if is_last && people.retries_done > 0 && tasks.get(&id).is_some_and(|task| task.status == "Cancelled") {
            broken(Law::ActionKept, format!("the retry of task {id} was acknowledged, and it is Cancelled"));
        }
    }
}

/// A task whose cancel was acknowledged lives again by a retry alone. One that was about to be made may have been done
/// at any time, whether or not it was answered.
fn cancels_kept(lines: &[Line], tasks: &HashMap<i64, &Final>, broken: &mut impl FnMut(Law, String)) {
    let retried = lines.iter().filter_map(|line| match &line.fact {
        Fact::Acting { id, action } if action == RETRY => Some(*id),
        _ => None,
    });
    let retried: HashSet<i64> = retried.collect();
    for line in lines {
        let Fact::Acted { id, action } = &line.fact else { continue };
        if action == CANCEL
            && !retried.contains(id)
            && let Some(task) = tasks.get(id).filter(|task| task.status != "Cancelled")
        {
            broken(Law::ActionKept, format!("the cancel of task {id} was acknowledged, and it is {}", task.status));
        }
    }
}

fn attempts_bounded(lines: &[Line], tasks: &[Final], broken: &mut impl FnMut(Law, String)) {
    let submits = submits(lines);
    let mut recorded: HashSet<Execution<'_>> = HashSet::new();
    for task in tasks {
        recorded.extend(task.attempts.iter().map(|attempt| (task.id, attempt.exec.as_str())));
        let most = match task.key.as_deref() {
            Some(key) => submits.get(key).map(|(_, _, most)| *most),
            // What schedules fire has no key, and neither they nor its type say how many.
            None => u32::try_from(Rules::ATTEMPTS_BUILT_IN).ok(),
        };
        let Some(most) = most else { continue };
        let mut by_round: BTreeMap<u32, u32> = BTreeMap::new();
        for attempt in task.attempts.iter().filter(|attempt| attempt.outcome.as_deref() != Some("release")) {
            *by_round.entry(attempt.round).or_default() += 1;
        }
        for (round, attempts) in by_round.into_iter().filter(|(_, attempts)| *attempts > most) {
            broken(Law::AttemptsBounded, format!("task {} had {attempts} of {most} in round {round}", task.id));
        }
    }
    for line in lines {
        if let Fact::Claimed { id, exec, .. } = &line.fact
            && !recorded.contains(&(*id, exec.as_str()))
        {
            broken(Law::AttemptsBounded, format!("task {id}: execution {exec} is not recorded"));
        }
    }
}

/// An execution as its worker saw it.
struct Seen<'a> {
    exec: &'a str,
    /// When its claim was answered, at the latest: so it was handed out before.
    given: i64,
    /// Until when it surely lived: its lease began when a call was sent or later.
    lived_until: i64,
}

fn one_execution(lines: &[Line], tasks: &[Final], broken: &mut impl FnMut(Law, String)) {
    for (id, mut seen) in seen(lines) {
        // The ids of executions grow with the database's time. An answer may arrive after the execution that it tells of is over, and
        // after the next was handed out.
        seen.sort_by_key(|one| one.exec);
        for (place, earlier) in seen.iter().enumerate() {
            for later in &seen[place + 1..] {
                if later.given < earlier.lived_until && later.exec != earlier.exec {
                    let by = earlier.lived_until - later.given;
                    let what =
                        format!("task {id}: {} was handed out {by} ms before {} ended", later.exec, earlier.exec);
                    broken(Law::OneExecution, what);
                }
            }
        }
    }
    for task in tasks {
        for pair in task.attempts.windows(2) {
            if pair[0].finished_at.is_none_or(|end| pair[1].started_at < end) {
                let by = pair[0].finished_at.map(|end| end - pair[1].started_at);
                let what = format!("task {}: {} began {by:?} ms before {} ended", task.id, pair[1].exec, pair[0].exec);
                broken(Law::OneExecution, what);
            }
        }
    }
}

fn seen(lines: &[Line]) -> BTreeMap<i64, Vec<Seen<'_>>> {
    // The calls of each worker that were answered: when they were sent, and when answered.
    let mut calls: HashMap<&str, Vec<(i64, i64)>> = HashMap::new();
    let (mut named, mut ended): (HashMap<&str, i64>, HashMap<&str, i64>) = Default::default();
    // By execution, when it was named, and whether that was answered.
    let mut asked: HashMap<&str, Vec<(i64, bool)>> = HashMap::new();
    let mut meddled: HashMap<i64, i64> = HashMap::new();
    for line in lines {
        match &line.fact {
            Fact::Claimed { worker, sent, .. } => calls.entry(worker).or_default().push((*sent, line.at)),
            Fact::Renewed { worker, sent, items } => {
                calls.entry(worker).or_default().push((*sent, line.at));
                for (_, exec, state) in items {
                    named.entry(exec).or_insert(line.at);
                    if let Some((_, is_answered)) = asked.get_mut(exec.as_str()).and_then(|asked| asked.last_mut()) {
                        *is_answered = true;
                    }
                    if state != "ok" {
                        ended.entry(exec).or_insert(*sent);
                    }
                }
            }
            Fact::Renewing { execs } => {
                for exec in execs {
                    asked.entry(exec).or_default().push((line.at, false));
                }
            }
            Fact::Reporting { exec, .. } => {
                ended.entry(exec).or_insert(line.at);
            }
            Fact::Acting { id, .. } => {
                meddled.entry(*id).or_insert(line.at);
            }
            _ => {}
        }
    }
    calls.values_mut().for_each(|calls| calls.sort_unstable());
    let mut all: BTreeMap<i64, Vec<Seen<'_>>> = BTreeMap::new();
    for line in lines {
        let Fact::Claimed { worker, sent, id, exec, timeout_ms, .. } = &line.fact else { continue };
        let mut until = sent + LEASE_MS;
        // A worker's calls keep an execution alive once one has named it, and while nobody has cancelled it. A call counts
        // only if it was answered before the lease could have run out: one that came late kept nothing alive.
        if named.get(exec.as_str()).is_some_and(|at| *at <= until) && !meddled.contains_key(id) {
            for (call, answered) in calls.get(worker.as_str()).into_iter().flatten() {
                if *answered <= until {
                    until = until.max(call + LEASE_MS);
                }
            }
        }
        if let Some(timeout_ms) = timeout_ms {
            until = until.min(sent + timeout_ms);
        }
        // One that was cancelled is over when its worker asks for it, whether or not the answer arrived. A call that was sent before, and
        // never answered, may have been on its way when it was cancelled.
        let heard = meddled.get(id).and_then(|cancelled| {
            let asked = asked.get(exec.as_str())?;
            let (at, _) = asked.iter().find(|(at, is_answered)| at >= cancelled || !is_answered)?;
            Some(*at.max(cancelled))
        });
        for end in ended.get(exec.as_str()).copied().into_iter().chain(heard) {
            until = until.min(end);
        }
        all.entry(*id).or_default().push(Seen { exec, given: line.at, lived_until: until });
    }
    all
}
