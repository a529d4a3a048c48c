//! History: the log of attempts, what is kept and for how long.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Dialect, Platform, task, worker};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status, TaskId, limits};
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::search::{Filter, Listing, Sort};
use taskwheel_store::worker::{ClaimRequest, Report, Reported};
use taskwheel_store::{Outlived, Retention, export};

const KEEP_NOTHING: Retention =
    Retention { success_ms: Some(5), failure_ms: Some(5), manually_processed_ms: Some(5), cancelled_ms: Some(5) };

async fn a_first_success_costs_no_row_in_the_log(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(30);
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.raw().await.number("SELECT count(*) FROM task_attempt").await, 0);
    let log = platform.log(claimed.id).await;
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].round, log[0].attempt, log[0].exec_id), (1, 1, claimed.exec_id));
    assert_eq!((log[0].host.as_deref(), log[0].worker_id.as_deref()), (Some("host"), Some("worker")));
    assert_eq!((log[0].started_at, log[0].finished_at), (claimed.started_at, Some(platform.now())));
    assert_eq!((log[0].outcome, log[0].error.as_deref()), (Some(Outcome::Success), None));
}

async fn a_running_attempt_is_in_the_log_without_an_end(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let log = platform.log(claimed.id).await;
    assert_eq!((log.len(), log[0].exec_id), (1, claimed.exec_id));
    assert_eq!((log[0].finished_at, log[0].outcome, log[0].error.as_deref()), (None, None, None));
}

async fn the_log_has_every_attempt_of_every_round_in_order(platform: &Platform) {
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let id = platform.submit(NewTask { retry, timeout_ms: Some(5_000), max_attempts: Some(20), ..task("mail") }).await;
    let mut expected = Vec::new();
    let step = async |outcome: Outcome| {
        let claimed = platform.claim_one("mail").await;
        platform.advance_ms(10);
        let error = Some(format!("{} happened", outcome.word()));
        let report = Report { error, retry_after_ms: Some(0), ..Report::new(id, claimed.exec_id, outcome) };
        assert!(matches!(platform.report(report).await, Reported::Accepted(_)));
        (claimed.round, claimed.attempt, outcome)
    };
    for outcome in [Outcome::Error, Outcome::Release, Outcome::Retry] {
        expected.push(step(outcome).await);
    }
    let claimed = platform.claim_one("mail").await;
    platform.advance_ms(5_000);
    platform.rescue().await;
    expected.push((claimed.round, claimed.attempt, Outcome::Timeout));
    expected.push(step(Outcome::Failure).await);
    platform.act(id, Action::Retry).await;
    let claimed = platform.claim_one("mail").await;
    platform.act(id, Action::Cancel).await;
    platform.renew(&claimed).await;
    expected.push((2, 1, Outcome::Cancelled));
    platform.act(id, Action::Retry).await;
    expected.push(step(Outcome::Error).await);
    expected.push(step(Outcome::Success).await);

    let log = platform.log(id).await;
    let seen: Vec<_> = log.iter().map(|line| (line.round, line.attempt, line.outcome.unwrap())).collect();
    assert_eq!(seen, expected);
    assert_eq!((expected[4], expected[7]), ((1, 4, Outcome::Failure), (3, 2, Outcome::Success)));
    assert!(log.is_sorted_by_key(|line| line.started_at));
    assert_eq!(log[0].error.as_deref(), Some("error happened"));
    assert_eq!(log[4].error.as_deref(), Some("failure happened"), "the last error of a round stays with its attempt");
    assert_eq!(log[7].error, None);
    assert!(log.iter().all(|line| line.finished_at.is_some()));
}

async fn errors_of_a_resolved_task_stay_in_the_log(platform: &Platform) {
    let claimed = platform.start(NewTask { max_attempts: Some(1), ..task("mail") }).await;
    let report = Report { error: Some("broken".into()), ..Report::new(claimed.id, claimed.exec_id, Outcome::Error) };
    platform.report(report).await;
    platform.act(claimed.id, Action::Resolve { remark: None, result: None }).await;
    let log = platform.log(claimed.id).await;
    assert_eq!((log.len(), log[0].outcome, log[0].error.as_deref()), (1, Some(Outcome::Error), Some("broken")));
}

