//! `taskwheel work`: a worker without an SDK, which runs a command for each task.
//!
//! ```text
//!  Worker (worker.rs)     one loop that has all state: claims, starts, renews, reports, stops
//!   |- Places (places.rs)    which executions it holds
//!   |- Link (link.rs)        its calls, tried again while the server is away
//!   |- run (command.rs)      one command from its start to its end
//!   |   `- Capture (capture.rs)  its output, in bounded memory
//!   `- Journal (journal.rs)  what it says about each task
//! ```

mod capture;
mod command;
mod journal;
mod link;
mod places;
mod protocol;
mod worker;

use crate::api::Api;
use crate::duration::{duration, period};
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;
use uuid::Uuid;
use worker::Worker;

/// The longest name that the server takes.
const NAME_CHARS_MAX: usize = 64;

#[derive(Args)]
pub(crate) struct WorkArgs {
    /// Take tasks of this type; can be given more than once.
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "categories")]
    types: Vec<String>,
    /// Take tasks of this category; can be given more than once.
    #[arg(long = "category", value_name = "CATEGORY")]
    categories: Vec<String>,
    /// How many commands run at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    concurrency: u16,
    /// How often to tell the server that the work goes on; it takes tasks back after three times as long.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = period)]
    heartbeat: Duration,
    /// The name of this host; the machine's unless given.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The application that this worker belongs to.
    #[arg(long)]
    app: Option<String>,
    /// How long one call may wait for tasks.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    wait: Duration,
    /// End when no task is due.
    #[arg(long, visible_alias = "once")]
    drain: bool,
    /// How long commands may run on after SIGTERM or Ctrl-C.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// No line for each task.
    #[arg(long)]
    quiet: bool,
    /// The command. It gets the payload as JSON on stdin; exit code 0 is success, with stdout as result.
    ///
    /// In its environment are TASKWHEEL_TASK_ID, TASKWHEEL_EXEC_ID, TASKWHEEL_TASK_TYPE, TASKWHEEL_TASK_KEY,
    /// TASKWHEEL_ATTEMPT and TASKWHEEL_CHECKPOINT, and in the run of a schedule TASKWHEEL_SHARD_INDEX, TASKWHEEL_SHARD_TOTAL and
    /// TASKWHEEL_PARENT, which has the result of the task before it.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) async fn work(api: Api, is_json: bool, mut args: WorkArgs) -> Result<()> {
    let host = match args.host.take() {
        Some(host) => host,
        None => nix::unistd::gethostname()?.to_string_lossy().into_owned(),
    };
    let worker_id = worker_id(&host, std::process::id(), Uuid::new_v4());
    Worker::new(api, is_json, args, host, worker_id).run().await
}

/// An id that no other start of a worker has, and that tells a person where to look.
fn worker_id(host: &str, process: u32, random: Uuid) -> String {
    let start = &random.simple().to_string()[..8];
    let rest = format!("-{process}-{start}");
    let host: String = host.chars().take(NAME_CHARS_MAX - rest.len()).collect();
    host + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_id_names_its_host_and_process_and_fits() {
        let random = Uuid::from_u128(0x1234_5678 << 96);
        assert_eq!(worker_id("host", 42, random), "host-42-12345678");
        let long = worker_id(&"é".repeat(100), u32::MAX, random);
        assert_eq!(long.chars().count(), NAME_CHARS_MAX);
        assert!(long.ends_with("-4294967295-12345678"));
    }

    #[test]
    fn every_start_has_an_id_of_its_own() {
        assert_ne!(worker_id("host", 42, Uuid::new_v4()), worker_id("host", 42, Uuid::new_v4()));
    }
}
