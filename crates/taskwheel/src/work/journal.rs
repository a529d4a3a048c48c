//! What the worker says about each task: a line for people on stderr, or JSON for programs on stdout.

use super::places::Execution;
use super::protocol::{Outcome, Report, ReportedItem};
use crate::duration::in_milliseconds;
use crate::output;
use serde_json::json;

/// Says how tasks ended.
pub(super) struct Journal {
    pub(super) is_json: bool,
    pub(super) is_quiet: bool,
}

impl Journal {
    /// A task was reported.
    pub(super) fn reported(&self, execution: &Execution, report: &Report, item: ReportedItem) {
        let status = item.status.unwrap_or_default();
        let what = match (&report.error, report.outcome) {
            _ if item.state != "accepted" => "ended too late, it is no longer ours".to_owned(),
            (_, Outcome::Release) => "given back".to_owned(),
            (Some(error), _) => format!("{status}, {error}"),
            (None, _) if report.is_cut => format!("{status}, its result was cut"),
            (None, _) => status,
        };
        self.say(execution, &what);
    }

    /// Something happened to a task.
    pub(super) fn say(&self, Execution { id, task_type, begin, .. }: &Execution, what: &str) {
        let (time, what) = (begin.elapsed(), output::cell(what));
        if self.is_json {
            let line = json!({ "id": id, "type": task_type, "what": what, "exec_ms": in_milliseconds(time) });
            // When nobody reads it any more, the work goes on.
            let _ = output::print(&line);
        } else if !self.is_quiet {
            output::say(&format_args!("task {id} {task_type}: {what} ({time:.1?})"));
        }
    }
}
