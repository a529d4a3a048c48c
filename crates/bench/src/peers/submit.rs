//! Single submits by peers: as many clients, one job a call, each answered before the next.

use super::service::{Kind, Service};
use super::{Program, graphile};
use crate::common::database::Database;
use crate::common::report::Row;
use crate::floor::Result;
use taskwheel_store::Dialect;

/// A peer that submits.
pub(crate) struct Submitter {
    program: Program,
    /// Is it on a Redis of its own, and not on the database that is measured?
    redis: bool,
}

/// The peers that stand beside ours on a database. What could not be installed gets a row.
pub(crate) async fn submitters(dialect: Dialect, rows: &mut Vec<Row>) -> Vec<Submitter> {
    let mut submitters = Vec::new();
    let mut add = |name: &str, submitter: Result<Submitter>| match submitter {
        Ok(submitter) => submitters.push(submitter),
        Err(error) => rows.push(Row::missing(name, format!("not run, could not be installed: {error}"))),
    };
    let on_the_database = |program| Submitter { program, redis: false };
    match dialect {
        Dialect::Postgres => {
            let (name, folder) = graphile::JAVASCRIPT;
            add(name, Program::node(name, folder).await.map(on_the_database));
            let (name, folder, binary) = graphile::RUST;
            add(name, Program::rust(name, folder, binary).await.map(on_the_database));
            add("pg-boss", Program::node("pg-boss", "pg_boss_js").await.map(on_the_database));
            add("apalis", Program::rust("apalis", "apalis_rs", "apalis-driver").await.map(on_the_database));
        }
        Dialect::Sqlite => add("BullMQ", bull().await),
        Dialect::Mysql => {}
    }
    submitters
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
            let redis = Service::start(Kind::Redis).await?;
            return self.program.rate(&["submit", &redis.url(), &clients, &seconds]).await;
        }
        let database = Database::create(server, "peer").await?;
        let rate = self.program.rate(&["submit", &database.url, &clients, &seconds]).await?;
        database.remove().await?;
        Ok(rate)
    }
}
