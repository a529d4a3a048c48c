//! One command for one task, from its start to its end.

use super::capture::{Capture, Printed};
use super::protocol::Task;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long output is waited for after the command has ended: a process that it left behind may hold the pipes open.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(1);

/// How a command ended.
pub(super) enum Ended {
    /// With exit code 0, and perhaps a result.
    Success(Printed),
    /// In another way, which this says.
    Error(String),
    /// Because it was killed from here.
    Killed,
    /// The same, because its time was over: the server ends it by its own clock.
    OutOfTime,
    /// Not at all: no task could be run by it.
    CannotStart(io::Error),
}

/// Runs the command for a task, until it ends or is to be killed.
pub(super) async fn run(command: &[OsString], task: &Task, kill: oneshot::Receiver<()>) -> Ended {
    let mut child = match start(command, task) {
        Ok(child) => child,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ended::CannotStart(error);
        }
        // About this task alone, for example its environment is too large.
        Err(error) => return Ended::Error(format!("the command could not be started: {error}")),
    };
    let payload = task.payload.as_ref().map_or("null", |payload| payload.get());
    let (mut output, mut errors) = (Capture::of_stdout(), Capture::of_stderr());
    let status = {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let streams = pin!(async {
            tokio::join!(feed(stdin, payload), output.fill(stdout), errors.fill(stderr));
        });
        let limit = u64::try_from(task.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let ended = tokio::select! {
            status = end(&mut child, streams) => Ok(status),
            Ok(()) = kill => Err(Ended::Killed),
            () = sleep(limit.unwrap_or_default()), if limit.is_some() => Err(Ended::OutOfTime),
        };
        match ended {
            Ok(status) => status,
            Err(killed) => {
                kill_group(&child);
                let _ = child.wait().await;
                return killed;
            }
        }
    };
    match status {
        Ok(status) if status.success() => Ended::Success(output.into_result()),
        Ok(status) => Ended::Error(describe(status, &errors.into_error())),
        Err(error) => Ended::Error(format!("the end of the command was not seen: {error}")),
    }
}

fn start(command: &[OsString], task: &Task) -> io::Result<Child> {
    let [program, arguments @ ..] = command else {
        return Err(io::ErrorKind::NotFound.into());
    };
    Command::new(program)
        .args(arguments)
        .env("TASKWHEEL_TASK_ID", task.id.to_string())
        .env("TASKWHEEL_EXEC_ID", &task.exec_id)
        .env("TASKWHEEL_TASK_TYPE", &task.task_type)
        .env("TASKWHEEL_TASK_KEY", task.key.as_deref().unwrap_or_default())
        .env("TASKWHEEL_ATTEMPT", task.attempt.to_string())
        .env("TASKWHEEL_CHECKPOINT", task.checkpoint.as_ref().map_or("", |checkpoint| checkpoint.get()))
        .env("TASKWHEEL_SHARD_INDEX", task.shard_index.map(|index| index.to_string()).unwrap_or_default())
        .env("TASKWHEEL_SHARD_TOTAL", task.shard_total.map(|total| total.to_string()).unwrap_or_default())
        .env("TASKWHEEL_PARENT", task.parent.as_ref().map_or("", |parent| parent.get()))
        .env("TRACEPARENT", task.traceparent.as_deref().unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: Ctrl-C in the terminal is for the worker, and what the command started is killed with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Writes the payload and closes the pipe. A command need not read it.
async fn feed(stdin: Option<impl AsyncWrite + Unpin>, payload: &str) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(payload.as_bytes()).await;
    }
}

/// Waits for the command and its output.
async fn end(child: &mut Child, mut streams: Pin<&mut impl Future<Output = ()>>) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => {
            let _ = timeout(OUTPUT_AFTER_END, streams).await;
            status
        }
        () = &mut streams => child.wait().await,
    }
}

/// Kills a command with everything it started. Its id is not used again before it has been waited for.
fn kill_group(child: &Child) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It fails only when all of them have ended.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
}

fn describe(status: ExitStatus, stderr: &str) -> String {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    };
    if stderr.is_empty() { end } else { format!("{end}: {stderr}") }
}
