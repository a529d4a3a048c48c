//! Submits: one by one by many clients, and a thousand a call.
//!
//! Over HTTP clients have a connection each, with the plain client of the server's benchmark: whatever a client takes is taken from the
//! server, which shares the machine. Or they share a client of the SDK, whose calls carry what is submitted meanwhile.

use super::site::Site;
use super::{BULK, TYPE};
use crate::common::clock::now_ms;
use crate::floor::Result;
use crate::server::http::Connection;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use taskwheel_client::{Client, NewTask};

/// So many load side by side.
const LOADERS: u64 = 4;

/// A client, which makes calls and waits for their answers.
enum Caller {
    Sdk(Client),
    Http(Box<Connection>),
}

impl Caller {
    async fn new(client: &Client, server: Option<SocketAddr>) -> Result<Caller> {
        Ok(match server {
            None => Caller::Sdk(client.clone()),
            Some(address) => Caller::Http(Box::new(Connection::open(address).await?)),
        })
    }

    async fn submit(&mut self, number: u64) -> Result<()> {
        match self {
            Caller::Sdk(client) => client.submit(NewTask::new(TYPE, &payload(number))).await.map(drop)?,
            Caller::Http(connection) => {
                connection.expect(201, "/v1/tasks", body(number, None).as_bytes()).await.map(drop)?;
            }
        }
        Ok(())
    }

    /// Submits tasks from a number on, due at a time or at once.
    async fn submit_many(&mut self, first: u64, count: u64, due: Option<Timestamp>) -> Result<()> {
        let numbers = first..first + count;
        match self {
            Caller::Sdk(client) => {
                let due = |task: NewTask| due.map_or_else(|| task.clone(), |due| task.clone().run_at(due));
                client.submit_batch(numbers.map(|number| due(NewTask::new(TYPE, &payload(number))))).await.map(drop)?;
            }
            Caller::Http(connection) => {
                let tasks: Vec<_> = numbers.map(|number| body(number, due)).collect();
                let body = format!("{{\"tasks\":[{}]}}", tasks.join(","));
                connection.expect(201, "/v1/tasks/batch", body.as_bytes()).await.map(drop)?;
            }
        }
        Ok(())
    }
}

fn payload(number: u64) -> Value {
    json!({ "id": number })
}

fn body(number: u64, due: Option<Timestamp>) -> String {
    let run_at = due.map_or_else(String::new, |due| format!(",\"run_at\":\"{due:.3}\""));
    format!("{{\"type\":\"{TYPE}\",\"payload\":{{\"id\":{number}}}{run_at}}}")
}

/// Clients that submit one task a call.
pub(super) async fn single(site: &Site, clients: u64, seconds: f64, share: bool) -> Result<Value> {
    let mut callers = Vec::new();
    for number in 0..clients {
        let mut caller = Caller::new(&site.client, address(site).filter(|_| !share)).await?;
        // Opens its connection to the database.
        caller.submit(number).await?;
        callers.push(caller);
    }
    let (clock, duration) = (Instant::now(), Duration::from_secs_f64(seconds));
    let callers: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            tokio::spawn(async move {
                let mut done = 0;
                while clock.elapsed() < duration {
                    caller.submit(done).await?;
                    done += 1;
                }
                Result::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    let rate = done as f64 / clock.elapsed().as_secs_f64();
    site.expect("task", done + clients).await?;
    Ok(json!({ "done": done, "rate": rate }))
}

/// One client that submits a thousand a call.
pub(super) async fn bulk(site: &Site, seconds: f64) -> Result<Value> {
    let mut caller = Caller::new(&site.client, address(site)).await?;
    caller.submit_many(0, BULK, None).await?;
    let (clock, duration) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut done = 0;
    while clock.elapsed() < duration {
        caller.submit_many(done, BULK, None).await?;
        done += BULK;
    }
    let rate = done as f64 / clock.elapsed().as_secs_f64();
    site.expect("task", done + BULK).await?;
    Ok(json!({ "done": done, "rate": rate }))
}

/// Tasks that are due at once, or a time from now and later, one each millisecond.
pub(super) async fn load(site: &Site, tasks: u64, ahead_ms: Option<i64>) -> Result<Value> {
    let start = now_ms();
    let mut loaders = Vec::new();
    for loader in 0..LOADERS {
        let mut caller = Caller::new(&site.client, address(site)).await?;
        loaders.push(tokio::spawn(async move {
            let mut first = loader * BULK;
            while first < tasks {
                let due = ahead_ms.map(|ahead| Timestamp::from_millisecond(start + ahead + first.cast_signed()));
                caller.submit_many(first, BULK.min(tasks - first), due.transpose()?).await?;
                first += LOADERS * BULK;
            }
            Result::Ok(())
        }));
    }
    for loader in loaders {
        loader.await??;
    }
    Ok(json!({ "done": tasks }))
}

fn address(site: &Site) -> Option<SocketAddr> {
    site.server.as_ref().map(|server| server.address)
}
