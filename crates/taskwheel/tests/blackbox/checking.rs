//! `taskwheel check`: it names what is wrong with a database, and how to mend it.

use crate::support::{Dialect, OwnServer, Raw, Server};
use serde_json::{Value, json};
use tokio::process::Command;

async fn run(command: &str, database: &str) -> (bool, Value) {
    let arguments = [command, "--json", "--database", database];
    let ran = Command::new(env!("CARGO_BIN_EXE_taskwheel")).args(arguments).output().await.unwrap();
    (ran.status.success(), serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}")))
}

async fn migrate(database: &str) {
    assert!(run("migrate", database).await.0);
}

/// The problems of a database.
async fn problems(database: &str) -> Vec<String> {
    let (is_good, report) = run("check", database).await;
    let problems: Vec<String> = serde_json::from_value(report["problems"].clone()).unwrap();
    assert_eq!(is_good, problems.is_empty(), "the exit code says whether there are any: {report}");
    problems
}

/// Looks for a problem that says all of this, and gives what it says.
#[track_caller]
fn named<'p>(problems: &'p [String], words: &[&str]) -> &'p str {
    let found = problems.iter().find(|problem| words.iter().all(|word| problem.contains(word)));
    found.unwrap_or_else(|| panic!("{words:?} is not among {problems:?}"))
}

/// The only value of the only row.
async fn text(connection: &mut Raw, sql: &str) -> String {
    connection.rows(sql).await.remove(0).remove(0).expect("a value")
}

async fn check_names_what_is_wrong_and_how_to_mend_it(server: &Server) {
    let database = &server.database;
    assert_eq!(problems(&database.url).await, [""; 0]);
    let drop = match database.dialect {
        Dialect::Mysql => "DROP INDEX task_by_creator ON task",
        _ => "DROP INDEX task_by_creator",
    };
    database.raw().await.run(drop).await;
    named(&problems(&database.url).await, &["task_by_creator is missing"]);
}

async fn check_names_tasks_that_are_torn(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    server.database.raw().await.run(&format!("DELETE FROM task_waiting WHERE id = {id}")).await;
    named(&problems(&server.database.url).await, &["1 tasks are in two places at once or in none"]);
}

async fn check_names_commits_that_may_be_lost(server: &Server) {
    let (_, name) = server.database.url.rsplit_once('/').expect("a URL names a database");
    server.database.raw().await.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    named(&problems(&server.database.url).await, &["synchronous_commit is off: set it to on"]);
}

/// Nobody waits for minutes here: functions that come before the database's own say that ten more have passed.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_who_holds_back_dead_rows_of_postgres_and_clocks_that_differ() {
    let server = OwnServer::start_with(Dialect::Postgres, &["max_prepared_transactions=1"]).await;
    let database = server.url();
    migrate(&database).await;
    let mut sleeper = Raw::connect(Dialect::Postgres, &database).await;
    for statement in ["SET application_name = 'sleeper'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        sleeper.run(statement).await;
    }
    let mut raw = Raw::connect(Dialect::Postgres, &database).await;
    for statement in ["BEGIN", "CREATE TABLE own (id bigint)", "PREPARE TRANSACTION 'forgotten'"] {
        raw.run(statement).await;
    }
    assert_eq!(problems(&database).await, [""; 0], "what is young holds back little");
    for clock in ["now", "clock_timestamp"] {
        let body = format!("SELECT pg_catalog.{clock}() + interval '10 minutes'");
        raw.run(&format!("CREATE FUNCTION public.{clock}() RETURNS timestamptz LANGUAGE sql AS $${body}$$")).await;
    }
    raw.run("ALTER DATABASE taskwheel SET search_path = public, pg_catalog").await;
    let found = problems(&database).await;
    named(&found, &["the database's clock is", "ms ahead of this machine's", "NTP"]);
    let process = text(&mut sleeper, "SELECT pg_backend_pid()").await;
    let remedy = format!("end it with SELECT pg_terminate_backend({process})");
    named(&found, &["user taskwheel, application sleeper, state idle in transaction", "dead rows for 00:10:", &remedy]);
    named(&found, &["prepared transaction forgotten of user taskwheel", "end it with ROLLBACK PREPARED 'forgotten'"]);
}

/// Connections are told a time ten minutes from now. How old transactions are the server knows by its own clock.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_who_holds_back_dead_rows_of_mariadb_weak_commits_and_clocks_that_differ() {
    let settings = &["innodb-flush-log-at-trx-commit=2", "init-connect=SET timestamp = UNIX_TIMESTAMP() + 600"];
    let server = OwnServer::start_with(Dialect::Mysql, settings).await;
    let ordinary = server.url();
    migrate(&ordinary).await;
    let found = problems(&ordinary).await;
    assert_eq!(found.len(), 3, "{found:?}");
    named(&found, &["innodb_flush_log_at_trx_commit is 2: set it to 1"]);
    named(&found, &["the database's clock is", "ms ahead of this machine's", "NTP"]);
    named(&found, &["not shown to this user", "GRANT PROCESS ON *.*"]);
    let privileged = ordinary.replace("ordinary", "taskwheel");
    let mut sleeper = Raw::connect(Dialect::Mysql, &ordinary).await;
    sleeper.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").await;
    let connection = text(&mut sleeper, "SELECT CONNECTION_ID()").await;
    let (who, remedy) = (format!("connection {connection} has been"), format!("end it with KILL {connection}"));
    named(&problems(&privileged).await, &[&who, "keeps the server from removing dead rows", &remedy]);
}

crate::facts![check_names_what_is_wrong_and_how_to_mend_it, check_names_tasks_that_are_torn];
crate::facts! { in postgres_alone on Postgres: check_names_commits_that_may_be_lost }
