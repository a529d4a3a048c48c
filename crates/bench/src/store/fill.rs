//! Millions of rows, by set-based SQL straight into the store's tables.
//!
//! What a row holds is written in SQL that all three databases understand, over `n`, the number of the row from 1 on, and over
//! `id` where the row is already a task. The few things that differ are functions here. The trigger that makes a task
//! live is out of the way meanwhile, and gone for good on SQLite and MariaDB: these databases are thrown away.

use crate::common::database::{Database, Sql};
use crate::common::report::progress;
use crate::floor::Result;
use taskwheel_model::{Outcome, Status};
use taskwheel_store::Dialect;

/// Rows in one transaction.
const CHUNK: u64 = 250_000;

/// What a set of tasks holds: SQL over `n`. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks<'a> {
    pub(super) task_type: &'a str,
    pub(super) priority: &'a str,
    pub(super) run_at: &'a str,
    pub(super) created_at: &'a str,
    pub(super) key: &'a str,
    pub(super) category: &'a str,
    pub(super) creator: &'a str,
    pub(super) schedule_id: &'a str,
    pub(super) standing: Standing<'a>,
}

/// Where tasks stand: SQL over `id`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing<'a> {
    /// Waiting, in this status.
    Waiting { status: &'a str },
    /// Finished with this status, on this host.
    Finished { status: &'a str, host: &'a str },
}

/// Fills a database.
pub(super) struct Filler {
    dialect: Dialect,
    sql: Sql,
}

impl Filler {
    pub(super) async fn begin(database: &Database) -> Result<Filler> {
        let mut sql = database.sql().await?;
        sql.run(match database.dialect {
            Dialect::Postgres => "ALTER TABLE task DISABLE TRIGGER USER",
            Dialect::Sqlite | Dialect::Mysql => "DROP TRIGGER task_goes_live",
        })
        .await?;
        Ok(Filler { dialect: database.dialect, sql })
    }

    /// Makes tasks.
    pub(super) async fn add(&mut self, name: &str, count: u64, tasks: &Tasks<'_>) -> Result<()> {
        progress(&format!("loading {count} {name}"));
        for first in (1..=count).step_by(usize::try_from(CHUNK)?) {
            let before = self.sql.number("SELECT COALESCE(MAX(id), 0) FROM task").await?;
            let last = count.min(first + CHUNK - 1);
            let (content, standing) = (self.content(tasks, first, last), self.standing(&tasks.standing, before));
            let (labels, marks) = (self.labels(before), self.marks(before));
            self.sql.run(&format!("BEGIN; {content}; {labels}{standing}; {marks}COMMIT")).await?;
        }
        Ok(())
    }

    fn content(&self, tasks: &Tasks<'_>, first: u64, last: u64) -> String {
        let payload = self.json("CONCAT('{\"order\":', n, ',\"note\":\"a small payload of about sixty bytes\"}')");
        let (run_at, created_at) = (self.time(tasks.run_at), self.time(tasks.created_at));
        let Tasks { task_type, priority, key, category, creator, schedule_id, .. } = tasks;
        let numbers = self.numbers(first, last);
        format!(
            "INSERT INTO task (type, task_key, payload, priority, run_at, category, creator, schedule_id, created_at)
             SELECT {task_type}, {key}, {payload}, {priority}, {run_at}, {category}, {creator}, {schedule_id}, {created_at}
             FROM {numbers} ORDER BY n"
        )
    }

    /// What searches go by on MariaDB, which the trigger writes too.
    fn labels(&self, before: i64) -> String {
        if self.dialect != Dialect::Mysql {
            return String::new();
        }
        let labels = [("creator", "creator"), ("category", "category"), ("schedule", "schedule_id")];
        let insert = |(kind, column): (&str, &str)| {
            format!(
                "INSERT INTO task_label (tenant, label, id) SELECT tenant, CONCAT('{kind}:', {column}), id
                 FROM task WHERE id > {before} AND {column} IS NOT NULL; "
            )
        };
        labels.map(insert).concat()
    }

