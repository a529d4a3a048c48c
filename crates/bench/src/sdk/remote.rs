//! Remote: two worker processes of the SDK on a server, beside two that speak its protocol and nothing more.

use super::settings::Settings;
use super::{BAR, CONCURRENCY, QUEUE, TASKS, drain};
use crate::common::report::{Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;
use crate::server::memory::Peaks;
use crate::server::run::{PROCESSES, run};
use crate::store::work::TYPE;
use taskwheel_client::Client;

/// Measures ours and the server's own in turn.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let tasks = settings.scaled(TASKS);
    let (mut ours, mut theirs, mut peaks) = (Vec::new(), Vec::new(), Peaks::default());
    for _ in 0..settings.runs {
        for (command, rates) in [("sdk", &mut ours), ("server", &mut theirs)] {
            let rate = run(&settings.url, tasks, command, &mut peaks).await?;
            progress(&format!("remote, workers of the {command}: {rate:.0}/s"));
            rates.push(rate);
        }
    }
    let what = format!("remote workers, {PROCESSES} processes, {CONCURRENCY} at once, queue of {QUEUE}, vacuumed");
    let beside = "the server's run, without the SDK".into();
    rows.push(Row::beside(what, Unit::PerSecond, median(&ours), beside, median(&theirs), Some(BAR)));
    Ok(())
}

/// What a worker process does: says that it is ready, waits for the word, works, and says how much.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) async fn child(server: &str, name: &str) -> Result<()> {
    let client = Client::connect(format!("http://{server}"))?;
    // Connected, as those are that it stands beside.
    client.types().await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    println!("{}", drain(&client, TYPE, name).await?);
    Ok(())
}