async fn finished_tasks_leave_the_hot_tables(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    let mut raw = platform.raw().await;
    assert_eq!(raw.number("SELECT count(*) FROM task_waiting").await, 0);
    assert_eq!(raw.number("SELECT count(*) FROM task_running").await, 0);
    assert_eq!(raw.number("SELECT count(*) FROM task_history").await, 1);
}

/// A task of each finished status, in the order of `Retention`'s fields.
async fn one_of_each(platform: &Platform) -> [TaskId; 4] {
    let success = platform.start(task("mail")).await;
    platform.finish(&success, Outcome::Success).await;
    let failure = platform.start(task("mail")).await;
    platform.finish(&failure, Outcome::Failure).await;
    let resolved = platform.start(task("mail")).await;
    platform.finish(&resolved, Outcome::Failure).await;
    platform.act(resolved.id, Action::Resolve { remark: None, result: None }).await;
    let cancelled = platform.submit(task("mail")).await;
    platform.act(cancelled, Action::Cancel).await;
    [success.id, failure.id, resolved.id, cancelled]
}

async fn each_status_has_its_own_retention(platform: &Platform) {
    let ids = one_of_each(platform).await;
    let retention = Retention {
        success_ms: Some(1_000),
        failure_ms: Some(2_000),
        manually_processed_ms: Some(3_000),
        cancelled_ms: None,
    };
    for (count, expected) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
        let outlived = platform.store.outlived(retention).await.unwrap();
        assert_eq!(outlived.len(), expected, "after {count} s");
        assert_eq!(outlived.iter().map(|task| task.id).collect::<Vec<_>>(), ids[..expected], "after {count} s");
        platform.advance_ms(1_001);
    }
    assert_eq!(platform.store.outlived(Retention::default()).await.unwrap(), []);
}

