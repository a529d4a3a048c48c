//! What a comparison found: the JSON that the page and the plots are made from.

use crate::common::report::Unit;
use crate::common::statistics::median;
use crate::floor::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The day of the run.
    pub(crate) date: String,
    /// The command that repeats it.
    pub(crate) command: String,
    pub(crate) machine: String,
    pub(crate) runs: usize,
    pub(crate) scale: f64,
    /// The servers and their versions and settings, by name.
    pub(crate) servers: BTreeMap<String, String>,
    pub(crate) systems: Vec<SystemInfo>,
    pub(crate) rows: Vec<Line>,
}

/// A system that was compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SystemInfo {
    /// On the command line.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Is it Taskwheel?
    pub(crate) ours: bool,
    /// Is it bare SQL, and no peer?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) floor: bool,
    /// Why it is here for some measurements only; none where it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<String>,
    pub(crate) storage: String,
    pub(crate) version: String,
    /// Why it is less durable than ours; none where it is as durable.
    pub(crate) less_durable: Option<String>,
    /// The settings that make it fast.
    pub(crate) settings: String,
    /// The commands that were run, without addresses.
    pub(crate) commands: String,
}

/// One measurement of all systems.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) cells: Vec<Cell>,
}

/// One measurement of one system.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) system: String,
    /// One of each run; none where there is a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<f64>,
    /// How it differs from the others of its row: fewer jobs, a setting.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) missing: String,
}

impl Results {
    /// A small one for tests.
    #[cfg(test)]
    pub(crate) fn fixture() -> Results {
        serde_json::from_str(include_str!("../../fixtures/comparison.json")).expect("the fixture is a comparison")
    }

    pub(crate) fn read(path: &Path) -> Result<Results> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(self)?))?)
    }

    pub(crate) fn system(&self, name: &str) -> Option<&SystemInfo> {
        self.systems.iter().find(|system| system.name == name)
    }
}

impl SystemInfo {
    /// Is it neither Taskwheel nor bare SQL?
    pub(crate) fn is_peer(&self) -> bool {
        !self.ours && !self.floor
    }

    /// Has it a part in one of these lines, be it a failure?
    pub(crate) fn takes_part<'l>(&self, lines: impl IntoIterator<Item = &'l Line>) -> bool {
        let Some(why) = &self.part else { return true };
        lines.into_iter().filter_map(|line| line.cell(&self.name)).any(|cell| cell.missing != *why)
    }
}

impl Line {
    /// Is a larger figure the better one?
    pub(crate) fn more_is_better(&self) -> bool {
        self.unit == Unit::PerSecond
    }

    /// Is the first figure ahead of the second?
    pub(crate) fn ahead(&self, one: f64, other: f64) -> bool {
        if self.more_is_better() { one > other } else { one < other }
    }

    pub(crate) fn cell(&self, system: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.system == system)
    }
}

impl Cell {
    /// The middle of its runs.
    pub(crate) fn median(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| median(&self.values))
    }

    /// The least and the most of its runs.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    /// Do the runs of both overlap, so that which is ahead is noise as likely as not?
    pub(crate) fn overlaps(&self, other: &Cell) -> bool {
        let ((least, most), (its_least, its_most)) = (self.spread(), other.spread());
        least <= its_most && its_least <= most
    }
}
