//! The unique keys of live tasks.

use super::rows::{json, on};
use super::unique_fault;
use crate::rows::{Change, LiveRow, Place};
use crate::session::Attempted;
use serde::Serialize;
use sqlx::mysql::MySqlConnection;
use taskwheel_model::TaskId;

macro_rules! unique_keys {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (tenant VARCHAR(64) PATH '$.tenant', type VARCHAR(200) PATH '$.type',
           unique_key VARCHAR(200) PATH '$.unique_key', id BIGINT PATH '$.id')) n"
    };
}
const FREE: &str = concat!(
    "DELETE u FROM ",
    unique_keys!(),
    " STRAIGHT_JOIN task_unique u FORCE INDEX (PRIMARY)
      ON u.tenant = n.tenant AND u.type = n.type AND u.unique_key = n.unique_key WHERE u.id = n.id"
);
const TAKE: &str = concat!(
    "INSERT INTO task_unique (tenant, type, unique_key, id) SELECT n.tenant, n.type, n.unique_key, n.id FROM ",
    unique_keys!()
);

/// A row of `task_unique`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct UniqueKey {
    pub(super) tenant: String,
    #[serde(rename = "type")]
    pub(super) task_type: String,
    pub(super) unique_key: String,
    pub(super) id: TaskId,
}

impl UniqueKey {
    fn of(row: &LiveRow) -> Option<UniqueKey> {
        let unique_key = row.unique_key.clone()?;
        Some(UniqueKey { tenant: row.tenant.clone(), task_type: row.task_type.clone(), unique_key, id: row.id })
    }
}

/// The unique key of a task that is live no longer.
pub(super) fn freed(change: &Change) -> Option<UniqueKey> {
    match (&change.before, &change.after) {
        (Place::Live(row), Some(Place::History(_))) => UniqueKey::of(row),
        _ => None,
    }
}

/// The unique key of a task that is live again.
pub(super) fn taken(change: &Change) -> Option<UniqueKey> {
    match (&change.before, &change.after) {
        (Place::History(_), Some(Place::Live(row))) => UniqueKey::of(row),
        _ => None,
    }
}

pub(super) async fn leave(connection: &mut MySqlConnection, mut keys: Vec<UniqueKey>) -> Attempted<()> {
    keys.sort_unstable();
    on(connection, FREE, &keys).await.map(drop)
}

pub(super) async fn take(connection: &mut MySqlConnection, mut keys: Vec<UniqueKey>) -> Attempted<()> {
    keys.sort_unstable();
    if !keys.is_empty() {
        sqlx::query(TAKE).bind(json(&keys)).execute(connection).await.map_err(unique_fault)?;
    }
    Ok(())
}
