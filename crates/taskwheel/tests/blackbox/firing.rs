//! Schedules while nodes are killed and stopped and the database restarts: every due time fires once, and none is missing beyond what the
//! misfire policy says. The check is made afterwards, from the records alone.

use crate::support::{Dialect, Node, OwnServer};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::{RunStatus, ScheduleStatus, Time, Timer, TimerSpec};
use taskwheel_store::access::Actor;
use taskwheel_store::schedule::{NewSchedule, Run, RunQuery, Schedule, ScheduleEdit};
use taskwheel_store::search::{Filter, Listing};
use taskwheel_store::{Options, Store};

const SCHEDULES: usize = 200;
const NODES: usize = 3;
const FAULTS: Duration = Duration::from_secs(120);
/// After the faults the nodes get so long to make up for them.
const HEAL: Duration = Duration::from_secs(10);
const POLICIES: [&str; 3] = ["catch_up", "fire_once", "skip"];

async fn every_due_time_fires_once_through_kills_stops_and_restarts(dialect: Dialect) {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut database = OwnServer::start(dialect).await;
    let url = database.url();
    let store = taskwheel_store::open(Options::new(&url)).await.expect("the store opens");
    let schedules = schedules(store.as_ref()).await;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Some(Node::start(&url).await));
    }
    let began = Instant::now();
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turn = 0;
    while began.elapsed() < FAULTS {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..3_000))).await;
        let victim = random.random_range(0..NODES);
        let fault = match turn % 6 {
            0 | 2 | 4 => {
                // Killed by its own end, without a word.
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGKILL));
                nodes[victim] = Some(Node::start(&url).await);
                "killed"
            }
            1 | 3 => {
                let stopped = Duration::from_millis(random.random_range(1_000..8_000));
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGSTOP));
                tokio::time::sleep(stopped).await;
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGCONT));
                "stopped"
            }
            _ => {
                database.kill();
                tokio::time::sleep(Duration::from_millis(random.random_range(0..7_000))).await;
                database.restart().await;
                "database"
            }
        };
        *faults.entry(fault).or_default() += 1;
        turn += 1;
    }
    tokio::time::sleep(HEAL).await;
    let mut runs = 0;
    for schedule in &schedules {
        runs += check(&store, schedule).await.unwrap_or_else(|wrong| panic!("seed {seed}, {faults:?}: {wrong}"));
    }
    assert!(faults.len() == 3, "seed {seed}: not every fault happened: {faults:?}");
    assert!(runs > SCHEDULES * 10, "seed {seed}: only {runs} runs");
    drop(nodes);
}

/// Schedules of 1 to 5 seconds, with each misfire policy.
async fn schedules(store: &dyn Store) -> Vec<Schedule> {
    let mut schedules = Vec::new();
    for number in 0..SCHEDULES {
        let misfire = json!({"policy": POLICIES[number % 3], "max": 1_000});
        let definition = json!({"name": format!("tick {number}"), "type": "tick", "misfire": misfire});
        let period_ms = 1_000 + 20 * number as i64;
        let new = NewSchedule {
            tenant: "default".into(),
            definition: serde_json::from_value(definition).expect("a definition"),
            timers: vec![Timer::new(TimerSpec::FixedRate { period_ms, initial_delay_ms: 5_000 })],
            status: ScheduleStatus::Online,
        };
        schedules.push(store.create_schedule(Actor::application(), new).await.expect("the schedule is made"));
    }
    schedules
}

/// Holds the records of a schedule against its due times, and says how many runs there were.
async fn check(store: &Arc<dyn Store>, schedule: &Schedule) -> Result<usize, String> {
    let edit = ScheduleEdit { status: Some(ScheduleStatus::Offline), ..ScheduleEdit::default() };
    let ended =
        store.edit_schedule(Actor::application(), None, schedule.id, edit).await.expect("the edit goes through");
    let cursor = ended.and_then(|ended| ended.timers[0].cursor).ok_or("a timer has lost its cursor")?;
    let first = schedule.timers[0].next_due.ok_or("a timer had no due time")?;
    let TimerSpec::FixedRate { period_ms, .. } = schedule.timers[0].timer.spec else {
        return Err("which grid?".into());
    };
    let name = &schedule.definition.name;
    let runs = runs(store.as_ref(), schedule.id).await;
    let tasks = tasks(store.as_ref(), schedule.id).await;
    let mut by_due: HashMap<Time, &Run> = HashMap::new();
    let mut missed = Vec::new();
    for run in &runs {
        match (run.status, run.reason.as_deref()) {
            (RunStatus::Skipped, Some("misfire")) => missed.push(span(run.error.as_deref().unwrap_or_default())?),
            (RunStatus::Running, None) => {
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

mod postgres {
    #[tokio::test(flavor = "multi_thread")]
    async fn every_due_time_fires_once_through_kills_stops_and_restarts() {
        super::every_due_time_fires_once_through_kills_stops_and_restarts(super::Dialect::Postgres).await;
    }
}

mod mysql {
    #[tokio::test(flavor = "multi_thread")]
    async fn every_due_time_fires_once_through_kills_stops_and_restarts() {
        super::every_due_time_fires_once_through_kills_stops_and_restarts(super::Dialect::Mysql).await;
    }
}
