//! What there is to compare, and the flags of a comparison.

use crate::common::settings::{self, Part};
use crate::floor::Result;
use std::path::PathBuf;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Submit1,
    Submit16,
    Submit64,
    /// The same, where each client has a connection of its own.
    Submit64Own,
    Bulk,
    Drain1,
    Drain2,
    Latency,
    Delayed,
    Future,
    Horizon,
}

impl Part for Measure {
    const COMMAND: &'static str = "compare";
    const ALL: &'static [(&'static str, Measure)] = &[
        ("submit1", Measure::Submit1),
        ("submit16", Measure::Submit16),
        ("submit64", Measure::Submit64),
        ("submit64own", Measure::Submit64Own),
        ("bulk", Measure::Bulk),
        ("drain1", Measure::Drain1),
        ("drain2", Measure::Drain2),
        ("latency", Measure::Latency),
        ("delayed", Measure::Delayed),
        ("future", Measure::Future),
        ("horizon", Measure::Horizon),
    ];
    const DEFAULT: &'static [Measure] = &[
        Measure::Submit1,
        Measure::Submit16,
        Measure::Submit64,
        Measure::Submit64Own,
        Measure::Bulk,
        Measure::Drain1,
        Measure::Drain2,
        Measure::Latency,
        Measure::Delayed,
        Measure::Future,
        Measure::Horizon,
    ];
}

/// The flags of a run.
pub(crate) struct Flags {
    /// Those that every benchmark has; the database is the SQLite file.
    pub(crate) common: settings::Settings<Measure>,
    pub(crate) postgres: Option<String>,
    pub(crate) mysql: Option<String>,
    /// The systems to compare; all when there are none.
    pub(crate) systems: Vec<String>,
    /// Make the page from this and measure nothing.
    pub(crate) render: Option<PathBuf>,
    /// Where page and plots go.
    pub(crate) output: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse(arguments: &[String]) -> Result<Flags> {
        let mut own: [(&str, Option<String>); 5] =
            [("--postgres", None), ("--mysql", None), ("--systems", None), ("--render", None), ("--output", None)];
        let mut rest = Vec::new();
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match own.iter_mut().find(|(name, _)| name == flag) {
                Some((_, place)) => *place = Some(value.clone()),
                None => rest.extend([flag.clone(), value.clone()]),
            }
        }
        let [postgres, mysql, systems, render, output] = own.map(|(_, value)| value);
        let systems = systems.map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default();
        if render.is_some() {
            // It needs no database, which is what the others cannot do without.
            rest.extend(["--database".to_owned(), "sqlite://none".to_owned()]);
        }
        let common = settings::Settings::parse(&rest)?;
        let (render, output) = (render.map(PathBuf::from), output.map(PathBuf::from));
        Ok(Flags { common, postgres, mysql, systems, render, output })
    }
}
