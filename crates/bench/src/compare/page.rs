//! The page of a comparison, made from its JSON alone.

use super::bars;
use super::charts::PLOTS;
use super::results::{Cell, Line, Results, SystemInfo};
use std::fmt::Write;

/// What each measurement is, for readers.
const MEASURED: &str = "\
| measurement | what happens | what counts |
|---|---|---|
| single submits | 1, 16 or 64 clients submit one job each, which is answered before the next, for 2 s. Several clients may share what the \
system lets them share, where that is faster: connections, and with Taskwheel over HTTP calls too, as its SDK puts what is submitted \
meanwhile into one call. The figure's setting says so: `own` or none is a connection each | jobs a second |
| …, a connection each, one job a call | the same by 64 clients that share nothing, in all systems | jobs a second |
| bulk submits | one client submits 1,000 jobs a call, for 2 s | jobs a second |
| drain | no-op jobs are loaded and the tables vacuumed; one or two worker processes, which begin together, work them off | jobs a second, from the first that runs in whichever process until none is left |
| beside future rows | the same, with a million more jobs that are due in a day; each run begins with the same tables | jobs a second |
| held horizon | the same, while an idle transaction with a snapshot (repeatable read) keeps the database from cleaning up | jobs a second |
| submit to start | a worker waits; one job every 10 to 30 ms and nothing else | from before the submit until the job runs |
| lateness | a worker waits; jobs fall due evenly, 167 a second for 20 s in each run: 10,000 over a minute in three | from when a job was due until it runs |
| memory | during the drain with one process | the most that was resident (`VmHWM`): of the worker process; over HTTP of `taskwheel serve`; of beanstalkd itself; of Celery with its children |

Every driver counts afterwards that all jobs were stored or run, and that none is left; a system that fails says so in the table.";

/// Writes it.
pub(super) fn write(results: &Results) -> String {
    let mut page = String::new();
    let mut say = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    say("# Comparison\n");
    say("<!-- Made by ./bench compare from comparison.json: change crates/bench/src/compare, not this file. -->\n");
    say(&format!(
        "Taskwheel beside its peers: all in one run on one machine, in turn, with the same databases, each system with the settings that \
         make it fastest. {}, {}. Medians of {} runs, with the least and the most; those of other machines and hours differ, so repeat \
         it on yours.",
        results.date, results.machine, results.runs
    ));
    if results.scale < 1.0 {
        say(&format!(
            "\n**This run was scaled down to {}: its figures say that the comparison works, not how fast anything is.**",
            results.scale
        ));
    }
    say("\n```sh");
    say(&format!("{}   # measures, and writes JSON, page and plots", results.command));
    say("./bench compare --render docs/benchmarks/comparison.json   # page and plots from the JSON alone");
    say("```\n");
    say("## What was measured\n");
    say(MEASURED);
    say("\n## What is less durable\n");
    say(&durability(results));
    say("\n## Bars\n");
    say(&bars::write(results));
    say("\n## Where we lose\n");
    say(&losses(results));
    say("\n## The figures\n");
    say(&figures(results));
    say("## Servers and runtimes\n");
    say("| what | version and settings |\n|---|---|");
    for (name, version) in &results.servers {
        say(&format!("| {name} | {version} |"));
    }
    say("\n## Systems\n");
    say("`COMMAND` is one of those in [the drivers' page](../../crates/bench/peers/README.md).\n");
    say("| system | version | keeps its jobs in | settings | driver |\n|---|---|---|---|---|");
    for system in &results.systems {
        let SystemInfo { version, storage, settings, commands, .. } = system;
        say(&format!("| {} | {version} | {storage} | {settings} | `{commands}` |", title(system)));
    }
    page
}

fn title(system: &SystemInfo) -> String {
    format!("{}{}", system.title, if system.less_durable.is_some() { " *" } else { "" })
}

