//! Worker processes that are asked how far they are.

use crate::{DONE, FIRST, Result};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

/// Says that this process is ready, and waits for the word. From then on it answers each line that it is sent with its progress, and ends
/// when no more can come.
pub(crate) fn ready() -> Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    std::thread::spawn(|| {
        for _ in std::io::stdin().lock().lines() {
            println!("{}", json!([DONE.load(Relaxed), FIRST.load(Relaxed), peak_mb()]));
        }
        std::process::exit(0);
    });
    Ok(())
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

/// A worker process.
pub(crate) struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(url: &str, setting: &str) -> Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", url, setting])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("a worker without output")?);
        Ok(Process { child, answers })
    }

    /// Waits until it is connected.
    pub(crate) fn ready(&mut self) -> Result<()> {
        self.answers.read_line(&mut String::new())?;
        Ok(())
    }

    pub(crate) fn say(&mut self, word: &str) -> Result<()> {
        Ok(writeln!(self.child.stdin.as_mut().ok_or("a worker without input")?, "{word}")?)
    }

    /// How many jobs it has done, when it began, and the most memory that it had.
    pub(crate) fn progress(&mut self) -> Result<(u64, u64, f64)> {
        self.say("progress")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
