//! The server's log: to stderr, as much as TASKWHEEL_LOG asks for.

use crate::output;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::json;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

const VARIABLE: &str = "TASKWHEEL_LOG";
const VALUES: &str =
    "off, error, warn, info, debug or trace, or for parts of the program like warn,taskwheel_engine=debug";

/// How the log is written.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Starts the log.
pub(crate) fn start(format: LogFormat) -> Result<()> {
    let filter = filter_of_environment()?;
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// What is to be logged.
pub(crate) fn filter_of_environment() -> Result<EnvFilter> {
    filter(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())
}

/// Writes a warning that must be seen, however little is logged.
pub(crate) fn warn_always(format: LogFormat, message: &str) {
    match format {
        LogFormat::Text => output::say(&format_args!("WARNING: {message}")),
        LogFormat::Json => {
            let (timestamp, target) = (Timestamp::now().to_string(), env!("CARGO_PKG_NAME"));
            let line = json!({"timestamp": timestamp, "level": "WARN", "message": message, "target": target});
            output::say(&line);
        }
    }
}

/// What is logged. A word that is no level would be taken for a part of the program, and silence all others.
fn filter(text: &str) -> Result<EnvFilter> {
    let is_understood = |word: &str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
    if !text.split(',').map(str::trim).filter(|word| !word.is_empty()).all(is_understood) {
        bail!("{VARIABLE} must be {VALUES}; it is {text}");
    }
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    builder.parse(text).with_context(|| format!("{VARIABLE} must be {VALUES}; it is {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_does_not_exist_is_refused_with_those_that_do() {
        for text in ["", "debug", "WARN", "off", "warn,taskwheel_engine=debug", "taskwheel_store=trace"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in ["debgu", "warn,debgu", "taskwheel_engine=debgu"] {
            let refused = filter(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("error, warn, info") && refused.contains(text), "{text}: {refused}");
        }
    }
}
