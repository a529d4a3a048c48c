//! What is measured, on what, and how large.

use crate::floor::Result;
use std::path::PathBuf;

/// How the flags are written.
pub(super) const USAGE: &str = "usage: bench store --database URL \
     [--only drain,submit,claim,pages,horizon,latency,memory,peers|all] [--runs 3] [--scale 1.0] [--json FILE]";

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Drain,
    Submit,
    Claim,
    Pages,
    Horizon,
    Latency,
    Memory,
    Peers,
}

impl Measure {
    const ALL: [(&'static str, Measure); 8] = [
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
    const DEFAULT: [Measure; 2] = [Measure::Drain, Measure::Submit];

    fn list(text: &str) -> Result<Vec<Measure>> {
        if text == "all" {
            return Ok(Measure::ALL.map(|(_, measure)| measure).to_vec());
        }
        let by_name = |name: &str| Measure::ALL.into_iter().find(|(known, _)| *known == name);
        text.split(',')
            .map(|name| {
                by_name(name).map(|(_, measure)| measure).ok_or_else(|| format!("no measurement {name}").into())
            })
            .collect()
    }
}

/// The flags of a run.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// A server with a database, or an SQLite file; databases of our own are made beside it.
    pub(super) url: String,
    /// What to measure.
    pub(super) only: Vec<Measure>,
    /// Rates are medians of so many runs.
    pub(super) runs: usize,
    /// Every number of rows and of seconds is multiplied by this. Only 1 measures the bars.
    pub(super) scale: f64,
    /// Where the JSON goes.
    pub(super) json: Option<PathBuf>,
}

impl Settings {
    pub(super) fn parse(arguments: &[String]) -> Result<Settings> {
        let (mut url, mut only, mut runs, mut scale, mut json) = (None, Measure::DEFAULT.to_vec(), 3, 1.0, None);
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
            match flag.as_str() {
                "--database" => url = Some(value.clone()),
                "--only" => only = Measure::list(value)?,
                "--runs" => runs = value.parse::<usize>()?.max(1),
                "--scale" => scale = value.parse()?,
                "--json" => json = Some(value.into()),
                _ => return Err(format!("unknown flag {flag}\n{USAGE}").into()),
            }
        }
        if !(scale > 0.0 && scale <= 10.0) {
            return Err("--scale must be above 0 and at most 10".into());
        }
        Ok(Settings { url: url.ok_or(USAGE)?, only, runs, scale, json })
    }

    pub(super) fn wants(&self, measure: Measure) -> bool {
        self.only.contains(&measure)
    }

    /// A number of rows or calls, scaled.
    pub(super) fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(1)
    }

    /// A duration in seconds, scaled, but never so short that it says nothing.
    pub(super) fn seconds(&self, full: f64) -> f64 {
        (full * self.scale).max(1.0)
    }
}
