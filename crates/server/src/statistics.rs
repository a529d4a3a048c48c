//! Statistics: how the executions of each type went.

use crate::Shared;
use crate::access::Caller;
use crate::input::Query;
use crate::problem::{Answer, Problem};
use crate::shapes::At;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use taskwheel_model::statistics::Histogram;
use taskwheel_model::{Tally, field};
use taskwheel_store::StatisticsRange;
use taskwheel_store::clock::here;
use utoipa::ToSchema;

/// The range where none is given.
const RANGE_MS_DEFAULT: i64 = 60 * 60 * 1_000;
/// The longest range: so many minutes of so many types are read.
const RANGE_MS_MAX: i64 = 7 * 24 * 60 * 60 * 1_000;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatisticsInput {
    r#type: Option<String>,
    from: Option<At>,
    to: Option<At>,
}

/// How executions went in a range of time, by type.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatisticsView {
    from: At,
    to: At,
    items: Vec<TypeStatistics>,
}

/// How the executions of a type went.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TypeStatistics {
    r#type: String,
    /// Tasks that succeeded with their first attempt.
    success_first: u64,
    success_second: u64,
    success_later: u64,
    /// Executions that ended by error, failure, time limit or lost lease.
    errors: u64,
    /// Tasks that ended as Failure, or wait for a person.
    failures: u64,
    /// From being due to the start.
    wait_ms: Percentiles,
    /// From the start to the end.
    run_ms: Percentiles,
}

/// Durations that a share of all did not exceed, in milliseconds, rounded up to powers of two.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Percentiles {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
}

impl From<&Histogram> for Percentiles {
    fn from(histogram: &Histogram) -> Percentiles {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| histogram.percentile_ms(share));
        Percentiles { p50, p90, p99 }
    }
}

impl TypeStatistics {
    fn of(task_type: String, tally: &Tally) -> TypeStatistics {
        TypeStatistics {
            r#type: task_type,
            success_first: tally.success_first,
            success_second: tally.success_second,
            success_later: tally.success_later,
            errors: tally.errors,
            failures: tally.failures,
            wait_ms: Percentiles::from(&tally.wait),
            run_ms: Percentiles::from(&tally.run),
        }
    }
}

/// Shows how executions went, by type, in whole minutes: the last hour where no range is given.
#[utoipa::path(get, path = "/v1/stats", tag = "statistics", params(("type" = Option<String>, Query),
    ("from" = Option<String>, Query), ("to" = Option<String>, Query)), responses((status = OK, body = StatisticsView),
    (status = UNPROCESSABLE_ENTITY, body = Problem)))]
pub(crate) async fn statistics(State(app): Shared, caller: Caller, query: Query) -> Answer<Json<StatisticsView>> {
    let input: StatisticsInput = query.into()?;
    if let Some(task_type) = &input.r#type {
        field::task_type("type", task_type)?;
    }
    let to = input.to.map_or(here().plus_ms(60_000), |at| at.0);
    let from = input.from.map_or(to.plus_ms(-RANGE_MS_DEFAULT), |at| at.0);
    if !(0..=RANGE_MS_MAX).contains(&to.ms_since(from)) {
        return Err(Problem::field("from", "must lie before `to`, by at most seven days"));
    }
    let wanted = StatisticsRange { from, to, tenant: caller.tenant(), task_type: input.r#type };
    let found = app.engine.store().statistics(wanted).await?;
    let mut by_type: BTreeMap<String, Tally> = BTreeMap::new();
    for one in found {
        by_type.entry(one.task_type).or_default().merge(&one.tally);
    }
    let items = by_type.into_iter().map(|(task_type, tally)| TypeStatistics::of(task_type, &tally)).collect();
    Ok(Json(StatisticsView { from: At(from), to: At(to), items }))
}
