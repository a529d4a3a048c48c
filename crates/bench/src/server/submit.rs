//! Submit: 64 connections with one task a call, each answered after its commit, beside peers with as many clients.

use super::calls;
use super::http::Connection;
use super::memory::Peaks;
use super::process::Server;
use super::settings::Settings;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;
use crate::peers::submit::{Submitter, submitters};
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;

const CONNECTIONS: u64 = 64;
const SECONDS: f64 = 5.0;
/// Beside the best peer on the same PostgreSQL.
const POSTGRES_MIN: f64 = 5.0;
/// Beside BullMQ, which does not wait for the disk.
const SQLITE_MIN: f64 = 1.0;

/// Measures ours and the peers in turn, so that a noisy minute hits all.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>, peaks: &mut Peaks) -> Result<()> {
    let (dialect, seconds) = (Dialect::of(&settings.url)?, settings.seconds(SECONDS));
    let peers = submitters(dialect, rows).await;
    let mut ours = Vec::new();
    let mut theirs: Vec<Result<Vec<f64>>> = peers.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..settings.runs {
        let rate = run(settings, seconds, peaks).await?;
        progress(&format!("submit: {rate:.0}/s"));
        ours.push(rate);
        for (peer, rates) in peers.iter().zip(&mut theirs) {
            let Ok(known) = rates else { continue };
            match peer.rate(&settings.url, CONNECTIONS, seconds).await {
                Ok(rate) => {
                    progress(&format!("submit, {}: {rate:.0}/s", peer.name()));
                    known.push(rate);
                }
                Err(error) => *rates = Err(error),
            }
        }
    }
    compare(dialect, median(&ours), peers.iter().zip(theirs), rows);
    Ok(())
}

fn compare<'p>(
    dialect: Dialect,
    ours: f64,
    peers: impl Iterator<Item = (&'p Submitter, Result<Vec<f64>>)>,
    rows: &mut Vec<Row>,
) {
    let what = format!("submit, {CONNECTIONS} connections, one task a call");
    let mut ran = Vec::new();
    for (peer, rates) in peers {
        match rates {
            Ok(rates) => ran.push((median(&rates), peer.name())),
            Err(error) => rows.push(Row::missing(&peer.name(), format!("not run: {error}"))),
        }
    }
    ran.sort_by(|one, other| other.0.total_cmp(&one.0));
    let bar = match dialect {
        Dialect::Postgres => Some(Bar::RatioAtLeast(POSTGRES_MIN)),
        Dialect::Sqlite => Some(Bar::RatioAtLeast(SQLITE_MIN)),
        Dialect::Mysql => None,
    };
    // Only the best of them is the bar.
    for (place, (rate, name)) in ran.iter().enumerate() {
        let bar = bar.filter(|_| place == 0);
        rows.push(Row::beside(what.clone(), Unit::PerSecond, ours, name.clone(), *rate, bar));
    }
    if ran.is_empty() {
        let why = if bar.is_some() { "no peer was run" } else { "" };
        rows.push(Row::without(what, Unit::PerSecond, ours, why.to_owned(), bar));
    }
}

async fn run(settings: &Settings, seconds: f64, peaks: &mut Peaks) -> Result<f64> {
    let database = Database::create(&settings.url, "submit").await?;
    let server = Server::start(&database).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(server.connect().await?);
    }
    let clock = Instant::now();
    let until = clock + Duration::from_secs_f64(seconds);
    let callers: Vec<_> = connections.into_iter().map(|connection| tokio::spawn(caller(connection, until))).collect();
    let mut acknowledged = 0;
    for caller in callers {
        acknowledged += caller.await??;
    }
    let elapsed = clock.elapsed();
    peaks.add("submit", server.kill()?);
    let kept = database.sql().await?.number("SELECT COUNT(*) FROM task").await?;
    if u64::try_from(kept)? != acknowledged {
        return Err(format!("{acknowledged} submits were acknowledged, and {kept} tasks are there").into());
    }
    database.remove().await?;
    Ok(acknowledged as f64 / elapsed.as_secs_f64())
}

async fn caller(mut connection: Connection, until: Instant) -> Result<u64> {
    let mut acknowledged = 0;
    while Instant::now() < until {
        calls::submit(&mut connection, &calls::task(acknowledged)).await?;
        acknowledged += 1;
    }
    Ok(acknowledged)
}
