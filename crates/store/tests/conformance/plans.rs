//! Plans: no statement reads all of a table, whatever was in it when it was planned.

use crate::own_server::OwnServer;
use crate::schedules::{definition, every};
use crate::support::{Dialect, Platform, Raw, due_in, eventually, task, worker};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Outcome, ScheduleStatus, TypeSettings, limits};
use taskwheel_store::access::Actor;
use taskwheel_store::people::Action;
use taskwheel_store::schedule::NewSchedule;
use taskwheel_store::worker::{ClaimRequest, Renewal, Report};
use taskwheel_store::{Options, Rescued, Store};
use tokio::sync::Mutex;

/// Everything that goes on all day, with one task at a time and with a few.
async fn a_day(platform: &Platform) {
    for few in [1, 3] {
        let unique = |number: usize| NewTask { unique_key: Some(format!("{few}-{number}")), ..task("day") };
        for outcome in [Outcome::Success, Outcome::Error, Outcome::Failure] {
            platform.submit_all((0..few).map(unique).collect()).await;
            let claimed = platform.claim_for(ClaimRequest { max: few, ..worker(&["day"]) }).await;
            assert_eq!(claimed.len(), few);
            for one in &claimed {
                let renewal = Renewal { checkpoint: Some("1".into()), ..crate::support::platform::renewal(one) };
                platform.renew_with(renewal).await;
            }
            let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, outcome)).collect();
            platform.store.finish(reports).await.expect("the reports go through");
            for one in &claimed {
                platform.act(one.id, Action::Cancel).await;
            }
        }
    }
    platform.rescue().await;
}

/// How many entries each index has yielded.
async fn yielded(raw: &mut Raw) -> BTreeMap<String, i64> {
    let rows = raw.rows("SELECT indexrelname, idx_tup_read::text FROM pg_stat_user_indexes").await;
    let read = |mut row: Vec<Option<String>>| Some((row.remove(0)?, row.remove(0)?.parse().ok()?));
    rows.into_iter().filter_map(read).collect()
}

