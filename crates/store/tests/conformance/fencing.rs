//! Fencing: only the current execution counts, and the others are told so.

use crate::facts;
use crate::support::{Platform, task};
use taskwheel_model::{ExecId, NewTask, Outcome, RetryPolicy, Status, TaskId};
use taskwheel_store::people::Action;
use taskwheel_store::task::Task;
use taskwheel_store::worker::{Report, Reported};

const REPORTABLE: [Outcome; 6] =
    [Outcome::Success, Outcome::Completed, Outcome::Error, Outcome::Failure, Outcome::Retry, Outcome::Release];

fn patient() -> NewTask {
    NewTask { max_attempts: Some(-1), retry: Some(RetryPolicy::Fixed { delay_ms: 5_000 }), ..task("mail") }
}

/// A report with everything in it that could leave a trace.
fn loud(id: TaskId, exec_id: ExecId, outcome: Outcome) -> Report {
    Report {
        result: Some("\"stale\"".into()),
        error: Some("stale".into()),
        checkpoint: Some("\"stale\"".into()),
        retry_after_ms: Some(1),
        ..Report::new(id, exec_id, outcome)
    }
}

async fn a_stale_execution_cannot_finish_with_any_outcome(platform: &Platform) {
    let first = platform.start(patient()).await;
    platform.finish(&first, Outcome::Error).await;
    platform.advance_ms(5_000);
    let second = platform.claim_one("mail").await;
    let before = platform.task(second.id).await;
    for outcome in REPORTABLE.into_iter().filter(|outcome| *outcome != Outcome::Error) {
        let answer = platform.report(loud(first.id, first.exec_id, outcome)).await;
        assert_eq!(answer, Reported::Superseded(Some(Status::Executing)), "{outcome:?}");
        assert_eq!(platform.task(second.id).await, before, "{outcome:?} left a trace");
    }
    assert_eq!(platform.finish(&second, Outcome::Success).await, Reported::Accepted(Status::Success));
}

async fn an_execution_taken_over_after_its_lease_cannot_finish(platform: &Platform) {
    let first = platform.start(patient()).await;
    platform.advance_ms(15 * 60_000);
    assert_eq!(platform.rescue().await.lost, 1);
    let second = platform.claim_one("mail").await;
    for outcome in REPORTABLE {
        let answer = platform.report(loud(first.id, first.exec_id, outcome)).await;
        assert_eq!(answer, Reported::Superseded(Some(Status::Executing)), "{outcome:?}");
    }
    assert_eq!(platform.finish(&second, Outcome::Success).await, Reported::Accepted(Status::Success));
    for outcome in REPORTABLE {
        let answer = platform.report(loud(first.id, first.exec_id, outcome)).await;
        assert_eq!(answer, Reported::Superseded(Some(Status::Success)), "{outcome:?}");
    }
    assert_eq!(platform.task(first.id).await.result, None);
}

/// What a repeated report may not change. The time of the last change is part of it.
async fn everything(platform: &Platform, id: TaskId) -> (Task, usize) {
    (platform.task(id).await, platform.log(id).await.len())
}

async fn a_repeated_report_is_accepted_again_and_changes_nothing(platform: &Platform) {
    for outcome in REPORTABLE {
        let claimed = platform.start(NewTask { task_type: outcome.word().into(), ..patient() }).await;
        let report = loud(claimed.id, claimed.exec_id, outcome);
        let first = platform.report(report.clone()).await;
        assert!(matches!(first, Reported::Accepted(_)), "{outcome:?}");
        let before = everything(platform, claimed.id).await;
        platform.advance_ms(1_000);
        assert_eq!(platform.report(report).await, first, "{outcome:?}");
        assert_eq!(everything(platform, claimed.id).await, before, "{outcome:?}");
    }
}

async fn a_repeated_report_is_accepted_even_after_the_next_attempt_began(platform: &Platform) {
    let first = platform.start(patient()).await;
    platform.finish(&first, Outcome::Error).await;
    platform.advance_ms(5_000);
    let second = platform.claim_one("mail").await;
    assert_eq!(platform.finish(&first, Outcome::Error).await, Reported::Accepted(Status::Executing));
    assert_eq!(platform.task(first.id).await.error_count, 1);
    platform.finish(&second, Outcome::Success).await;
    assert_eq!(platform.finish(&first, Outcome::Error).await, Reported::Accepted(Status::Success));
    assert_eq!(platform.finish(&second, Outcome::Success).await, Reported::Accepted(Status::Success));
}

async fn a_repeated_report_with_another_outcome_is_superseded(platform: &Platform) {
    for first in REPORTABLE {
        let claimed = platform.start(NewTask { task_type: first.word().into(), ..patient() }).await;
        platform.finish(&claimed, first).await;
        let before = everything(platform, claimed.id).await;
        for other in REPORTABLE.into_iter().filter(|other| *other != first) {
            let answer = platform.report(loud(claimed.id, claimed.exec_id, other)).await;
            assert_eq!(answer, Reported::Superseded(Some(before.0.status)), "{first:?} then {other:?}");
        }
        assert_eq!(everything(platform, claimed.id).await, before, "{first:?}");
    }
}

