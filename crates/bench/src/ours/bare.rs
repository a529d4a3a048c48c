//! The floor as a driver: bare SQL on plain tables, so that the distance to it stands in the same run.
//!
//! It makes, loads and vacuums tables of its own when it drains, so that it stays the program that it always was. Its tasks carry what those
//! of all systems carry here.

use crate::common::memory::peak_mb;
use crate::floor::{self, Carried, Result, State};
use serde_json::{Value, json};

/// Drains with a setting like `500x4`: 500 tasks a statement, 4 clients.
pub(super) async fn drain(url: &str, jobs: u64, setting: &str) -> Result<Value> {
    let (batch, clients) = setting.split_once('x').ok_or("a setting of the floor is like 500x4")?;
    // It fails unless all were finished.
    let rate = floor::drain(url, jobs, Carried::Number, batch.parse()?, clients.parse()?, State::Vacuumed).await?;
    Ok(json!({ "done": jobs, "rate": rate, "memory_mb": peak_mb("self")? }))
}
