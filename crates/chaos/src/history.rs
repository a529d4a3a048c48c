//! The history: what each client saw, in its own words, one line a fact. The checker reads nothing else but this and the database.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Something that a client did or saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub(crate) enum Fact {
    /// A task is about to be submitted. Its key is given to no other.
    Submitting { key: String, tenant: String, unique: Option<String>, attempts_max: u32 },
    /// The submit was acknowledged.
    Submitted { key: String, id: i64, created: bool },
    /// A worker holding a token of `tenant` was given a task, by a call that it began to send at `sent`.
    Claimed {
        worker: String,
        tenant: String,
        sent: i64,
        id: i64,
        exec: String,
        attempt: u32,
        of_tenant: String,
        timeout_ms: Option<i64>,
    },
    /// A renew is about to be sent that names these executions.
    Renewing { execs: Vec<String> },
    /// A renew was answered, for each execution that it named.
    Renewed { worker: String, sent: i64, items: Vec<(i64, String, String)> },
    /// A report is about to be sent.
    Reporting { id: i64, exec: String, outcome: String },
    /// A report was answered.
    Reported { id: i64, exec: String, outcome: String, state: String },
    /// A person is about to cancel a task, or to have it retried.
    Acting { id: i64, action: String },
    /// What that person asked for was acknowledged.
    Acted { id: i64, action: String },
    /// A submit that was acknowledged was sent again with its idempotency key, and answered.
    Repeated { key: String, id: i64 },
    /// A person of a tenant tried to cancel a task of another, and was answered.
    Trespassed { tenant: String, id: i64, status: u16 },
    /// A call was not answered, or by an error of the server.
    Unanswered { call: String, code: Option<String> },
    /// A fault was made, and seen to do something.
    Fault { name: String },
}

/// A fact and its time, by the clock of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at: i64,
    #[serde(flatten)]
    pub(crate) fact: Fact,
}

/// Where a process writes its facts. Each is with the operating system when `note` returns, so that a kill loses none.
#[derive(Debug)]
pub(crate) struct History(Mutex<File>);

impl History {
    pub(crate) fn open(path: &Path) -> Result<History> {
        let file = File::options().create(true).append(true).open(path);
        Ok(History(Mutex::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    pub(crate) fn note(&self, fact: Fact) {
        let mut line = serde_json::to_vec(&Line { at: now(), fact }).expect("a fact is JSON");
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).expect("the history can be written");
    }
}

/// Reads what was written, from all files of a directory, by time. A last line that a kill cut short is left out.
pub(crate) fn read(directory: &Path) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "history") {
            let text = BufReader::new(File::open(&path)?).lines().collect::<std::io::Result<Vec<_>>>()?;
            lines.extend(text.iter().filter_map(|line| serde_json::from_str(line).ok()));
        }
    }
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

/// Milliseconds since 1970, by the clock of the machine.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
