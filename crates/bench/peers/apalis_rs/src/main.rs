//! Drives apalis on PostgreSQL and prints one line of JSON.
//!
//! ```text
//! submit URL CLIENTS SECONDS           pushes jobs one by one: {"rate": jobs per second}
//! ```

use apalis::prelude::TaskSink;
use apalis_postgres::{Config, PostgresStorage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    id: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["submit", url, clients, seconds] => submit(url, clients.parse()?, seconds.parse()?).await,
        _ => Err("usage: submit URL CLIENTS SECONDS".into()),
    }
}

async fn submit(url: &str, clients: u32, seconds: f64) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(clients).min_connections(clients).connect(url).await?;
    PostgresStorage::setup(&pool).await?;
    let mut storage = PostgresStorage::<Noop>::new(&pool).with_config(Config::default().queue("noop"));
    for id in 0..u64::from(clients) {
        storage.push(Noop { id }).await?;
    }
    let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs_f64(seconds));
    let submitters: Vec<_> = (0..clients)
        .map(|_| {
            let mut storage = storage.clone();
            tokio::spawn(async move {
                let mut pushed = 0;
                while Instant::now() < until {
                    storage.push(Noop { id: pushed }).await.expect("a job is pushed");
                    pushed += 1;
                }
                pushed
            })
        })
        .collect();
    let mut pushed = 0;
    for submitter in submitters {
        pushed += submitter.await?;
    }
    println!("{}", json!({ "rate": pushed as f64 / start.elapsed().as_secs_f64() }));
    Ok(())
}
