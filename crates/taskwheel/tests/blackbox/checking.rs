//! `taskwheel check`: it names what is wrong with a database, and how to mend it.

use crate::support::{Dialect, OwnServer, Raw, Server, eventually};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::process::Command;

async fn run(command: &str, database: &str) -> (bool, Value) {
    run_with(command, database, &[]).await
}

async fn run_with(command: &str, database: &str, variables: &[(&str, &str)]) -> (bool, Value) {
    let mut ran = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    ran.args([command, "--json", "--database", database]).envs(variables.iter().copied());
    let ran = ran.output().await.unwrap();
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
        Dialect::Mysql => "DROP INDEX task_by_key ON task",
        _ => "DROP INDEX task_by_key",
    };
    let mut raw = database.raw().await;
    raw.run(drop).await;
    let found = problems(&database.url).await;
    let (_, remedy) = named(&found, &["task_by_key is missing"]).split_once(" with ").expect("how to mend it");
    raw.run(remedy).await;
    assert_eq!(problems(&database.url).await, [""; 0], "it is mended");
}

/// What keeps two of a thing from being there is an index as well.
async fn check_names_unique_indexes_and_primary_keys_that_are_gone(server: &Server) {
    let database = &server.database;
    let (once, running) = match database.dialect {
        Dialect::Mysql => ("DROP INDEX task_run_once ON task_run", "ALTER TABLE task_running DROP PRIMARY KEY"),
        _ => (
            "ALTER TABLE task_run DROP CONSTRAINT task_run_once",
            "ALTER TABLE task_running DROP CONSTRAINT task_running_pkey",
        ),
    };
    let mut raw = database.raw().await;
    for (drop, what) in [(once, "the index task_run_once"), (running, "the primary key of task_running")] {
        raw.run(drop).await;
        let found = problems(&database.url).await;
        let (_, remedy) = named(&found, &[what, "is missing"]).split_once(" with ").expect("how to mend it");
        raw.run(remedy).await;
        assert_eq!(problems(&database.url).await, [""; 0], "it is mended");
    }
}

/// Its name and its columns are not all there is to an index.
async fn check_names_unique_indexes_that_are_so_no_longer(server: &Server) {
    let database = &server.database;
    let drop = match database.dialect {
        Dialect::Mysql => "DROP INDEX task_run_once ON task_run",
        _ => "ALTER TABLE task_run DROP CONSTRAINT task_run_once",
    };
    let mut raw = database.raw().await;
    raw.run(drop).await;
    raw.run("CREATE INDEX task_run_once ON task_run (timer_id, due_at)").await;
    named(&problems(&database.url).await, &["the index task_run_once lets two rows have the same", "remove it"]);
}

/// As after a backup that was restored in part.
async fn check_names_triggers_views_and_tables_that_are_gone(server: &Server) {
    let database = &server.database;
    let trigger = match database.dialect {
        Dialect::Postgres => "DROP TRIGGER task_goes_live ON task",
        _ => "DROP TRIGGER task_goes_live",
    };
    let mut raw = database.raw().await;
    for (drop, what) in
        [(trigger, "the trigger task_goes_live is missing"), ("DROP VIEW task_view", "the view task_view")]
    {
        raw.run(drop).await;
        let found = problems(&database.url).await;
        let (_, remedy) = named(&found, &[what]).split_once(" again with ").expect("how to mend it");
        raw.run(remedy).await;
        assert_eq!(problems(&database.url).await, [""; 0], "it is mended");
    }
    if database.dialect == Dialect::Postgres {
        raw.run("ALTER TABLE task DISABLE TRIGGER task_goes_live").await;
        named(&problems(&database.url).await, &["task_goes_live is missing or switched off"]);
        raw.run("ALTER TABLE task ENABLE TRIGGER task_goes_live").await;
    }
    for table in ["task_audit", "task_step"] {
        raw.run(&format!("DROP TABLE {table}")).await;
        let found = problems(&database.url).await;
        named(&found, &[format!("the table {table} is missing").as_str(), "backup"]);
        let of_table = found.iter().filter(|problem| problem.contains(table)).count();
        assert_eq!(of_table, 1, "no word about its indexes: {found:?}");
    }
    // The view is of it too.
    let cascade = if database.dialect == Dialect::Postgres { " CASCADE" } else { "" };
    raw.run(&format!("DROP TABLE task_running{cascade}")).await;
    named(&problems(&database.url).await, &["the table task_running is missing"]);
}