async fn what_was_planned_on_empty_tables_does_not_read_all_of_full_ones(platform: &Platform) {
    const FULL: usize = 10_000;
    let mut raw = platform.raw().await;
    raw.run("VACUUM ANALYZE").await;
    a_day(platform).await;
    for batch in 0..FULL / 1_000 {
        let unique = |number: usize| NewTask { unique_key: Some(format!("{batch}-{number}")), ..task("other") };
        platform.submit_all((0..1_000).map(unique).collect()).await;
    }
    let running = platform.claim("other").await;
    let ends = running[..500].iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
    platform.store.finish(ends).await.expect("the reports go through");
    // A connection tells what it read when it ends a transaction, once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    platform.claim("nothing").await;
    let before = yielded(&mut raw).await;
    for _ in 0..5 {
        a_day(platform).await;
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    a_day(platform).await;
    for (index, after) in yielded(&mut raw).await {
        let read = after - before.get(&index).copied().unwrap_or(0);
        assert!(read < FULL as i64, "{index} yielded {read} entries for a few tasks");
    }
}

/// A table that was found empty, but as large as before, has no rows by the planner's count until it is looked at again: then every index
/// that ends with the id seemed as good as the primary key, and a report read all that had been in it.
async fn what_is_looked_up_by_id_in_an_emptied_table_goes_by_the_primary_key(platform: &Platform) {
    let (raw, mut reader) = (Mutex::new(platform.raw().await), platform.raw().await);
    platform.submit_all(vec![task("many"); 1_000]).await;
    let claimed = platform.claim("many").await;
    let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
    platform.store.finish(reports).await.expect("the reports go through");
    // Who reads a table keeps it from being cut short.
    reader.run("BEGIN").await;
    for table in ["task_waiting", "task_running"] {
        reader.rows(&format!("SELECT count(*)::text FROM {table}")).await;
        let emptied =
            format!("SELECT count(*) FROM pg_class WHERE relname = '{table}' AND reltuples = 0 AND relpages > 0");
        eventually("nothing is left in the table", || async {
            let mut raw = raw.lock().await;
            raw.run(&format!("VACUUM {table}")).await;
            (raw.number(&emptied).await == 1).then_some(())
        })
        .await;
        let plan = raw.lock().await.rows(&format!("EXPLAIN SELECT * FROM {table} WHERE id = 1")).await;
        let plan: Vec<_> = plan.into_iter().flatten().flatten().collect();
        assert!(plan[0].contains(&format!("using {table}_pkey")), "{plan:?}");
    }
}

async fn a_claim_of_several_types_does_not_read_all_that_is_due(platform: &Platform) {
    const DUE: usize = 10_000;
    let names: Vec<_> = (0..10).map(|number| format!("type{number}")).collect();
    let types: Vec<_> = names.iter().map(String::as_str).collect();
    for _ in 0..DUE / 1_000 {
        platform.submit_all((0..1_000).map(|number| task(types[number % types.len()])).collect()).await;
    }
    let mut raw = platform.raw().await;
    raw.run("VACUUM ANALYZE").await;
    let before = yielded(&mut raw).await;
    // With two types their ranges are locked, with more the earliest keys are read first.
    for types in [&types[..2], &types] {
        for _ in 0..5 {
            assert_eq!(platform.claim_for(ClaimRequest { max: 10, ..worker(types) }).await.len(), 10);
        }
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    platform.claim("nothing").await;
    for (index, after) in yielded(&mut raw).await {
        let read = after - before.get(&index).copied().unwrap_or(0);
        assert!(read < DUE as i64 / 5, "{index} yielded {read} entries for 100 tasks");
    }
}

async fn a_claim_by_category_reads_nothing_that_waits_for_a_person(platform: &Platform) {
    const PARKED: usize = 1_000;
    let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
    platform.store.put_type("judged".into(), settings).await.expect("the type is put");
    let of_category = || NewTask { category: Some("mails".into()), ..task("judged") };
    platform.submit_all(vec![of_category(); PARKED]).await;
    let claimed = platform.claim_for(ClaimRequest { max: PARKED, ..worker(&["judged"]) }).await;
    let ends = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Error)).collect();
    platform.store.finish(ends).await.expect("the reports go through");
    let mut raw = platform.raw().await;
    raw.run("VACUUM ANALYZE").await;
    // A connection tells what it read when it ends a transaction, once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    platform.claim("nothing").await;
    let before = yielded(&mut raw).await;
    let by_category = ClaimRequest { types: Vec::new(), categories: vec!["mails".into()], max: 1, ..worker(&[]) };
    for _ in 0..5 {
        platform.submit(of_category()).await;
        assert_eq!(platform.claim_for(by_category.clone()).await.len(), 1);
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    platform.claim("nothing").await;
    for (index, after) in yielded(&mut raw).await {
        let read = after - before.get(&index).copied().unwrap_or(0);
        assert!(read < PARKED as i64, "{index} yielded {read} entries for 5 tasks");
    }
}

/// How long reports of as many tasks as a call may have take, in calls of so many.
async fn time_of_reports(platform: &Platform, each: usize, outcome: Outcome) -> Duration {
    let mut reports = Vec::new();
    for _ in 0..limits::REPORT_BATCH_MAX / limits::CLAIM_BATCH_MAX {
        platform.submit_all(vec![task("many"); limits::CLAIM_BATCH_MAX]).await;
        let claimed = platform.claim_for(ClaimRequest { max: limits::CLAIM_BATCH_MAX, ..worker(&["many"]) }).await;
        reports.extend(claimed.iter().map(|one| Report::new(one.id, one.exec_id, outcome)));
    }
    assert_eq!(reports.len(), limits::REPORT_BATCH_MAX);
    let began = Instant::now();
    for reports in reports.chunks(each) {
        platform.store.finish(reports.to_vec()).await.expect("the reports go through");
    }
    began.elapsed()
}

/// A report that held each result against each other one took three seconds for ten thousand.
async fn a_result_costs_no_more_among_many(platform: &Platform) {
    for outcome in [Outcome::Success, Outcome::Failure] {
        let (mut apart, mut together) = (Duration::MAX, Duration::MAX);
        for _ in 0..2 {
            apart = apart.min(time_of_reports(platform, 500, outcome).await);
            together = together.min(time_of_reports(platform, limits::REPORT_BATCH_MAX, outcome).await);
        }
        assert!(together < 2 * apart, "{outcome:?}: {together:?} in one call, {apart:?} in several");
    }
}

/// So many tasks wait, so many run and so many timers are set, and nothing is to be done about any of them for an hour or a lease.
const NOT_DUE: usize = 3_000;
const HOUR_MS: i64 = 3_600_000;

async fn fill(store: &dyn Store) {
    store.submit(vec![due_in("mail", HOUR_MS); NOT_DUE]).await.expect("the submit goes through");
    store.submit(vec![task("running"); NOT_DUE]).await.expect("the submit goes through");
    for _ in 0..NOT_DUE / limits::CLAIM_BATCH_MAX {
        store.claim(vec![worker(&["running"])]).await.expect("the claim goes through");
    }
    for _ in 0..NOT_DUE / limits::TIMERS_MAX {
        let (definition, timers) = (definition(json!({})), vec![every(HOUR_MS); limits::TIMERS_MAX]);
        let new = NewSchedule { tenant: "default".into(), definition, timers, status: ScheduleStatus::Online };
        store.create_schedule(Actor::application(), new).await.expect("the schedule is made");
    }
}

/// What servers and workers look for again and again.
#[derive(Clone, Copy, Debug)]
enum Look {
    DueTimers,
    TasksOfAType,
    TasksOfManyTypes,
    TasksSoonDue,
    ClocksRunOut,
}

const LOOKS: [Look; 5] =
    [Look::DueTimers, Look::TasksOfAType, Look::TasksOfManyTypes, Look::TasksSoonDue, Look::ClocksRunOut];

/// Looks. The only task that can be found is one that comes just before, so that the look goes on to where the others are.
async fn look(store: &dyn Store, what: Look) {
    let submit = async |task| store.submit(vec![task]).await.expect("the submit goes through");
    let claim = async |types: &[&str]| {
        submit(task("mail")).await;
        let claimed = store.claim(vec![worker(types)]).await.expect("the claim goes through");
        assert_eq!(claimed[0].len(), 1);
    };
    match what {
        Look::DueTimers => {
            let fired = store.fire(100).await.expect("the firing goes through");
            assert!(fired.runs == 0 && fired.next_due.is_some(), "{fired:?}");
        }
        Look::TasksOfAType => claim(&["mail"]).await,
        Look::TasksOfManyTypes => claim(&["mail", "a", "b", "c", "d", "e", "f", "g", "h", "i"]).await,
        Look::TasksSoonDue => {
            submit(due_in("mail", HOUR_MS / 2)).await;
            let ahead = store.upcoming(vec!["mail".into()], HOUR_MS * 3 / 4, 100).await;
            assert_eq!(ahead.expect("the look goes through").dues.len(), 1);
        }
        Look::ClocksRunOut => {
            assert_eq!(store.rescue().await.expect("the rescue goes through"), Rescued::default());
        }
    }
}

/// How many rows each look has read. None at all would mean that they are not counted.
fn are_few(read: &[(Look, i64)]) {
    assert!(read.iter().all(|(_, rows)| (1..NOT_DUE as i64 / 10).contains(rows)), "{read:?}");
}

/// How many rows all statements have read by now, as far as their connections have told.
const READ: &str = "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
    + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)";
