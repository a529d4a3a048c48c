//! The fault harness: real servers and workers under load, faults by a seed, and then a checker that holds what clients saw, and what the
//! database has in the end, against the promises. See `docs/chaos.md`.

mod answer;
mod api;
mod check;
mod cluster;
mod crowd;
mod disk;
mod history;
mod inject;
mod load;
mod log;
#[path = "../../store/tests/support/own_server.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod own_server;
mod plan;
mod proxy;
mod report;
mod run;
mod state;
#[path = "../../store/tests/support/wait.rs"]
mod wait;
mod worker;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use taskwheel_store::Dialect;

#[derive(Debug, Parser)]
#[command(name = "chaos", about = "Tries to break every promise, and checks that none was broken.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// On which database.
    #[arg(long, value_enum, default_value = "all")]
    database: Databases,
    /// How long faults are made, on each database.
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<u64>,
    #[arg(long)]
    seconds: Option<u64>,
    /// Which faults come when. The same seed repeats them; without one it is any.
    #[arg(long)]
    seed: Option<u64>,
    /// Writes the report here, as a page.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Keeps histories and logs here, where no run has left any.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The server, built with the feature `faults`; beside this program unless told.
    #[arg(long)]
    taskwheel: Option<PathBuf>,
    /// A rule that the servers break on purpose, to see that the checker notices.
    #[arg(long = "break")]
    broken: Option<String>,
    /// Makes only faults whose names have this in them.
    #[arg(long)]
    only: Option<String>,
    /// Makes no faults.
    #[arg(long)]
    calm: bool,
    /// Within so many seconds the backlog must have drained when the load has ended.
    #[arg(long, default_value_t = 60)]
    drain: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One worker: the harness starts them.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Databases {
    Sqlite,
    Postgres,
    Mysql,
    All,
}

impl Databases {
    fn dialects(self) -> &'static [Dialect] {
        match self {
            Databases::Sqlite => &[Dialect::Sqlite],
            Databases::Postgres => &[Dialect::Postgres],
            Databases::Mysql => &[Dialect::Mysql],
            Databases::All => &[Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql],
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if let Some(Command::Worker(args)) = cli.command {
        worker::run(args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let binary = match cli.taskwheel {
        Some(binary) => binary,
        None => std::env::current_exe()?.with_file_name("taskwheel-faulty"),
    };
    run::check_binary(&binary)?;
    if let Some(keep) = &cli.keep {
        run::check_keep(keep, cli.database.dialects())?;
    }
    allow_connections()?;
    let seconds = cli.minutes.map_or(cli.seconds.unwrap_or(60), |minutes| minutes * 60);
    let settings = run::Settings {
        binary,
        seconds,
        seed: cli.seed.unwrap_or_else(rand::random),
        keep: cli.keep,
        broken: cli.broken,
        only: cli.only,
        is_calm: cli.calm,
        drain_max: Duration::from_secs(cli.drain),
    };
    // Before the run: the checkout may be another one when it ends.
    let commit = report::commit();
    let mut reports = Vec::new();
    for dialect in cli.database.dialects() {
        report::announce(*dialect, settings.seed);
        let report = run::run(*dialect, &settings).await?;
        report.print();
        reports.push(report);
        // Each time, so that a run which fails on a later database loses nothing.
        if let Some(path) = &cli.report {
            std::fs::write(path, report::page(&reports, commit.as_deref()))?;
        }
    }
    Ok(if reports.iter().all(report::Report::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every link and everybody in a crowd is an open file.
fn allow_connections() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::Parser;
    use std::path::Path;

    /// A short run is a test of its own; these are long.
    #[test]
    fn every_command_of_the_page_is_understood() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/chaos.md");
        let text = std::fs::read_to_string(page).expect("the page is there");
        let commands: Vec<_> = text.lines().filter(|line| line.starts_with("./chaos")).collect();
        assert!(commands.len() >= 4, "{commands:?}");
        for command in commands {
            let said = command.split_once('#').map_or(command, |(command, _)| command);
            Cli::try_parse_from(said.split_whitespace()).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
}
