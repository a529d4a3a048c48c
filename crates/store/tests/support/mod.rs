//! The test platform: a fresh database for each test, a store on it whose time the test moves, and helpers that let tests
//! read like prose.
//!
//! When a test ends, the platform looks whether something leaked: a task in two places, an attempt too many, a transaction
//! left open. Then the database is gone.

pub(crate) mod database;
pub(crate) mod invariants;
pub(crate) mod platform;
pub(crate) mod raw;
pub(crate) mod wait;

pub(crate) use database::TestDatabase;
pub(crate) use platform::{Platform, due_at, due_in, task, worker};
pub(crate) use raw::Raw;
pub(crate) use wait::{eventually, random_below};

pub(crate) use taskwheel_store::Dialect;

/// Turns each fact, an `async fn fact(platform: &Platform)`, into a test on each database.
#[macro_export]
macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        $crate::facts! { in sqlite on Sqlite: $($fact),* }
        $crate::facts! { in postgres on Postgres: $($fact),* }
        $crate::facts! { in mysql on Mysql: $($fact),* }
    };
    (in $module:ident on $dialect:ident: $($fact:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $fact() {
                    let platform = $crate::support::Platform::open($crate::support::Dialect::$dialect).await;
                    let test = platform.clone();
                    // In a task of its own, so that a failed test still cleans up after itself.
                    let run = tokio::spawn(async move { super::$fact(&test).await });
                    platform.conclude(run.await).await;
                }
            )*
        }
    };
}