async fn a_purge_removes_a_task_with_all_that_belongs_to_it(platform: &Platform) {
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let first = platform.start(NewTask { retry, unique_key: Some("u".into()), ..labelled(platform) }).await;
    platform.finish(&first, Outcome::Error).await;
    let second = platform.claim_one("mail").await;
    platform.finish(&second, Outcome::Success).await;
    let live = platform.submit(task("mail")).await;
    platform.advance_ms(10);
    let mut outlived = platform.store.outlived(KEEP_NOTHING).await.unwrap();
    outlived.extend([live, TaskId(4_711)].map(|id| Outlived { id, ..outlived[0] }));
    assert_eq!(platform.store.purge(outlived).await.unwrap(), 1);
    assert!(platform.store.get(None, first.id).await.unwrap().is_none());
    assert_eq!(platform.status(live).await, Status::New, "what is not finished stays");
    let mut raw = platform.raw().await;
    for table in [&["task_history", "task_attempt", "task_unique"], beside(platform)].concat() {
        assert_eq!(raw.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}

/// A task with everything that is kept beside it.
fn labelled(platform: &Platform) -> NewTask {
    let (category, creator) = (Some("letters".into()), Some("ann".into()));
    NewTask { category, creator, expire_at: Some(platform.now().plus_ms(600_000)), ..task("mail") }
}

/// Tables in which only MySQL and MariaDB keep what a task is found by.
fn beside(platform: &Platform) -> &'static [&'static str] {
    match platform.dialect() {
        Dialect::Mysql => &["task_label", "task_waiting_check", "task_waiting_status", "task_waiting_category"],
        Dialect::Sqlite | Dialect::Postgres => &[],
    }
}

async fn what_tasks_are_found_by_is_kept_as_long_as_it_is_true(platform: &Platform) {
    // One comes alone, several together, and one by plain SQL.
    let alone = platform.submit(labelled(platform)).await;
    let together = platform.submit_all(vec![labelled(platform), labelled(platform), task("mail")]).await;
    let mut raw = platform.raw().await;
    raw.run("INSERT INTO task (type, category, creator) VALUES ('mail', 'letters', 'ann')").await;
    // The database's clock is ahead of the platform's by what the test took so far.
    platform.advance_ms(120_000);
    let found = |creator: &str| {
        let filter = Filter { creator: Some(creator.into()), ..Filter::default() };
        let tenant = Some(NewTask::TENANT_DEFAULT.into());
        platform.walk(Listing { filter, tenant, sort: Sort::IdAscending, limit: 3, ..Listing::default() })
    };
    let of_ann = found("ann").await;
    assert_eq!(of_ann.iter().map(|task| task.id).take(3).collect::<Vec<_>>(), [alone, together[0], together[1]]);
    assert_eq!(of_ann.len(), 4);
    assert!(found("bob").await.is_empty());
    let letters = ClaimRequest { categories: vec!["letters".into()], max: 10, ..worker(&[]) };
    let claimed = platform.claim_for(letters.clone()).await;
    assert_eq!(claimed.len(), 4);
    for table in beside(platform).iter().skip(1) {
        assert_eq!(raw.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table} while they run");
    }
    platform.finish(&claimed[0], Outcome::Release).await;
    assert_eq!(platform.claim_for(letters).await.len(), 1, "what is given back is found again");
    platform.finish(&claimed[1], Outcome::Success).await;
    assert_eq!(found("ann").await.len(), 4, "finished or not");
    platform.finish(&claimed[2], Outcome::Error).await;
    let filter = Filter { statuses: vec![Status::Error], ..Filter::default() };
    let tenant = Some(NewTask::TENANT_DEFAULT.into());
    let failing = platform.walk(Listing { filter, tenant, limit: 3, ..Listing::default() }).await;
    assert_eq!(failing.iter().map(|task| task.id).collect::<Vec<_>>(), [claimed[2].id]);
}

async fn what_has_changed_since_it_was_seen_is_not_purged(platform: &Platform) {
    let failed = platform.start(task("mail")).await;
    platform.finish(&failed, Outcome::Failure).await;
    let noted = platform.start(task("mail")).await;
    platform.finish(&noted, Outcome::Failure).await;
    platform.advance_ms(10);
    let outlived = platform.store.outlived(KEEP_NOTHING).await.unwrap();
    assert_eq!(outlived.len(), 2);
    platform.act(failed.id, Action::Retry).await;
    assert_eq!(platform.store.purge(outlived[..1].to_vec()).await.unwrap(), 0, "it lives");
    let again = platform.claim_one("mail").await;
    platform.finish(&again, Outcome::Success).await;
    let edit = Edit { remark: Some(Some("looked at".into())), ..Edit::default() };
    platform.act(noted.id, Action::Edit(edit)).await;
    assert_eq!(platform.store.purge(outlived).await.unwrap(), 0);
    assert_eq!(platform.status(failed.id).await, Status::Success);
    assert_eq!(platform.task(noted.id).await.remark.as_deref(), Some("looked at"));
}

async fn a_purge_goes_on_in_chunks(platform: &Platform) {
    let many = limits::CHUNK_ROWS_MAX + 50;
    platform.submit_all((0..many).map(|_| task("mail")).collect()).await;
    loop {
        let claimed = platform.claim("mail").await;
        if claimed.is_empty() {
            break;
        }
        let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
        platform.store.finish(reports).await.unwrap();
    }
    platform.advance_ms(10);
    let retention = Retention { success_ms: Some(5), ..Retention::default() };
    let mut purged = 0;
    loop {
        let outlived = platform.store.outlived(retention).await.unwrap();
        assert!(outlived.len() <= limits::CHUNK_ROWS_MAX);
        if outlived.is_empty() {
            break;
        }
        purged += platform.store.purge(outlived).await.unwrap();
    }
    assert_eq!(purged, many as u64);
    assert!(platform.all_tasks().await.is_empty());
}

async fn a_report_on_a_purged_task_is_superseded_without_a_status(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    platform.act(claimed.id, Action::Delete).await;
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Superseded(None));
    assert_eq!(platform.act(claimed.id, Action::Retry).await, Acted::NotFound);
}

