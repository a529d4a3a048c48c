//! Ids: never reused, and unique over databases.

use crate::facts;
use crate::support::{Platform, TestDatabase, task};
use taskwheel_model::{DatabaseNumber, Outcome, TaskId};
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::{Options, Store, StoreError};

async fn the_id_of_a_removed_task_is_not_used_again(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    assert!(matches!(platform.act(claimed.id, Action::Delete).await, Acted::Changed(_)));
    let next = platform.submit(task("mail")).await;
    assert!(next > claimed.id);
}

async fn the_highest_id_of_an_emptied_store_is_not_used_again_after_a_reopen(platform: &Platform) {
    let ids = platform.submit_all(vec![task("mail"), task("mail")]).await;
    for id in &ids {
        platform.act(*id, Action::Cancel).await;
        assert!(matches!(platform.act(*id, Action::Delete).await, Acted::Changed(_)));
    }
    let store = platform.open_again(|_| ()).await.unwrap();
    let next = store.submit(vec![task("mail")]).await.unwrap()[0].id;
    assert!(next > ids[1]);
}

async fn a_retried_task_keeps_its_id(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    platform.act(id, Action::Cancel).await;
    platform.act(id, Action::Retry).await;
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn the_highest_id_is_that_of_the_newest_task(platform: &Platform) {
    assert_eq!(platform.store.highest_id().await.unwrap(), TaskId(0));
    let ids = platform.submit_all(vec![task("mail"), task("mail")]).await;
    assert_eq!(platform.store.highest_id().await.unwrap(), ids[1]);
}

async fn open(url: &str, number: u16) -> taskwheel_store::Result<std::sync::Arc<dyn Store>> {
    let number = DatabaseNumber::new(number).unwrap();
    taskwheel_store::open(Options { number, ..Options::new(url) }).await
}

async fn each_database_number_has_its_own_range_of_ids(platform: &Platform) {
    for number in [0, 7, 511] {
        let database = TestDatabase::create(platform.dialect()).await;
        let store = open(&database.url, number).await.unwrap();
        let ids = store.submit(vec![task("mail"), task("mail")]).await.unwrap();
        let first = i64::from(number) << 44;
        assert_eq!(ids.iter().map(|one| one.id.0 - first).collect::<Vec<_>>(), [1, 2], "number {number}");
        assert!(ids[1].id.0 < 1 << 53);
        let mut raw = database.raw().await;
        raw.run("INSERT INTO task (type) VALUES ('mail')").await;
        assert_eq!(store.highest_id().await.unwrap().0 - first, 3, "a plain INSERT, too");
        drop((store, raw));
        database.remove().await;
    }
}

async fn a_database_keeps_its_number(platform: &Platform) {
    let database = TestDatabase::create(platform.dialect()).await;
    drop(open(&database.url, 7).await.unwrap());
    match open(&database.url, 8).await {
        Err(StoreError::Schema(message)) => assert!(message.contains("number 7"), "{message}"),
        other => panic!("another number was not refused: {:?}", other.map(drop)),
    }
    let store = open(&database.url, 7).await.unwrap();
    assert!(store.submit(vec![task("mail")]).await.unwrap()[0].id.0 > 7 << 44);
    drop(store);
    database.remove().await;
}

facts![
    the_id_of_a_removed_task_is_not_used_again,
    the_highest_id_of_an_emptied_store_is_not_used_again_after_a_reopen,
    a_retried_task_keeps_its_id,
    the_highest_id_is_that_of_the_newest_task,
    each_database_number_has_its_own_range_of_ids,
    a_database_keeps_its_number,
];
