//! What is measured, on what, and how large.

use crate::floor::Result;
use std::path::PathBuf;

/// The parts of one benchmark.
pub(crate) trait Part: Copy + PartialEq + 'static {
    /// The benchmark's name on the command line.
    const COMMAND: &'static str;
    /// Every part, by its name on the command line.
    const ALL: &'static [(&'static str, Self)];
    /// What is measured when nothing is asked for.
    const DEFAULT: &'static [Self];

    fn list(text: &str) -> Result<Vec<Self>> {
        if text == "all" {
            return Ok(Self::ALL.iter().map(|(_, part)| *part).collect());
        }
        let by_name = |name: &str| Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, part)| *part);
        text.split(',').map(|name| by_name(name).ok_or_else(|| format!("no measurement {name}").into())).collect()
    }

    /// How the flags are written.
    fn usage() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
        format!(
            "usage: bench {} --database URL [--only {}|all] [--runs 3] [--scale 1.0] [--json FILE]",
            Self::COMMAND,
            names.join(",")
        )
    }
}

/// The flags of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings<P> {
    /// A server with a database, or an SQLite file; databases of our own are made beside it.
    pub(crate) url: String,
    /// What to measure.
    pub(crate) only: Vec<P>,
    /// Rates are medians of so many runs.
    pub(crate) runs: usize,
    /// Every number of rows and of seconds is multiplied by this. Only 1 measures the bars.
    pub(crate) scale: f64,
    /// Where the JSON goes.
    pub(crate) json: Option<PathBuf>,
}

impl<P: Part> Settings<P> {
    pub(crate) fn parse(arguments: &[String]) -> Result<Settings<P>> {
        let (mut url, mut only, mut runs, mut scale, mut json) = (None, P::DEFAULT.to_vec(), 3, 1.0, None);
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value\n{}", P::usage()))?;
            match flag.as_str() {
                "--database" => url = Some(value.clone()),
                "--only" => only = P::list(value)?,
                "--runs" => runs = value.parse::<usize>()?.max(1),
                "--scale" => scale = value.parse()?,
                "--json" => json = Some(value.into()),
                _ => return Err(format!("unknown flag {flag}\n{}", P::usage()).into()),
            }
        }
        if !(scale > 0.0 && scale <= 10.0) {
            return Err("--scale must be above 0 and at most 10".into());
        }
        Ok(Settings { url: url.ok_or_else(P::usage)?, only, runs, scale, json })
    }

    pub(crate) fn wants(&self, part: P) -> bool {
        self.only.contains(&part)
    }

    /// A number of rows or calls, scaled.
    pub(crate) fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(1)
    }

    /// A duration in seconds, scaled, but never so short that it says nothing.
    pub(crate) fn seconds(&self, full: f64) -> f64 {
        (full * self.scale).max(1.0)
    }
}