async fn of_reports_on_one_execution_in_a_batch_one_counts(platform: &Platform) {
    for first in REPORTABLE {
        let claimed = platform.start(NewTask { task_type: format!("same-{}", first.word()), ..patient() }).await;
        let reports = vec![Report::new(claimed.id, claimed.exec_id, first); 3];
        let answers = platform.store.finish(reports).await.unwrap();
        assert!(matches!(answers[0], Reported::Accepted(_)), "{first:?}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{first:?}: {answers:?}");
        assert_eq!(platform.log(claimed.id).await.len(), 1, "{first:?}");
    }
    for (first, second) in [(Outcome::Error, Outcome::Failure), (Outcome::Retry, Outcome::Release)] {
        let claimed = platform.start(NewTask { task_type: format!("other-{}", first.word()), ..patient() }).await;
        let reports = [first, second].map(|outcome| Report::new(claimed.id, claimed.exec_id, outcome));
        let answers = platform.store.finish(reports.to_vec()).await.unwrap();
        let accepted = answers.iter().filter(|answer| matches!(answer, Reported::Accepted(_))).count();
        assert_eq!(accepted, 1, "{first:?}: {answers:?}");
    }
}

async fn success_and_another_outcome_in_one_batch_agree_on_one(platform: &Platform) {
    for other in [Outcome::Error, Outcome::Failure, Outcome::Retry, Outcome::Release] {
        let claimed = platform.start(NewTask { task_type: other.word().into(), ..patient() }).await;
        let reports = [other, Outcome::Success].map(|outcome| Report::new(claimed.id, claimed.exec_id, outcome));
        let answers = platform.store.finish(reports.to_vec()).await.unwrap();
        let status = platform.status(claimed.id).await;
        let log = platform.log(claimed.id).await;
        assert_eq!(log.len(), 1, "{other:?}");
        for (outcome, answer) in [other, Outcome::Success].into_iter().zip(answers) {
            let expected = if log[0].outcome == Some(outcome) {
                Reported::Accepted(status)
            } else {
                Reported::Superseded(Some(status))
            };
            assert_eq!(answer, expected, "{other:?}: {outcome:?}");
        }
    }
}

async fn stale_and_current_executions_in_one_batch_are_told_apart(platform: &Platform) {
    let first = platform.start(patient()).await;
    platform.finish(&first, Outcome::Release).await;
    let second = platform.claim_one("mail").await;
    for outcomes in [[Outcome::Success, Outcome::Success]] {
        let reports = vec![
            Report::new(first.id, first.exec_id, outcomes[0]),
            Report::new(second.id, second.exec_id, outcomes[1]),
        ];
        let answers = platform.store.finish(reports).await.unwrap();
        assert_eq!(answers[1], Reported::Accepted(Status::Success));
        assert!(matches!(answers[0], Reported::Superseded(_)), "{answers:?}");
    }
}

async fn an_unknown_or_foreign_id_is_superseded_without_a_status(platform: &Platform) {
    let claimed = platform.start(NewTask { tenant: "acme".into(), ..patient() }).await;
    for outcome in REPORTABLE {
        let unknown = Report::new(TaskId(4_711), claimed.exec_id, outcome);
        assert_eq!(platform.report(unknown).await, Reported::Superseded(None), "{outcome:?}");
        let foreign = Report { tenant: Some("other".into()), ..loud(claimed.id, claimed.exec_id, outcome) };
        assert_eq!(platform.report(foreign).await, Reported::Superseded(None), "{outcome:?}");
    }
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
    let own = Report { tenant: Some("acme".into()), ..Report::new(claimed.id, claimed.exec_id, Outcome::Success) };
    assert_eq!(platform.report(own).await, Reported::Accepted(Status::Success));
}

async fn a_report_on_a_task_that_never_ran_is_superseded(platform: &Platform) {
    let id = platform.submit(patient()).await;
    let nobody = ExecId::new(platform.now(), [1; 10]);
    for outcome in REPORTABLE {
        let answer = platform.report(loud(id, nobody, outcome)).await;
        assert_eq!(answer, Reported::Superseded(Some(Status::New)), "{outcome:?}");
    }
}

async fn a_cancelled_execution_cannot_finish(platform: &Platform) {
    for outcome in REPORTABLE {
        let claimed = platform.start(NewTask { task_type: outcome.word().into(), ..patient() }).await;
        platform.act(claimed.id, Action::Cancel).await;
        for _ in 0..2 {
            let answer = platform.report(loud(claimed.id, claimed.exec_id, outcome)).await;
            assert_eq!(answer, Reported::Superseded(Some(Status::Cancelled)), "{outcome:?}");
        }
        let shown = platform.task(claimed.id).await;
        assert_eq!((shown.status, shown.result, shown.checkpoint), (Status::Cancelled, None, None), "{outcome:?}");
    }
}

facts![
    a_stale_execution_cannot_finish_with_any_outcome,
    an_execution_taken_over_after_its_lease_cannot_finish,
    a_repeated_report_is_accepted_again_and_changes_nothing,
    a_repeated_report_is_accepted_even_after_the_next_attempt_began,
    a_repeated_report_with_another_outcome_is_superseded,
    of_reports_on_one_execution_in_a_batch_one_counts,
    success_and_another_outcome_in_one_batch_agree_on_one,
    stale_and_current_executions_in_one_batch_are_told_apart,
    an_unknown_or_foreign_id_is_superseded_without_a_status,
    a_report_on_a_task_that_never_ran_is_superseded,
    a_cancelled_execution_cannot_finish,
];
