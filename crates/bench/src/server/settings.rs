//! What there is to measure of the server.

use crate::common::settings;

/// The flags of a run.
pub(super) type Settings = settings::Settings<Measure>;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Submit,
    Run,
    Latency,
    Delayed,
    Start,
}

impl settings::Part for Measure {
    const COMMAND: &'static str = "server";
    const ALL: &'static [(&'static str, Measure)] = &[
        ("submit", Measure::Submit),
        ("run", Measure::Run),
        ("latency", Measure::Latency),
        ("delayed", Measure::Delayed),
        ("start", Measure::Start),
    ];
    const DEFAULT: &'static [Measure] =
        &[Measure::Submit, Measure::Run, Measure::Latency, Measure::Delayed, Measure::Start];
}
