//! The commands of the pages: each page's are run as one script, beside a server of its own.

use crate::page::{blocks, page, require};
use crate::support::{Dialect, Server};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const SCRIPT_TIME_MAX: Duration = Duration::from_secs(120);

/// A command that serves would not end: it is asked for its help instead, which it gives if its flags exist.
fn that_ends(line: &str) -> String {
    if line.starts_with("taskwheel serve") { format!("{line} --help > help.txt") } else { line.to_owned() }
}

async fn commands_go_well(name: &str) {
    require("curl");
    let page = page(name);
    let script: String =
        blocks(&page).into_iter().filter(|block| block.language == "sh").map(|block| block.text).collect();
    assert!(!script.is_empty(), "{name} has commands");
    let script: Vec<_> = script.lines().map(that_ends).collect();
    let server = Server::start(Dialect::Sqlite).await;
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
    server.end().await;
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
    the_commands_about_schedules_go_well: "docs/schedules.md",
    the_commands_about_the_api_go_well: "docs/api.md",
    the_commands_about_security_go_well: "docs/security.md",
    the_commands_about_operations_go_well: "docs/operations.md",
}
