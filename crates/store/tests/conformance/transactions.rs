//! Submit on the user's own transaction: tasks and business rows commit together or not at all.

use crate::facts;
use crate::support::{Platform, Raw, due_in, task, worker};
use taskwheel_model::{NewTask, Slot, Status, TypeSettings};
use taskwheel_store::task::Submitted;
use taskwheel_store::{Result, StoreError};

async fn submit_on(raw: &mut Raw, tasks: &[NewTask]) -> Result<Vec<Submitted>> {
    match raw {
        Raw::Sqlite(connection) => taskwheel_store::sqlite::submit_on(connection, tasks),
        Raw::Postgres(connection) => taskwheel_store::postgres::submit_on(connection, tasks).await,
        Raw::Mysql(connection) => taskwheel_store::mysql::submit_on(connection, tasks).await,
    }
}

async fn with_orders(platform: &Platform) -> Raw {
    let mut raw = platform.raw().await;
    raw.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)").await;
    raw
}

async fn a_commit_keeps_both_and_a_rollback_neither(platform: &Platform) {
    let mut raw = with_orders(platform).await;
    for (end, count) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        raw.run("BEGIN").await;
        raw.run("INSERT INTO orders (id) VALUES (7)").await;
        let submitted = submit_on(&mut raw, &[task("mail")]).await.unwrap();
        assert!(submitted[0].created);
        assert!(platform.store.get(None, submitted[0].id).await.unwrap().is_none(), "not before {end}");
        raw.run(end).await;
        assert_eq!(raw.number("SELECT count(*) FROM orders").await, count, "{end}");
        assert_eq!(platform.all_tasks().await.len() as i64, count, "{end}");
    }
    platform.advance_ms(120_000);
    assert_eq!(platform.claim("mail").await.len(), 1);
}

async fn everything_that_can_be_submitted_can_be_so(platform: &Platform) {
    let settings = TypeSettings { priority: Some(6), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let given = NewTask {
        key: Some("k".into()),
        payload: Some("[1]".into()),
        route_key: Some("abc".into()),
        unique_key: Some("u".into()),
        ..due_in("mail", 60_000)
    };
    let mut raw = platform.raw().await;
    raw.run("BEGIN").await;
    let submitted = submit_on(&mut raw, &[given.clone(), task("mail"), given.clone()]).await.unwrap();
    raw.run("COMMIT").await;
    assert_eq!(submitted.iter().map(|one| one.created).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(submitted[2].id, submitted[0].id);
    let shown = platform.task(submitted[0].id).await;
    assert_eq!((shown.key, shown.payload, shown.unique_key), (given.key, given.payload, given.unique_key));
    assert_eq!((shown.priority, shown.slot), (6, Slot::of_route_key("abc").get()));
    assert!(shown.run_at.ms_since(platform.now()) > 50_000, "the delay is added to the database's clock");
}

async fn an_existing_key_answers_its_task_and_the_transaction_goes_on(platform: &Platform) {
    let keyed = NewTask { unique_key: Some("u".into()), ..task("mail") };
    let id = platform.submit(keyed.clone()).await;
    let mut raw = with_orders(platform).await;
    raw.run("BEGIN").await;
    assert_eq!(submit_on(&mut raw, &[keyed]).await.unwrap(), [Submitted { id, created: false }]);
    raw.run("INSERT INTO orders (id) VALUES (7)").await;
    raw.run("COMMIT").await;
    assert_eq!(raw.number("SELECT count(*) FROM orders").await, 1);
}

async fn bad_input_is_refused_before_anything_is_written(platform: &Platform) {
    let mut raw = with_orders(platform).await;
    raw.run("BEGIN").await;
    raw.run("INSERT INTO orders (id) VALUES (7)").await;
    let bad = NewTask { priority: Some(10), ..task("mail") };
    match submit_on(&mut raw, &[task("mail"), bad]).await {
        Err(StoreError::Invalid { index, errors }) => assert_eq!((index, errors[0].field.as_str()), (1, "priority")),
        other => panic!("{other:?}"),
    }
    raw.run("COMMIT").await;
    assert_eq!(raw.number("SELECT count(*) FROM orders").await, 1, "the transaction is still the user's");
    assert!(platform.all_tasks().await.is_empty());
}

async fn several_submits_fit_in_one_transaction(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("BEGIN").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(submit_on(&mut raw, &[task("mail")]).await.unwrap()[0].id);
    }
    raw.run("COMMIT").await;
    platform.advance_ms(120_000);
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, ids);
    assert_eq!(platform.status(ids[0]).await, Status::Executing);
}

async fn without_the_tables_it_says_how_to_make_them(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("ALTER TABLE task_type RENAME TO task_type_before").await;
    match submit_on(&mut raw, &[task("mail")]).await {
        Err(StoreError::Schema(words)) => assert!(words.contains("make them with `taskwheel migrate`"), "{words}"),
        other => panic!("{other:?}"),
    }
    raw.run("ALTER TABLE task_type_before RENAME TO task_type").await;
}

facts![
    without_the_tables_it_says_how_to_make_them,
    a_commit_keeps_both_and_a_rollback_neither,
    everything_that_can_be_submitted_can_be_so,
    an_existing_key_answers_its_task_and_the_transaction_goes_on,
    bad_input_is_refused_before_anything_is_written,
    several_submits_fit_in_one_transaction,
];

/// Where a server's connections commit nothing by themselves, as some are set up, what the store acknowledges is committed all the same.
mod mysql_without_autocommit {
    use crate::own_server::OwnServer;
    use crate::support::{Dialect, Raw, task, worker};
    use taskwheel_model::Outcome;
    use taskwheel_store::Options;
    use taskwheel_store::worker::Report;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_acknowledged_is_committed() {
        let server = OwnServer::start_with(Dialect::Mysql, &["autocommit=0"]).await;
        let store = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens");
        // Alone, and several in one text.
        for tasks in [1, 3] {
            store.submit(vec![task("mail"); tasks]).await.expect("the submit goes through");
        }
        let claimed = store.claim(vec![worker(&["mail"])]).await.expect("the claim goes through").remove(0);
        let ends = claimed[..2].iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
        store.finish(ends).await.expect("the reports go through");
        let mut raw = Raw::connect(Dialect::Mysql, &server.url()).await;
        for (table, rows) in [("task", 4), ("task_waiting", 0), ("task_running", 2), ("task_history", 2)] {
            assert_eq!(raw.number(&format!("SELECT COUNT(*) FROM {table}")).await, rows, "{table}");
        }
    }
}
