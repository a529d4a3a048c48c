//! Crowds: others who take every connection of the database, or of a server. One that was not seen to keep somebody out is none.

use crate::cluster::{Cluster, SERVER_FILES_MAX};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::time::{Duration, Instant};
use taskwheel_store::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More than any database here lets in.
const DATABASE_CROWD: usize = 1_000;
/// More than a server here can open.
const SERVER_CROWD: usize = SERVER_FILES_MAX + 50;
/// So long a crowd may take to gather.
const GATHER_MAX: Duration = Duration::from_secs(10);
/// So long a connection that is served may wait for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: crowd\r\n\r\n";
/// What a database says that has no connections left: PostgreSQL and MariaDB.
const TOO_MANY: [&str; 2] = ["53300", "08004"];

/// Takes every connection that the database has left. Says whether it said so.
pub(crate) async fn of_database(cluster: &Cluster, lasts: Duration) -> bool {
    let (mut postgres, mut mysql) = (Vec::new(), Vec::new());
    let (began, mut is_full) = (Instant::now(), false);
    while !is_full && began.elapsed() < GATHER_MAX && postgres.len() + mysql.len() < DATABASE_CROWD {
        let connected = match cluster.dialect {
            Dialect::Postgres => PgConnection::connect(&cluster.url).await.map(|one| postgres.push(one)),
            _ => MySqlConnection::connect(&cluster.url).await.map(|one| mysql.push(one)),
        };
        if let Err(error) = connected {
            is_full = error
                .as_database_error()
                .and_then(|error| error.code())
                .is_some_and(|code| TOO_MANY.contains(&code.as_ref()));
            // One that is not there takes no connections either, which is another fault.
            if !is_full {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
    tokio::time::sleep(lasts).await;
    is_full
}

/// Takes every connection that a server has left. Says whether one was seen to be served, and a later one not.
pub(crate) async fn of_server(port: u16, lasts: Duration) -> bool {
    let (mut crowd, began) = (Vec::new(), Instant::now());
    while crowd.len() < SERVER_CROWD && began.elapsed() < GATHER_MAX {
        match tokio::time::timeout(ANSWER_MAX, TcpStream::connect(("127.0.0.1", port))).await {
            Ok(Ok(connection)) => crowd.push(connection),
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
    let mut is_full = false;
    if let (Some(mut last), Some(first)) = (crowd.pop(), crowd.first_mut()) {
        is_full = keeps_out(first, &mut last).await;
    }
    tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
    is_full
}

/// Whether the first is answered while the last, which asked before, waits.
async fn keeps_out(first: &mut TcpStream, last: &mut TcpStream) -> bool {
    if last.write_all(ASK).await.is_err() {
        return false;
    }
    let mut answer = [0; 1_024];
    for _ in 0..2 {
        tokio::time::sleep(LOOK_EVERY).await;
        if first.write_all(ASK).await.is_err() {
            return false;
        }
        let answered = tokio::time::timeout(ANSWER_MAX, first.read(&mut answer)).await;
        if !matches!(answered, Ok(Ok(bytes)) if bytes > 0) {
            return false;
        }
    }
    // Neither an answer nor an end.
    tokio::time::timeout(LOOK_EVERY, last.read(&mut answer)).await.is_err()
}
