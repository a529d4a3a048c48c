//! Spans: submit, wait and run of a task as one trace, for a collector of OpenTelemetry.
//!
//! ```text
//!  submit (of the caller's trace, or the start of one)
//!    wait   from being due to the claim
//!    run    from the claim to the report; its id goes to the worker, whose own spans hang below it
//! ```
//!
//! The trace is kept with the task, as the header `traceparent` names it, and the id of a run's span follows from its execution: so
//! a node that takes the report of a run which another one handed out can tell of it too. Nothing else depends on spans, and when
//! nobody takes them fast enough they are dropped.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use taskwheel_model::{ExecId, TaskId, Time, trace_parent};
use taskwheel_store::Label;
use taskwheel_store::clock::here;
use taskwheel_store::worker::ClaimedTask;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Spans that wait to be sent.
const WAITING_MAX: usize = 10_000;
/// Runs that are remembered; when there are more, all are forgotten.
const RUNS_MAX: usize = 100_000;

/// A piece of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// The span it hangs below.
    pub parent_id: Option<String>,
    /// What was done.
    pub name: &'static str,
    /// When it began.
    pub from: Time,
    /// When it ended.
    pub to: Time,
    /// What it was about.
    pub attributes: Vec<(&'static str, String)>,
    /// Whether it went wrong.
    pub is_error: bool,
}

/// Where a task hangs in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    trace_id: String,
    span_id: String,
}

impl Place {
    /// Reads a `traceparent`. One that is not sampled is none.
    fn read(text: &str) -> Option<Place> {
        let text = trace_parent(text)?;
        let parts: Vec<_> = text.split('-').collect();
        let [_, trace, span, flags] = parts[..] else { return None };
        let is_sampled = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        is_sampled.then(|| Place { trace_id: trace.to_owned(), span_id: span.to_owned() })
    }

    fn write(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }

    fn below(&self) -> Place {
        Place { trace_id: self.trace_id.clone(), span_id: new_span_id() }
    }

    /// Of an execution of a task that hangs here.
    fn run(&self, exec_id: ExecId) -> Place {
        Place { trace_id: self.trace_id.clone(), span_id: format!("{:016x}", exec_id.0.as_u64_pair().1) }
    }

    fn start() -> Place {
        Place { trace_id: Uuid::new_v4().simple().to_string(), span_id: new_span_id() }
    }
}

fn new_span_id() -> String {
    format!("{:016x}", Uuid::new_v4().as_u64_pair().1)
}

/// Makes spans of what happens to tasks. Without a collector it makes none, and hands on what it is given.
#[derive(Default)]
pub struct Spans {
    collector: Option<mpsc::Sender<Span>>,
    /// `None` is one that belongs to no trace, or was told of.
    runs: Mutex<HashMap<ExecId, Option<Run>>>,
}

/// An execution of a task that belongs to a trace.
struct Run {
    place: Place,
    parent_id: String,
    task_id: i64,
    task_type: String,
    from: Time,
}

/// A submit under way.
pub(crate) struct Submitting {
    place: Place,
    parent_id: Option<String>,
    from: Time,
}

impl Spans {
    /// Spans for whoever takes them from the receiver.
    #[must_use]
    pub fn collected() -> (Spans, mpsc::Receiver<Span>) {
        let (collector, spans) = mpsc::channel(WAITING_MAX);
        (Spans { collector: Some(collector), runs: Mutex::default() }, spans)
    }

    /// A submit begins. Answers the trace that its tasks shall have: the caller's, with this submit as the span to hang below.
    pub(crate) fn submits(&self, header: Option<&str>) -> (Option<String>, Option<Submitting>) {
        let given = header.and_then(trace_parent);
        let parent = given.as_deref().and_then(Place::read);
        if self.collector.is_none() || (given.is_some() && parent.is_none()) {
            return (given, None);
        }
        let place = parent.as_ref().map_or_else(Place::start, Place::below);
        let submitting = Submitting { parent_id: parent.map(|place| place.span_id), from: here(), place };
        (Some(submitting.place.write()), Some(submitting))
    }

    /// A submit ended, with so many tasks.
    pub(crate) fn submitted(&self, submitting: Option<Submitting>, tasks: usize) {
        let Some(Submitting { place, parent_id, from }) = submitting else { return };
        self.record(Span {
            trace_id: place.trace_id,
            span_id: place.span_id,
            parent_id,
            name: "taskwheel submit",
            from,
            to: here(),
            attributes: vec![("taskwheel.tasks", tasks.to_string())],
            is_error: false,
        });
    }

