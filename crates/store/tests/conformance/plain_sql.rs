//! Plain SQL: an INSERT is a whole submit, and a view shows every task.

use crate::facts;
use crate::support::{Platform, Raw, eventually, task, worker};
use sqlx::postgres::PgListener;
use std::time::Duration;
use taskwheel_model::{NewTask, Outcome, Slot, Status, TypeSettings};
use taskwheel_store::worker::ClaimedTask;

const INSERT: &str = r#"INSERT INTO task (type, task_key, payload) VALUES ('mail', 'order-7', '{"to":"a@b.c"}')"#;

/// What was inserted past the store is found within a second, and so claims ask again.
async fn claim_soon(platform: &Platform) -> ClaimedTask {
    // The database's clock is ahead of the platform's by what the test took so far.
    platform.advance_ms(120_000);
    eventually("the inserted task is claimed", || async { platform.claim("mail").await.pop() }).await
}

async fn a_plain_insert_is_a_whole_submit(platform: &Platform) {
    let before = platform.now();
    let settings = TypeSettings { max_attempts: Some(7), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    platform.raw().await.run(INSERT).await;
    let shown = platform.all_tasks().await.remove(0);
    assert_eq!((shown.tenant.as_str(), shown.status, shown.priority), ("default", Status::New, 1));
    assert_eq!((shown.key.as_deref(), shown.payload.as_deref()), (Some("order-7"), Some(r#"{"to":"a@b.c"}"#)));
    assert_eq!((shown.max_attempts, shown.slot), (Some(7), Slot::of_id(shown.id).get()));
    let late_ms = shown.run_at.ms_since(before);
    assert!((-1_000..60_000).contains(&late_ms), "due {late_ms} ms after the test began");
    assert!((-1_000..60_000).contains(&shown.created_at.ms_since(before)));

    let claimed = claim_soon(platform).await;
    assert_eq!((claimed.id, claimed.attempt), (shown.id, 1));
    assert_eq!((claimed.key.as_deref(), claimed.payload.as_deref()), (Some("order-7"), Some(r#"{"to":"a@b.c"}"#)));
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.status(claimed.id).await, Status::Success);
}

async fn by_the_databases_clock_a_plain_insert_is_claimed_within_a_second(platform: &Platform) {
    let store = platform.with_real_clock().await;
    // Claims have been at work, so that they have learnt where to look.
    for _ in 0..3 {
        store.submit(vec![task("mail")]).await.unwrap();
        let claimed = store.claim(vec![worker(&["mail"])]).await.unwrap().remove(0);
        assert_eq!(claimed.len(), 1);
    }
    platform.raw().await.run(INSERT).await;
    let began = std::time::Instant::now();
    eventually("the inserted task is claimed", || async {
        store.claim(vec![worker(&["mail"])]).await.unwrap().remove(0).pop()
    })
    .await;
    assert!(began.elapsed().as_secs() < 5, "a second at most, where nothing else is going on");
}

async fn a_committed_transaction_runs_and_a_rolled_back_one_leaves_nothing(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)").await;
    for (end, rows) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        raw.run("BEGIN").await;
        raw.run("INSERT INTO orders (id) VALUES (7)").await;
        raw.run(INSERT).await;
        assert!(platform.all_tasks().await.is_empty(), "nobody sees it before {end}");
        raw.run(end).await;
        assert_eq!(raw.number("SELECT count(*) FROM orders").await, rows, "{end}");
        assert_eq!(platform.all_tasks().await.len() as i64, rows, "{end}");
        assert_eq!(platform.store.contradictions().await.unwrap(), 0, "{end}");
    }
    claim_soon(platform).await;
}

async fn many_rows_in_one_insert_are_as_many_tasks(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run("INSERT INTO task (type, priority) VALUES ('mail', 1), ('mail', 9), ('mail', 5)").await;
    platform.advance_ms(120_000);
    let claimed = platform.claim("mail").await;
    assert_eq!(claimed.iter().map(|task| task.priority).collect::<Vec<_>>(), [9, 5, 1]);
}

async fn every_column_of_a_submit_can_be_inserted(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run(
        "INSERT INTO task (tenant, type, task_key, priority, max_attempts, timeout_ms, category, creator, route_key,
                           unique_key, affinity, retry)
         VALUES ('acme', 'mail', 'k', 9, 5, 1000, 'mails', 'shop', 'r', 'u', 'host', '{\"strategy\":\"fixed\",\"delay_ms\":7}')",
    )
    .await;
    let shown = platform.all_tasks().await.remove(0);
    assert_eq!((shown.tenant.as_str(), shown.priority, shown.max_attempts), ("acme", 9, Some(5)));
    assert_eq!((shown.timeout_ms, shown.category.as_deref()), (Some(1_000), Some("mails")));
    assert_eq!((shown.creator.as_deref(), shown.unique_key.as_deref()), (Some("shop"), Some("u")));
    assert_eq!((shown.route_key.as_deref(), shown.affinity.as_deref()), (Some("r"), Some("host")));
    assert_eq!(shown.retry, Some(taskwheel_model::RetryPolicy::Fixed { delay_ms: 7 }));
    let offered = NewTask { tenant: "acme".into(), unique_key: Some("u".into()), ..task("mail") };
    assert!(!platform.offer(offered).await.created, "its unique key counts");
}

async fn a_live_unique_key_is_a_unique_violation(platform: &Platform) {
    let id = platform.submit(NewTask { unique_key: Some("u".into()), ..task("mail") }).await;
    let mut raw = platform.raw().await;
    let insert = "INSERT INTO task (type, unique_key) VALUES ('mail', 'u')";
    let error = raw.execute(insert).await.unwrap_err().to_lowercase();
    assert!(error.contains("unique") || error.contains("duplicate"), "{error}");
    assert_eq!(platform.all_tasks().await.len(), 1);
    platform.act(id, taskwheel_store::people::Action::Cancel).await;
    raw.run(insert).await;
    assert_eq!(platform.all_tasks().await.len(), 2);
}

async fn bad_values_are_refused_by_the_database(platform: &Platform) {
    let mut raw = platform.raw().await;
    let long = |count: usize| "x".repeat(count);
    let bad = [
        ("task_key", "'k'".to_owned(), "no type"),
        ("type", "NULL".to_owned(), "type NULL"),
        ("type", "''".to_owned(), "an empty type"),
        ("type", "'two words'".to_owned(), "a type with a space"),
        ("type", "'a@b'".to_owned(), "a type with an @"),
        ("type", "'mail\n'".to_owned(), "a type with a line break"),
        ("type", format!("'{}'", long(201)), "a long type"),
        ("type, tenant", "'mail', ''".to_owned(), "an empty tenant"),
        ("type, tenant", format!("'mail', '{}'", long(65)), "a long tenant"),
        ("type, task_key", format!("'mail', '{}'", long(201)), "a long key"),
        ("type, payload", "'mail', '{not json'".to_owned(), "a payload that is no JSON"),
        ("type, payload", format!("'mail', '\"{}\"'", long(300 * 1024)), "a payload of 300 KB"),
        ("type, priority", "'mail', 0".to_owned(), "priority 0"),
        ("type, priority", "'mail', 10".to_owned(), "priority 10"),
        ("type, max_attempts", "'mail', 0".to_owned(), "no attempts"),
        ("type, max_attempts", "'mail', -2".to_owned(), "negative attempts"),
        ("type, timeout_ms", "'mail', 0".to_owned(), "no time"),
        ("type, retry", "'mail', 'often'".to_owned(), "a policy that is no JSON"),
        ("type, category", "'mail', ''".to_owned(), "an empty category"),
        ("type, creator", format!("'mail', '{}'", long(65)), "a long creator"),
        ("type, unique_key", "'mail', ''".to_owned(), "an empty unique key"),
        ("type, affinity", "'mail', ''".to_owned(), "an empty affinity"),
        ("type, slot", "'mail', 1024".to_owned(), "slot 1024"),
    ];
    for (columns, values, what) in bad {
        let answer = raw.execute(&format!("INSERT INTO task ({columns}) VALUES ({values})")).await;
        assert!(answer.is_err(), "{what} was not refused");
    }
    assert!(platform.all_tasks().await.is_empty());
}

async fn a_policy_that_makes_no_sense_counts_as_not_given(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run(r#"INSERT INTO task (type, retry) VALUES ('mail', '{"strategy":"often"}')"#).await;
    let claimed = claim_soon(platform).await;
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.task(claimed.id).await.run_at, platform.now().plus_ms(10_000));
}

/// Status, host, worker, and whether it has a lock time and an end.
async fn seen(raw: &mut Raw, id: taskwheel_model::TaskId) -> [String; 5] {
    let sql = format!(
        "SELECT status, host, worker_id, CASE WHEN locked_at IS NULL THEN 'free' ELSE 'locked' END,
                CASE WHEN finished_at IS NULL THEN 'live' ELSE 'finished' END FROM task_view WHERE id = {id}"
    );
    let row = raw.rows(&sql).await.remove(0);
    let texts: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
    texts.try_into().unwrap()
}

async fn the_view_shows_every_task_with_its_status_as_a_word(platform: &Platform) {
    let mut raw = platform.raw().await;
    let id = platform.submit(task("mail")).await;
    assert_eq!(seen(&mut raw, id).await, ["New", "", "", "free", "live"]);
    let claimed = platform.claim_one("mail").await;
    assert_eq!(seen(&mut raw, id).await, ["Executing", "host", "worker", "locked", "live"]);
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(seen(&mut raw, id).await, ["Error", "", "", "free", "live"]);
    platform.advance_ms(10_000);
    let claimed = platform.claim_one("mail").await;
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(seen(&mut raw, id).await, ["Success", "host", "worker", "free", "finished"]);
    assert_eq!(raw.number("SELECT count(*) FROM task_view").await, 1);
}

async fn the_view_shows_times_as_times(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let mut raw = platform.raw().await;
    let sql = "SELECT run_at, created_at, locked_at, lease_until, started_at, updated_at FROM task_view";
    for time in raw.rows(sql).await.remove(0) {
        let time = time.expect("a time");
        let is_date = time.len() >= 19 && time[..4].parse::<u32>().is_ok_and(|year| year > 2020) && &time[4..5] == "-";
        assert!(is_date, "{time} is not a time that people read");
    }
    platform.finish(&claimed, Outcome::Failure).await;
    let row = raw.rows("SELECT status, task_key, payload, attempts, error_count FROM task_view").await.remove(0);
    let row: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
    assert_eq!(row, ["Failure", "", "", "1", "0"]);
}

/// Transactions that notify commit one after the other.
async fn of_transactions_that_insert_at_once_one_notifies(platform: &Platform) {
    let mut listener = PgListener::connect(platform.url()).await.unwrap();
    listener.listen("taskwheel").await.unwrap();
    let (mut first, mut second) = (platform.raw().await, platform.raw().await);
    let later = "INSERT INTO task (type, run_at) VALUES ('mail', now() + interval '1 day')";
    second.run("BEGIN").await;
    second.run(later).await;
    first.run("BEGIN").await;
    first.run("INSERT INTO task (type) VALUES ('mail')").await;
    second.run("COMMIT").await;
    second.run("INSERT INTO task (type) VALUES ('mail')").await;
    first.run("COMMIT").await;
    second.run("INSERT INTO task (type) VALUES ('end')").await;
    // Of the first, which what is not due soon did not keep from it; none of what came while that went on.
    for name in ["mail", "end"] {
        let heard = tokio::time::timeout(Duration::from_secs(20), listener.recv()).await.expect("it is told").unwrap();
        assert!(heard.payload().ends_with(name), "{}", heard.payload());
    }
}

crate::facts! { in postgres_alone on Postgres: of_transactions_that_insert_at_once_one_notifies }
facts![
    a_plain_insert_is_a_whole_submit,
    by_the_databases_clock_a_plain_insert_is_claimed_within_a_second,
    a_committed_transaction_runs_and_a_rolled_back_one_leaves_nothing,
    many_rows_in_one_insert_are_as_many_tasks,
    every_column_of_a_submit_can_be_inserted,
    a_live_unique_key_is_a_unique_violation,
    bad_values_are_refused_by_the_database,
    a_policy_that_makes_no_sense_counts_as_not_given,
    the_view_shows_every_task_with_its_status_as_a_word,
    the_view_shows_times_as_times,
];
