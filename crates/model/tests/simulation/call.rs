//! What callers ask of a server, and what they are answered.

use crate::store::{Row, ScheduleNumber, TaskNumber, WorkerNumber};
use std::rc::Rc;
use taskwheel_model::{ExecId, Outcome, Rhythm, Time};

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Submit {
        row: Box<Row>,
    },
    Claim {
        worker: WorkerNumber,
        heartbeat_ms: Option<i64>,
        kinds: Rc<[usize]>,
        max: usize,
    },
    /// A worker says that it is there, and nothing else.
    Beat {
        worker: WorkerNumber,
    },
    Renew {
        worker: WorkerNumber,
        task: TaskNumber,
        exec_id: ExecId,
    },
    Report {
        worker: WorkerNumber,
        task: TaskNumber,
        exec_id: ExecId,
        outcome: Outcome,
        retry_after_ms: Option<i64>,
    },
    /// The server's own look at the clocks.
    Rescue,
    Act {
        task: TaskNumber,
        act: Act,
    },
    /// Nothing of a type is handed out, or it is again.
    Pause {
        kind: usize,
        is_paused: bool,
    },
    /// The server's own look at the timers. Those that others have locked are skipped.
    Fire {
        skipped: usize,
        max: usize,
    },
    Switch {
        schedule: ScheduleNumber,
        is_online: bool,
    },
    /// An edit that replaces the first timer of a schedule.
    Retime {
        schedule: ScheduleNumber,
        rhythm: Rc<Rhythm>,
    },
}

/// What a person does to a task.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Cancel,
    Retry,
    RunNow,
    Resolve,
    Edit { run_at: Time, max_attempts: i32, priority: u8 },
}

impl Call {
    /// Whether the caller that heard no answer makes it again. Of a submit nobody knows whether it happened, unless a
    /// unique key keeps it from happening twice; a claim that was not heard of is given back by the clock.
    pub(crate) fn is_repeated(&self) -> bool {
        match self {
            Call::Submit { row } => row.unique.is_some(),
            Call::Claim { .. } | Call::Rescue | Call::Fire { .. } => false,
            _ => true,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Done,
    Submitted { task: TaskNumber },
    Claimed { worker: WorkerNumber, executions: Vec<(TaskNumber, ExecId)> },
    Renewed { worker: WorkerNumber, exec_id: ExecId, goes_on: bool },
    Reported { worker: WorkerNumber, exec_id: ExecId, outcome: Outcome, is_accepted: bool },
}
