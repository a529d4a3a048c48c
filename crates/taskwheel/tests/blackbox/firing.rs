//! Schedules while nodes are killed and stopped and the database restarts: every due time fires once, and none is missing beyond what the
//! misfire policy says. The check is made afterwards, from the records alone.

#[path = "../../../chaos/src/check/firings.rs"]
mod firings;

use crate::support::{Dialect, Node, OwnServer};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use taskwheel_store::Options;

const SCHEDULES: usize = 200;
const NODES: usize = 3;
const FAULTS: Duration = Duration::from_secs(120);
/// After the faults the nodes get so long to make up for them.
const HEAL: Duration = Duration::from_secs(10);

async fn every_due_time_fires_once_through_kills_stops_and_restarts(dialect: Dialect) {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut database = OwnServer::start(dialect).await;
    let url = database.url();
    let store = taskwheel_store::open(Options::new(&url)).await.expect("the store opens");
    let schedules = firings::make(store.as_ref(), "default", SCHEDULES).await;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Some(Node::start(&url).await));
    }
    let began = Instant::now();
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turn = 0;
    while began.elapsed() < FAULTS {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..3_000))).await;
        let victim = random.random_range(0..NODES);
        let fault = match turn % 6 {
            0 | 2 | 4 => {
                // Killed by its own end, without a word.
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGKILL));
                nodes[victim] = Some(Node::start(&url).await);
                "killed"
            }
            1 | 3 => {
                let stopped = Duration::from_millis(random.random_range(1_000..8_000));
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGSTOP));
                tokio::time::sleep(stopped).await;
                nodes[victim].as_ref().inspect(|node| node.signal(Signal::SIGCONT));
                "stopped"
            }
            _ => {
                database.kill();
                tokio::time::sleep(Duration::from_millis(random.random_range(0..7_000))).await;
                database.restart().await;
                "database"
            }
        };
        *faults.entry(fault).or_default() += 1;
        turn += 1;
    }
    tokio::time::sleep(HEAL).await;
    let mut runs = 0;
    for schedule in &schedules {
        let checked = async {
            let cursor = firings::stop(store.as_ref(), schedule).await?;
            firings::check(store.as_ref(), schedule, cursor).await
        };
        runs += checked.await.unwrap_or_else(|wrong: String| panic!("seed {seed}, {faults:?}: {wrong}")).runs;
    }
    assert!(faults.len() == 3, "seed {seed}: not every fault happened: {faults:?}");
    assert!(runs > SCHEDULES * 10, "seed {seed}: only {runs} runs");
    drop(nodes);
}

mod postgres {
    #[tokio::test(flavor = "multi_thread")]
    async fn every_due_time_fires_once_through_kills_stops_and_restarts() {
        super::every_due_time_fires_once_through_kills_stops_and_restarts(super::Dialect::Postgres).await;
    }
}

mod mysql {
    #[tokio::test(flavor = "multi_thread")]
    async fn every_due_time_fires_once_through_kills_stops_and_restarts() {
        super::every_due_time_fires_once_through_kills_stops_and_restarts(super::Dialect::Mysql).await;
    }
}
