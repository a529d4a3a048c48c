//! How long peers take to start a job: one that comes when nothing else does, and one that falls due.

use super::{Program, graphile, installed, on_postgres};
use crate::common::database::Database;
use crate::common::report::{Row, progress};
use crate::common::statistics::percentile;
use crate::floor::Result;
use taskwheel_store::Dialect;

/// The percentile that peers are held against.
const SHARE: f64 = 0.99;
/// How often graphile-worker looks for what falls due. Its default is two seconds; every 10 ms, as in the comparison of all systems, it is
/// as punctual as it can be, and asks the database a hundred times a second all day.
const POLL_MS: &str = "100";

/// The peers on a database that answer a submit when it is on disk.
pub(crate) async fn durable(dialect: Dialect, rows: &mut Vec<Row>) -> Vec<Program> {
    match dialect {
        Dialect::Postgres => on_postgres(rows).await,
        Dialect::Sqlite => {
            let apalis = Program::rust("apalis", "apalis_rs", "apalis-driver").await;
            installed("apalis", apalis, rows).into_iter().collect()
        }
        Dialect::Mysql => Vec::new(),
    }
}

/// From submit to start when nothing else goes on, in milliseconds, p99.
pub(crate) async fn latency(peer: &Program, server: &str, jobs: u64) -> Result<f64> {
    let p99 = p99(peer, server, jobs, &["latency", "", &jobs.to_string()]).await?;
    progress(&format!("latency, {}: p99 {p99:.2} ms", peer.name));
    Ok(p99)
}

/// How late jobs of graphile-worker start that fall due over so many seconds, in milliseconds, p99.
pub(crate) async fn lateness(server: &str, jobs: u64, seconds: f64) -> Result<(String, f64)> {
    let (name, folder) = graphile::JAVASCRIPT;
    let peer = Program::node(name, folder).await?;
    let command = ["delayed", "", &jobs.to_string(), &seconds.to_string(), POLL_MS];
    let p99 = p99(&peer, server, jobs, &command).await?;
    progress(&format!("delayed, {name}: p99 {p99:.2} ms"));
    Ok((format!("{name}, polling each {POLL_MS} ms, one run"), p99))
}

/// Runs a command whose second word is the database, on one of its own, and insists that all jobs ran.
async fn p99(peer: &Program, server: &str, jobs: u64, command: &[&str]) -> Result<f64> {
    let database = Database::create(server, "peer").await?;
    let mut command = command.to_vec();
    command[1] = &database.url;
    let figures = peer.figures(&command).await;
    database.remove().await?;
    let times: Vec<f64> = serde_json::from_value(figures?["ms"].clone())?;
    if times.len() as u64 != jobs {
        return Err(format!("of {jobs} jobs {} ran", times.len()).into());
    }
    Ok(percentile(&times, SHARE))
}