    /// What finished tasks are found by on PostgreSQL, as results that are reported one by one leave it.
    fn marks(&self, before: i64) -> String {
        if self.dialect != Dialect::Postgres {
            return String::new();
        }
        format!(
            "INSERT INTO task_history_mark (tenant, mark, bucket) SELECT h.tenant, m.mark, h.id >> 8 FROM task_history h
             CROSS JOIN LATERAL (VALUES (CASE WHEN h.status = {} THEN 'Success' END), ('host:' || h.host)) AS m(mark)
             WHERE h.id > {before} AND m.mark IS NOT NULL; ",
            Status::Success.code()
        )
    }

    fn standing(&self, standing: &Standing<'_>, before: i64) -> String {
        let (due, created) = (self.milliseconds("run_at"), self.milliseconds("created_at"));
        let rank = if self.dialect == Dialect::Mysql { "`rank`" } else { "rank" };
        match standing {
            Standing::Waiting { status } => format!(
                "INSERT INTO task_waiting (id, tenant, type, lane, {rank}, due, status, round, attempts, error_count,
                                           category, creator, updated_at)
                 SELECT id, tenant, type, CASE WHEN {status} IN ({completed}, {pending}) THEN '' ELSE type END,
                        9 - priority, {due}, {status}, 1, 0, 0, category, creator, {created}
                 FROM task WHERE id > {before}",
                completed = Status::Completed.code(),
                pending = Status::Pending.code(),
            ),
            Standing::Finished { status, host } => format!(
                "INSERT INTO task_history (id, tenant, status, round, attempts, error_count, error_info, exec_id, worker_id,
                                           host, started_at, outcome, finished_at, updated_at)
                 SELECT id, tenant, {status}, 1, 1, 0,
                        CASE WHEN {status} = {failure} THEN CONCAT('connection ', id, ' was refused') END, {exec_id},
                        CONCAT({host}, '-worker'), {host}, {created} + 1000, {outcome}, {created} + 1500, {created} + 1500
                 FROM task WHERE id > {before}",
                failure = Status::Failure.code(),
                exec_id = self.uuid(),
                outcome = Outcome::Success.code(),
            ),
        }
    }

    fn numbers(&self, first: u64, last: u64) -> String {
        match self.dialect {
            Dialect::Postgres => format!("generate_series({first}::bigint, {last}::bigint) AS numbers(n)"),
            // MariaDB's own: MySQL has no such table.
            Dialect::Mysql => format!("(SELECT seq AS n FROM seq_{first}_to_{last}) AS numbers"),
            Dialect::Sqlite => format!(
                "(WITH RECURSIVE count(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM count WHERE n < {last})
                  SELECT n FROM count) AS numbers"
            ),
        }
    }

    /// A time in the type that `task` keeps times in.
    fn time(&self, milliseconds: &str) -> String {
        match self.dialect {
            Dialect::Postgres => format!("to_timestamp(({milliseconds}) / 1000.0)"),
            Dialect::Mysql => {
                format!("TIMESTAMPADD(MICROSECOND, ({milliseconds}) * 1000, CAST('1970-01-01' AS DATETIME(3)))")
            }
            Dialect::Sqlite => milliseconds.to_owned(),
        }
    }

    fn milliseconds(&self, column: &str) -> String {
        match self.dialect {
            Dialect::Postgres => format!("(date_part('epoch', {column}) * 1000)::bigint"),
            Dialect::Mysql => format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) DIV 1000"),
            Dialect::Sqlite => column.to_owned(),
        }
    }

    fn json(&self, text: &str) -> String {
        if self.dialect == Dialect::Postgres { format!("CAST({text} AS json)") } else { text.to_owned() }
    }

    fn uuid(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => "gen_random_uuid()",
            Dialect::Mysql => "UUID()",
            Dialect::Sqlite => "lower(hex(randomblob(16)))",
        }
    }
}

impl<'a> Tasks<'a> {
    /// Tasks of a type that are due or wait for their time, with nothing else to be found by.
    pub(super) fn waiting(task_type: &'a str, priority: &'a str, run_at: &'a str, created_at: &'a str) -> Tasks<'a> {
        Tasks {
            task_type,
            priority,
            run_at,
            created_at,
            key: "CONCAT('key', n)",
            category: "NULL",
            creator: "NULL",
            schedule_id: "NULL",
            standing: Standing::Waiting { status: "1" },
        }
    }
}
