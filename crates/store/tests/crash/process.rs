//! kill -9 of a process in the middle of submits and finishes.
//!
//! The process is this test binary itself, started again to run [`the_process_that_is_killed`]. It writes each
//! acknowledgement to its standard output, after it has it.

use crate::load::{self, Acknowledged};
use crate::support::{Dialect, TestDatabase, random_below};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use taskwheel_model::TaskId;
use taskwheel_store::Options;

pub(crate) const URL: &str = "TASKWHEEL_TEST_CRASH_URL";
/// The test harness writes to the same output.
const MARK: &str = "@acknowledged ";
const ROUNDS: usize = 3;

/// Not a test by itself: the body of the process that the tests below start and kill.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let store = taskwheel_store::open(Options::new(url)).await.expect("the store opens");
    let told = |one: Acknowledged| {
        let line = match one {
            Acknowledged::Submitted(id) => format!("{MARK}submitted {id}\n"),
            Acknowledged::Finished(id) => format!("{MARK}finished {id}\n"),
        };
        std::io::stdout().write_all(line.as_bytes()).expect("the output takes a line");
    };
    let told: Arc<dyn Fn(Acknowledged) + Send + Sync> = Arc::new(told);
    while load::start(&store, &told).join_next().await.is_some() {}
}

/// A process that ends with its test, whatever happens.
pub(crate) struct Victim(pub(crate) Child);

impl Victim {
    /// Starts this binary again for one of its bodies.
    pub(crate) fn start(body: &str, url: &str) -> Victim {
        let mut command = Command::new(std::env::current_exe().expect("this test has a binary"));
        command.args([body, "--exact", "--nocapture"]).env(URL, url);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Victim(command.spawn().expect("the process starts"))
    }

    pub(crate) fn output(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().expect("its output is piped"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts the process, kills it after so many acknowledgements, and answers all that it has given.
fn acknowledged_until_killed(url: &str, count: usize) -> Vec<Acknowledged> {
    let mut victim = Victim::start("process::the_process_that_is_killed", url);
    let mut output = victim.output();
    let (mut acknowledged, mut line) = (Vec::new(), String::new());
    // A line that was cut short by the kill has no end, and does not count.
    while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
        if let Some((verb, id)) = line.split_once(MARK).and_then(|(_, told)| told.trim_end().split_once(' ')) {
            let id = TaskId(id.parse().expect("an id"));
            acknowledged.push(if verb == "submitted" {
                Acknowledged::Submitted(id)
            } else {
                Acknowledged::Finished(id)
            });
            if acknowledged.len() == count {
                victim.0.kill().expect("the process can be killed");
            }
        }
        line.clear();
    }
    assert!(acknowledged.len() >= count, "the process ended by itself after {} acknowledgements", acknowledged.len());
    acknowledged
}

async fn acknowledged_work_survives_the_kill_of_its_process(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let mut acknowledged = Vec::new();
    for _ in 0..ROUNDS {
        let (url, count) = (database.url.clone(), 100 + random_below(200) as usize);
        let more = tokio::task::spawn_blocking(move || acknowledged_until_killed(&url, count)).await;
        acknowledged.extend(more.expect("the process was started and killed"));
        let store = taskwheel_store::open(Options::new(&database.url)).await.expect("the store opens after the kill");
        load::assert_all_there(&*store, &acknowledged).await;
    }
    let finished = acknowledged.iter().filter(|one| matches!(one, Acknowledged::Finished(_))).count();
    assert!(finished > 0 && finished < acknowledged.len(), "both submits and finishes were under way");
    database.remove().await;
}

mod sqlite {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_its_process() {
        super::acknowledged_work_survives_the_kill_of_its_process(crate::support::Dialect::Sqlite).await;
    }
}

mod postgres {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_its_process() {
        super::acknowledged_work_survives_the_kill_of_its_process(crate::support::Dialect::Postgres).await;
    }
}

mod mysql {
    #[tokio::test(flavor = "multi_thread")]
    async fn acknowledged_work_survives_the_kill_of_its_process() {
        super::acknowledged_work_survives_the_kill_of_its_process(crate::support::Dialect::Mysql).await;
    }
}
