//! The table and the JSON that a run ends with. Everything that the benchmarks print is printed here.

use super::settings::{Part, Settings};
use crate::floor::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "per_second")]
    PerSecond,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "mb")]
    Megabytes,
}

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// Ours is at least so many times the other.
    RatioAtLeast(f64),
    /// Ours is at most so many times the other.
    RatioAtMost(f64),
    /// Ours is below this.
    Below(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Option<f64>,
    pub(crate) beside: String,
    pub(crate) theirs: Option<f64>,
    pub(crate) bar: Option<Bar>,
}

impl Row {
    /// A figure of ours beside another one.
    pub(crate) fn beside(what: String, unit: Unit, ours: f64, beside: String, theirs: f64, bar: Option<Bar>) -> Row {
        Row { what, unit, ours: Some(ours), beside, theirs: Some(theirs), bar }
    }

    /// A figure that stands by itself.
    pub(crate) fn alone(what: String, unit: Unit, ours: f64, bar: Option<Bar>) -> Row {
        Row { what, unit, ours: Some(ours), beside: String::new(), theirs: None, bar }
    }

    /// A figure of ours whose bar is another one's figure, which is not there, and why.
    pub(crate) fn without(what: String, unit: Unit, ours: f64, why: String, bar: Option<Bar>) -> Row {
        Row { what, unit, ours: Some(ours), beside: why, theirs: None, bar }
    }

    /// A measurement that could not be made, and why.
    pub(crate) fn missing(what: &str, why: String) -> Row {
        Row { what: what.to_owned(), unit: Unit::PerSecond, ours: None, beside: why, theirs: None, bar: None }
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.theirs?)
    }

    fn reached(&self) -> Option<bool> {
        Some(match self.bar? {
            Bar::RatioAtLeast(least) => self.ratio()? >= least,
            Bar::RatioAtMost(most) => self.ratio()? <= most,
            Bar::Below(limit) => self.ours? < limit,
        })
    }

    /// What its columns show.
    pub(crate) fn cells(&self) -> [String; 7] {
        let figure = |value: Option<f64>| value.map_or_else(String::new, |value| self.unit.show(value));
        let bar = match self.bar {
            None => "—".into(),
            Some(Bar::RatioAtLeast(least)) => format!("≥ {least:.1}"),
            Some(Bar::RatioAtMost(most)) => format!("≤ {most}"),
            Some(Bar::Below(limit)) => format!("< {}", self.unit.show(limit)),
        };
        let reached = match (self.bar, self.reached()) {
            (None, _) => "—",
            (Some(_), None) => "not measured",
            (Some(_), Some(true)) => "ok",
            (Some(_), Some(false)) => "MISSED",
        };
        [
            self.what.clone(),
            figure(self.ours),
            self.beside.clone(),
            figure(self.theirs),
            self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            bar,
            reached.into(),
        ]
    }

    fn json(&self) -> Value {
        let bar = self.bar.map(|bar| match bar {
            Bar::RatioAtLeast(least) => json!({ "ratio_at_least": least }),
            Bar::RatioAtMost(most) => json!({ "ratio_at_most": most }),
            Bar::Below(limit) => json!({ "below": limit }),
        });
        json!({
            "what": self.what, "unit": self.unit, "ours": self.ours, "beside": self.beside,
            "theirs": self.theirs, "ratio": self.ratio(), "bar": bar, "reached": self.reached(),
        })
    }
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::Milliseconds => format!("{value:.2} ms"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Megabytes => format!("{value:.0} MB"),
        }
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// All that a run found.
pub(crate) struct Report {
    /// The database and its version.
    pub(crate) database: String,
    pub(crate) rows: Vec<Row>,
    /// Figures behind the table, by measurement.
    pub(crate) details: serde_json::Map<String, Value>,
}

impl Report {
    /// Prints the table, and writes the JSON where it was asked for.
    #[expect(clippy::print_stdout, reason = "the table is the output")]
    pub(crate) fn publish<P: Part>(&self, settings: &Settings<P>) -> Result<()> {
        println!("\n{} · medians of {} · scale {}\n", self.database, settings.runs, settings.scale);
        let titles = ["what", "ours", "beside", "theirs", "ratio", "bar", "reached"].map(str::to_owned);
        let lines: Vec<_> = std::iter::once(titles).chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for cells in &lines {
            let padded: Vec<_> = cells.iter().enumerate().map(|(column, cell)| pad(cell, column, &widths)).collect();
            println!("{}", padded.join("  ").trim_end());
        }
        if settings.scale < 1.0 {
            println!("\nThis run was scaled down: its figures say that the benchmark works, not how fast anything is.");
        }
        if let Some(path) = &settings.json {
            std::fs::write(path, format!("{:#}\n", self.json(settings)))?;
            println!("\nThe same as JSON: {}", path.display());
        }
        Ok(())
    }

    fn json<P: Part>(&self, settings: &Settings<P>) -> Value {
        json!({
            "database": self.database, "runs": settings.runs, "scale": settings.scale,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(), "details": self.details,
        })
    }
}

/// Texts to the left, figures to the right.
fn pad(cell: &str, column: usize, widths: &[usize; 7]) -> String {
    let space = " ".repeat(widths[column] - cell.chars().count());
    if matches!(column, 1 | 3 | 4) { format!("{space}{cell}") } else { format!("{cell}{space}") }
}

/// Says what goes on, apart from the output.
#[expect(clippy::print_stderr, reason = "a run takes minutes, and somebody waits for it")]
pub(crate) fn progress(text: &str) {
    eprintln!("  {text}");
}
