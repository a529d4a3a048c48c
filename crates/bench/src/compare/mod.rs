//! The comparison: Taskwheel beside its peers, all measured by the same commands in one run on one machine.
//!
//! ```text
//!  for each measurement
//!      for each run
//!          for each system       in turn, so that a noisy minute hits all
//!              driver COMMAND    on a database or server of its own
//!      the JSON is written       an interrupted run keeps what it has
//! ```
//!
//! The page and the plots are made from the JSON alone.

mod bars;
mod charts;
mod choice;
mod describe;
mod measure;
mod page;
mod place;
mod results;
pub(crate) mod settings;
mod systems;
mod table;

use crate::common::report::progress;
use crate::common::settings::Part;
use crate::floor::Result;
use measure::Entrant;
use results::{Cell, Line, Results};
use settings::{Flags, Measure};
use std::path::{Path, PathBuf};
use systems::System;

/// Where the JSON goes unless it is said.
const JSON: &str = "comparison.json";

/// Compares, or makes the page of an earlier comparison.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let flags = Flags::parse(arguments)?;
    if let Some(path) = &flags.render {
        return publish(&Results::read(path)?, flags.output.as_deref());
    }
    let path = flags.common.json.clone().unwrap_or_else(|| PathBuf::from(JSON));
    let wanted = wanted(&flags)?;
    let mut results = describe::describe(&flags, &wanted).await?;
    let (mut entrants, absent) = prepare(&wanted).await;
    for measure in flags.common.only.clone() {
        let lines = compare(measure, &mut entrants, &absent, &flags).await?;
        results.rows.extend(lines);
        results.write(&path)?;
    }
    progress(&format!("written: {}", path.display()));
    publish(&results, flags.output.as_deref())
}

/// The table on the terminal; page and plots where there is a directory for them.
fn publish(results: &Results, output: Option<&Path>) -> Result<()> {
    table::print(results);
    let Some(output) = output else { return Ok(()) };
    std::fs::create_dir_all(output)?;
    for (name, drawing) in charts::draw(results) {
        std::fs::write(output.join(name), drawing)?;
    }
    std::fs::write(output.join("comparison.md"), page::write(results))?;
    progress(&format!("page and plots: {}", output.display()));
    Ok(())
}

/// The systems that were asked for.
fn wanted(flags: &Flags) -> Result<Vec<&'static System>> {
    if flags.systems.is_empty() {
        return Ok(systems::ALL.iter().collect());
    }
    let known = |name: &String| systems::ALL.iter().find(|system| system.name == name);
    flags.systems.iter().map(|name| known(name).ok_or_else(|| no_system(name).into())).collect()
}

fn no_system(name: &str) -> String {
    let names: Vec<_> = systems::ALL.iter().map(|system| system.name).collect();
    format!("no system {name}; there are {}", names.join(", "))
}

/// Installs the drivers. The second list has those that cannot be, and why.
async fn prepare(wanted: &[&'static System]) -> (Vec<Entrant>, Vec<(&'static str, String)>) {
    let (mut entrants, mut absent) = (Vec::new(), Vec::new());
    for &system in wanted {
        match system.program().await {
            Ok(program) => {
                entrants.push(Entrant { system, program, choices: Vec::new(), trying: None, future: None });
            }
            Err(error) => absent.push((system.name, format!("could not be installed: {error}"))),
        }
    }
    (entrants, absent)
}

/// One measurement of all systems.
async fn compare(
    measure: Measure,
    entrants: &mut [Entrant],
    absent: &[(&'static str, String)],
    flags: &Flags,
) -> Result<Vec<Line>> {
    let headings = measure.headings(flags);
    progress(&headings[0].title);
    let new = |system: &str, missing: &str| {
        let cell = Cell { system: system.to_owned(), missing: missing.to_owned(), ..Cell::default() };
        vec![cell; headings.len()]
    };
    let mut found: Vec<Vec<Cell>> =
        entrants.iter().map(|one| new(one.system.name, one.system.lacks(measure).unwrap_or_default())).collect();
    for (entrant, cells) in entrants.iter_mut().zip(&mut found).filter(|(_, cells)| cells[0].missing.is_empty()) {
        if let Err(error) = entrant.choose(measure, flags).await {
            let why = failed(&*error);
            cells.iter_mut().for_each(|cell| cell.missing.clone_from(&why));
        }
    }
    for run in 1..=flags.common.runs {
        for (entrant, cells) in entrants.iter_mut().zip(&mut found).filter(|(_, cells)| cells[0].missing.is_empty()) {
            match entrant.measure(measure, flags).await {
                Ok(values) => {
                    progress(&format!("run {run}, {}: {values:.1?}", entrant.system.name));
                    cells.iter_mut().zip(values).for_each(|(cell, values)| cell.values.extend(values));
                }
                Err(error) => {
                    progress(&format!("run {run}, {}: {error}", entrant.system.name));
                    let why = failed(&*error);
                    for cell in cells {
                        cell.values.clear();
                        cell.missing.clone_from(&why);
                    }
                }
            }
        }
    }
    for (entrant, cells) in entrants.iter_mut().zip(&mut found) {
        entrant.clean_up().await?;
        for cell in cells.iter_mut().filter(|cell| cell.missing.is_empty()) {
            cell.note = entrant.note(measure, flags);
        }
    }
    found.extend(absent.iter().map(|(name, why)| new(name, why)));
    let line = |(place, heading): (usize, measure::Heading)| Line {
        name: heading.name.to_owned(),
        title: heading.title,
        unit: heading.unit,
        cells: found.iter().map(|cells| cells[place].clone()).collect(),
    };
    Ok(headings.into_iter().enumerate().map(line).collect())
}

/// Why a system has no figure, without addresses and paths: they mean nothing on another machine, and may hold a password.
fn failed(error: &dyn std::error::Error) -> String {
    let said = error.to_string();
    let last = said.rsplit(" | ").next().unwrap_or_default();
    let word = |word: &str| if word.matches('/').count() > 1 { "…".to_owned() } else { word.to_owned() };
    format!("failed: {}", last.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
}

/// The name of a measurement on the command line.
fn word(measure: Measure) -> &'static str {
    Measure::ALL.iter().find(|(_, one)| *one == measure).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::failed;

    #[test]
    fn a_failure_names_no_address_and_no_path() {
        let error = "node: at driver | cannot open postgres://me:secret@here/db".into();
        let error: Box<dyn std::error::Error + Send + Sync> = error;
        assert_eq!(failed(&*error), "failed: cannot open …");
    }
}
