//! Types: settings that their tasks follow, and the numbers of their tasks.

use crate::facts;
use crate::support::{Platform, task};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status, TypeSettings};
use taskwheel_store::people::Action;
use taskwheel_store::{Count, TaskType};

fn settings() -> TypeSettings {
    TypeSettings {
        name: Some("Letters ✉".into()),
        category: Some("mails".into()),
        retry: Some(RetryPolicy::Exponential { delay_ms: 5, multiplier: 1.5, max_delay_ms: 500 }),
        max_attempts: Some(-1),
        timeout_ms: Some(60_000),
        need_manual: true,
        priority: Some(9),
    }
}

async fn settings_are_stored_and_replaced(platform: &Platform) {
    assert_eq!(platform.store.types().await.unwrap(), []);
    let put = platform.store.put_type("letter".into(), settings()).await.unwrap();
    let stored = TaskType { task_type: "letter".into(), settings: settings(), paused: false };
    assert_eq!(put, stored);
    assert_eq!(platform.store.types().await.unwrap(), [stored]);
    let put = platform.store.put_type("letter".into(), TypeSettings::default()).await.unwrap();
    assert_eq!(put.settings, TypeSettings::default());
    assert_eq!(platform.store.types().await.unwrap(), [put]);
}

async fn types_are_listed_by_name(platform: &Platform) {
    for name in ["b", "a", "C"] {
        platform.store.put_type(name.into(), TypeSettings::default()).await.unwrap();
    }
    let mut names: Vec<_> = platform.store.types().await.unwrap().into_iter().map(|one| one.task_type).collect();
    names.sort();
    assert_eq!(names, ["C", "a", "b"]);
}

async fn a_pause_keeps_the_settings_and_settings_keep_the_pause(platform: &Platform) {
    platform.store.put_type("letter".into(), settings()).await.unwrap();
    let paused = platform.store.pause_type("letter".into(), true).await.unwrap();
    assert_eq!((paused.paused, paused.settings), (true, settings()));
    let put = platform.store.put_type("letter".into(), TypeSettings::default()).await.unwrap();
    assert!(put.paused);
    let resumed = platform.store.pause_type("letter".into(), false).await.unwrap();
    assert_eq!((resumed.paused, resumed.settings), (false, TypeSettings::default()));
}

async fn a_type_never_configured_can_be_paused(platform: &Platform) {
    platform.submit(task("mail")).await;
    platform.store.pause_type("mail".into(), true).await.unwrap();
    assert!(platform.claim("mail").await.is_empty());
}

async fn a_change_made_elsewhere_is_seen_within_a_second_or_so(platform: &Platform) {
    platform.submit(task("mail")).await;
    assert_eq!(platform.task(platform.store.highest_id().await.unwrap()).await.max_attempts, Some(3));
    let other = platform.open_again(|_| ()).await.unwrap();
    let changed = TypeSettings { max_attempts: Some(8), ..TypeSettings::default() };
    other.put_type("mail".into(), changed).await.unwrap();
    crate::support::eventually("the new settings are seen", || async {
        let task = platform.task(platform.store.highest_id().await.unwrap()).await;
        (task.max_attempts == Some(8)).then_some(())
    })
    .await;
}

async fn counts_are_by_type_and_status(platform: &Platform) {
    let of = |tenant: &str, task_type: &str| NewTask { tenant: tenant.into(), ..task(task_type) };
    let ids = platform.submit_all(vec![of("a", "mail"), of("a", "mail"), of("b", "mail"), of("b", "sms")]).await;
    let claimed = platform.claim("sms").await;
    platform.finish(&claimed[0], Outcome::Success).await;
    platform.act(ids[0], Action::Cancel).await;
    let running = platform.claim("mail").await;
    platform.finish(&running[0], Outcome::Error).await;
    let count = |task_type: &str, status, tasks| Count { task_type: task_type.into(), status, tasks };
    let mut all = platform.store.counts(None).await.unwrap();
    all.sort_by_key(|one| (one.task_type.clone(), one.status));
    assert_eq!(
        all,
        [
            count("mail", Status::Executing, 1),
            count("mail", Status::Error, 1),
            count("mail", Status::Cancelled, 1),
            count("sms", Status::Success, 1),
        ]
    );
    let mut of_b = platform.store.counts(Some("b".into())).await.unwrap();
    of_b.sort_by_key(|one| (one.task_type.clone(), one.status));
    assert_eq!(of_b, [count("mail", Status::Executing, 1), count("sms", Status::Success, 1)]);
    assert_eq!(platform.store.counts(Some("nobody".into())).await.unwrap(), []);
}

facts![
    settings_are_stored_and_replaced,
    types_are_listed_by_name,
    a_pause_keeps_the_settings_and_settings_keep_the_pause,
    a_type_never_configured_can_be_paused,
    a_change_made_elsewhere_is_seen_within_a_second_or_so,
    counts_are_by_type_and_status,
];
