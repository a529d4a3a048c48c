//! What there is to measure of the SDK.

use crate::common::settings;

/// The flags of a run.
pub(super) type Settings = settings::Settings<Measure>;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Embedded,
    Remote,
}

impl settings::Part for Measure {
    const COMMAND: &'static str = "sdk";
    const ALL: &'static [(&'static str, Measure)] = &[("embedded", Measure::Embedded), ("remote", Measure::Remote)];
    const DEFAULT: &'static [Measure] = &[Measure::Embedded, Measure::Remote];
}