/// One that has the name of another, or that was left behind when its making failed.
async fn check_names_indexes_that_are_of_no_use(server: &Server) {
    let database = &server.database;
    let mut raw = database.raw().await;
    raw.run("DROP INDEX task_by_key").await;
    raw.run("CREATE INDEX task_by_key ON task (id)").await;
    named(&problems(&database.url).await, &["the index task_by_key is on id, and not on tenant, task_key, id"]);
    for key in ["one", "other"] {
        let columns = "tenant, idempotency_key, id, created, answered_at, fingerprint";
        raw.run(&format!("INSERT INTO task_answer ({columns}) VALUES ('acme', '{key}', 1, true, 9000000000000, 1)"))
            .await;
    }
    raw.run("DROP INDEX task_answer_by_time").await;
    let twice = raw.execute("CREATE UNIQUE INDEX CONCURRENTLY task_answer_by_time ON task_answer (answered_at)").await;
    assert!(twice.unwrap_err().contains("task_answer_by_time"), "two have the same time");
    named(&problems(&database.url).await, &["the index task_answer_by_time is of no use", "remove it"]);
}

/// What `serve` would refuse or warn about.
async fn check_names_what_is_wrong_with_the_configuration(server: &Server) {
    let public = ("TASKWHEEL_LISTEN", "0.0.0.0:9222");
    let tls = [("TASKWHEEL_TLS_CERT", "/nope/cert.pem"), ("TASKWHEEL_TLS_KEY", "/nope/key.pem")];
    let others = [("TASKWHEEL_LOG", "debgu"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")];
    let url = &server.database.url;
    let of = async |variables: &[(&str, &str)]| -> Vec<String> {
        let (is_good, report) = run_with("check", url, variables).await;
        assert!(!is_good, "{report}");
        serde_json::from_value(report["problems"].clone()).unwrap()
    };
    let found = of(&[public]).await;
    named(&found, &["there are no tokens yet", "tokens create"]);
    named(&found, &["WITHOUT TLS", "--tls-cert"]);
    assert_eq!(found.len(), 2, "{found:?}");
    let found = of(&[&tls[..], &others].concat()).await;
    named(&found, &["--tls-cert", "cannot read /nope/cert.pem"]);
    named(&found, &["TASKWHEEL_LOG must be"]);
    named(&found, &["OTEL_EXPORTER_OTLP_ENDPOINT must be"]);
    assert_eq!(found.len(), 3, "{found:?}");
    named(&of(&[("TASKWHEEL_LISTEN", "nowhere")]).await, &["--listen must be an address and a port"]);
    for (name, value) in [("TASKWHEEL_TIMEZONE", "Mars/Base"), ("TASKWHEEL_KEEP_SUCCESS", "bogus")] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        let refused = check.args(["check", "--database", url]).env(name, value).output().await.unwrap();
        let complaint = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && complaint.contains(value), "{complaint}");
    }
    let mut check = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    let one = check.args(["check", "--database", url, "--listen", "nowhere"]).output().await.unwrap();
    assert!(String::from_utf8_lossy(&one.stderr).contains("1 problem was found"), "{one:?}");
}

async fn check_names_tasks_that_are_torn(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    server.database.raw().await.run(&format!("DELETE FROM task_waiting WHERE id = {id}")).await;
    named(&problems(&server.database.url).await, &["1 tasks are in two places at once or in none"]);
}

/// As after a node of a later version has come and gone.
async fn check_says_that_a_schema_is_of_a_newer_program(server: &Server) {
    let newer = "UPDATE taskwheel_schema SET version = 9999, oldest_program = 9999";
    server.database.raw().await.run(newer).await;
    let mut check = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    let refused = check.args(["check", "--database", &server.database.url]).output().await.unwrap();
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{complaint}");
    for words in ["the database's schema is at version 9999 and needs a newer taskwheel", "start the newer program"] {
        assert!(complaint.contains(words), "{complaint}");
    }
}

