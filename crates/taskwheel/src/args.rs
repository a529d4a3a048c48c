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
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use reqwest::Url;
use serde_json::value::RawValue;
use std::error::Error;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::{fs, io};

/// The flags that every command has.
const GLOBAL: &str = "Global options";

/// Runs tasks: now, later, again when they fail, and by schedule.
#[derive(Parser)]
#[command(name = "taskwheel", version)]
pub(crate) struct Cli {
    /// The server to talk to; TASKWHEEL_TOKEN is the token, where it asks for one.
    #[arg(long, env = "TASKWHEEL_SERVER", value_name = "URL", value_parser = server_url)]
    #[arg(global = true, help_heading = GLOBAL, default_value = "http://127.0.0.1:9222", hide_env_values = true)]
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
    /// Look for what is wrong with a configuration of the server, and with its database.
    Check(Box<ServeArgs>),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// What clap does not see: a command that says nothing.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Command::Tasks(command) => command.fault(),
            Command::Schedules(SchedulesCommand::Edit(args)) => args.fault(),
            _ => None,
        }
    }
}

/// The global flags that a command cannot honour: it calls no server, is about all tenants, or has no answer to print.
fn unheeded(command: &str, below: Option<&str>) -> &'static [&'static str] {
    match (command, below) {
        ("serve" | "completions", _) => &["server", "tenant", "json"],
        ("tokens", None | Some("create")) => &["server"],
        ("tokens" | "tenants" | "purge" | "migrate" | "check", _) => &["server", "tenant"],
        _ => &[],
    }
}

/// The command line as clap knows it. A command's help is silent about global flags that it cannot honour.
pub(crate) fn command() -> clap::Command {
    let known = Cli::command();
    let global: Vec<_> = known.get_arguments().cloned().collect();
    let silent_about = |command: clap::Command, flags: &[&str]| {
        let hidden = global.iter().filter(|flag| flags.contains(&flag.get_id().as_str()));
        command.args(hidden.map(|flag| flag.clone().hide(true)))
    };
    known.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let command = silent_about(command, unheeded(&name, None));
        command.mut_subcommands(|below| {
            let flags = unheeded(&name, Some(below.get_name()));
            silent_about(below, flags)
        })
    })
}

/// Reads a command line. A flag that its command would ignore is refused: who gave it meant something by it.
pub(crate) fn read(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let mut known = command();
    let matches = known.try_get_matches_from_mut(line).map_err(in_plain_words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut known))?;
    if let Some(flag) = ignored(&matches) {
        let why = match flag {
            "server" => "it calls no server; a database is named with --database",
            "tenant" => "it is about all tenants",
            _ => "it has no answer to print",
        };
        return Err(
            meant(known, &matches).error(ErrorKind::ArgumentConflict, format!("--{flag} is of no use here: {why}"))
        );
    }
    match cli.command.fault() {
        Some(fault) => Err(meant(known, &matches).error(ErrorKind::MissingRequiredArgument, fault)),
        None => Ok(cli),
    }
}

/// A global flag that was given and that its command cannot honour. Variables of the environment are for all commands.
fn ignored(matches: &ArgMatches) -> Option<&'static str> {
    let (command, below) = matches.subcommand()?;
    let is_given = |flag: &str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    unheeded(command, below.subcommand_name()).iter().copied().find(|flag| is_given(flag))
}

/// The command that a line is about: its usage belongs to an error.
fn meant(mut known: clap::Command, mut matches: &ArgMatches) -> clap::Command {
    while let Some((name, below)) = matches.subcommand() {
        if let Some(command) = known.find_subcommand(name).cloned() {
            known = command;
        }
        matches = below;
    }
    known
}

/// What is no number is called so, not by what the reader of digits stumbled over.
fn in_plain_words(error: clap::Error) -> clap::Error {
    let is_about_digits = error.source().is_some_and(|source| source.is::<ParseIntError>());
    match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        // A password may be in it.
        (Some(flag), Some(value)) if value.to_string().contains('@') => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            clap::Error::raw(ErrorKind::ValueValidation, format!("invalid value for '{flag}': {cause}\n"))
        }
        (Some(flag), Some(value)) if is_about_digits => {
            let words = format!("invalid value '{value}' for '{flag}': must be a whole number\n");
            clap::Error::raw(ErrorKind::ValueValidation, words)
        }
        _ => error,
    }
}

/// A server's address. `localhost:9222` would be a URL too, of the scheme `localhost`. Who calls is said by a token alone: what is
/// in an address is shown in errors.
fn server_url(text: &str) -> Result<Url, String> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let url = Url::parse(text).ok().filter(is_web).ok_or("must be like http://127.0.0.1:9222")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must be without user and password; a token is given with TASKWHEEL_TOKEN".into());
    }
    Ok(url)
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

    fn refused(line: &str) -> String {
        let Err(error) = read(line.split(' ')) else { panic!("{line} is accepted") };
        assert_eq!(error.exit_code(), 2, "{line}");
        error.to_string()
    }

    fn help(line: &str) -> String {
        read(line.split(' ')).err().expect("help is no command").to_string()
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_flag_that_would_be_ignored_is_refused() {
        for line in ["purge --keep-cancelled 1s", "check", "migrate", "tokens list", "tokens revoke 1", "tenants list"]
        {
            assert!(refused(&format!("taskwheel {line} --tenant acme")).contains("all tenants"), "{line}");
            assert!(refused(&format!("taskwheel --server http://host {line}")).contains("--server"), "{line}");
            assert!(read(format!("taskwheel {line} --json").split(' ')).is_ok(), "{line}");
        }
        assert!(refused("taskwheel serve --json").contains("--json"));
        assert!(refused("taskwheel tokens create --role admin --server http://host").contains("--server"));
        assert!(read("taskwheel tokens create --role admin --tenant acme --json".split(' ')).is_ok());
        assert!(read("taskwheel tasks list --tenant acme --server http://host --json".split(' ')).is_ok());
    }

    #[test]
    fn the_help_is_silent_about_what_would_be_ignored() {
        assert!(!help("taskwheel purge --help").contains("--tenant"));
        let tokens = help("taskwheel tokens list --help");
        assert!(!tokens.contains("--server") && !tokens.contains("--tenant") && tokens.contains("--json"), "{tokens}");
        assert!(help("taskwheel tokens create --help").contains("--tenant"));
        assert!(help("taskwheel tasks list --help").contains("--server"));
    }

    #[test]
    fn what_is_no_number_is_called_so() {
        for line in ["tasks show abc", "submit mail --priority high", "tasks cancel 1 x", "tokens revoke first"] {
            assert!(refused(&format!("taskwheel {line}")).contains("must be a whole number"), "{line}");
        }
    }

    #[test]
    fn a_change_of_nothing_is_refused() {
        assert!(refused("taskwheel tasks cancel").contains("--all"));
        assert!(refused("taskwheel schedules edit nightly").contains("nothing to change"));
        assert!(read("taskwheel schedules edit nightly --every 10s".split(' ')).is_ok());
        assert!(read("taskwheel schedules edit nightly --name daily".split(' ')).is_ok());
    }

    #[test]
    fn changing_many_tasks_needs_a_filter_or_all() {
        let accepts = |line: &str| read(line.split(' ')).is_ok();
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
        for line in ["--server http://me:SECRET@host tasks list", "--server me:SECRET@host tasks list"] {
            let refused = refused(&format!("taskwheel {line}"));
            assert!(refused.contains("--server") && refused.contains("must be"), "{refused}");
            assert!(!refused.contains("SECRET"), "{refused}");
        }
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
