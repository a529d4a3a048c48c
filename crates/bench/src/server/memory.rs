//! Memory: the most that the server had in any measurement.

use crate::common::report::{Bar, Row, Unit};
use serde_json::{Value, json};

const PEAK_MB_MAX: f64 = 300.0;

/// The peaks of all servers that ran.
#[derive(Default)]
pub(crate) struct Peaks(Vec<(&'static str, f64)>);

impl Peaks {
    pub(super) fn add(&mut self, measurement: &'static str, mb: f64) {
        self.0.push((measurement, mb));
    }

    /// The highest.
    pub(super) fn row(&self) -> Option<Row> {
        let (measurement, mb) = self.0.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let what = format!("memory of the server, peak (during {measurement})");
        Some(Row::alone(what, Unit::Megabytes, *mb, Some(Bar::Below(PEAK_MB_MAX))))
    }

    /// All of them.
    pub(super) fn json(&self) -> Value {
        self.0.iter().map(|(measurement, mb)| json!({ "during": measurement, "peak_mb": mb })).collect()
    }
}