async fn check_names_tables_full_of_dead_rows(server: &Server) {
    let mut raw = server.database.raw().await;
    raw.run("ALTER TABLE task_answer SET (autovacuum_enabled = false)").await;
    let columns = "tenant, idempotency_key, id, created, answered_at, fingerprint";
    let many = "SELECT 'acme', n::text, 1, true, 9000000000000, 1 FROM generate_series(1, 200001) n";
    raw.run(&format!("INSERT INTO task_answer ({columns}) {many}")).await;
    raw.run("DELETE FROM task_answer").await;
    let is_named = async || {
        let found = problems(&server.database.url).await;
        found.iter().any(|problem| problem.contains("task_answer has 200001 dead rows beside 0 live ones: run VACUUM"))
    };
    // Counts are told a moment after the commit.
    eventually("dead rows are named", Duration::from_secs(20), is_named).await;
    raw.run("VACUUM task_answer").await;
    let is_mended = async || problems(&server.database.url).await.is_empty();
    eventually("they are gone as it says", Duration::from_secs(20), is_mended).await;
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
    let mut owner = Raw::connect(Dialect::Postgres, &database).await;
    owner.run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ordinary").await;
    let ordinary = database.replace("taskwheel:", "ordinary:");
    assert_eq!(problems(&ordinary).await, [""; 0], "one that may make no tables can use them");
    let mut sleeper = Raw::connect(Dialect::Postgres, &database).await;
    for statement in ["SET application_name = 'sleeper'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        sleeper.run(statement).await;
    }
    // One that has written holds back dead rows too, though it sees what others commit; one in another database does not.
    let mut writer = Raw::connect(Dialect::Postgres, &database).await;
    let write = "INSERT INTO task (type) VALUES ('held')";
    for statement in ["SET application_name = 'writer'", "BEGIN", write] {
        writer.run(statement).await;
    }
    let (server_url, _) = database.rsplit_once('/').expect("a URL names a database");
    let mut elsewhere = Raw::connect(Dialect::Postgres, &format!("{server_url}/postgres")).await;
    for statement in ["SET application_name = 'elsewhere'", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        elsewhere.run(statement).await;
    }
    let mut hidden = Raw::connect(Dialect::Postgres, &ordinary).await;
    for statement in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        hidden.run(statement).await;
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
    named(&found, &["user taskwheel, application writer, state idle in transaction", "dead rows for 00:10:"]);
    assert!(!found.iter().any(|problem| problem.contains("elsewhere")), "{found:?}");
    let notes: Vec<String> = serde_json::from_value(run("check", &database).await.1["notes"].clone()).unwrap();
    named(&notes, &["of user ordinary is in a transaction", "GRANT pg_read_all_stats TO taskwheel"]);
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
    assert_eq!(found.len(), 2, "{found:?}");
    named(&found, &["innodb_flush_log_at_trx_commit is 2: set it to 1"]);
    named(&found, &["the database's clock is", "ms ahead of this machine's", "NTP"]);
    let notes: Vec<String> = serde_json::from_value(run("check", &ordinary).await.1["notes"].clone()).unwrap();
    named(&notes, &["not shown to this user", "GRANT PROCESS ON *.*"]);
    let privileged = ordinary.replace("ordinary", "taskwheel");
    let mut sleeper = Raw::connect(Dialect::Mysql, &ordinary).await;
    sleeper.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").await;
    let connection = text(&mut sleeper, "SELECT CONNECTION_ID()").await;
    let (who, remedy) = (format!("connection {connection} has been"), format!("end it with KILL {connection}"));
    named(&problems(&privileged).await, &[&who, "keeps the server from removing dead rows", &remedy]);
}

crate::facts![
    check_names_what_is_wrong_and_how_to_mend_it,
    check_names_tasks_that_are_torn,
    check_says_that_a_schema_is_of_a_newer_program,
    check_names_triggers_views_and_tables_that_are_gone,
];
crate::facts! { in sqlite_alone on Sqlite: check_names_what_is_wrong_with_the_configuration }
crate::facts! { in mysql_alone on Mysql: check_names_unique_indexes_and_primary_keys_that_are_gone,
check_names_unique_indexes_that_are_so_no_longer }
crate::facts! { in postgres_alone on Postgres: check_names_commits_that_may_be_lost,
check_names_tables_full_of_dead_rows,
check_names_unique_indexes_and_primary_keys_that_are_gone, check_names_unique_indexes_that_are_so_no_longer,
check_names_indexes_that_are_of_no_use }
