//! What a run found on one database, as JSON. A later run replaces what it measured anew and keeps the rest.

use crate::floor::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The figures of one database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) database: String,
    pub(crate) version: String,
    pub(crate) machine: String,
    pub(crate) date: String,
    pub(crate) runs: usize,
    pub(crate) scale: f64,
    /// By measurement.
    pub(crate) measurements: BTreeMap<String, Vec<Cost>>,
}

/// What a task costs at one size: microseconds, one figure for each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// The size.
    pub(crate) at: f64,
    pub(crate) submit: Vec<f64>,
    /// Claim and finish.
    pub(crate) work: Vec<f64>,
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Results> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(self)?))?)
    }

    /// Takes over what an earlier run measured and this one did not; figures of another scale are not comparable.
    pub(crate) fn keep(&mut self, earlier: Results) {
        if earlier.scale == self.scale {
            for (name, costs) in earlier.measurements {
                self.measurements.entry(name).or_insert(costs);
            }
        }
    }

    /// All sizes of a measurement, and of another that goes on where it ends.
    pub(crate) fn costs(&self, names: &[&str]) -> Vec<&Cost> {
        let mut all: Vec<&Cost> = names.iter().filter_map(|name| self.measurements.get(*name)).flatten().collect();
        all.sort_by(|one, other| one.at.total_cmp(&other.at));
        all
    }
}
