//! The page and the plots of growth, made from the JSON of all databases that there is.

use super::results::{Cost, Results};
use crate::common::plot::{LineChart, Point, Series};
use crate::common::statistics::median;
use std::fmt::Write;

/// A plot: its file, title and axis, the measurements in it, and how they were made.
struct Plot {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    names: &'static [&'static str],
    how: &'static str,
}

const PLOTS: [Plot; 4] = [
    Plot {
        file: "growth-backlog.svg",
        title: "Cost of a task against the backlog",
        axis: "tasks that are due",
        names: &["backlog", "deep"],
        how: "The store in one process, one client, 100 tasks a call, all of one type, vacuumed before.",
    },
    Plot {
        file: "growth-types.svg",
        title: "Cost of a task against the number of types",
        axis: "types of tasks",
        names: &["types"],
        how: "The store in one process, one client, 100 tasks a call; a claim asks for up to 100 types.",
    },
    Plot {
        file: "growth-nodes.svg",
        title: "Cost of a task against the number of servers",
        axis: "servers on one database and one machine",
        names: &["nodes"],
        how: "`taskwheel serve` over HTTP: 64 connections that submit one task a call, then 4 that claim and report 500; all spread over \
              the servers, which share the cores of one machine. An SQLite file belongs to one server.",
    },
    Plot {
        file: "growth-payload.svg",
        title: "Cost of a task against its payload",
        axis: "bytes of payload",
        names: &["payload"],
        how: "The store in one process, one client, 100 tasks a call; payloads of random letters.",
    },
];

/// Page and plots: file names and contents.
pub(super) fn write(all: &[Results]) -> Vec<(&'static str, String)> {
    let mut files: Vec<_> =
        PLOTS.iter().filter(|plot| plot.is_measured(all)).map(|plot| (plot.file, plot.draw(all))).collect();
    files.push(("growth.md", page(all)));
    files
}

impl Plot {
    fn is_measured(&self, all: &[Results]) -> bool {
        all.iter().any(|results| !results.costs(self.names).is_empty())
    }

    fn draw(&self, all: &[Results]) -> String {
        let line = |results: &Results, what: &str, runs: fn(&Cost) -> &[f64]| Series {
            name: format!("{}, {what}", results.database),
            points: results.costs(self.names).into_iter().map(|cost| point(cost.at, runs(cost))).collect(),
        };
        let lines = |results: &Results| {
            [line(results, "submit", |cost| &cost.submit), line(results, "claim and finish", |cost| &cost.work)]
        };
        LineChart {
            title: self.title.to_owned(),
            x_title: format!("{} (logarithmic)", self.axis),
            y_title: "microseconds a task; bars: least to most".to_owned(),
            series: all.iter().flat_map(lines).filter(|series| !series.points.is_empty()).collect(),
        }
        .draw()
    }

    fn table(&self, all: &[Results]) -> String {
        let measured: Vec<&Results> = all.iter().filter(|results| !results.costs(self.names).is_empty()).collect();
        let mut sizes: Vec<f64> = measured.iter().flat_map(|one| one.costs(self.names)).map(|cost| cost.at).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let titles = measured.iter().flat_map(|one| [format!("{}: submit", one.database), "claim and finish".into()]);
        let mut text = format!("| {} | {} |\n", self.axis, titles.collect::<Vec<_>>().join(" | "));
        let _ = writeln!(text, "|---{}|", "|---".repeat(measured.len() * 2));
        for size in sizes {
            let cells = measured.iter().flat_map(|one| {
                let costs = one.costs(self.names);
                let cost = costs.into_iter().find(|cost| cost.at == size);
                [cell(cost.map(|cost| cost.submit.as_slice())), cell(cost.map(|cost| cost.work.as_slice()))]
            });
            let _ = writeln!(text, "| {size} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        let times = measured.iter().flat_map(|one| {
            let costs = one.costs(self.names);
            [growth(&costs, |cost| &cost.submit), growth(&costs, |cost| &cost.work)]
        });
        let _ = writeln!(text, "| the largest beside the smallest | {} |", times.collect::<Vec<_>>().join(" | "));
        text
    }
}

fn point(x: f64, runs: &[f64]) -> Point {
    let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
    Point { x, median: median(runs), least, most: runs.iter().copied().fold(0.0, f64::max) }
}

fn cell(runs: Option<&[f64]>) -> String {
    let Some(runs) = runs else { return "–".into() };
    let Point { median, least, most, .. } = point(0.0, runs);
    format!("{median:.1} µs ({least:.1} – {most:.1})")
}

fn growth(costs: &[&Cost], runs: fn(&Cost) -> &[f64]) -> String {
    match costs {
        [first, .., last] => format!("{:.2} times", median(runs(last)) / median(runs(first))),
        _ => "–".into(),
    }
}

fn page(all: &[Results]) -> String {
    let mut page = String::from(
        "# Growth\n\n\
         <!-- Made by ./bench growth from growth-*.json: change crates/bench/src/growth, not this file. -->\n\n\
         What a task costs, as the number of others, of types, of servers and of bytes grows. A flat line is the aim.\n\n\
         ```sh\n\
         ./bench growth                                  # on SQLite; --database postgres and mysql add theirs to page and plots\n\
         ./bench growth --database postgres --only deep  # a backlog of ten million too, which takes minutes\n\
         ```\n\n",
    );
    for results in all {
        let Results { database, version, machine, date, runs, .. } = results;
        let scale = if results.scale < 1.0 { format!(" **Scaled down to {}.**", results.scale) } else { String::new() };
        let _ = writeln!(page, "- {database}: {version}, {machine}, {date}, medians of {runs}.{scale}");
    }
    for plot in PLOTS.iter().filter(|plot| plot.is_measured(all)) {
        let Plot { title, file, how, .. } = plot;
        let _ = writeln!(page, "\n## {title}\n\n{how}\n\n![{title}]({file})\n\n{}", plot.table(all).trim_end());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn results() -> Results {
        let cost = |at, submit: f64, work: f64| Cost { at, submit: vec![submit; 3], work: vec![work; 3] };
        let measurements = BTreeMap::from([
            ("backlog".to_owned(), vec![cost(10_000.0, 10.0, 20.0), cost(1_000_000.0, 11.0, 30.0)]),
            ("deep".to_owned(), vec![cost(10_000_000.0, 12.0, 40.0)]),
        ]);
        let (version, machine, date) = ("3.51".to_owned(), "2 cores".to_owned(), "2026-01-02".to_owned());
        Results { database: "SQLite".into(), version, machine, date, runs: 3, scale: 1.0, measurements }
    }

    #[test]
    fn what_grows_is_in_the_table_and_what_was_not_measured_is_nowhere() {
        let files = write(&[results()]);
        let page = &files.iter().find(|(file, _)| *file == "growth.md").expect("a page").1;
        assert!(page.contains("| the largest beside the smallest | 1.20 times | 2.00 times |"), "{page}");
        assert!(
            files.iter().any(|(file, svg)| *file == "growth-backlog.svg" && svg.contains("SQLite, claim and finish"))
        );
        assert!(!files.iter().any(|(file, _)| *file == "growth-types.svg") && !page.contains("growth-types.svg"));
    }

    #[test]
    fn a_later_run_keeps_what_it_did_not_measure() {
        let (mut later, earlier) = (results(), results());
        later.measurements.remove("deep");
        later.keep(Results { scale: 0.5, ..earlier.clone() });
        assert_eq!(later.measurements.len(), 1, "figures of another scale");
        later.keep(earlier);
        assert_eq!(later.measurements.len(), 2);
    }
}
