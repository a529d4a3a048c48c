//! `taskwheel purge`: removes what is past its retention, on the database itself, and writes finished tasks to a file first if asked.

use crate::database::{self, DatabaseArgs};
use crate::output;
use crate::retention::RetentionArgs;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use taskwheel_engine::EngineOptions;
use taskwheel_store::{Retention, export};

/// What goes, and where it is written before.
#[derive(Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    retention: RetentionArgs,
    /// Append each task to this file before it goes, as one line of JSON.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(crate) async fn purge(args: PurgeArgs, json: bool) -> Result<()> {
    let EngineOptions { retention, keep_runs_ms, keep_audit_ms, .. } = args.retention.options();
    if retention == Retention::default() && keep_runs_ms.is_none() && keep_audit_ms.is_none() {
        bail!("say how long something is kept, like --keep-success 7d: everything else stays");
    }
    let store = database::open_existing(&args.database).await?;
    let opened = args
        .export
        .as_deref()
        .map(|path| Durable::append_to(path).with_context(|| format!("cannot write {}", path.display())));
    let mut file = opened.transpose()?;
    let writer = file.as_mut().map(|file| file as &mut (dyn Write + Send));
    let tasks = export::purge(&*store, retention, writer).await?;
    let (mut runs, mut lines) = (0, 0);
    if let Some(keep_ms) = keep_runs_ms {
        runs = whole(async || store.purge_runs(keep_ms).await).await?;
    }
    if let Some(keep_ms) = keep_audit_ms {
        lines = whole(async || store.purge_audit(keep_ms).await).await?;
    }
    if json {
        return output::print(&json!({"tasks": tasks, "runs": runs, "audit": lines}).to_string());
    }
    output::print(&format!("removed {tasks} tasks, {runs} runs and {lines} lines of the log of changes"))
}

/// Removes chunk after chunk, and says how many there were.
async fn whole(chunk: impl AsyncFn() -> taskwheel_store::Result<u64>) -> Result<u64> {
    let mut removed = 0;
    loop {
        match chunk().await? {
            0 => return Ok(removed),
            count => removed += count,
        }
    }
}

/// A file whose flush reaches the disk: what was written there may go.
struct Durable(io::BufWriter<File>);

impl Durable {
    fn append_to(path: &Path) -> io::Result<Durable> {
        // Payloads and results are for whoever may read the database, and for nobody else.
        let mut file = File::options().create(true).mode(0o600).read(true).append(true).open(path)?;
        // Two at once would write into each other's lines.
        file.try_lock().map_err(|error| io::Error::other(format!("another purge writes it: {error}")))?;
        // A purge that was cut off may have left half a line, whose task is still there.
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
        }
        // The name of a new file is kept by its directory.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()?;
        Ok(Durable(io::BufWriter::new(file)))
    }
}

impl Write for Durable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.0.get_ref().sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_reads_what_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("finished.jsonl");
        Durable::append_to(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn two_purges_do_not_write_one_file_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("finished.jsonl");
        let first = Durable::append_to(&path).unwrap();
        let refused = Durable::append_to(&path).err().unwrap();
        assert!(refused.to_string().contains("another purge"), "{refused}");
        drop(first);
        Durable::append_to(&path).unwrap();
    }
}
