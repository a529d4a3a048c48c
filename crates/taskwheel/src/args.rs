//! The command line as a whole, and how its values are read.
//!
//! The flags of a command are the fields of what it sends: one struct is both, so that neither can have what the other
//! lacks.

use crate::audit::AuditArgs;
use crate::database::DatabaseArgs;
use crate::purge::PurgeArgs;
use crate::runs::RunsCommand;
use crate::schedules::SchedulesCommand;
use crate::serve::ServeArgs;
use crate::stats::StatsArgs;
use crate::submit::SubmitArgs;
use crate::tasks::TasksCommand;
use crate::tokens::{TenantsCommand, TokensCommand};
use crate::types::TypesCommand;
use crate::work::WorkArgs;
use clap::{Parser, Subcommand};
use reqwest::Url;
use serde_json::value::RawValue;
use std::{fs, io};

/// The flags that every command has.
const GLOBAL: &str = "Global options";

/// Runs tasks: now, later, again when they fail, and by schedule.
#[derive(Parser)]
#[command(name = "taskwheel", version)]
pub(crate) struct Cli {
    /// The server to talk to; TASKWHEEL_TOKEN is the token, where it asks for one.
    #[arg(long, env = "TASKWHEEL_SERVER", value_name = "URL", value_parser = server_url)]
    #[arg(global = true, help_heading = GLOBAL, default_value = "http://127.0.0.1:9222")]
    pub(crate) server: Url,
    /// The tenant that it is about, where the token is for several.
    #[arg(long, env = "TASKWHEEL_TENANT", global = true, help_heading = GLOBAL)]
    pub(crate) tenant: Option<String>,
    /// Print the server's answers as JSON, one a line.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Submit a task.
    Submit(Box<SubmitArgs>),
    /// List, show and change tasks.
    #[command(subcommand)]
    Tasks(Box<TasksCommand>),
    /// Run a command for each task: a worker without an SDK.
    Work(Box<WorkArgs>),
    /// Show and configure task types.
    #[command(subcommand)]
    Types(TypesCommand),
    /// Make, show and change schedules: what fires when.
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// Show and cancel the runs of schedules.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Show how the executions of each type went.
    Stats(StatsArgs),
    /// Make, list and revoke tokens, on the database itself.
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Limit what tenants may have, on the database itself.
    #[command(subcommand)]
    Tenants(TenantsCommand),
    /// Show who changed what.
    Audit(AuditArgs),
    /// Remove what is past its retention, on the database itself.
    Purge(Box<PurgeArgs>),
    /// Bring the database's schema up to date.
    Migrate(DatabaseArgs),
    /// Look for what is wrong with the database.
    Check(DatabaseArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// A server's address. `localhost:9222` would be a URL too, of the scheme `localhost`.
fn server_url(text: &str) -> Result<Url, String> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    Url::parse(text).ok().filter(is_web).ok_or_else(|| "must be like http://127.0.0.1:9222".into())
}

/// JSON given directly, in a file as `@file`, or on stdin as `-`. It is sent as it was written.
pub(crate) fn json(text: &str) -> Result<Box<RawValue>, String> {
    let json = match (text, text.strip_prefix('@')) {
        ("-", _) => io::read_to_string(io::stdin()).map_err(|error| format!("cannot read stdin: {error}"))?,
        (_, Some(file)) => fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?,
        _ => text.to_owned(),
    };
    serde_json::from_str(&json).map_err(|error| format!("must be JSON, @file or -: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn changing_many_tasks_needs_a_filter_or_all() {
        let accepts = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(accepts("taskwheel tasks cancel 1 2"));
        assert!(accepts("taskwheel tasks cancel --type mail --dry-run"));
        assert!(accepts("taskwheel tasks cancel --all"));
        assert!(!accepts("taskwheel tasks cancel"));
        assert!(!accepts("taskwheel tasks cancel --dry-run"));
        assert!(!accepts("taskwheel tasks cancel 1 --type mail"));
        assert!(accepts("taskwheel tasks reschedule --type mail --delay 2h"));
        assert!(accepts("taskwheel tasks reschedule 1 2 --to 2030-01-31T08:00:00Z"));
        assert!(!accepts("taskwheel tasks reschedule 1"));
        assert!(!accepts("taskwheel tasks reschedule --delay 2h"));
        assert!(!accepts("taskwheel tasks reschedule 1 --delay 2h --to 2030-01-31T08:00:00Z"));
        assert!(accepts("taskwheel tasks set-priority --priority 1 --to 9"));
        assert!(!accepts("taskwheel tasks set-priority --to 9"));
        assert!(!accepts("taskwheel tasks edit 1"));
        assert!(accepts("taskwheel tasks edit 1 --max-attempts -1"));
    }

    #[test]
    fn a_server_is_a_web_address() {
        assert!(server_url("https://tasks.example.com/prefix").is_ok());
        assert!(server_url("localhost:9222").is_err());
    }

    #[test]
    fn json_is_sent_as_it_was_written() {
        assert_eq!(
            json(r#"{"b": 12345678901234567890123, "a": 1.0}"#).unwrap().get(),
            r#"{"b": 12345678901234567890123, "a": 1.0}"#
        );
        assert!(json("{").is_err());
        assert!(json("@/nowhere").is_err());
    }
}
