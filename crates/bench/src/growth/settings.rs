//! What there is to grow.

use crate::common::settings;

/// The flags of a run.
pub(super) type Settings = settings::Settings<Measure>;

/// A number that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Backlog,
    /// Ten million, which takes as long as everything else.
    Deep,
    Types,
    Nodes,
    Payload,
}

impl settings::Part for Measure {
    const COMMAND: &'static str = "growth";
    const ALL: &'static [(&'static str, Measure)] = &[
        ("backlog", Measure::Backlog),
        ("deep", Measure::Deep),
        ("types", Measure::Types),
        ("nodes", Measure::Nodes),
        ("payload", Measure::Payload),
    ];
    const DEFAULT: &'static [Measure] = &[Measure::Backlog, Measure::Types, Measure::Nodes, Measure::Payload];
}
