//! What a store could do wrong, done on purpose, and the promise that each breaks.

use crate::witness::Promise;

/// A rule of the store that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A report counts for the execution that runs, whoever sent it.
    ExecutionNotCompared,
    /// A claim does not count as an attempt.
    AttemptsNotCounted,
    /// Two claims may take the same row.
    ClaimsShareARow,
    /// A rescue looks at clocks that are an hour ahead.
    RescueTooEarly,
    /// Nobody looks at the clocks.
    RescueNever,
    /// A retry does not wait for the execution that was cancelled.
    HoldForgotten,
    /// A submit is answered before its commit.
    SubmitAnsweredEarly,
    /// A report is answered, and its result is not stored.
    ResultNotStored,
    /// A rescue that was decided before a result came writes over it.
    ResultOverwritten,
    /// Nobody looks whether a unique key is taken.
    UniqueNotChecked,
    /// A firing does not look whether its cursor has moved since.
    CursorNotCompared,
    /// A firing moves its cursor and inserts nothing.
    FiringDropped,
    /// Some timers are passed over whenever they are due.
    TimerPassedOver,
    /// A firing does not lock its schedule, and so does not see what another one begins.
    ScheduleNotLocked,
    /// The end of a task does not lock its run, and so does not see what ends beside it.
    RunNotLocked,
    /// The start of a node is forgotten while it lives.
    StartForgotten,
    /// The end of a run does not begin what was queued behind it.
    QueueForgotten,
}

/// Each mistake with the promise that it breaks.
pub(crate) const ALL: [(Mistake, Promise); 17] = [
    (Mistake::ExecutionNotCompared, Promise::SupersededReportChangesNothing),
    (Mistake::AttemptsNotCounted, Promise::AttemptsStayWithinTheMaximum),
    (Mistake::ClaimsShareARow, Promise::OneLiveExecution),
    (Mistake::RescueTooEarly, Promise::OneLiveExecution),
    (Mistake::RescueNever, Promise::EveryTaskEndsOrWaits),
    (Mistake::HoldForgotten, Promise::OneLiveExecution),
    (Mistake::SubmitAnsweredEarly, Promise::AcknowledgedSubmitSurvives),
    (Mistake::ResultNotStored, Promise::AcknowledgedResultStays),
    (Mistake::ResultOverwritten, Promise::FinalStatusIsLeftByRetryAlone),
    (Mistake::UniqueNotChecked, Promise::UniqueKeyLivesOnce),
    (Mistake::CursorNotCompared, Promise::DueTimeFiresOnce),
    (Mistake::FiringDropped, Promise::DueTimeIsAccountedFor),
    (Mistake::TimerPassedOver, Promise::DueTimeIsAccountedFor),
    (Mistake::ScheduleNotLocked, Promise::OverlapIsKept),
    (Mistake::RunNotLocked, Promise::EveryRunEnds),
    (Mistake::StartForgotten, Promise::NodeStartsOnceAfterItsParent),
    (Mistake::QueueForgotten, Promise::EveryRunEnds),
];
