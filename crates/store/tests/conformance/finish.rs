//! Finish: what each outcome does to a task.

use crate::facts;
use crate::support::{Platform, task};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status, TypeSettings, limits};
use taskwheel_store::worker::{Report, Reported};

async fn success_ends_the_task(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(250);
    let report = Report {
        result: Some(r#"{"sent": true}"#.into()),
        ..Report::new(claimed.id, claimed.exec_id, Outcome::Success)
    };
    assert_eq!(platform.report(report).await, Reported::Accepted(Status::Success));
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::Success, 1, 0));
    assert_eq!((shown.result.as_deref(), shown.finished_at), (Some(r#"{"sent": true}"#), Some(platform.now())));
    assert_eq!((shown.started_at, shown.exec_ms), (Some(claimed.started_at), Some(250)));
    assert_eq!((shown.host.as_deref(), shown.worker_id.as_deref()), (Some("host"), Some("worker")));
    assert_eq!((shown.exec_id, shown.lease_until), (Some(claimed.exec_id), None));
}

async fn completed_without_a_callback_is_success(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    assert_eq!(platform.finish(&claimed, Outcome::Completed).await, Reported::Accepted(Status::Success));
    assert_eq!(platform.log(claimed.id).await[0].outcome, Some(Outcome::Completed));
}

async fn an_error_is_tried_again_after_the_policys_delay(platform: &Platform) {
    let claimed = platform.start(NewTask { max_attempts: Some(4), ..task("mail") }).await;
    let id = claimed.id;
    let mut current = claimed;
    // The built-in policy: 10 s, doubled each time.
    for (errors, delay_ms) in [(1, 10_000), (2, 20_000), (3, 40_000)] {
        let report =
            Report { error: Some(format!("broken {errors}")), ..Report::new(id, current.exec_id, Outcome::Error) };
        assert_eq!(platform.report(report).await, Reported::Accepted(Status::Error));
        let shown = platform.task(id).await;
        assert_eq!((shown.attempts, shown.error_count, shown.round), (errors, errors, 1));
        assert_eq!(
            (shown.error_info, shown.run_at),
            (Some(format!("broken {errors}")), platform.now().plus_ms(delay_ms))
        );
        assert_eq!((shown.host, shown.exec_id, shown.affinity), (None, None, None), "an error sets no affinity");
        platform.advance_ms(delay_ms - 1);
        assert!(platform.claim("mail").await.is_empty());
        platform.advance_ms(1);
        current = platform.claim_one("mail").await;
        assert_eq!((current.id, current.attempt), (id, errors + 1));
    }
    assert_eq!(platform.finish(&current, Outcome::Error).await, Reported::Accepted(Status::Failure));
    let shown = platform.task(id).await;
    assert_eq!((shown.status, shown.attempts, shown.error_count), (Status::Failure, 4, 4));
    assert_eq!(shown.error_info.as_deref(), Some("broken 3"), "the last error that was told");
}

async fn each_retry_strategy_gives_its_delays(platform: &Platform) {
    let strategies = [
        (RetryPolicy::Fixed { delay_ms: 500 }, [500, 500, 500]),
        (RetryPolicy::Exponential { delay_ms: 100, multiplier: 3.0, max_delay_ms: 400 }, [100, 300, 400]),
        (RetryPolicy::Sequence { intervals_ms: vec![10, 70] }, [10, 70, 70]),
        (RetryPolicy::Fixed { delay_ms: 0 }, [0, 0, 0]),
    ];
    for (policy, delays) in strategies {
        let mut claimed = platform.start(NewTask { retry: Some(policy), max_attempts: Some(9), ..task("mail") }).await;
        for delay_ms in delays {
            platform.finish(&claimed, Outcome::Error).await;
            assert_eq!(platform.task(claimed.id).await.run_at, platform.now().plus_ms(delay_ms));
            platform.advance_ms(delay_ms);
            claimed = platform.claim_one("mail").await;
        }
        platform.finish(&claimed, Outcome::Success).await;
    }
}

async fn strategy_none_means_one_attempt(platform: &Platform) {
    let claimed =
        platform.start(NewTask { retry: Some(RetryPolicy::None), max_attempts: Some(5), ..task("mail") }).await;
    assert_eq!(platform.finish(&claimed, Outcome::Error).await, Reported::Accepted(Status::Failure));
}

async fn unlimited_attempts_never_end(platform: &Platform) {
    let retry = Some(RetryPolicy::Fixed { delay_ms: 1 });
    platform.submit(NewTask { retry, max_attempts: Some(-1), ..task("mail") }).await;
    for attempt in 1..=25 {
        let claimed = platform.claim_one("mail").await;
        assert_eq!(claimed.attempt, attempt);
        assert_eq!(platform.finish(&claimed, Outcome::Error).await, Reported::Accepted(Status::Error));
        platform.advance_ms(1);
    }
}

async fn failure_ends_the_task_at_once(platform: &Platform) {
    platform
        .store
        .put_type("mail".into(), TypeSettings { need_manual: true, ..TypeSettings::default() })
        .await
        .unwrap();
    let claimed = platform.start(task("mail")).await;
    let report = Report { error: Some("no".into()), ..Report::new(claimed.id, claimed.exec_id, Outcome::Failure) };
    assert_eq!(platform.report(report).await, Reported::Accepted(Status::Failure), "even where a person could help");
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.attempts, shown.error_count, shown.error_info.as_deref()), (1, 0, Some("no")));
}

async fn used_up_attempts_wait_for_a_person_where_the_type_says_so(platform: &Platform) {
    let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    for outcome in [Outcome::Error, Outcome::Retry] {
        let claimed = platform.start(task("mail")).await;
        assert_eq!(platform.finish(&claimed, outcome).await, Reported::Accepted(Status::Pending));
        platform.advance_ms(86_400_000);
        assert!(platform.claim("mail").await.is_empty(), "nobody gets it but a person");
        assert_eq!(platform.log(claimed.id).await.len(), 1);
    }
}

