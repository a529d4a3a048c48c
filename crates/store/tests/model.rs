//! The store and the pure model, driven by the same random operations, agree after every step.
//!
//! The model here is nothing but `taskwheel_model::decide` over lives in memory: what the store adds (tables, statements,
//! caches) may not show.

#[expect(dead_code, unused_imports, reason = "the conformance suite uses all of it")]
mod support;

#[path = "model/driver.rs"]
mod driver;
#[path = "model/operation.rs"]
mod operation;

use driver::Driver;
use operation::{Case, case};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Dialect, Platform};

const CASES: u32 = 40;

fn store_and_model_agree(dialect: Dialect) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let platform = runtime.block_on(Platform::open(dialect));
    let numbers = AtomicUsize::new(0);
    // One database for all cases: each has a task type and workers of its own.
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let result = runner.run(&case(), |Case { need_manual, operations }| {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        runtime.block_on(async {
            let mut driver = Driver::new(platform.clone(), number, need_manual).await;
            for operation in operations {
                driver.step(&operation).await;
                driver.compare(&operation).await.map_err(TestCaseError::fail)?;
            }
            Ok(())
        })
    });
    runtime.block_on(platform.conclude(Ok(())));
    if let Err(error) = result {
        panic!("{error}");
    }
}

mod sqlite {
    #[test]
    fn store_and_model_agree() {
        super::store_and_model_agree(crate::support::Dialect::Sqlite);
    }
}

mod postgres {
    #[test]
    fn store_and_model_agree() {
        super::store_and_model_agree(crate::support::Dialect::Postgres);
    }
}

mod mysql {
    #[test]
    fn store_and_model_agree() {
        super::store_and_model_agree(crate::support::Dialect::Mysql);
    }
}
