//! What there is to measure of the store.

use crate::common::settings;

/// The flags of a run.
pub(super) type Settings = settings::Settings<Measure>;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Drain,
    Submit,
    Claim,
    Pages,
    Horizon,
    Latency,
    Memory,
    Peers,
}

impl settings::Part for Measure {
    const COMMAND: &'static str = "store";
    const ALL: &'static [(&'static str, Measure)] = &[
        ("drain", Measure::Drain),
        ("submit", Measure::Submit),
        ("claim", Measure::Claim),
        ("pages", Measure::Pages),
        ("horizon", Measure::Horizon),
        ("latency", Measure::Latency),
        ("memory", Measure::Memory),
        ("peers", Measure::Peers),
    ];
    /// What a newcomer sees in two minutes.
    const DEFAULT: &'static [Measure] = &[Measure::Drain, Measure::Submit];
}
