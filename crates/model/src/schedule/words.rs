//! The words that schedules and runs are told about with: how they stand, what is done where runs meet, what is recorded.

use crate::limits;
use serde::{Deserialize, Serialize};

/// Whether a schedule fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    /// Not yet.
    New,
    /// It does.
    #[default]
    Online,
    /// Not now.
    Offline,
}

impl ScheduleStatus {
    /// The word for it, in the API and in the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ScheduleStatus::New => "new",
            ScheduleStatus::Online => "online",
            ScheduleStatus::Offline => "offline",
        }
    }

    /// What a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<ScheduleStatus> {
        let all = [ScheduleStatus::New, ScheduleStatus::Online, ScheduleStatus::Offline];
        all.into_iter().find(|status| status.word() == word)
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Waiting for an earlier run to end.
    Queued,
    /// Something of it lives.
    Running,
    /// All of it ended well.
    Done,
    /// Some of it did not.
    Failed,
    /// A time limit ran out in it for good.
    TimedOut,
    /// It never began.
    Skipped,
    /// It was called off.
    Cancelled,
}

impl RunStatus {
    const ALL: [RunStatus; 7] = [
        RunStatus::Queued,
        RunStatus::Running,
        RunStatus::Done,
        RunStatus::Failed,
        RunStatus::TimedOut,
        RunStatus::Skipped,
        RunStatus::Cancelled,
    ];

    /// The number that stands for it in the table. Stored: never change one.
    #[must_use]
    pub const fn code(self) -> i64 {
        self as i64 + 1
    }

    /// What a stored number stands for.
    #[must_use]
    pub fn from_code(code: i64) -> Option<RunStatus> {
        RunStatus::ALL.into_iter().find(|status| status.code() == code)
    }

    /// What a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<RunStatus> {
        RunStatus::ALL.into_iter().find(|status| status.word() == word)
    }

    /// The word for it, in the API.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RunStatus::Queued => "queued",
            RunStatus::Running => "running",
            RunStatus::Done => "done",
            RunStatus::Failed => "failed",
            RunStatus::TimedOut => "timed_out",
            RunStatus::Skipped => "skipped",
            RunStatus::Cancelled => "cancelled",
        }
    }

    /// Whether it has not ended.
    #[must_use]
    pub const fn lives(self) -> bool {
        matches!(self, RunStatus::Queued | RunStatus::Running)
    }
}

/// What is done when a run is due while another of the schedule still goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Both run.
    #[default]
    Allow,
    /// The new one is recorded as skipped.
    Skip,
    /// The new one waits for the others to end.
    Queue,
    /// The others are cancelled.
    Replace,
}

/// What becomes of a firing, by what still goes on of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It begins.
    Begin,
    /// It begins, and the others are cancelled.
    Replace,
    /// It waits for the others to end.
    Wait,
    /// It never begins.
    Skip {
        /// Why, as its record says it.
        reason: &'static str,
    },
}

impl Overlap {
    /// The word for it, in the API and in the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::Replace => "replace",
        }
    }

    /// What becomes of a firing while so many runs of its schedule go on and so many wait.
    #[must_use]
    pub fn admit(self, running: usize, queued: usize) -> Admission {
        match self {
            _ if running + queued == 0 => Admission::Begin,
            Overlap::Allow => Admission::Begin,
            Overlap::Skip => Admission::Skip { reason: "overlap" },
            Overlap::Queue if queued >= limits::RUNS_QUEUED_MAX => Admission::Skip { reason: "queue_full" },
            Overlap::Queue => Admission::Wait,
            Overlap::Replace => Admission::Replace,
        }
    }
}

/// What is recorded of firings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Log {
    /// Nothing beyond the tasks.
    None,
    /// Each firing.
    TriggerLog,
    /// Each firing, and how its run ended.
    #[default]
    TransLog,
}

impl Log {
    /// The word for it, in the API and in the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Log::None => "none",
            Log::TriggerLog => "trigger_log",
            Log::TransLog => "trans_log",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_firing_that_meets_another_run_is_admitted_as_the_schedule_says() {
        for overlap in [Overlap::Allow, Overlap::Skip, Overlap::Queue, Overlap::Replace] {
            assert_eq!(overlap.admit(0, 0), Admission::Begin);
        }
        assert_eq!(Overlap::Allow.admit(5, 0), Admission::Begin);
        assert_eq!(Overlap::Skip.admit(1, 0), Admission::Skip { reason: "overlap" });
        assert_eq!(Overlap::Replace.admit(1, 0), Admission::Replace);
        assert_eq!(Overlap::Queue.admit(1, limits::RUNS_QUEUED_MAX - 1), Admission::Wait);
        assert_eq!(Overlap::Queue.admit(0, 1), Admission::Wait, "nobody overtakes");
        assert_eq!(Overlap::Queue.admit(1, limits::RUNS_QUEUED_MAX), Admission::Skip { reason: "queue_full" });
    }

    #[test]
    fn words_are_those_of_the_api() {
        for overlap in [Overlap::Allow, Overlap::Skip, Overlap::Queue, Overlap::Replace] {
            assert_eq!(json!(overlap), json!(overlap.word()));
        }
        for log in [Log::None, Log::TriggerLog, Log::TransLog] {
            assert_eq!(json!(log), json!(log.word()));
        }
    }
}
