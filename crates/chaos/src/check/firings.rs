//! The law about schedules: every due time fires once, and none is missing beyond what the misfire policy says. It is read from the
//! records alone.

use serde_json::json;
use std::collections::{HashMap, HashSet};
use taskwheel_model::{RunStatus, ScheduleStatus, Time, Timer, TimerSpec};
use taskwheel_store::Store;
use taskwheel_store::access::Actor;
use taskwheel_store::schedule::{NewSchedule, Run, RunQuery, Schedule, ScheduleEdit};
use taskwheel_store::search::{Filter, Listing};

const POLICIES: [&str; 3] = ["catch_up", "fire_once", "skip"];

/// Makes schedules that fire every second up to every five, with each misfire policy.
pub(crate) async fn make(store: &dyn Store, tenant: &str, count: usize) -> Vec<Schedule> {
    let mut schedules = Vec::new();
    for number in 0..count {
        let misfire = json!({"policy": POLICIES[number % 3], "max": 1_000});
        let definition = json!({"name": format!("tick {number}"), "type": "tick", "misfire": misfire});
        let period_ms = 1_000 + 4_000 * number as i64 / count as i64;
        let new = NewSchedule {
            tenant: tenant.into(),
            definition: serde_json::from_value(definition).expect("a definition"),
            timers: vec![Timer::new(TimerSpec::FixedRate { period_ms, initial_delay_ms: 5_000 })],
            status: ScheduleStatus::Online,
        };
        schedules.push(store.create_schedule(Actor::application(), new).await.expect("the schedule is made"));
    }
    schedules
}

/// Takes a schedule offline, and says which due time would have been its next.
pub(crate) async fn stop(store: &dyn Store, schedule: &Schedule) -> Result<Time, String> {
    let edit = ScheduleEdit { status: Some(ScheduleStatus::Offline), ..ScheduleEdit::default() };
    let ended =
        store.edit_schedule(Actor::application(), None, schedule.id, edit).await.expect("the edit goes through");
    ended.and_then(|ended| ended.timers[0].cursor).ok_or("a timer has lost its cursor".into())
}

/// Holds the records of a schedule that was stopped against its due times, and says how many runs there were.
pub(crate) async fn check(store: &dyn Store, schedule: &Schedule, cursor: Time) -> Result<usize, String> {
    let first = schedule.timers[0].next_due.ok_or("a timer had no due time")?;
    let TimerSpec::FixedRate { period_ms, .. } = schedule.timers[0].timer.spec else {
        return Err("which grid?".into());
    };
    let name = &schedule.definition.name;
    let runs = runs(store, schedule.id).await;
    let tasks = tasks(store, schedule.id).await;
    let mut by_due: HashMap<Time, &Run> = HashMap::new();
    let mut missed = Vec::new();
    for run in &runs {
        match (run.status, run.reason.as_deref()) {
            (RunStatus::Skipped, Some("misfire")) => missed.push(span(run.error.as_deref().unwrap_or_default())?),
            (RunStatus::Running | RunStatus::Done | RunStatus::Failed, None) => {
                if by_due.insert(run.due_at, run).is_some() {
                    return Err(format!("{name}: {:?} fired twice", run.due_at));
                }
                if tasks.get(&run.id) != Some(&1) {
                    return Err(format!("{name}: run {} has {:?} tasks", run.id, tasks.get(&run.id)));
                }
            }
            other => return Err(format!("{name}: a run is {other:?}")),
        }
    }
    if tasks.values().sum::<usize>() != by_due.len() {
        return Err(format!("{name}: {} tasks of {} runs", tasks.values().sum::<usize>(), by_due.len()));
    }
    let (mut due, mut expected) = (first, HashSet::new());
    while due < cursor {
        expected.insert(due);
        let was_missed = missed.iter().any(|(from, to)| *from <= due && due <= *to);
        if !by_due.contains_key(&due) && !was_missed {
            return Err(format!("{name}: {due:?} did not fire, and nobody says that it was missed"));
        }
        if schedule.definition.misfire.policy == taskwheel_model::MisfirePolicy::CatchUp && !by_due.contains_key(&due) {
            return Err(format!("{name}: {due:?} was to be caught up"));
        }
        due = due.plus_ms(period_ms);
    }
    match by_due.keys().find(|due| !expected.contains(due)) {
        Some(due) => Err(format!("{name}: {due:?} is not on the grid")),
        None => Ok(runs.len()),
    }
}

/// The due times that a record of a misfire speaks of: the first and the last.
fn span(told: &str) -> Result<(Time, Time), String> {
    let times: Vec<_> = told.split_whitespace().filter_map(|word| word.parse::<jiff::Timestamp>().ok()).collect();
    match times.as_slice() {
        [first, last] => Ok((Time(first.as_millisecond()), Time(last.as_millisecond()))),
        _ => Err(format!("a record says {told:?}")),
    }
}

async fn runs(store: &dyn Store, schedule_id: i64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    loop {
        let before = runs.last().map(|run| run.id);
        let query = RunQuery { schedule_id: Some(schedule_id), before, limit: 500, ..RunQuery::default() };
        let page = store.runs(query).await.expect("the list answers");
        if page.is_empty() {
            return runs;
        }
        runs.extend(page);
    }
}

/// How many tasks each run has.
async fn tasks(store: &dyn Store, schedule_id: i64) -> HashMap<i64, usize> {
    let filter = Filter { schedule_id: Some(schedule_id), ..Filter::default() };
    let mut listing = Listing { filter, limit: 500, ..Listing::default() };
    let mut tasks: HashMap<i64, usize> = HashMap::new();
    loop {
        let page = store.list(listing.clone()).await.expect("the list answers");
        for task in page.items {
            *tasks.entry(task.run_id.expect("a fired task has a run")).or_default() += 1;
        }
        match page.next {
            Some(next) => listing.cursor = Some(next),
            None => return tasks,
        }
    }
}
