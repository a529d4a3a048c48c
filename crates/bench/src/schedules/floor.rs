//! The floor: the bare SQL of one firing transaction. It locks what is due, inserts the tasks and the runs, and moves the timers; it decides nothing.

use super::fire::TIMERS_AT_ONCE;
use super::online::{PAYLOAD, TYPE};
use crate::common::clock::now_ms;
use crate::common::database::{Database, Sql};
use crate::floor::Result;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use taskwheel_store::Dialect;

const DUE: &str = "
SELECT t.id, t.schedule_id, t.next_due, t.spec, s.tenant, s.definition
FROM task_timer t JOIN task_schedule s ON s.id = t.schedule_id AND s.version = t.version
WHERE t.next_due <= {now} ORDER BY t.next_due, t.id LIMIT {max}";
const PERIOD_MS: i64 = 3_600_000;

/// A plain connection, as the store has it.
pub(super) async fn connect(database: &Database) -> Result<Sql> {
    let mut sql = database.sql().await?;
    match database.dialect {
        Dialect::Sqlite => sql.run("PRAGMA synchronous = FULL").await?,
        Dialect::Mysql => sql.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?,
        Dialect::Postgres => {}
    }
    Ok(sql)
}

/// Fires what is due, once, and says how much it was.
pub(super) async fn fire(sql: &mut Sql, run_id: i64) -> Result<usize> {
    let now = now_ms();
    let due = DUE.replace("{now}", &now.to_string()).replace("{max}", &TIMERS_AT_ONCE.to_string());
    match sql {
        Sql::Postgres(connection) => {
            let mut transaction = connection.begin().await?;
            let rows = sqlx::query(AssertSqlSafe(format!("{due} FOR UPDATE OF t SKIP LOCKED"))).persistent(false);
            let rows = rows.fetch_all(&mut *transaction).await?;
            let timers: Vec<(i64, i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
            postgres(&mut transaction, &timers, run_id, now).await?;
            transaction.commit().await?;
            Ok(timers.len())
        }
        Sql::Mysql(connection) => {
            let mut transaction = connection.begin().await?;
            let rows = sqlx::raw_sql(AssertSqlSafe(format!("{due} FOR UPDATE SKIP LOCKED")));
            let rows = rows.fetch_all(&mut *transaction).await?;
            let timers: Vec<(i64, i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
            if let Some(statement) = (!timers.is_empty()).then(|| mysql_tasks(&timers, run_id)) {
                let inserted = transaction.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
                let first = i64::try_from(inserted.last_insert_id())?;
                for statement in others(&timers, run_id, first, now) {
                    transaction.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
                }
            }
            transaction.commit().await?;
            Ok(timers.len())
        }
        Sql::Sqlite(connection) => sqlite(connection, &due, run_id, now),
    }
}

async fn postgres(
    transaction: &mut sqlx::PgTransaction<'_>,
    timers: &[(i64, i64, i64)],
    run_id: i64,
    now: i64,
) -> Result<()> {
    let (ids, schedules): (Vec<i64>, Vec<i64>) = timers.iter().map(|timer| (timer.0, timer.1)).unzip();
    let dues: Vec<i64> = timers.iter().map(|timer| timer.2).collect();
    let runs: Vec<i64> = (run_id..).take(timers.len()).collect();
    let tasks = sqlx::query(
        "INSERT INTO task (type, payload, run_at, schedule_id, run_id)
         SELECT $1, $2::json, to_timestamp(due / 1000.0), schedule_id, run_id
         FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS n(due, schedule_id, run_id) RETURNING id",
    );
    let tasks = tasks.bind(TYPE).bind(PAYLOAD).bind(&dues).bind(&schedules).bind(&runs);
    let tasks: Vec<i64> = tasks.fetch_all(&mut **transaction).await?.iter().map(|row| row.get(0)).collect();
    sqlx::query(
        "INSERT INTO task_run (id, tenant, schedule_id, timer_id, task_id, due_at, status, log, overlap, rearms, started_at)
         SELECT run_id, 'default', schedule_id, timer_id, task_id, due, 2, 'trans_log', 'allow', 0, $6
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
           AS n(run_id, schedule_id, timer_id, task_id, due)",
    )
    .bind(&runs)
    .bind(&schedules)
    .bind(&ids)
    .bind(&tasks)
    .bind(&dues)
    .bind(now)
    .execute(&mut **transaction)
    .await?;
    let next: Vec<i64> = dues.iter().map(|due| due + PERIOD_MS).collect();
    sqlx::query(
        "UPDATE task_timer t SET next_due = n.next, cursor_at = n.next
         FROM unnest($1::bigint[], $2::bigint[]) AS n(id, next) WHERE t.id = n.id",
    )
    .bind(&ids)
    .bind(&next)
    .persistent(false)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn mysql_tasks(timers: &[(i64, i64, i64)], run_id: i64) -> String {
    let row = |((_, schedule, due), run): (&(i64, i64, i64), i64)| {
        format!("('{TYPE}','{PAYLOAD}',TIMESTAMPADD(MICROSECOND,{due}*1000,'1970-01-01'),{schedule},{run})")
    };
    let rows: Vec<_> = timers.iter().zip(run_id..).map(row).collect();
    format!("INSERT INTO task (type, payload, run_at, schedule_id, run_id) VALUES {}", rows.join(","))
}

/// The runs and the timers.
fn others(timers: &[(i64, i64, i64)], run_id: i64, first_task: i64, now: i64) -> [String; 2] {
    let run = |(((id, schedule, due), run), task): ((&(i64, i64, i64), i64), i64)| {
        format!("({run},'default',{schedule},{id},{task},{due},2,'trans_log','allow',0,{now})")
    };
    let runs: Vec<_> = timers.iter().zip(run_id..).zip(first_task..).map(run).collect();
    let ids: Vec<_> = timers.iter().map(|timer| timer.0.to_string()).collect();
    [
        format!(
            "INSERT INTO task_run (id, tenant, schedule_id, timer_id, task_id, due_at, status, log, overlap, rearms, started_at)
             VALUES {}",
            runs.join(",")
        ),
        format!(
            "UPDATE task_timer SET next_due = next_due + {PERIOD_MS}, cursor_at = cursor_at + {PERIOD_MS} WHERE id IN ({})",
            ids.join(",")
        ),
    ]
}

fn sqlite(connection: &mut rusqlite::Connection, due: &str, run_id: i64, now: i64) -> Result<usize> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let timers: Vec<(i64, i64, i64)> = {
        let mut statement = transaction.prepare(due)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    {
        let mut task = transaction.prepare_cached(
            "INSERT INTO task (type, payload, run_at, schedule_id, run_id) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut run = transaction.prepare_cached(
            "INSERT INTO task_run (id, tenant, schedule_id, timer_id, task_id, due_at, status, log, overlap, rearms, started_at)
             VALUES (?1, 'default', ?2, ?3, ?4, ?5, 2, 'trans_log', 'allow', 0, ?6)",
        )?;
        let mut timer =
            transaction.prepare_cached("UPDATE task_timer SET next_due = ?2, cursor_at = ?2 WHERE id = ?1")?;
        for ((id, schedule, due), number) in timers.iter().zip(run_id..) {
            let task_id = task.insert((TYPE, PAYLOAD, due, schedule, number))?;
            run.execute((number, schedule, id, task_id, due, now))?;
            timer.execute((id, due + PERIOD_MS))?;
        }
    }
    transaction.commit()?;
    Ok(timers.len())
}