/// How many connections stores have that were opened after this one.
const CONNECTED: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'taskwheel'
    AND backend_start > (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())";

async fn a_look_does_not_read_what_is_not_due(platform: &Platform) {
    let raw = Mutex::new(platform.raw().await);
    let number = async |sql| raw.lock().await.number(sql).await;
    // A connection tells at its end what it has read.
    let end = async |store: Arc<dyn Store>| {
        drop(store);
        eventually("its connections have ended", || async { (number(CONNECTED).await == 0).then_some(()) }).await;
    };
    let store = platform.with_real_clock().await;
    fill(&*store).await;
    end(store).await;
    raw.lock().await.run("VACUUM ANALYZE").await;
    let mut read = Vec::new();
    for what in LOOKS {
        let before = number(READ).await;
        let store = platform.with_real_clock().await;
        look(&*store, what).await;
        end(store).await;
        read.push((what, number(READ).await - before));
    }
    are_few(&read);
}

crate::facts! { in postgres on Postgres: a_result_costs_no_more_among_many, a_claim_of_several_types_does_not_read_all_that_is_due,
a_claim_by_category_reads_nothing_that_waits_for_a_person, what_is_looked_up_by_id_in_an_emptied_table_goes_by_the_primary_key,
what_was_planned_on_empty_tables_does_not_read_all_of_full_ones, a_look_does_not_read_what_is_not_due }

mod mysql {
    use super::*;

    /// How many rows a server has read.
    async fn count(raw: &mut Raw) -> i64 {
        let rows = raw.rows("SHOW GLOBAL STATUS LIKE 'Handler_read%'").await;
        rows.iter().map(|row| row[1].as_ref().and_then(|count| count.parse::<i64>().ok()).expect("a count")).sum()
    }

    /// On a server of its own: what others do there would be counted too.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_look_does_not_read_what_is_not_due() {
        let server = OwnServer::start(Dialect::Mysql).await;
        let store = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens");
        fill(&*store).await;
        let mut raw = Raw::connect(Dialect::Mysql, &server.url()).await;
        raw.rows("ANALYZE TABLE task, task_waiting, task_running, task_timer").await;
        let mut read = Vec::new();
        for what in LOOKS {
            let before = count(&mut raw).await;
            look(&*store, what).await;
            read.push((what, count(&mut raw).await - before));
        }
        are_few(&read);
    }
}
