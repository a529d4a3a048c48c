//! The bars of a comparison: what ours must reach beside a peer or bare SQL in the same run, computed from its JSON alone.

use super::charts::PLOTS;
use super::results::{Cell, Results, SystemInfo};
use crate::common::report::{Bar, Row, Unit};
use std::fmt::Write;

/// Whom ours stands beside.
#[derive(Clone, Copy)]
enum Beside {
    /// Nobody: the bar is a figure.
    Nobody,
    Named(&'static str, &'static [&'static str]),
    /// Every peer that is as durable as ours and keeps its jobs there.
    DurableOn(&'static str),
    /// Every peer that is as durable as ours.
    Durable,
}

/// A bar. Of several lines and systems the best counts, on both sides.
struct Asked {
    /// What it is a bar of.
    of: &'static str,
    what: &'static str,
    lines: &'static [&'static str],
    ours: &'static [&'static str],
    beside: Beside,
    /// The lines of those beside, where they are not the same.
    their_lines: &'static [&'static str],
    bar: Bar,
}

const DRAINS: &[&str] = &["drain1", "drain2"];
const GRAPHILE: Beside = Beside::Named("the better graphile worker", &["graphile-worker-npm", "graphile-worker-crate"]);
const BULLMQ: Beside = Beside::Named("BullMQ", &["bullmq"]);
const SELDOM: Beside = Beside::Named("graphile-worker, polling each 100 ms", &["graphile-worker-npm-100ms"]);
const FLOOR_MIN: Bar = Bar::RatioAtLeast(0.7);

const NONE: Asked =
    Asked { of: "", what: "", lines: &[], ours: &[], beside: Beside::Nobody, their_lines: &[], bar: FLOOR_MIN };

const STORE: Asked = Asked { of: "store", lines: DRAINS, ..NONE };
const SERVER: Asked = Asked { of: "server", ..NONE };

const BARS: &[Asked] = &[
    Asked {
        what: "drain in the process, history kept",
        ours: &["taskwheel-postgres"],
        beside: GRAPHILE,
        bar: Bar::RatioAtLeast(1.0),
        ..STORE
    },
    Asked {
        what: "drain in the process, successes not kept",
        ours: &["taskwheel-postgres-not-kept"],
        beside: GRAPHILE,
        bar: Bar::RatioAtLeast(1.3),
        ..STORE
    },
    floor(&["taskwheel-sqlite"], &["floor-sqlite"]),
    floor(&["taskwheel-postgres"], &["floor-postgres"]),
    floor(&["taskwheel-mariadb"], &["floor-mariadb"]),
    on_postgres("single submits over HTTP, PostgreSQL, a connection each, one task a call", OWN),
    on_postgres("single submits over HTTP, PostgreSQL, clients may share connections and calls", SHARING),
    on_sqlite("single submits over HTTP, SQLite, a connection each, one task a call", OWN),
    on_sqlite("single submits over HTTP, SQLite, clients may share connections and calls", SHARING),
    Asked {
        what: "drain over HTTP, two processes",
        lines: &["drain2"],
        ours: &["taskwheel-postgres-http"],
        beside: GRAPHILE,
        their_lines: DRAINS,
        bar: Bar::RatioAtLeast(1.0),
        ..SERVER
    },
    idle_p50(&["taskwheel-sqlite-http"], 1.7),
    idle_p50(&["taskwheel-postgres-http"], 3.4),
    idle_p50(&["taskwheel-mariadb-http"], 3.4),
    idle_p99(&["taskwheel-sqlite-http"], Beside::DurableOn("SQLite")),
    idle_p99(&["taskwheel-postgres-http"], Beside::DurableOn("PostgreSQL")),
    late_p50(&["taskwheel-sqlite-http"]),
    late_p50(&["taskwheel-postgres-http"]),
    late_p50(&["taskwheel-mariadb-http"]),
    late_p99(SELDOM),
    late_p99(Beside::Durable),
];

