//! What there is to measure of schedules.

use crate::common::settings;

/// The flags of a run.
pub(super) type Settings = settings::Settings<Measure>;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Precision,
    Burst,
    Fire,
    Idle,
}

impl settings::Part for Measure {
    const COMMAND: &'static str = "schedules";
    const ALL: &'static [(&'static str, Measure)] = &[
        ("precision", Measure::Precision),
        ("burst", Measure::Burst),
        ("fire", Measure::Fire),
        ("idle", Measure::Idle),
    ];
    const DEFAULT: &'static [Measure] = &[Measure::Precision, Measure::Burst, Measure::Fire, Measure::Idle];
}
