//! The commands of the pages: each page's are run as one script, beside a server of its own.

use crate::page::{page, require, texts};
use crate::support::{Dialect, Server};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const SCRIPT_TIME_MAX: Duration = Duration::from_secs(120);

/// A command that would not end: one that serves is asked for its help instead, which it gives if its flags exist, and a worker
/// ends when nothing is due.
fn that_ends(line: &str) -> String {
    if line.starts_with("taskwheel serve") {
        format!("{line} --help > help.txt")
    } else if line.starts_with("taskwheel work") && !line.contains("--drain") {
        line.replacen(" -- ", " --drain -- ", 1)
    } else {
        line.to_owned()
    }
}

async fn commands_go_well(name: &str) {
    require("curl");
    let script = texts(&page(name), "sh").concat();
    assert!(!script.is_empty(), "{name} has commands");
    let server = Server::start(Dialect::Sqlite).await;
    run(name, &script, &server).await;
    server.end().await;
}

/// Runs commands of a page beside a server; they must go well.
pub(crate) async fn run(name: &str, script: &str, server: &Server) {
    let script: Vec<_> = script.lines().map(that_ends).collect();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let binaries = Path::new(env!("CARGO_BIN_EXE_taskwheel")).parent().expect("the binary is in a directory");
    let mut command = Command::new("bash");
    command
        .args(["-euxo", "pipefail", "-c", &script.join("\n")])
        .current_dir(&directory)
        .env("PATH", format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default()))
        .env("TASKWHEEL_SERVER", server.url())
        .env("TASKWHEEL_DATABASE", &server.database.url)
        .env("no_proxy", "127.0.0.1")
        .env_remove("TASKWHEEL_TOKEN")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(SCRIPT_TIME_MAX, command.output()).await.expect("it ends in time").unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{name}: {said}");
}

macro_rules! pages {
    ($($test:ident: $page:literal),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                commands_go_well($page).await;
            }
        )*
    };
}

pages! {
    the_commands_about_tasks_go_well: "docs/tasks.md",
    the_commands_about_workers_go_well: "docs/workers.md",
    the_commands_about_schedules_go_well: "docs/schedules.md",
    the_commands_about_the_api_go_well: "docs/api.md",
    the_commands_about_security_go_well: "docs/security.md",
    the_commands_about_operations_go_well: "docs/operations.md",
}