async fn retry_comes_back_later_without_an_error(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let retry =
        |after_ms| Report { retry_after_ms: after_ms, ..Report::new(claimed.id, claimed.exec_id, Outcome::Retry) };
    assert_eq!(platform.report(retry(Some(3_000))).await, Reported::Accepted(Status::New));
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.attempts, shown.error_count, shown.run_at), (1, 0, platform.now().plus_ms(3_000)));
    platform.advance_ms(3_000);
    let second = platform.claim_one("mail").await;
    assert_eq!(second.attempt, 2);
    platform.finish(&second, Outcome::Retry).await;
    let first_delay = platform.now().plus_ms(10_000);
    assert_eq!(platform.task(claimed.id).await.run_at, first_delay, "not given: the policy's first delay");
    platform.advance_ms(10_000);
    let third = platform.claim_one("mail").await;
    assert_eq!(platform.finish(&third, Outcome::Retry).await, Reported::Accepted(Status::Failure), "attempts used up");
    assert_eq!(platform.task(third.id).await.error_info.as_deref(), Some("attempts used up"));
}

async fn release_gives_the_attempt_back(platform: &Platform) {
    let due = platform.now().plus_ms(-77);
    platform.submit(NewTask { max_attempts: Some(1), ..crate::support::due_at("mail", due) }).await;
    for _ in 0..3 {
        platform.advance_ms(10);
        let claimed = platform.claim_one("mail").await;
        assert_eq!((claimed.attempt, claimed.run_at), (1, due));
        assert_eq!(platform.finish(&claimed, Outcome::Release).await, Reported::Accepted(Status::New));
        let shown = platform.task(claimed.id).await;
        assert_eq!((shown.attempts, shown.error_count, shown.run_at), (0, 0, due), "its due time is unchanged");
        assert_eq!(shown.affinity.as_deref(), Some("host"));
    }
    let claimed = platform.claim_one("mail").await;
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Accepted(Status::Success));
}

async fn a_released_task_with_errors_is_shown_as_error(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Error).await;
    platform.advance_ms(10_000);
    let claimed = platform.claim_one("mail").await;
    assert_eq!(platform.finish(&claimed, Outcome::Release).await, Reported::Accepted(Status::Error));
    assert_eq!(platform.task(claimed.id).await.attempts, 1);
}

async fn a_report_can_leave_a_checkpoint(platform: &Platform) {
    for outcome in [Outcome::Error, Outcome::Retry, Outcome::Release] {
        let claimed = platform.start(task("mail")).await;
        let text = format!("\"{}\"", outcome.word());
        let report = Report { checkpoint: Some(text.clone()), ..Report::new(claimed.id, claimed.exec_id, outcome) };
        platform.report(report).await;
        platform.advance_ms(60_000);
        let next = platform.claim_one("mail").await;
        assert_eq!(next.checkpoint, Some(text));
        platform.finish(&next, Outcome::Success).await;
    }
}

async fn a_long_error_is_cut_and_never_refused(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let error = Some(format!("\0{}", "é".repeat(100_000)));
    let report = Report { error, ..Report::new(claimed.id, claimed.exec_id, Outcome::Error) };
    assert_eq!(platform.report(report).await, Reported::Accepted(Status::Error));
    let kept = platform.task(claimed.id).await.error_info.unwrap();
    assert!(kept.len() <= limits::ERROR_BYTES_MAX + 3 && kept.len() > 8_000, "{}", kept.len());
    assert!(kept.starts_with("\u{fffd}éé"));
}

async fn the_largest_result_is_kept(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let result = Some(format!("\"{}\"", "x".repeat(limits::RESULT_BYTES_MAX - 2)));
    let report = Report { result: result.clone(), ..Report::new(claimed.id, claimed.exec_id, Outcome::Success) };
    platform.report(report).await;
    assert_eq!(platform.task(claimed.id).await.result, result);
}

async fn a_large_batch_of_mixed_outcomes_is_answered_in_order(platform: &Platform) {
    platform.submit_all((0..300).map(|_| task("mail")).collect()).await;
    let claimed = platform.claim("mail").await;
    let outcomes = [Outcome::Success, Outcome::Error, Outcome::Failure, Outcome::Release, Outcome::Completed];
    let expected = [Status::Success, Status::Error, Status::Failure, Status::New, Status::Success];
    let reports: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(n, one)| Report::new(one.id, one.exec_id, outcomes[n % outcomes.len()]))
        .collect();
    let answers = platform.store.finish(reports).await.unwrap();
    for (n, (answer, one)) in answers.iter().zip(&claimed).enumerate() {
        assert_eq!(*answer, Reported::Accepted(expected[n % expected.len()]), "item {n}");
        assert_eq!(platform.status(one.id).await, expected[n % expected.len()], "item {n}");
    }
}

facts![
    success_ends_the_task,
    completed_without_a_callback_is_success,
    an_error_is_tried_again_after_the_policys_delay,
    each_retry_strategy_gives_its_delays,
    strategy_none_means_one_attempt,
    unlimited_attempts_never_end,
    failure_ends_the_task_at_once,
    used_up_attempts_wait_for_a_person_where_the_type_says_so,
    retry_comes_back_later_without_an_error,
    release_gives_the_attempt_back,
    a_released_task_with_errors_is_shown_as_error,
    a_report_can_leave_a_checkpoint,
    a_long_error_is_cut_and_never_refused,
    the_largest_result_is_kept,
    a_large_batch_of_mixed_outcomes_is_answered_in_order,
];
