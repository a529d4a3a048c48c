//! Schedules that are online, made by plain SQL: tens of thousands of them one by one would take longer than what is measured.

use crate::common::database::{Database, Sql};
use crate::floor::Result;
use serde_json::json;

/// The type of the tasks that are fired.
pub(super) const TYPE: &str = "bench";
/// What they carry.
pub(super) const PAYLOAD: &str = r#"{"note":"a small payload of about sixty bytes"}"#;
/// Timers have ids above this, and runs above twice this.
const IDS: u64 = 10_000_000;
const ROWS_AT_ONCE: u64 = 500;

/// Puts so many schedules online, each with one timer on a grid, due as the function says.
pub(super) async fn fill(database: &Database, schedules: u64, period_ms: i64, due: impl Fn(u64) -> i64) -> Result<()> {
    let mut sql = database.sql().await?;
    sql.run(&format!("UPDATE task_sequence SET next_id = {}", 2 * IDS)).await?;
    let spec = format!(
        r#"{{"kind":"fixed_rate","period_ms":{period_ms},"initial_delay_ms":0,"start_at":null,"end_at":null,"enabled":true}}"#
    );
    for first in (0..schedules).step_by(ROWS_AT_ONCE as usize) {
        let numbers = first..schedules.min(first + ROWS_AT_ONCE);
        let schedule = |number: u64| {
            let definition = json!({"name": format!("s{number}"), "type": TYPE, "payload": PAYLOAD}).to_string();
            // Only MySQL reads backslashes in a literal.
            let definition = if matches!(sql, Sql::Mysql(_)) { definition.replace('\\', r"\\") } else { definition };
            format!("({number},'default','s{number}','{TYPE}','online','{definition}',1,0,0)")
        };
        let timer = |number: u64| {
            let due = due(number);
            format!("({},{number},1,0,'{spec}',1,{due},{due})", IDS + number)
        };
        let schedules: Vec<_> = numbers.clone().map(schedule).collect();
        let timers: Vec<_> = numbers.map(timer).collect();
        sql.run(&format!(
            "INSERT INTO task_schedule (id, tenant, name, type, status, definition, version, created_at, updated_at)
             VALUES {}",
            schedules.join(",")
        ))
        .await?;
        sql.run(&format!(
            "INSERT INTO task_timer (id, schedule_id, version, place, spec, has_begun, cursor_at, next_due) VALUES {}",
            timers.join(",")
        ))
        .await?;
    }
    settle(&mut sql).await
}

/// Makes every timer due at a time.
pub(super) async fn make_due(database: &Database, at: i64) -> Result<()> {
    let mut sql = database.sql().await?;
    sql.run(&format!("UPDATE task_timer SET next_due = {at}, cursor_at = {at}")).await?;
    settle(&mut sql).await
}

/// What a load leaves to the background is not part of what follows.
async fn settle(sql: &mut Sql) -> Result<()> {
    sql.bring_into(crate::floor::State::Vacuumed, "task_schedule, task_timer, task_run, task_step, task, task_waiting")
        .await
}

/// How many tasks there are.
pub(super) async fn tasks(database: &Database) -> Result<i64> {
    database.sql().await?.number("SELECT COUNT(*) FROM task").await
}
