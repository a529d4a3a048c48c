//! Peers: other queues, each by a small program of its own in the crate's folder `peers`.
//!
//! What they need is installed below `target/peers`, so that none of it reaches Taskwheel's lock file. A peer that cannot be
//! installed, or fails, or takes too long, is named with the reason, and never ends a run.

pub(crate) mod graphile;
pub(crate) mod service;
pub(crate) mod submit;
pub(crate) mod timing;

use crate::common::report::{Row, progress};
use crate::floor::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// The slowest takes two minutes for what is asked of it here, so that this long means that it hangs.
const RUN_MAX: Duration = Duration::from_secs(300);

/// The peers that keep their jobs in PostgreSQL.
pub(crate) async fn on_postgres(rows: &mut Vec<Row>) -> Vec<Program> {
    let (javascript, (rust, folder, binary)) = (graphile::JAVASCRIPT, graphile::RUST);
    let programs = [
        installed(javascript.0, Program::node(javascript.0, javascript.1).await, rows),
        installed(rust, Program::rust(rust, folder, binary).await, rows),
        installed("pg-boss", Program::node("pg-boss", "pg_boss_js").await, rows),
        installed("apalis", Program::rust("apalis", "apalis_rs", "apalis-driver").await, rows),
    ];
    programs.into_iter().flatten().collect()
}

/// A peer, or a row that says why it could not be installed.
fn installed<T>(name: &str, peer: Result<T>, rows: &mut Vec<Row>) -> Option<T> {
    match peer {
        Ok(peer) => Some(peer),
        Err(error) => {
            rows.push(Row::missing(name, format!("not run, could not be installed: {error}")));
            None
        }
    }
}

/// A peer that is ready to run.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The program and its first arguments.
    command: Vec<PathBuf>,
}

impl Program {
    /// Runs it to its end, and answers what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.command[0]);
        // The processes that it started notice that it is gone, and end too.
        command.args(&self.command[1..]).args(arguments).kill_on_drop(true);
        match tokio::time::timeout(RUN_MAX, run(command)).await {
            Ok(output) => output,
            Err(_) => Err(format!("it was still at it after {} s", RUN_MAX.as_secs()).into()),
        }
    }

    /// Runs it to its end, and answers the figures that it printed.
    pub(crate) async fn figures(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(arguments).await?)?)
    }

    /// Runs it to its end, and answers the rate that it printed.
    async fn rate(&self, arguments: &[&str]) -> Result<f64> {
        Ok(self.figures(arguments).await?["rate"].as_f64().ok_or("it did not say its rate")?)
    }

    /// This very program, as the driver of Taskwheel.
    pub(crate) fn ours(name: &'static str, way: &str) -> Result<Program> {
        Ok(Program { name, command: vec![std::env::current_exe()?, "driver".into(), way.into()] })
    }

    /// A program for Python, whose folder is this one, in an environment of its own.
    pub(crate) async fn python(name: &'static str, folder: &str) -> Result<Program> {
        let (from, to) = (sources().join(folder), place()?.join(folder));
        let program = Program { name, command: vec![to.join("bin/python"), from.join("driver.py")] };
        let (wanted, installed) = (std::fs::read(from.join("requirements.txt"))?, to.join("installed.txt"));
        if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(program);
        }
        progress(&format!("installing {name}"));
        let mut environment = Command::new("python3");
        environment.args(["-m", "venv"]).arg(&to);
        run(environment).await?;
        let mut install = Command::new(to.join("bin/pip"));
        install.args(["install", "--quiet", "--requirement"]).arg(from.join("requirements.txt"));
        run(install).await?;
        // Last, so that an interrupted installation is done again.
        std::fs::write(installed, wanted)?;
        Ok(program)
    }

    /// A program for Node, whose folder is this one.
    pub(crate) async fn node(name: &'static str, folder: &str) -> Result<Program> {
        // Node finds packages beside the script that wants them, so the script goes where they are installed.
        let (from, to) = (sources().join(folder), place()?.join(folder));
        std::fs::create_dir_all(&to)?;
        for file in ["../driver.mjs", "package.json", "driver.mjs"] {
            std::fs::copy(from.join(file), to.join(file))?;
        }
        let (wanted, installed) = (std::fs::read(from.join("package-lock.json"))?, to.join("installed.json"));
        if std::fs::read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(Program { name, command: vec!["node".into(), to.join("driver.mjs")] });
        }
        progress(&format!("installing {name}"));
        std::fs::write(to.join("package-lock.json"), &wanted)?;
        // Not `npm ci`: it refuses a lock file that lacks the optional packages of other systems.
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&to);
        run(install).await?;
        // Last, so that an interrupted installation is done again.
        std::fs::write(installed, wanted)?;
        Ok(Program { name, command: vec!["node".into(), to.join("driver.mjs")] })
    }

    /// A program in Rust, whose folder is this one.
    pub(crate) async fn rust(name: &'static str, folder: &str, binary: &str) -> Result<Program> {
        let (from, to) = (sources().join(folder), place()?.join(folder));
        progress(&format!("building {name}"));
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(from.join("Cargo.toml"));
        build.arg("--target-dir").arg(&to);
        run(build).await?;
        Ok(Program { name, command: vec![to.join("release").join(binary)] })
    }
}

/// Runs a command to its end, and answers what it printed.
async fn run(mut command: Command) -> Result<String> {
    let program = command.as_std().get_program().display().to_string();
    let output = command.output().await.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let end: Vec<_> = said.lines().rev().take(5).collect();
    Err(format!("{program}: {}", end.into_iter().rev().collect::<Vec<_>>().join(" | ")).into())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// `target/peers`, beside the directory of this program.
fn place() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("this program lies in no target directory")?.join("peers"))
}
