//! Plans: no statement reads all of a table, whatever was in it when it was planned.

use crate::support::{Platform, Raw, task, worker};
use std::collections::BTreeMap;
use std::time::Duration;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::people::Action;
use taskwheel_store::worker::{ClaimRequest, Renewal, Report};

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

crate::facts! { in postgres on Postgres: a_claim_of_several_types_does_not_read_all_that_is_due,
what_was_planned_on_empty_tables_does_not_read_all_of_full_ones }
