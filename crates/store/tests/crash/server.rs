//! kill -9 of a database server under load: what it acknowledged is there after its restart, and the same store goes on.

use crate::load::{self, Acknowledged};
use crate::own_server::OwnServer;
use crate::support::{Dialect, eventually};
use std::sync::{Arc, Mutex};
use taskwheel_store::Options;

const KILLS: usize = 2;
const ACKNOWLEDGED_EACH: usize = 150;

async fn acknowledged_work_survives_the_kill_of_the_server(dialect: Dialect) {
    let mut server = OwnServer::start(dialect).await;
    let store = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens");
    let record = Arc::new(Mutex::new(Vec::new()));
    let told: Arc<dyn Fn(Acknowledged) + Send + Sync> = {
        let record = record.clone();
        Arc::new(move |one| record.lock().expect("the record is whole").push(one))
    };
    let count = || record.lock().expect("the record is whole").len();
    let mut load = load::start(&store, &told);
    for _ in 0..KILLS {
        let wanted = count() + ACKNOWLEDGED_EACH;
        eventually("work is acknowledged", || async { (count() >= wanted).then_some(()) }).await;
        server.kill();
        server.restart().await;
    }
    let wanted = count() + ACKNOWLEDGED_EACH;
    eventually("the same store goes on by itself", || async { (count() >= wanted).then_some(()) }).await;
    while let Some(ended) = load.try_join_next() {
        ended.expect("a caller met nothing but a database that was away");
    }
    load.shutdown().await;
    let acknowledged = record.lock().expect("the record is whole").clone();
    load::assert_all_there(&*store, &acknowledged).await;
    let again = taskwheel_store::open(Options::new(server.url())).await.expect("the store opens again");
    load::assert_all_there(&*again, &acknowledged).await;
}

mod postgres {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_the_server() {
        super::acknowledged_work_survives_the_kill_of_the_server(crate::support::Dialect::Postgres).await;
    }
}

mod mysql {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_the_server() {
        super::acknowledged_work_survives_the_kill_of_the_server(crate::support::Dialect::Mysql).await;
    }
}
