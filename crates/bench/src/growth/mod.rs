//! Growth: what a task costs, as the numbers around it grow. Each measurement has a file.

mod backlog;
mod cost;
mod nodes;
mod page;
mod payload;
mod results;
pub(crate) mod settings;
mod types;

use crate::common::database::Database;
use crate::common::machine;
use crate::common::report::progress;
use crate::floor::Result;
use results::Results;
use settings::{Measure, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use taskwheel_store::Dialect;

const BACKLOG: [u64; 3] = [10_000, 100_000, 1_000_000];
const DEEP: [u64; 1] = [10_000_000];
/// The databases, in the order of the page: their files and titles.
const DATABASES: [(Dialect, &str, &str); 3] = [
    (Dialect::Sqlite, "growth-sqlite.json", "SQLite"),
    (Dialect::Postgres, "growth-postgres.json", "PostgreSQL"),
    (Dialect::Mysql, "growth-mariadb.json", "MariaDB"),
];

/// Runs the measurements that the flags ask for, and writes page and plots of all databases.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let (settings, output) = flags(arguments)?;
    let output = output.as_path();
    let dialect = Dialect::of(&settings.url)?;
    let (_, file, title) = DATABASES.iter().find(|(one, ..)| *one == dialect).ok_or("no such database")?;
    let mut results = Results {
        database: (*title).to_owned(),
        version: Database::version(&settings.url).await?,
        machine: machine::size()?,
        date: machine::today(),
        runs: settings.runs,
        scale: settings.scale,
        measurements: BTreeMap::new(),
    };
    std::fs::create_dir_all(output)?;
    let earlier = Results::read(&output.join(file)).ok();
    for measure in settings.only.clone() {
        let (name, costs) = match measure {
            Measure::Backlog => ("backlog", backlog::measure(&settings, &BACKLOG).await?),
            Measure::Deep => ("deep", backlog::measure(&settings, &DEEP).await?),
            Measure::Types => ("types", types::measure(&settings).await?),
            Measure::Nodes if dialect == Dialect::Sqlite => {
                progress("nodes: an SQLite file belongs to one server");
                continue;
            }
            Measure::Nodes => ("nodes", nodes::measure(&settings).await?),
            Measure::Payload => ("payload", payload::measure(&settings).await?),
        };
        results.measurements.insert(name.to_owned(), costs);
        // What an interrupted run has found stays.
        results.write(&output.join(file))?;
    }
    if let Some(earlier) = earlier {
        results.keep(earlier);
        results.write(&output.join(file))?;
    }
    publish(output)
}

/// The flags of every benchmark, and the directory of figures, page and plots.
fn flags(arguments: &[String]) -> Result<(Settings, PathBuf)> {
    let mut rest = arguments.to_vec();
    let place = rest.iter().position(|flag| flag == "--output").filter(|place| place + 1 < rest.len());
    let output = match place {
        Some(place) => rest.drain(place..place + 2).next_back().unwrap_or_default(),
        None => ".".to_owned(),
    };
    Ok((Settings::parse(&rest)?, output.into()))
}

/// Page and plots of all databases whose figures lie there.
#[expect(clippy::print_stdout, reason = "the page is the output")]
fn publish(output: &Path) -> Result<()> {
    let all: Vec<_> = DATABASES.iter().filter_map(|(_, file, _)| Results::read(&output.join(file)).ok()).collect();
    for (file, content) in page::write(&all) {
        if file.ends_with(".md") {
            println!("{content}");
        }
        std::fs::write(output.join(file), content)?;
    }
    progress(&format!("page and plots: {}", output.display()));
    Ok(())
}