type Names = &'static [&'static str];

/// Submits are asked for twice, both sides by the same rule each time.
const OWN: Names = &["submit64own"];
const SHARING: Names = &["submit64"];

const fn on_postgres(what: &'static str, lines: Names) -> Asked {
    let (ours, beside) = (&["taskwheel-postgres-http"], Beside::DurableOn("PostgreSQL"));
    Asked { what, lines, ours, beside, bar: Bar::RatioAtLeast(5.0), ..SERVER }
}

const fn on_sqlite(what: &'static str, lines: Names) -> Asked {
    Asked { what, lines, ours: &["taskwheel-sqlite-http"], beside: BULLMQ, bar: Bar::RatioAtLeast(1.0), ..SERVER }
}

const fn floor(ours: Names, floor: Names) -> Asked {
    let beside = Beside::Named("bare SQL", floor);
    Asked { what: "drain in the process, history kept", ours, beside, bar: FLOOR_MIN, ..STORE }
}

const fn idle_p50(ours: Names, limit_ms: f64) -> Asked {
    let (what, lines) = ("submit to start over HTTP, idle, p50", &["latency_p50"]);
    Asked { what, lines, ours, bar: Bar::Below(limit_ms), ..SERVER }
}

const fn idle_p99(ours: Names, beside: Beside) -> Asked {
    let (what, lines) = ("submit to start over HTTP, idle, p99", &["latency_p99"]);
    Asked { what, lines, ours, beside, bar: Bar::RatioAtMost(1.0), ..SERVER }
}

const fn late_p50(ours: Names) -> Asked {
    Asked { what: "lateness over HTTP, p50", lines: &["delayed_p50"], ours, bar: Bar::Below(5.0), ..SERVER }
}

const fn late_p99(beside: Beside) -> Asked {
    let (lines, ours) = (&["delayed_p99"], &["taskwheel-postgres-http"]);
    Asked { what: "lateness over HTTP, p99", lines, ours, beside, bar: Bar::RatioAtMost(0.25), ..SERVER }
}

/// What has a bar and is not measured here.
const ELSEWHERE: &str = "\
Without the million tasks that wait, which the bars of lateness are meant with; and the quarter was asked for beside graphile-worker that \
polls each 100 ms. Polling each 10 ms, as all that can do here, peers are more punctual and ask the database a hundred times a second.

What else has a bar, and what measures it, here on PostgreSQL:

```sh
./bench store --database postgres --only drain,peers   # drains by the store alone, beside bare SQL and the graphile workers
./bench store --database postgres --only submit   # 64 single submits beside as many autocommit connections
./bench store --database postgres --only claim   # a claim among millions of future, finished and paused tasks
./bench store --database postgres --only pages   # first pages with one filter, and reads by id, beside millions
./bench store --database postgres --only horizon   # submits and drains for two minutes under a held horizon
./bench store --database postgres --only latency,memory   # 3,000 submits a second worked at once; a backlog of a million
./bench server --database postgres --only delayed,start   # lateness while a million wait; 20,000 at one instant; ready with a million
./bench schedules --database postgres   # how late firings are, 10,000 at one instant, and firings a second beside bare SQL
```
";

/// The best of some systems in some lines.
struct Best<'r> {
    /// What it is: the system and the short name of the line.
    name: String,
    unit: Unit,
    cell: &'r Cell,
    median: f64,
}

/// The section of the page.
pub(super) fn write(results: &Results) -> String {
    let mut text = String::from(
        "What was asked of ours, on the medians of this run; of several figures the best counts, on both sides. `≥` and `≤` are of the ratio, \
         `<` is of our figure. `~` marks what other runs of these could have decided otherwise: our spread reaches across the bar, or \
         across what the bar makes of theirs.\n\n\
         | of | what | ours | beside | theirs | ratio | bar | reached |\n|---|---|---|---|---|---|---|---|\n",
    );
    for asked in BARS {
        // A String takes whatever is written.
        let _ = writeln!(text, "{}", line(asked, results));
    }
    text.push('\n');
    text.push_str(ELSEWHERE);
    text
}

