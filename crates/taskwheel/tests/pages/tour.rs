//! The tour of the README: each command goes well, and prints what the page says.

use crate::page::{blocks, page, part, require};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const START: &str = "cargo run --release -- serve";
const SERVER: &str = "http://127.0.0.1:9222";
/// How the page names the host.
const HOST: &str = "my-host";
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
/// How many lines of the greeting the page may quote.
const GREETING_LINES: usize = 2;

/// A script, and the lines that the page says it prints.
struct Step {
    script: String,
    claims: Vec<String>,
}

fn steps() -> Vec<Step> {
    let page = page("README.md");
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks(part(&page, "<!-- tour", "<!-- /tour -->")) {
        match block.language.as_str() {
            "sh" => steps.push(Step { script: block.text, claims: Vec::new() }),
            "text" => {
                let step = steps.last_mut().expect("a command comes before what it prints");
                step.claims.extend(block.text.lines().map(str::to_owned));
            }
            other => panic!("the tour has a block in {other}, which is neither sh nor text"),
        }
    }
    steps
}

/// Where the tour is made.
struct Tourist {
    directory: TempDir,
    path: String,
    host: String,
}

impl Tourist {
    fn new() -> Tourist {
        let binaries = Path::new(env!("CARGO_BIN_EXE_taskwheel")).parent().expect("the binary is in a directory");
        Tourist {
            directory: tempfile::tempdir().expect("a temporary directory"),
            path: format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default()),
            host: gethostname().expect("this machine has a name").to_string_lossy().into_owned(),
        }
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")]);
        for name in ["TASKWHEEL_DATABASE", "TASKWHEEL_TOKEN", "TASKWHEEL_LOG"] {
            command.env_remove(name);
        }
        command.current_dir(&self.directory).env("PATH", &self.path).env("no_proxy", "127.0.0.1");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts the server, and gives its address.
    async fn start(&self, step: &Step) -> (Child, String) {
        assert_eq!(step.script.trim(), START, "the tour begins with the start");
        let mut command = self.command("exec taskwheel serve");
        command.env("TASKWHEEL_LISTEN", "127.0.0.1:0").stdout(Stdio::piped());
        let mut server = command.spawn().expect("bash starts");
        let mut lines = BufReader::new(server.stdout.take().expect("its output")).lines();
        let mut greeting = Vec::new();
        while greeting.len() < GREETING_LINES {
            let line = timeout(STEP_TIME_MAX, lines.next_line()).await.expect("it starts in time").unwrap();
            greeting.push(line.unwrap_or_else(|| panic!("the server ended: {greeting:?}")));
        }
        // What it prints later has somewhere to go.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = greeting[0].split_whitespace().last().expect("its address").to_owned();
        self.check(step, &greeting.join("\n").replace(&address, SERVER));
        (server, address)
    }

    async fn run(&self, step: &Step, address: &str) {
        let script = step.script.replace(SERVER, address);
        let output = self.command(&script).env("TASKWHEEL_SERVER", address).output();
        let output = timeout(STEP_TIME_MAX, output).await.expect("it ends in time").expect("bash starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{script}{}\n{printed}", output.status);
        self.check(step, &printed);
    }

    /// Looks for each line that the page says is printed.
    fn check(&self, step: &Step, printed: &str) {
        let mut lines: Vec<_> = printed.lines().collect();
        for claim in &step.claims {
            let found = lines.iter().position(|line| self.is_claimed(claim, line));
            let found =
                found.unwrap_or_else(|| panic!("{}says that it prints\n{claim}\nbut prints\n{printed}", step.script));
            if claim != "…" {
                lines.remove(found);
            }
        }
    }

    /// Whether a line is what the page says, but for times, durations, the host's name and what `…` stands for.
    fn is_claimed(&self, claim: &str, line: &str) -> bool {
        let mut words = line.split_whitespace();
        for claimed in claim.split_whitespace() {
            let word = words.next().unwrap_or_default();
            if let Some(start) = claimed.strip_suffix('…') {
                return word.starts_with(start);
            }
            let is_same = claimed == word
                || (is_time(claimed) && is_time(word))
                || (is_duration(claimed) && is_duration(word))
                || (claimed == HOST && word == self.host);
            if !is_same {
                return false;
            }
        }
        words.next().is_none()
    }
}

fn is_time(word: &str) -> bool {
    word.parse::<jiff::Timestamp>().is_ok()
}

/// As in `(3.4ms)`.
fn is_duration(word: &str) -> bool {
    let inside = word.strip_prefix('(').and_then(|word| word.strip_suffix("s)"));
    inside.is_some_and(|inside| inside.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[tokio::test]
async fn the_tour_of_the_readme_goes_as_it_says() {
    ["bash", "curl", "sqlite3"].into_iter().for_each(require);
    let steps = steps();
    let [start, rest @ ..] = steps.as_slice() else { panic!("the tour is empty") };
    let needed = [
        "taskwheel submit",
        "curl ",
        "taskwheel work",
        "--delay",
        "--retry",
        "tasks cancel",
        "INSERT INTO",
        "schedules add",
    ];
    for command in needed {
        assert!(rest.iter().any(|step| step.script.contains(command)), "the tour shows {command}");
    }
    assert!(steps.iter().all(|step| !step.claims.is_empty()), "the tour says what each step prints");
    let tourist = Tourist::new();
    let (mut server, address) = tourist.start(start).await;
    for step in rest {
        tourist.run(step, &address).await;
    }
    let process = Pid::from_raw(server.id().expect("the server runs").cast_signed());
    kill(process, Signal::SIGINT).unwrap();
    let status = timeout(STEP_TIME_MAX, server.wait()).await.expect("it stops in time").unwrap();
    assert!(status.success(), "{status}");
}
