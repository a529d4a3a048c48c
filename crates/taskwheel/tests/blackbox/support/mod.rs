//! A server of its own for each test, on a database of its own.

#[path = "../../../../store/tests/support/database.rs"]
mod database;
#[path = "../../../../store/tests/support/own_server.rs"]
#[expect(dead_code, reason = "the fault harness uses all of it")]
mod own_server;
#[path = "../../../../store/tests/support/raw.rs"]
#[expect(dead_code, reason = "the store's own tests use all of it")]
mod raw;
mod server;
#[path = "../../../../store/tests/support/wait.rs"]
mod wait;

pub(crate) use database::TestDatabase;
pub(crate) use own_server::OwnServer;
pub(crate) use raw::Raw;
pub(crate) use server::{Answer, Node, Server, call};
pub(crate) use taskwheel_store::Dialect;

use serde_json::{Value, json};
use std::time::Duration;

/// Turns each fact, an `async fn fact(server: &Server)`, into a test on each database.
#[macro_export]
macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        $crate::facts! { in sqlite on Sqlite: $($fact),* }
        $crate::facts! { in postgres on Postgres: $($fact),* }
        $crate::facts! { in mysql on Mysql: $($fact),* }
    };
    (in $module:ident on $dialect:ident: $($fact:ident),* $(,)?) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $fact() {
                    let server = $crate::support::Server::start($crate::support::Dialect::$dialect).await;
                    super::$fact(&server).await;
                    server.end().await;
                }
            )*
        }
    };
}

/// A claim of one worker for one task of a type, without waiting.
pub(crate) fn claim(worker: &str, task_type: &str) -> Value {
    json!({"worker_id": worker, "host": format!("host-of-{worker}"), "types": [task_type], "max": 1})
}

/// Tries until it is so; panics after a while.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, within: Duration, mut is_so: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + within;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "{what} within {within:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
