//! Taskwheel as its peers are: a program that is driven by the commands of `peers/README.md` and prints one line of JSON.
//!
//! It is this program itself, called with `driver embedded` (an engine in the process), `driver not-kept` (the same, without a history
//! of what succeeded) or `driver http` (the real server, started for each command, with workers of the SDK). With `driver floor` it is
//! no Taskwheel at all, but bare SQL.

mod bare;
mod drain;
mod site;
mod submit;
mod timing;

use crate::floor::Result;
use serde_json::Value;
use site::{Site, Way};

/// The type of all tasks.
const TYPE: &str = "noop";
/// Handlers at once in a worker.
const CONCURRENCY: usize = 64;
/// What a worker claims ahead: four claims of the largest batch.
const QUEUE: usize = 4_000;
/// How many tasks a bulk call submits.
const BULK: u64 = 1_000;

/// The setting of submits by clients that share one of the SDK.
const SHARED: &str = "one";

/// Carries out a command.
#[expect(clippy::print_stdout, reason = "the harness reads it")]
pub(crate) async fn run(way: &str, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ("floor", ["drain", url, jobs, _, setting]) = (way, &arguments[..]) {
        println!("{}", bare::drain(url, jobs.parse()?, setting).await?);
        return Ok(());
    }
    let way = Way::of(way)?;
    let figures = match arguments[..] {
        ["worker", address] => return drain::child(way, address).await,
        ["submit", url, clients, seconds] => {
            submit::single(&Site::open(way, url).await?, clients.parse()?, seconds.parse()?, false).await?
        }
        ["submit", url, clients, seconds, setting] => {
            submit::single(&Site::open(way, url).await?, clients.parse()?, seconds.parse()?, setting == SHARED).await?
        }
        ["bulk", url, seconds] => submit::bulk(&Site::open(way, url).await?, seconds.parse()?).await?,
        ["load", url, jobs] => submit::load(&Site::open(way, url).await?, jobs.parse()?, None).await?,
        ["future", url, rows] => submit::load(&Site::open(way, url).await?, rows.parse()?, Some(site::FAR_MS)).await?,
        ["drain", url, jobs, processes, _] => drain::drain(way, url, jobs.parse()?, processes.parse()?).await?,
        ["latency", url, jobs] => timing::latency(&Site::open(way, url).await?, jobs.parse()?).await?,
        ["delayed", url, jobs, seconds] => {
            timing::delayed(&Site::open(way, url).await?, jobs.parse()?, seconds.parse()?).await?
        }
        _ => Value::Null,
    };
    if figures.is_null() {
        return Err("the commands of a driver are in crates/bench/peers/README.md".into());
    }
    println!("{figures}");
    Ok(())
}