fn durability(results: &Results) -> String {
    let mut text = String::from(
        "Taskwheel answers a submit or a report when its commit is on disk. So do all systems without a mark; those with `*` do not:\n",
    );
    for system in &results.systems {
        if let Some(why) = &system.less_durable {
            // A String takes whatever is written.
            let _ = write!(text, "\n- {}: {why}.", title(system));
        }
    }
    text
}

/// Every line in which a peer is ahead of one of ours, whatever it is stored in.
fn losses(results: &Results) -> String {
    let mut rows = String::new();
    for line in &results.rows {
        for peer in results.systems.iter().filter(|system| system.is_peer()) {
            let Some(cell) = line.cell(&peer.name) else { continue };
            let Some(theirs) = cell.median() else { continue };
            let behind: Vec<_> = results.systems.iter().filter_map(|ours| behind(line, ours, cell, theirs)).collect();
            if !behind.is_empty() {
                let figure = line.unit.show(theirs);
                let _ = writeln!(rows, "| {} | {} | {figure} | {} |", line.title, title(peer), behind.join("; "));
            }
        }
    }
    if rows.is_empty() {
        return "In no measurement of this run is a peer ahead of any of ours.".into();
    }
    format!(
        "Computed from the figures: every measurement in which the median of a peer, as durable or not, is ahead of one of ours. \
         `~` marks those whose runs overlap, which is noise as likely as not.\n\n\
         | measurement | peer | its figure | is ahead of |\n|---|---|---|---|\n{rows}"
    )
}

/// How far one of ours is behind, if it is.
fn behind(line: &Line, ours: &SystemInfo, cell: &Cell, theirs: f64) -> Option<String> {
    let own = line.cell(&ours.name).filter(|_| ours.ours)?;
    let figure = own.median().filter(|figure| line.ahead(theirs, *figure))?;
    let times = if line.more_is_better() { theirs / figure } else { figure / theirs };
    let overlap = if own.overlaps(cell) { "~ " } else { "" };
    Some(format!("{overlap}{}: {}, {times:.2} times", ours.title, line.unit.show(figure)))
}

