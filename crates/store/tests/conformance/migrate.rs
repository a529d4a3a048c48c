//! Migrations: safe when many start at once, safe to interrupt, and careful with what they do not know.

use crate::facts;
use crate::support::{Dialect, Platform, TestDatabase, task, worker};
use std::time::Duration;
use taskwheel_store::{Options, Store, StoreError};

/// A store that works: it submits, claims and finishes.
async fn assert_works(store: &dyn Store) {
    let id = store.submit(vec![task("mail")]).await.unwrap()[0].id;
    let claimed = store.claim(vec![worker(&["mail"])]).await.unwrap().remove(0);
    assert!(claimed.iter().any(|one| one.id == id));
    assert_eq!(store.contradictions().await.unwrap(), 0);
}

async fn twenty_may_open_an_empty_database_at_once(platform: &Platform) {
    let database = TestDatabase::create(platform.dialect()).await;
    let opens: Vec<_> = (0..20)
        .map(|_| {
            let options = Options { connections_max: 2, ..Options::new(&database.url) };
            tokio::spawn(taskwheel_store::open(options))
        })
        .collect();
    let mut stores = Vec::new();
    for open in opens {
        stores.push(open.await.unwrap().expect("each of them opens"));
    }
    let version = stores[0].inspect().await.unwrap().schema_version;
    assert!(version >= 1);
    for store in &stores {
        assert_works(&**store).await;
    }
    drop(stores);
    database.remove().await;
}

async fn opening_again_changes_nothing(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let before = platform.store.inspect().await.unwrap();
    let again = platform.open_again(|_| ()).await.unwrap();
    assert_eq!(again.inspect().await.unwrap(), before);
    assert!(again.get(None, id).await.unwrap().is_some());
}

async fn an_open_dropped_at_any_moment_is_completed_by_the_next(platform: &Platform) {
    for step in 0..8 {
        let database = TestDatabase::create(platform.dialect()).await;
        for part in 1..=2 {
            let budget = Duration::from_micros(500 * (1 << step) * part);
            let interrupted = tokio::time::timeout(budget, taskwheel_store::open(Options::new(&database.url))).await;
            drop(interrupted);
        }
        let store = taskwheel_store::open(Options::new(&database.url)).await.expect("the next open completes it");
        assert_works(&*store).await;
        drop(store);
        database.remove().await;
    }
}

async fn who_may_not_make_a_schema_leaves_an_empty_database_empty(platform: &Platform) {
    let database = TestDatabase::create(platform.dialect()).await;
    let look = || taskwheel_store::open(Options { makes_schema: false, ..Options::new(&database.url) });
    match look().await {
        Err(StoreError::Schema(message)) => assert!(message.contains("there "), "{message}"),
        other => panic!("an empty database was opened: {:?}", other.map(drop)),
    }
    assert!(database.raw().await.execute("SELECT * FROM taskwheel_schema").await.is_err(), "nothing was made");
    drop(taskwheel_store::open(Options::new(&database.url)).await.expect("others may"));
    assert_works(&*look().await.expect("what is there is opened")).await;
    database.remove().await;
}

/// MySQL commits after each statement of a migration: one that was killed leaves half of it behind. Elsewhere a migration is one transaction.
async fn half_a_migration_is_completed_by_the_next_open(_: &Platform) {
    let lost = [
        vec!["DROP VIEW task_view"],
        vec!["DROP VIEW task_view", "DROP TABLE task_worker"],
        vec!["DROP VIEW task_view", "DROP TABLE task_worker", "DROP TABLE task_type", "DROP TABLE task_attempt"],
        vec!["DROP INDEX task_by_type ON task"],
    ];
    for statements in lost {
        let database = TestDatabase::create(Dialect::Mysql).await;
        drop(taskwheel_store::open(Options::new(&database.url)).await.unwrap());
        let mut raw = database.raw().await;
        raw.run("DELETE FROM taskwheel_schema").await;
        for statement in &statements {
            // An index that another layout of the table does not have is no loss.
            let done = raw.execute(statement).await;
            assert!(done.is_ok() || statement.contains("INDEX"), "{statement}: {done:?}");
        }
        let store = taskwheel_store::open(Options::new(&database.url)).await;
        let store = store.unwrap_or_else(|error| panic!("after {statements:?}: {error}"));
        assert_works(&*store).await;
        assert_eq!(raw.number("SELECT count(*) FROM task_view").await, 1);
        drop((store, raw));
        database.remove().await;
    }
}

async fn a_schema_that_needs_a_newer_program_is_refused(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("UPDATE taskwheel_schema SET version = 99, oldest_program = 99").await;
    match platform.open_again(|_| ()).await {
        Err(StoreError::Schema(message)) => assert!(message.contains("99") && message.contains("newer"), "{message}"),
        other => panic!("a schema from the future was not refused: {:?}", other.map(drop)),
    }
}

async fn a_newer_schema_that_still_allows_this_program_is_fine(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("UPDATE taskwheel_schema SET version = 99").await;
    let store = platform.open_again(|_| ()).await.expect("a rolling upgrade works");
    assert_works(&*store).await;
    assert_eq!(raw.number("SELECT version FROM taskwheel_schema").await, 99, "and stays as it is");
}

async fn a_store_tells_how_its_database_stands(platform: &Platform) {
    let inspection = platform.store.inspect().await.unwrap();
    let names = match platform.dialect() {
        Dialect::Sqlite => ["SQLite", "SQLite"],
        Dialect::Postgres => ["PostgreSQL", "PostgreSQL"],
        Dialect::Mysql => ["MySQL", "MariaDB"],
    };
    assert!(names.iter().any(|name| inspection.database.contains(name)), "{inspection:?}");
    assert_eq!(inspection.weak_settings, [], "the test servers are as durable as they come");
}

async fn a_url_of_no_known_database_is_refused(_: &Platform) {
    for url in ["", "tasks.db", "oracle://host/x"] {
        let opened = taskwheel_store::open(Options::new(url)).await;
        assert!(matches!(opened, Err(StoreError::Configuration(_))), "{url}");
    }
}

facts![
    twenty_may_open_an_empty_database_at_once,
    opening_again_changes_nothing,
    an_open_dropped_at_any_moment_is_completed_by_the_next,
    who_may_not_make_a_schema_leaves_an_empty_database_empty,
    a_schema_that_needs_a_newer_program_is_refused,
    a_newer_schema_that_still_allows_this_program_is_fine,
    a_store_tells_how_its_database_stands,
    a_url_of_no_known_database_is_refused,
];

facts! { in halves on Mysql: half_a_migration_is_completed_by_the_next_open }