    /// A task goes to a worker: its wait is over, and the trace it takes along is that of its run.
    pub(crate) fn claimed(&self, task: &mut ClaimedTask) {
        if self.collector.is_none() {
            return;
        }
        let Some(parent) = task.trace_parent.as_deref().and_then(Place::read) else {
            return self.remember(task.exec_id, None);
        };
        let (wait, run) = (parent.below(), parent.run(task.exec_id));
        let attributes = vec![("taskwheel.task_id", task.id.0.to_string()), ("taskwheel.type", task.task_type.clone())];
        self.record(Span {
            trace_id: wait.trace_id,
            span_id: wait.span_id,
            parent_id: Some(parent.span_id.clone()),
            name: "taskwheel wait",
            from: task.run_at,
            to: task.started_at,
            attributes,
            is_error: false,
        });
        task.trace_parent = Some(run.write());
        let (task_id, task_type, from) = (task.id.0, task.task_type.clone(), task.started_at);
        self.remember(task.exec_id, Some(Run { place: run, parent_id: parent.span_id, task_id, task_type, from }));
    }

    /// Whether nothing is known of an execution that a collector could be told of.
    pub(crate) fn wants(&self, exec_id: ExecId) -> bool {
        self.collector.is_some() && !self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&exec_id)
    }

    /// A run that another node handed out.
    pub(crate) fn handed_out_elsewhere(&self, id: TaskId, exec_id: ExecId, label: &Label) {
        let run = label.trace_parent.as_deref().and_then(Place::read).map(|parent| Run {
            place: parent.run(exec_id),
            parent_id: parent.span_id,
            task_id: id.0,
            task_type: label.task_type.clone(),
            from: exec_id.began_at(),
        });
        self.remember(exec_id, run);
    }

    fn remember(&self, exec_id: ExecId, run: Option<Run>) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX {
            runs.clear();
        }
        runs.insert(exec_id, run);
    }

    /// A run ended.
    pub(crate) fn reported(&self, exec_id: ExecId, outcome: &'static str, is_error: bool) {
        // A report that is repeated finds that it was told of.
        let run = self.runs.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&exec_id).and_then(Option::take);
        let Some(Run { place, parent_id, task_id, task_type, from }) = run else { return };
        self.record(Span {
            trace_id: place.trace_id,
            span_id: place.span_id,
            parent_id: Some(parent_id),
            name: "taskwheel run",
            from,
            to: here(),
            attributes: vec![
                ("taskwheel.task_id", task_id.to_string()),
                ("taskwheel.type", task_type),
                ("taskwheel.exec_id", exec_id.to_string()),
                ("taskwheel.outcome", outcome.to_owned()),
            ],
            is_error,
        });
    }

    fn record(&self, span: Span) {
        if let Some(collector) = &self.collector {
            // Nobody waits for a collector.
            let _ = collector.try_send(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[test]
    fn without_a_collector_a_trace_is_handed_on_as_it_came() {
        let spans = Spans::default();
        for trace in [TRACE, UNSAMPLED] {
            assert_eq!(spans.submits(Some(trace)).0.as_deref(), Some(trace));
        }
        assert_eq!(spans.submits(Some("00-nonsense")).0, None);
        assert!(spans.submits(None).0.is_none());
    }

    #[tokio::test]
    async fn a_submit_hangs_below_its_caller_and_starts_a_trace_where_there_is_none() {
        let (spans, mut taken) = Spans::collected();
        let (given, submitting) = spans.submits(Some(TRACE));
        spans.submitted(submitting, 1);
        let span = taken.recv().await.unwrap();
        assert_eq!((span.trace_id.as_str(), span.parent_id.as_deref()), (&TRACE[3..35], Some(&TRACE[36..52])));
        assert_eq!(given.unwrap(), format!("00-{}-{}-01", span.trace_id, span.span_id));
        let (fresh, submitting) = spans.submits(None);
        assert!(Place::read(&fresh.unwrap()).is_some() && submitting.unwrap().parent_id.is_none());
        let (untraced, submitting) = spans.submits(Some(UNSAMPLED));
        assert!(untraced.as_deref() == Some(UNSAMPLED) && submitting.is_none(), "what is not sampled makes no spans");
    }
}