fn figures(results: &Results) -> String {
    let mut text = String::new();
    for (file, heading, wanted) in PLOTS {
        let lines: Vec<&Line> =
            wanted.iter().filter_map(|(name, _)| results.rows.iter().find(|line| line.name == *name)).collect();
        if lines.is_empty() {
            continue;
        }
        let _ = writeln!(text, "### {heading}\n\n![{heading}]({file})\n");
        let titles: Vec<_> = lines.iter().map(|line| line.title.as_str()).collect();
        let _ = writeln!(text, "| system | {} |\n|---{}|", titles.join(" | "), "|---".repeat(lines.len()));
        for system in results.systems.iter().filter(|system| system.takes_part(lines.iter().copied())) {
            let cells: Vec<_> = lines.iter().map(|line| figure(line, &system.name)).collect();
            let _ = writeln!(text, "| {} | {} |", title(system), cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

fn figure(line: &Line, system: &str) -> String {
    let Some(cell) = line.cell(system) else { return "–".into() };
    let Some(median) = cell.median() else {
        return format!("– {}", cell.missing.replace('|', "/").replace('\n', " "));
    };
    let (least, most) = cell.spread();
    let mut text = format!("**{}** ({} – {})", line.unit.show(median), line.unit.show(least), line.unit.show(most));
    if !cell.note.is_empty() {
        let _ = write!(text, "; {}", cell.note);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::charts;
    use super::*;
    use std::path::Path;

    fn fixture() -> Results {
        Results::fixture()
    }

    fn section<'p>(page: &'p str, heading: &str) -> &'p str {
        let from = page.find(heading).expect("the section is there");
        let rest = &page[from + heading.len()..];
        &rest[..rest.find("\n## ").unwrap_or(rest.len())]
    }

    #[test]
    fn a_peer_that_is_ahead_is_listed_and_one_that_is_behind_is_not() {
        let page = write(&fixture());
        let losses = section(&page, "## Where we lose");
        assert!(
            losses.contains("| drain of 100 | fast-peer | 4,000/s | Taskwheel, SQLite: 2,000/s, 2.00 times |"),
            "{losses}"
        );
        // Less durable, and listed all the same; and a time that is shorter is ahead.
        assert!(
            losses.contains("| wait, p50 | loose-peer * | 1.00 ms | ~ Taskwheel, SQLite: 1.50 ms, 1.50 times;"),
            "{losses}"
        );
        assert!(!losses.contains("slow-peer"), "{losses}");
    }

    #[test]
    fn a_less_durable_peer_is_marked_and_told_why() {
        let page = write(&fixture());
        assert!(section(&page, "## What is less durable").contains("- loose-peer *: it answers before the disk does."));
        assert!(section(&page, "## The figures").contains("| loose-peer * |"));
    }

    #[test]
    fn a_peer_without_a_figure_shows_why() {
        let page = write(&fixture());
        let figures = section(&page, "## The figures");
        assert!(
            figures.contains("| slow-peer | **1,000/s** (900/s – 1,100/s); 10 jobs | – an SQLite file / one process |"),
            "{figures}"
        );
        let drain = charts::draw(&fixture()).into_iter().find(|(file, _)| *file == "drain.svg").expect("a plot").1;
        assert!(drain.contains("– an SQLite file | one process") && drain.contains("loose-peer *"), "{drain}");
    }

    #[test]
    fn bare_sql_is_no_peer_and_stands_only_where_it_was_measured() {
        let page = write(&fixture());
        assert!(!section(&page, "## Where we lose").contains("bare SQL"));
        let figures = section(&page, "## The figures");
        assert!(
            figures.contains("| bare SQL, PostgreSQL | **82,000/s** (80,000/s – 84,000/s) | – it only drains |"),
            "{figures}"
        );
        assert_eq!(figures.matches("bare SQL, PostgreSQL").count(), 1, "{figures}");
        let drawn: Vec<_> = charts::draw(&fixture());
        let with_bare_sql: Vec<_> = drawn.iter().filter(|(_, svg)| svg.contains("bare SQL, PostgreSQL")).collect();
        assert_eq!(with_bare_sql.iter().map(|(file, _)| *file).collect::<Vec<_>>(), ["drain.svg"]);
    }

    /// Whoever changes the page or the plots renders those in the repository again: `./bench compare --render`.
    #[test]
    fn the_page_and_the_plots_in_the_repository_are_those_of_its_json() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let results = Results::read(&folder.join("comparison.json")).expect("a comparison");
        let mut made = charts::draw(&results);
        made.push(("comparison.md", write(&results)));
        for (file, text) in made {
            let there = std::fs::read_to_string(folder.join(file)).expect("it is there");
            assert!(there == text, "{file} is not what comparison.json makes of it");
        }
    }

    #[test]
    fn the_readme_names_every_kind_of_loss() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("the page is there");
        let page = std::fs::read_to_string(folder.join("comparison.md")).expect("the page is there");
        let losses = section(&page, "## Where we lose");
        let kinds = ["single submits", "bulk submits", "drain", "submit to start", "lateness", "memory"];
        let lost = |line: &str| kinds.iter().find(|kind| line.starts_with(&format!("| {kind}"))).copied();
        for line in losses.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| measurement")) {
            let kind = lost(line).unwrap_or_else(|| panic!("a loss of a new kind: {line}"));
            let said = readme.lines().any(|line| line.starts_with("- ") && line.contains(kind));
            assert!(said, "docs/benchmarks/README.md does not say that we lose in {kind}");
        }
    }

    #[test]
    fn a_result_reads_back_as_it_was_written() {
        let results = fixture();
        let text = serde_json::to_string(&results).unwrap();
        let again: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
