//! The plots of a comparison: measurements that belong together share one.

use super::results::{Line, Results, SystemInfo};
use crate::common::plot::{Bar, BarChart, Group, Kind};

/// File, title, and the lines with what they are called in the plot.
type Plot = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

pub(super) const PLOTS: [Plot; 6] = [
    (
        "submit.svg",
        "Single submits a second, each answered when it is stored",
        &[
            ("submit1", "1 client"),
            ("submit16", "16 clients"),
            ("submit64", "64 clients"),
            ("submit64own", "64, a connection each"),
        ],
    ),
    ("bulk.svg", "Submits a second, 1,000 a call", &[("bulk", "1 client")]),
    (
        "drain.svg",
        "No-op jobs a second",
        &[
            ("drain1", "1 process"),
            ("drain2", "2 processes"),
            ("future", "1 process beside future rows"),
            ("horizon", "1 process under a held horizon"),
        ],
    ),
    ("latency.svg", "From submit to start when idle", &[("latency_p50", "p50"), ("latency_p99", "p99")]),
    ("delayed.svg", "Lateness of delayed jobs", &[("delayed_p50", "p50"), ("delayed_p99", "p99")]),
    ("memory.svg", "Memory of the worker or server process, peak", &[("memory", "peak")]),
];

/// The plots for which there are figures: file names and drawings.
pub(super) fn draw(results: &Results) -> Vec<(&'static str, String)> {
    let mut drawn = Vec::new();
    for (file, title, wanted) in PLOTS {
        let lines: Vec<(&Line, &str)> = wanted
            .iter()
            .filter_map(|(name, short)| Some((results.rows.iter().find(|line| line.name == *name)?, *short)))
            .collect();
        let Some((first, _)) = lines.first() else { continue };
        let systems = results.systems.iter().filter(|system| system.takes_part(lines.iter().map(|(line, _)| *line)));
        let chart = BarChart {
            title: title.to_owned(),
            unit: first.unit,
            series: lines.iter().map(|(_, short)| (*short).to_owned()).collect(),
            groups: systems.map(|system| group(system, &lines)).collect(),
        };
        drawn.push((file, chart.draw()));
    }
    drawn
}

fn group(system: &SystemInfo, lines: &[(&Line, &str)]) -> Group {
    let kind = match system {
        SystemInfo { ours: true, .. } => Kind::Ours,
        SystemInfo { floor: true, .. } => Kind::Floor,
        SystemInfo { less_durable: Some(_), .. } => Kind::Less,
        _ => Kind::Peer,
    };
    let mark = if system.less_durable.is_some() { " *" } else { "" };
    let bar = |line: &Line| {
        let Some(cell) = line.cell(&system.name) else { return Bar::Missing("not measured".into()) };
        let Some(median) = cell.median() else { return Bar::Missing(cell.missing.clone()) };
        let (least, most) = cell.spread();
        Bar::Value { median, least, most }
    };
    Group { label: format!("{}{mark}", system.title), kind, bars: lines.iter().map(|(line, _)| bar(line)).collect() }
}
