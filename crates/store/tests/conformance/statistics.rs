//! Statistics: how executions went, by minute and type.

use crate::facts;
use crate::support::{Platform, task};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Tally, Time};
use taskwheel_store::people::Action;
use taskwheel_store::{StatisticsRange, Store};

const MINUTE_MS: i64 = 60_000;

/// All that was ever counted.
fn ever() -> StatisticsRange {
    StatisticsRange { from: Time(0), to: Time(i64::MAX), tenant: None, task_type: None }
}

/// What was counted of a type, over all time.
async fn counted(store: &dyn Store, task_type: &str) -> Tally {
    let mut sum = Tally::default();
    for one in store.statistics(StatisticsRange { task_type: Some(task_type.to_owned()), ..ever() }).await.unwrap() {
        sum.merge(&one.tally);
    }
    sum
}

async fn every_end_of_an_execution_is_counted_once(platform: &Platform) {
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let doomed = NewTask { max_attempts: Some(2), retry, ..task("mail") };
    for outcomes in [&[Outcome::Success][..], &[Outcome::Error, Outcome::Completed], &[Outcome::Error, Outcome::Error]]
    {
        platform.submit(doomed.clone()).await;
        platform.advance_ms(40);
        for outcome in outcomes {
            let claimed = platform.claim_one("mail").await;
            platform.advance_ms(500);
            for _ in 0..2 {
                platform.finish(&claimed, *outcome).await;
            }
        }
    }
    platform.store.write_statistics().await.unwrap();
    platform.store.write_statistics().await.unwrap();
    let tally = counted(&*platform.store, "mail").await;
    assert_eq!((tally.success_first, tally.success_second, tally.success_later), (1, 1, 0));
    assert_eq!((tally.errors, tally.failures), (3, 1));
    assert_eq!(tally.run.percentile_ms(0.99), Some(512));
    assert_eq!(tally.wait.percentile_ms(0.99), Some(64));
    assert_eq!(counted(&*platform.store, "other").await, Tally::default());
}

async fn lost_executions_are_counted(platform: &Platform) {
    platform.submit(NewTask { max_attempts: Some(1), timeout_ms: Some(1_000), ..task("mail") }).await;
    platform.claim_one("mail").await;
    platform.advance_ms(1_001);
    platform.rescue().await;
    platform.store.write_statistics().await.unwrap();
    let tally = counted(&*platform.store, "mail").await;
    assert_eq!((tally.errors, tally.failures), (1, 1));
}

/// What expired has failed, and has neither waited for an execution nor had one.
async fn tasks_that_expired_are_counted_as_failures(platform: &Platform) {
    let expire_at = Some(platform.now().plus_ms(1_000));
    platform.submit(NewTask { expire_at, ..task("mail") }).await;
    platform.submit(NewTask { expire_at, ..task("sms") }).await;
    platform.advance_ms(1_001);
    assert!(platform.claim("sms").await.is_empty(), "a claim meets it before a rescue does");
    platform.rescue().await;
    platform.store.write_statistics().await.unwrap();
    for task_type in ["mail", "sms"] {
        let tally = counted(&*platform.store, task_type).await;
        assert_eq!(tally, Tally { failures: 1, ..Tally::default() }, "{task_type}");
    }
}

async fn each_minute_is_by_itself_and_ranges_are_half_open(platform: &Platform) {
    for _ in 0..3 {
        let claimed = platform.start(task("mail")).await;
        platform.finish(&claimed, Outcome::Success).await;
        platform.store.write_statistics().await.unwrap();
        platform.advance_ms(MINUTE_MS);
    }
    let all = platform.store.statistics(ever()).await.unwrap();
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|one| one.minute.0 % MINUTE_MS == 0 && one.tally.success_first == 1));
    let two =
        platform.store.statistics(StatisticsRange { from: all[0].minute, to: all[2].minute, ..ever() }).await.unwrap();
    assert_eq!(two, all[..2]);
}

async fn what_several_nodes_counted_is_shown_as_one(platform: &Platform) {
    let other = platform.open_again(|_| {}).await.unwrap();
    for store in [&platform.store, &other] {
        let claimed = platform.start(task("mail")).await;
        store
            .finish(vec![taskwheel_store::worker::Report::new(claimed.id, claimed.exec_id, Outcome::Success)])
            .await
            .unwrap();
        store.write_statistics().await.unwrap();
    }
    let all = platform.store.statistics(ever()).await.unwrap();
    assert_eq!(all.iter().map(|one| one.tally.success_first).collect::<Vec<_>>(), [2]);
}

async fn statistics_outlive_their_tasks_and_end_after_400_days(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    platform.store.write_statistics().await.unwrap();
    platform.act(claimed.id, Action::Delete).await;
    assert_eq!(counted(&*platform.store, "mail").await.success_first, 1);
    platform.advance_ms(401 * 24 * 60 * MINUTE_MS);
    let claimed = platform.start(task("sms")).await;
    platform.finish(&claimed, Outcome::Success).await;
    platform.store.write_statistics().await.unwrap();
    assert_eq!(counted(&*platform.store, "mail").await, Tally::default());
    assert_eq!(counted(&*platform.store, "sms").await.success_first, 1);
}

async fn tenants_are_counted_apart(platform: &Platform) {
    for tenant in ["acme", "other", "acme"] {
        let claimed = platform.start(NewTask { tenant: tenant.into(), ..task("mail") }).await;
        platform.finish(&claimed, Outcome::Success).await;
    }
    platform.store.write_statistics().await.unwrap();
    let of = async |tenant: &str| {
        let wanted = StatisticsRange { tenant: Some(tenant.into()), ..ever() };
        let found = platform.store.statistics(wanted).await.unwrap();
        assert!(found.iter().all(|one| one.tenant == tenant));
        found.iter().map(|one| one.tally.success_first).sum::<u64>()
    };
    assert_eq!((of("acme").await, of("other").await, of("default").await), (2, 1, 0));
}

facts![
    tenants_are_counted_apart,
    every_end_of_an_execution_is_counted_once,
    lost_executions_are_counted,
    tasks_that_expired_are_counted_as_failures,
    each_minute_is_by_itself_and_ranges_are_half_open,
    what_several_nodes_counted_is_shown_as_one,
    statistics_outlive_their_tasks_and_end_after_400_days,
];
