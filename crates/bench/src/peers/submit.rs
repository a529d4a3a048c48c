//! Single submits by peers: as many clients, one job a call, each answered before the next.

use super::service::{Kind, Service};
use super::{Program, installed, on_postgres};
use crate::common::database::Database;
use crate::common::report::Row;
use crate::floor::Result;
use taskwheel_store::Dialect;

/// BullMQ's clients have a connection of their own, or share one. Which is faster depends on their number, and the faster counts.
const CONNECTIONS: [&str; 2] = ["own", "one"];

/// A peer that submits.
pub(crate) struct Submitter {
    program: Program,
    /// Is it on a Redis of its own, and not on the database that is measured?
    redis: bool,
}

/// The peers that stand beside ours on a database. What could not be installed gets a row.
pub(crate) async fn submitters(dialect: Dialect, rows: &mut Vec<Row>) -> Vec<Submitter> {
    match dialect {
        Dialect::Postgres => {
            let programs = on_postgres(rows).await;
            programs.into_iter().map(|program| Submitter { program, redis: false }).collect()
        }
        Dialect::Sqlite => installed("BullMQ", bull().await, rows).into_iter().collect(),
        Dialect::Mysql => Vec::new(),
    }
}

async fn bull() -> Result<Submitter> {
    let program = Program::node("BullMQ", "bullmq_js").await?;
    // Installs it if need be, so that a machine where that is impossible says so at once.
    Service::start(Kind::Redis).await?;
    Ok(Submitter { program, redis: true })
}

impl Submitter {
    pub(crate) fn name(&self) -> String {
        let place = if self.redis { " on Redis, not fsynced" } else { "" };
        format!("{}{place}", self.program.name)
    }

    /// Submits a second, on a database of its own on this server.
    pub(crate) async fn rate(&self, server: &str, clients: u64, seconds: f64) -> Result<f64> {
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        if self.redis {
            let mut best = 0.0_f64;
            for connections in CONNECTIONS {
                let redis = Service::start(Kind::Redis).await?;
                let command = ["submit", &redis.url(), &clients, &seconds, connections];
                best = best.max(self.program.rate(&command).await?);
            }
            return Ok(best);
        }
        let database = Database::create(server, "peer").await?;
        let rate = self.program.rate(&["submit", &database.url, &clients, &seconds]).await?;
        database.remove().await?;
        Ok(rate)
    }
}
