//! The law about schedules: every due time fires once, and none is missing beyond what the misfire policy says. It is read from the
//! records alone, which say of each firing when it was made, and of what was missed why.

// Said where it lies, because the tests of the server read this file too.
#[cfg(test)]
#[path = "firings/tests.rs"]
mod tests;

use serde_json::json;
use std::collections::{HashMap, HashSet};
use taskwheel_model::{MisfirePolicy, RunStatus, ScheduleStatus, Time, Timer, TimerSpec, limits};
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
            timers: vec![Timer::new(TimerSpec::FixedRate { period_ms, initial_delay_ms: 1_000 })],
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
    let ended = ended.ok_or("a schedule is gone")?;
    let cursor = ended.timers[0].cursor.ok_or("a timer has lost its cursor")?;
    // The time of the edit, by the database's clock, which due times go by too.
    goes_on(cursor, ended.updated_at).map_err(|what| format!("{}: {what}", schedule.definition.name))?;
    Ok(cursor)
}

/// Whoever looks at a timer moves it on, also where what it missed does not fire: at one that is far behind nobody
/// looks. Its records do not show that, for no due time is expected from its cursor on.
fn goes_on(cursor: Time, now: Time) -> Result<(), String> {
    if cursor.plus_ms(limits::MISSED_AFTER_MS) < now {
        return Err(format!("its timer stands still: it was due at {cursor:?}, and it was {now:?}"));
    }
    Ok(())
}

/// What a schedule was to do.
struct Grid {
    /// Its due times: the first, their distance, and the one that would have been next when it was stopped.
    first: Time,
    period_ms: i64,
    cursor: Time,
    policy: MisfirePolicy,
}

/// What a schedule did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) runs: usize,
    /// How often it is recorded that due times were missed.
    pub(crate) misfires: usize,
}

/// A record that due times were found too late.
struct Missed {
    first: Time,
    last: Time,
    count: usize,
    fired: usize,
    /// When they were found.
    at: Time,
}

/// Holds the records of a schedule that was stopped against its due times.
pub(crate) async fn check(store: &dyn Store, schedule: &Schedule, cursor: Time) -> Result<Kept, String> {
    let first = schedule.timers[0].next_due.ok_or("a timer had no due time")?;
    let TimerSpec::FixedRate { period_ms, .. } = schedule.timers[0].timer.spec else {
        return Err("which grid?".into());
    };
    let (name, policy) = (schedule.definition.name.as_str(), schedule.definition.misfire.policy);
    let grid = Grid { first, period_ms, cursor, policy };
    let (runs, tasks) = (runs(store, schedule.id).await, tasks(store, schedule.id).await);
    grid.check(&runs, &tasks).map_err(|what| format!("{name}: {what}"))
}

impl Grid {
    fn check(&self, runs: &[Run], tasks: &HashMap<i64, usize>) -> Result<Kept, String> {
        let mut by_due: HashMap<Time, &Run> = HashMap::new();
        let mut missed = Vec::new();
        for run in runs {
            match (run.status, run.reason.as_deref()) {
                (RunStatus::Skipped, Some("misfire")) => missed.push(Missed::read(run)?),
                (RunStatus::Running | RunStatus::Done | RunStatus::Failed, None) => {
                    if by_due.insert(run.due_at, run).is_some() {
                        return Err(format!("{:?} fired twice", run.due_at));
                    }
                    if tasks.get(&run.id) != Some(&1) {
                        return Err(format!("run {} has {:?} tasks", run.id, tasks.get(&run.id)));
                    }
                    self.check_late(run)?;
                }
                other => return Err(format!("a run is {other:?}")),
            }
        }
        if tasks.values().sum::<usize>() != by_due.len() {
            return Err(format!("{} tasks of {} runs", tasks.values().sum::<usize>(), by_due.len()));
        }
        for missed in &missed {
            self.check_missed(missed)?;
        }
        let (mut due, mut expected) = (self.first, HashSet::new());
        while due < self.cursor {
            expected.insert(due);
            let spans: Vec<_> = missed.iter().filter(|missed| missed.first <= due && due <= missed.last).collect();
            let shall_fire = match spans.as_slice() {
                [] => true,
                [span] => self.policy == MisfirePolicy::FireOnce && due == span.last,
                _ => return Err(format!("{due:?} was missed twice")),
            };
            match (shall_fire, by_due.contains_key(&due)) {
                (true, false) => return Err(format!("{due:?} did not fire, and no record says why it should not")),
                (false, true) => return Err(format!("{due:?} fired, and is recorded as missed")),
                _ => {}
            }
            due = due.plus_ms(self.period_ms);
        }
        match by_due.keys().find(|due| !expected.contains(due)) {
            Some(due) => Err(format!("{due:?} is not on the grid")),
            None => Ok(Kept { runs: runs.len(), misfires: missed.len() }),
        }
    }

    /// A due time that was found too late fires if the policy says so: never, the latest of them, or each.
    fn check_late(&self, run: &Run) -> Result<(), String> {
        let at = run.started_at.ok_or_else(|| format!("run {} never began", run.id))?;
        let is_late = |due: Time| due.plus_ms(limits::MISSED_AFTER_MS) < at;
        let (due, next) = (run.due_at, run.due_at.plus_ms(self.period_ms));
        match self.policy {
            MisfirePolicy::Skip if is_late(due) => Err(format!("{due:?} fired at {at:?}, and was to be skipped")),
            MisfirePolicy::FireOnce if is_late(next) => {
                Err(format!("{due:?} fired at {at:?}, and was not the latest that was missed"))
            }
            _ => Ok(()),
        }
    }

    /// A record names due times that were too late when it was made, as many as there are, and lets as many fire as the policy says.
    fn check_missed(&self, missed: &Missed) -> Result<(), String> {
        let Missed { first, last, at, .. } = *missed;
        let is_due = |time: Time| {
            self.first <= time && time < self.cursor && (time.0 - self.first.0).rem_euclid(self.period_ms) == 0
        };
        let count = (last.0 - first.0) / self.period_ms + 1;
        let fired = match self.policy {
            MisfirePolicy::Skip => 0,
            MisfirePolicy::FireOnce => 1,
            MisfirePolicy::CatchUp => return Err(format!("{first:?} to {last:?} were to be caught up")),
        };
        if !is_due(first) || !is_due(last) || i64::try_from(missed.count) != Ok(count) {
            return Err(format!("a record says that {} were missed from {first:?} to {last:?}", missed.count));
        }
        if missed.fired != fired {
            return Err(format!("of those missed from {first:?} to {last:?} {} fired", missed.fired));
        }
        if last.plus_ms(limits::MISSED_AFTER_MS) >= at {
            return Err(format!("{last:?} was in time at {at:?}, and is recorded as missed"));
        }
        Ok(())
    }
}

impl Missed {
    /// Reads "5 due times from … to … were missed, of which 1 fired".
    fn read(run: &Run) -> Result<Missed, String> {
        let told = run.error.as_deref().unwrap_or_default();
        let times: Vec<_> = told.split_whitespace().filter_map(|word| word.parse::<jiff::Timestamp>().ok()).collect();
        let counts: Vec<_> = told.split_whitespace().filter_map(|word| word.parse::<usize>().ok()).collect();
        match (times.as_slice(), counts.as_slice(), run.finished_at) {
            ([first, last], [count, fired], Some(at)) => Ok(Missed {
                first: Time(first.as_millisecond()),
                last: Time(last.as_millisecond()),
                count: *count,
                fired: *fired,
                at,
            }),
            _ => Err(format!("a record says {told:?}")),
        }
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
