//! Random operations on a handful of tasks.

use proptest::prelude::*;
use taskwheel_model::{Outcome, RetryPolicy};

/// Everything that one run does.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) need_manual: bool,
    pub(crate) operations: Vec<Operation>,
}

/// One thing to do. Tasks and executions are numbers, counted from the first, modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Submit {
        delay_ms: i64,
        expire_ms: Option<i64>,
        max_attempts: i32,
        timeout_ms: Option<i64>,
        retry: RetryPolicy,
    },
    /// By the worker with a heartbeat or by the one without.
    Claim {
        beating: bool,
    },
    Renew {
        task: usize,
        execution: usize,
    },
    Report {
        task: usize,
        execution: usize,
        outcome: Outcome,
        retry_after_ms: Option<i64>,
    },
    Heartbeat,
    Rescue,
    Cancel {
        task: usize,
    },
    Retry {
        task: usize,
    },
    RunNow {
        task: usize,
    },
    Resolve {
        task: usize,
    },
    EditRunAt {
        task: usize,
        in_ms: i64,
    },
    Advance {
        ms: i64,
    },
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let operations = prop::collection::vec(operation(), 39);
    (any::<bool>(), submit(), operations).prop_map(|(need_manual, first, rest)| {
        let operations = std::iter::once(first).chain(rest).collect();
        Case { need_manual, operations }
    })
}

/// Times are multiples of half a second: finer than the clocks in play, coarser than what the store may leave unwritten.
fn halves(seconds: std::ops::Range<i64>) -> impl Strategy<Value = i64> {
    (seconds.start * 2..seconds.end * 2).prop_map(|halves| halves * 500)
}

fn submit() -> impl Strategy<Value = Operation> {
    let retry = prop_oneof![
        Just(RetryPolicy::BUILT_IN),
        Just(RetryPolicy::None),
        Just(RetryPolicy::Fixed { delay_ms: 500 }),
        Just(RetryPolicy::Sequence { intervals_ms: vec![0, 2_000] }),
    ];
    let max_attempts = prop_oneof![Just(-1), 1..4];
    let timeout = prop::option::of(halves(1..6));
    let expiry = prop::option::weighted(0.3, halves(0..30));
    (prop_oneof![Just(0), halves(0..4)], expiry, max_attempts, timeout, retry).prop_map(
        |(delay_ms, expire_ms, max_attempts, timeout_ms, retry)| Operation::Submit {
            delay_ms,
            expire_ms,
            max_attempts,
            timeout_ms,
            retry,
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let outcome = prop::sample::select(vec![
        Outcome::Success,
        Outcome::Completed,
        Outcome::Error,
        Outcome::Error,
        Outcome::Failure,
        Outcome::Retry,
        Outcome::Release,
    ]);
    // Mostly the latest execution: 0 counts from the end.
    let execution = prop_oneof![4 => Just(0_usize), 1 => 0..3_usize];
    let task = 0..3_usize;
    prop_oneof![
        1 => submit(),
        6 => any::<bool>().prop_map(|beating| Operation::Claim { beating }),
        3 => (task.clone(), execution.clone()).prop_map(|(task, execution)| Operation::Renew { task, execution }),
        4 => (task.clone(), execution, outcome, prop::option::of(halves(0..3))).prop_map(
            |(task, execution, outcome, retry_after_ms)| Operation::Report { task, execution, outcome, retry_after_ms }
        ),
        1 => Just(Operation::Heartbeat),
        3 => Just(Operation::Rescue),
        1 => task.clone().prop_map(|task| Operation::Cancel { task }),
        2 => task.clone().prop_map(|task| Operation::Retry { task }),
        1 => task.clone().prop_map(|task| Operation::RunNow { task }),
        1 => task.clone().prop_map(|task| Operation::Resolve { task }),
        1 => (task, halves(-2..8)).prop_map(|(task, in_ms)| Operation::EditRunAt { task, in_ms }),
        4 => prop_oneof![3 => halves(0..5), 1 => halves(5..40), 1 => Just(900_000)].prop_map(|ms| Operation::Advance { ms }),
    ]
}