fn line(asked: &Asked, results: &Results) -> String {
    let ours = best(results, asked.lines, |system| asked.ours.contains(&system.name.as_str()));
    let their_lines = if asked.their_lines.is_empty() { asked.lines } else { asked.their_lines };
    let (whom, theirs) = match asked.beside {
        Beside::Nobody => (String::new(), None),
        Beside::Named(whom, names) => {
            (whom.to_owned(), best(results, their_lines, |system| names.contains(&system.name.as_str())))
        }
        Beside::DurableOn(storage) => {
            let there = |system: &SystemInfo| is_durable_peer(system) && system.storage == storage;
            (format!("the best durable peer on {storage}"), best(results, their_lines, there))
        }
        Beside::Durable => ("the best durable peer".to_owned(), best(results, their_lines, is_durable_peer)),
    };
    let row = Row {
        what: asked.what.to_owned(),
        unit: ours.as_ref().or(theirs.as_ref()).map_or(Unit::PerSecond, |best| best.unit),
        ours: ours.as_ref().map(|best| best.median),
        beside: whom,
        theirs: theirs.as_ref().map(|best| best.median),
        bar: Some(asked.bar),
    };
    let noise = ours.as_ref().is_some_and(|ours| is_noise(asked.bar, ours.cell, theirs.as_ref().map(|best| best.cell)));
    let [what, our_figure, beside, their_figure, ratio, bar, reached] = row.cells();
    let figure = |figure: String, best: Option<Best<'_>>| {
        best.map_or_else(|| "–".to_owned(), |best| format!("**{figure}** {}", best.name))
    };
    let their_figure = if beside.is_empty() { String::new() } else { figure(their_figure, theirs) };
    let (of, our_figure, noise) = (asked.of, figure(our_figure, ours), if noise { " ~" } else { "" });
    format!("| {of} | {what} | {our_figure} | {beside} | {their_figure} | {ratio} | {bar} | {reached}{noise} |")
}

fn is_durable_peer(system: &SystemInfo) -> bool {
    system.is_peer() && system.less_durable.is_none()
}

fn best<'r>(results: &'r Results, lines: &[&str], wanted: impl Fn(&SystemInfo) -> bool) -> Option<Best<'r>> {
    let mut best: Option<Best<'r>> = None;
    for line in results.rows.iter().filter(|line| lines.contains(&line.name.as_str())) {
        for system in results.systems.iter().filter(|system| wanted(system)) {
            let Some((cell, median)) = line.cell(&system.name).and_then(|cell| Some((cell, cell.median()?))) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| line.ahead(median, best.median)) {
                let name = format!("{}, {}", system.title, short(&line.name));
                best = Some(Best { name, unit: line.unit, cell, median });
            }
        }
    }
    best
}

/// What a line is called in its plot.
fn short(name: &str) -> &str {
    let lines = PLOTS.iter().flat_map(|(_, _, lines)| lines.iter());
    lines.into_iter().find(|(line, _)| *line == name).map_or(name, |(_, short)| short)
}