async fn where_success_is_not_kept_nothing_remains_of_it(platform: &Platform) {
    let store = platform.open_again(|options| options.keep_success = false).await.unwrap();
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let with_key = NewTask { unique_key: Some("u".into()), retry, ..labelled(platform) };
    let first = platform.start(with_key.clone()).await;
    platform.finish(&first, Outcome::Error).await;
    let second = platform.claim_one("mail").await;
    let released = platform.start(task("sms")).await;
    platform.finish(&released, Outcome::Release).await;
    let released = platform.claim_one("sms").await;
    let failing = platform.start(task("fax")).await;
    let reports = vec![
        Report::new(second.id, second.exec_id, Outcome::Success),
        Report::new(released.id, released.exec_id, Outcome::Completed),
        Report::new(failing.id, failing.exec_id, Outcome::Failure),
    ];
    let answers = store.finish(reports).await.unwrap();
    let accepted = Reported::Accepted(Status::Success);
    assert_eq!(answers, [accepted, accepted, Reported::Accepted(Status::Failure)]);
    let left: Vec<_> = platform.all_tasks().await.iter().map(|task| task.id).collect();
    assert_eq!(left, [failing.id], "failures are kept");
    let mut raw = platform.raw().await;
    for table in ["task_attempt", "task_unique"] {
        assert_eq!(raw.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    for table in beside(platform) {
        assert_eq!(raw.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert!(platform.offer(with_key).await.created, "its key is free");
}

async fn an_export_has_every_task_before_it_is_purged(platform: &Platform) {
    let ids = one_of_each(platform).await;
    platform.advance_ms(10);
    let everything =
        Retention { success_ms: Some(5), failure_ms: Some(5), manually_processed_ms: Some(5), cancelled_ms: Some(5) };
    let mut written = Vec::new();
    let purged = export::purge(&*platform.store, everything, Some(&mut written)).await.unwrap();
    assert_eq!(purged, 4);
    assert!(platform.all_tasks().await.is_empty());
    let lines: Vec<serde_json::Value> =
        written.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let seen: Vec<_> = lines.iter().map(|line| (line["id"].as_i64(), line["status"].as_str())).collect();
    let words = [Status::Success, Status::Failure, Status::ManuallyProcessed, Status::Cancelled].map(Status::word);
    let expected: Vec<_> = ids.iter().zip(words).map(|(id, word)| (Some(id.0), Some(word))).collect();
    assert_eq!(seen, expected);
    assert_eq!(lines[1]["attempts_log"][0]["outcome"], "failure");
}

/// A disk that is full.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn a_purge_whose_export_fails_removes_nothing(platform: &Platform) {
    one_of_each(platform).await;
    platform.advance_ms(10);
    let retention = Retention { success_ms: Some(5), ..Retention::default() };
    assert!(export::purge(&*platform.store, retention, Some(&mut Full)).await.is_err());
    assert_eq!(platform.all_tasks().await.len(), 4);
}

facts![
    a_first_success_costs_no_row_in_the_log,
    a_running_attempt_is_in_the_log_without_an_end,
    the_log_has_every_attempt_of_every_round_in_order,
    errors_of_a_resolved_task_stay_in_the_log,
    finished_tasks_leave_the_hot_tables,
    each_status_has_its_own_retention,
    a_purge_removes_a_task_with_all_that_belongs_to_it,
    what_tasks_are_found_by_is_kept_as_long_as_it_is_true,
    what_has_changed_since_it_was_seen_is_not_purged,
    a_purge_goes_on_in_chunks,
    a_report_on_a_purged_task_is_superseded_without_a_status,
    where_success_is_not_kept_nothing_remains_of_it,
    an_export_has_every_task_before_it_is_purged,
    a_purge_whose_export_fails_removes_nothing,
];

/// On PostgreSQL a heartbeat writes a new version of an execution's row, which a report that looks at the old one does not meet.
async fn a_success_that_a_heartbeat_crosses_is_not_kept_where_none_is(platform: &Platform) {
    const TASKS: usize = 50;
    let store = platform.open_again(|options| options.keep_success = false).await.unwrap();
    for _ in 0..20 {
        store.submit(vec![task("mail"); TASKS]).await.unwrap();
        let claimed =
            store.claim(vec![ClaimRequest { heartbeat_ms: Some(60_000), ..worker(&["mail"]) }]).await.unwrap().concat();
        assert_eq!(claimed.len(), TASKS);
        let ends = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
        let (reported, renewed) =
            tokio::join!(store.finish(ends), store.renew(vec!["worker".into()], claimed.iter().map(renewal).collect()));
        let accepted = reported.unwrap().into_iter().filter(|one| *one == Reported::Accepted(Status::Success)).count();
        assert!(renewed.is_ok() && accepted == TASKS, "{accepted} were accepted");
    }
    let left: u64 = store.counts(None).await.unwrap().iter().map(|count| count.tasks).sum();
    assert_eq!(left, 0, "tasks were kept");
}

crate::facts! { in crossed_on_postgres on Postgres: a_success_that_a_heartbeat_crosses_is_not_kept_where_none_is }
