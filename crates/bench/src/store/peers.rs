//! Peers: the two graphile workers on the same PostgreSQL, with their fastest settings.
//!
//! Their drivers are programs of their own in `peers/`; what they need is installed below `target/peers`. They delete finished
//! jobs, so that our drain without history is their like, and the one with history does more.

use super::database::Database;
use super::drain::{Drained, word};
use super::report::{Bar, Row, Unit, progress};
use super::settings::Settings;
use super::statistics::median;
use crate::floor::{Result, State};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const JOBS: u64 = 100_000;
const PROCESSES: [usize; 2] = [1, 2];
const WITH_HISTORY_MIN: f64 = 1.0;
const WITHOUT_HISTORY_MIN: f64 = 1.3;
const TABLES: &str =
    "graphile_worker._private_jobs, graphile_worker._private_tasks, graphile_worker._private_job_queues";

/// A peer that is ready to run.
struct Peer {
    name: &'static str,
    /// The program and its first arguments.
    command: Vec<PathBuf>,
    /// Names of the settings that can be the fastest.
    settings: [&'static str; 2],
}

/// Measures both, and sets ours beside the better.
pub(super) async fn measure(settings: &Settings, ours: &[Drained], rows: &mut Vec<Row>) -> Result<()> {
    let installed = [("graphile-worker (npm)", javascript()), ("graphile_worker (crates.io)", rust())];
    let mut peers = Vec::new();
    for (name, peer) in installed {
        match peer {
            Ok(peer) => peers.push(peer),
            Err(error) => rows.push(Row::missing(name, format!("could not be installed: {error}"))),
        }
    }
    for drained in ours {
        let mut best: Option<(f64, String)> = None;
        for peer in &peers {
            for processes in PROCESSES {
                let (rate, setting) = peer.rate(settings, processes, drained.state).await?;
                let name = format!("{} {setting}, {processes} process(es)", peer.name);
                progress(&format!("{name}, {}: {rate:.0}/s", word(drained.state)));
                let what = format!("drain, history not kept, {}", word(drained.state));
                rows.push(Row::beside(what, Unit::PerSecond, drained.dropped, name.clone(), rate, None));
                if best.as_ref().is_none_or(|(known, _)| rate > *known) {
                    best = Some((rate, name));
                }
            }
        }
        let Some((rate, name)) = best else { continue };
        let bar = |least| (drained.state == State::Vacuumed).then_some(Bar::RatioAtLeast(least));
        for (history, ours, least) in
            [("kept", drained.kept, WITH_HISTORY_MIN), ("not kept", drained.dropped, WITHOUT_HISTORY_MIN)]
        {
            let what = format!("drain, history {history}, {}", word(drained.state));
            rows.push(Row::beside(what, Unit::PerSecond, ours, format!("the better: {name}"), rate, bar(least)));
        }
    }
    Ok(())
}

impl Peer {
    /// The best median of its settings.
    async fn rate(&self, settings: &Settings, processes: usize, state: State) -> Result<(f64, &'static str)> {
        let mut best = (0.0, self.settings[0]);
        for setting in self.settings {
            let mut rates = Vec::new();
            for _ in 0..settings.runs {
                rates.push(self.drain(settings, setting, processes, state).await?);
            }
            if median(&rates) > best.0 {
                best = (median(&rates), setting);
            }
        }
        Ok(best)
    }

    async fn drain(&self, settings: &Settings, setting: &str, processes: usize, state: State) -> Result<f64> {
        let (database, jobs) = (Database::create(&settings.url, "peer").await?, settings.scaled(JOBS).to_string());
        self.run(&["load", &database.url, &jobs])?;
        database.sql().await?.bring_into(state, TABLES).await?;
        let output = self.run(&["drain", &database.url, &jobs, &processes.to_string(), setting])?;
        database.remove().await?;
        let figures: Value = serde_json::from_str(&output)?;
        Ok(figures["rate"].as_f64().ok_or("a peer did not say its rate")?)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new(&self.command[0]).args(&self.command[1..]).args(arguments))
    }
}

/// Runs a command to its end, and answers what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let end: Vec<_> = said.lines().rev().take(5).collect();
    Err(format!("{}: {}", command.get_program().display(), end.into_iter().rev().collect::<Vec<_>>().join(" | "))
        .into())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// `target/peers`, beside the directory of this program.
fn place() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("this program lies in no target directory")?.join("peers"))
}

/// Node finds packages beside the script that wants them, so the script goes where they are installed.
fn javascript() -> Result<Peer> {
    let (from, to) = (sources().join("graphile_worker_js"), place()?.join("graphile_worker_js"));
    std::fs::create_dir_all(&to)?;
    for file in ["package.json", "package-lock.json", "drain.mjs"] {
        std::fs::copy(from.join(file), to.join(file))?;
    }
    // npm writes this file last, so that an interrupted installation is done again.
    if !to.join("node_modules/.package-lock.json").exists() {
        progress("installing graphile-worker from npm");
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(&to))?;
    }
    let command = vec!["node".into(), to.join("drain.mjs")];
    Ok(Peer { name: "graphile-worker (npm)", command, settings: ["refetch", "plain"] })
}

fn rust() -> Result<Peer> {
    let (from, to) = (sources().join("graphile_worker_rs"), place()?.join("graphile_worker_rs"));
    progress("building graphile_worker from crates.io");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(from.join("Cargo.toml"));
    run(build.arg("--target-dir").arg(&to))?;
    let command = vec![to.join("release/graphile-worker-drain")];
    Ok(Peer { name: "graphile_worker (crates.io)", command, settings: ["large", "small"] })
}