/// Could other runs of these have decided otherwise?
fn is_noise(bar: Bar, ours: &Cell, theirs: Option<&Cell>) -> bool {
    let (least, most) = ours.spread();
    match (bar, theirs) {
        (Bar::Below(limit), _) => least < limit && limit <= most,
        (Bar::RatioAtLeast(times) | Bar::RatioAtMost(times), Some(theirs)) => {
            let (their_least, their_most) = theirs.spread();
            least <= their_most * times && their_least * times <= most
        }
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(results: &Results, start: &str) -> String {
        let section = write(results);
        let found = section.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} is not in {section}")).to_owned()
    }

    #[test]
    fn the_best_of_all_lines_stands_on_both_sides() {
        // Ours with one process beside theirs with two, whose runs overlap.
        assert_eq!(
            row(&Results::fixture(), "| store | drain in the process, history kept | **58,000/s**"),
            "| store | drain in the process, history kept | **58,000/s** Taskwheel, PostgreSQL, 1 process | the better graphile worker | \
             **60,000/s** other worker, 2 processes | 0.97 | ≥ 1.0 | MISSED ~ |"
        );
    }

    #[test]
    fn a_less_durable_peer_and_bare_sql_are_not_the_best_peer() {
        assert_eq!(
            row(&Results::fixture(), "| server | single submits over HTTP, PostgreSQL, clients may share"),
            "| server | single submits over HTTP, PostgreSQL, clients may share connections and calls | \
             **20,000/s** Taskwheel, PostgreSQL, HTTP, 64 clients | \
             the best durable peer on PostgreSQL | **2,500/s** one worker, 64 clients | 8.00 | ≥ 5.0 | ok |"
        );
    }

    #[test]
    fn what_shares_a_connection_is_not_held_against_what_has_its_own() {
        assert_eq!(
            row(&Results::fixture(), "| server | single submits over HTTP, PostgreSQL, a connection each"),
            "| server | single submits over HTTP, PostgreSQL, a connection each, one task a call | \
             **9,000/s** Taskwheel, PostgreSQL, HTTP, 64, a connection each | the best durable peer on PostgreSQL | \
             **2,000/s** one worker, 64, a connection each | 4.50 | ≥ 5.0 | MISSED ~ |"
        );
    }

    #[test]
    fn the_distance_to_bare_sql_is_a_bar() {
        let mut results = Results::fixture();
        let section = write(&results);
        let beside = "| bare SQL | **82,000/s** bare SQL, PostgreSQL, 1 process | 0.71 | ≥ 0.7 | ok ~ |";
        assert!(section.contains(beside), "{section}");
        let drain = results.rows.iter_mut().find(|line| line.name == "drain1").unwrap();
        drain.cells.iter_mut().find(|cell| cell.system == "floor-postgres").unwrap().values = vec![90_000.0; 3];
        let section = write(&results);
        assert!(
            section.contains("| bare SQL | **90,000/s** bare SQL, PostgreSQL, 1 process | 0.64 | ≥ 0.7 | MISSED |")
        );
    }

    #[test]
    fn a_limit_is_of_our_figure_alone() {
        // The slowest of its runs is beyond the limit.
        let rows: Vec<_> = write(&Results::fixture()).lines().map(str::to_owned).collect();
        let limit = "| **2.40 ms** Taskwheel, PostgreSQL, HTTP, p50 |  |  |  | < 3.40 ms | ok ~ |";
        assert!(rows.iter().any(|row| row.ends_with(limit)), "{rows:#?}");
    }

    #[test]
    fn a_bar_without_figures_is_not_measured() {
        assert_eq!(
            row(&Results::fixture(), "| store | drain in the process, successes not kept |"),
            "| store | drain in the process, successes not kept | – | the better graphile worker | \
             **60,000/s** other worker, 2 processes |  | ≥ 1.3 | not measured |"
        );
    }

    #[test]
    fn every_bar_names_systems_and_lines_that_there_are() {
        let lines: Vec<_> = PLOTS.iter().flat_map(|(_, _, lines)| lines.iter().map(|(name, _)| *name)).collect();
        let systems: Vec<_> = super::super::systems::ALL.iter().map(|system| system.name).collect();
        for asked in BARS {
            let beside = if let Beside::Named(_, names) = asked.beside { names } else { &[] };
            assert!(asked.ours.iter().chain(beside).all(|name| systems.contains(name)), "{}", asked.what);
            assert!(asked.lines.iter().chain(asked.their_lines).all(|name| lines.contains(name)), "{}", asked.what);
        }
    }
}
