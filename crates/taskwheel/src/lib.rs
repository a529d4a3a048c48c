//! The program `taskwheel`: the server, and the command line that talks to it.
//!
//! Every command but `serve`, `tokens`, `tenants`, `purge`, `migrate` and `check` is a client of the HTTP API and can do no more than other
//! clients can.
//! What is for programs goes to stdout, what is for people who wait for it to stderr.

mod api;
mod args;
mod audit;
mod check;
mod collector;
mod database;
mod duration;
mod list;
mod log;
mod output;
mod progress;
mod purge;
mod retention;
mod runs;
mod schedules;
mod selection;
mod serve;
mod stats;
mod submit;
mod tasks;
mod tls;
mod tokens;
mod types;
mod work;

use anyhow::Result;
use api::{Api, ApiError};
use args::{Cli, Command};
use std::io;
use std::process::ExitCode;

/// The call failed.
const EXIT_FAILED: u8 = 1;
/// What the call was about does not exist. 2 is wrong usage, by clap.
const EXIT_NOT_FOUND: u8 = 3;

/// Runs the program by the arguments of this process.
#[tokio::main]
pub async fn main() -> ExitCode {
    // It fails only when there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = args::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            let is_not_found = error.downcast_ref().is_some_and(ApiError::is_not_found);
            ExitCode::from(if is_not_found { EXIT_NOT_FOUND } else { EXIT_FAILED })
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let api = || Api::new(cli.server, cli.tenant.clone());
    match cli.command {
        Command::Serve(args) => serve::serve(args).await,
        Command::Submit(args) => submit::submit(&api()?, cli.json, &args).await,
        Command::Tasks(command) => tasks::tasks(&api()?, cli.json, *command).await,
        Command::Work(args) => work::work(api()?, cli.json, *args).await,
        Command::Types(command) => types::types(&api()?, cli.json, command).await,
        Command::Schedules(command) => schedules::schedules(&api()?, cli.json, command).await,
        Command::Runs(command) => runs::runs(&api()?, cli.json, command).await,
        Command::Stats(args) => stats::stats(&api()?, cli.json, args).await,
        Command::Tokens(command) => tokens::tokens(command, cli.tenant, cli.json).await,
        Command::Tenants(command) => tokens::tenants(command, cli.json).await,
        Command::Audit(args) => audit::audit(&api()?, cli.json, args).await,
        Command::Purge(args) => purge::purge(*args, cli.json).await,
        Command::Migrate(args) => database::migrate(args, cli.json).await,
        Command::Check(args) => check::check(*args, cli.json).await,
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "taskwheel", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
