//! Two nodes that share nothing but a database, one of which dies.

#[path = "../../../store/tests/support/database.rs"]
#[expect(dead_code, reason = "the store's own tests use all of it")]
mod database;
#[path = "../../../store/tests/support/raw.rs"]
#[expect(dead_code, reason = "the store's own tests use all of it")]
mod raw;

use crate::support::{Server, in_time};
use database::TestDatabase;
use raw::Raw;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use taskwheel_client::store::Dialect;
use taskwheel_client::{Client, Filter, Listing, NewTask, Status, TaskContext, TaskError, Worker};
use tokio::sync::{mpsc, watch};

const TASKS: usize = 300;

/// How many have succeeded.
async fn succeeded(client: &Client) -> usize {
    let listing = Listing { limit: 500, ..Filter::of_type("count").status(Status::Success).into() };
    client.list(listing).await.unwrap().items.len()
}

async fn nothing_is_lost_with_a_node(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let (dying, other) = (Server::on(&database.url).await, Server::on(&database.url).await);
    let client = Client::builder().server(&dying.url).server(&other.url).build().unwrap();
    let witness = Client::connect(&other.url).unwrap();
    let submit = async |numbers: Range<usize>| {
        witness.submit_batch(numbers.map(|number| NewTask::new("count", &number))).await.unwrap();
    };
    submit(0..TASKS).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let (kill, killed) = watch::channel(false);
    let count = move |ctx: TaskContext, number: usize| {
        let (tell, mut killed) = (tell.clone(), killed.clone());
        async move {
            let _ = tell.send(number);
            // In hand when the first node dies, so that only the other one can save this.
            if number >= TASKS / 2 {
                killed.wait_for(|killed| *killed).await?;
                ctx.checkpoint(&number)?;
                ctx.save().await?;
            }
            Ok::<(), TaskError>(())
        }
    };
    let mut dying = Some(dying);
    let mut ran = BTreeSet::new();
    let stop = async {
        while ran.last().is_none_or(|last| *last < TASKS / 2) {
            ran.extend(told.recv().await);
        }
        drop(dying.take());
        kill.send_replace(true);
        submit(TASKS..TASKS + 50).await;
        while ran.len() < TASKS + 50 {
            ran.extend(told.recv().await);
        }
        while succeeded(&witness).await < TASKS + 50 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let worker = Worker::new(&client).heartbeat(Duration::from_secs(1)).concurrency(4).queue(8).handle("count", count);
    in_time("all are done", worker.run_until(stop)).await.unwrap();
    assert_eq!(ran, (0..TASKS + 50).collect());
    drop(other);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_with_a_node_on_postgres() {
    nothing_is_lost_with_a_node(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_with_a_node_on_mysql() {
    nothing_is_lost_with_a_node(Dialect::Mysql).await;
}
