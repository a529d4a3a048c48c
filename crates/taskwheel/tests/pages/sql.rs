//! The page on the tables: what it says in SQL runs on each database.

use crate::page::{page, part, texts};
use crate::support::{Dialect, Server, claim};
use serde_json::{Value, json};

const PAGE: &str = "docs/schema.md";

/// The statements of a text, without comments of whole lines.
fn statements(sql: &str) -> Vec<String> {
    let code: Vec<_> = sql.lines().filter(|line| !line.starts_with("--")).collect();
    let statements = code.join("\n");
    statements.split(';').map(|statement| statement.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// How the page's comments name a database.
fn name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "-- SQLite",
        Dialect::Postgres => "-- PostgreSQL",
        Dialect::Mysql => "-- MySQL and MariaDB",
    }
}

/// The statements that are for a database: those below its name, or all where none is named.
fn statements_for(sql: &str, dialect: Dialect) -> Vec<String> {
    let databases = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];
    if !databases.into_iter().any(|one| sql.contains(name(one))) {
        return statements(sql);
    }
    let (_, below) = sql.split_once(name(dialect)).unwrap_or_else(|| panic!("nothing for {}: {sql}", name(dialect)));
    statements(below.split_once("\n--").map_or(below, |(own, _)| own))
}

/// Tasks of every kind that the page asks for: task 7 is of order-7 and had an error, and each status is there.
async fn fill(server: &Server) {
    server.put("/v1/types/manual", json!({"need_manual": true, "max_attempts": 1})).await.ok();
    for task_type in ["done", "done", "broken", "manual", "runs", "later"] {
        server.submit(json!({"type": task_type, "creator": "ann", "max_attempts": 1})).await;
    }
    let retry = json!({"strategy": "fixed", "delay_ms": 0});
    let seventh = server.submit(json!({"type": "mail", "key": "order-7", "retry": retry})).await;
    assert_eq!(seventh, 7, "the page asks for task 7");
    let work = async |task_type: &str| -> Value { server.claim(claim("w", task_type)).await.remove(0) };
    for (task_type, outcome) in
        [("done", "success"), ("done", "success"), ("broken", "error"), ("manual", "error"), ("mail", "error")]
    {
        server.report(&work(task_type).await, outcome).await;
    }
    work("runs").await;
    let timers = json!([{"kind": "fixed_rate", "period_ms": 3_600_000, "initial_delay_ms": 3_600_000}]);
    server.post("/v1/schedules", json!({"name": "hourly", "type": "report", "timers": timers})).await.ok();
}

async fn every_query_of_the_page_runs_and_finds_something(server: &Server) {
    fill(server).await;
    let page = page(PAGE);
    let queries = texts(part(&page, "## Ten queries people want", "\n## "), "sql").concat();
    let queries = statements(&queries);
    assert_eq!(queries.len(), 10, "ten queries: {queries:?}");
    let of_schedules = statements(&texts(part(&page, "## Schedules", "\n## "), "sql").concat());
    assert_eq!(of_schedules.len(), 1, "what fires next: {of_schedules:?}");
    let of_creators = match server.database.dialect {
        Dialect::Mysql => statements(&texts(part(&page, "## Creators, categories", "\n## "), "sql").concat()),
        Dialect::Sqlite | Dialect::Postgres => Vec::new(),
    };
    let mut connection = server.database.raw().await;
    for query in queries.iter().chain(&of_schedules).chain(&of_creators) {
        assert!(!connection.rows(query).await.is_empty(), "finds nothing: {query}");
    }
}

async fn every_insert_of_the_page_is_a_submit(server: &Server) {
    let page = page(PAGE);
    let texts = texts(part(&page, "## Submitting by plain SQL", "\n## "), "sql");
    let inserts: Vec<_> = texts.iter().flat_map(|sql| statements_for(sql, server.database.dialect)).collect();
    assert_eq!(inserts.len(), 2, "one that is due now and one in an hour: {inserts:?}");
    let mut connection = server.database.raw().await;
    for insert in &inserts {
        connection.run(insert).await;
    }
    let task = server.claim(claim("w", "mail")).await.remove(0);
    assert_eq!((&task["key"], &task["payload"]), (&json!("order-7"), &json!({"to": "a@b.c"})));
    assert!(server.claim(claim("w", "report")).await.is_empty(), "not due");
    let waiting = server.get("/v1/tasks?type=report&status=New").await.ok();
    let time = |name: &str| waiting["items"][0][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let delay = time("run_at").duration_since(time("created_at")).as_secs();
    assert!((3_590..=3_600).contains(&delay), "due in an hour: {delay} s");
}

crate::facts![every_query_of_the_page_runs_and_finds_something, every_insert_of_the_page_is_a_submit];
