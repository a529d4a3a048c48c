//! Actions of people: what each does in each of the nine statuses.

use crate::facts;
use crate::support::{Dialect, Platform, due_in, task};
use taskwheel_model::{NewTask, Outcome, Status, TaskId, TypeSettings};
use taskwheel_store::people::Acted::{Changed, Conflict, Unchanged};
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::worker::Report;

/// A task in a status. It is not due before a day is over, where it waits.
async fn in_status(platform: &Platform, status: Status) -> TaskId {
    const DAY_MS: i64 = 86_400_000;
    let task_type = format!("{status}-{}", uuid::Uuid::new_v4().simple());
    if status == Status::Pending {
        let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
        platform.store.put_type(task_type.clone(), settings).await.unwrap();
    }
    let retry = Some(taskwheel_model::RetryPolicy::Fixed { delay_ms: DAY_MS });
    let waiting = NewTask { retry, ..due_in(&task_type, DAY_MS) };
    let running = NewTask { run_at: taskwheel_model::submit::RunAt::Now, ..waiting.clone() };
    let ended = async |outcome| {
        let claimed = platform.start(running.clone()).await;
        platform.finish(&claimed, outcome).await;
        claimed.id
    };
    let id = match status {
        Status::New => platform.submit(waiting).await,
        Status::Executing => platform.start(running).await.id,
        Status::Success => ended(Outcome::Success).await,
        Status::Error | Status::Pending => ended(Outcome::Error).await,
        Status::Failure => ended(Outcome::Failure).await,
        Status::Cancelled => {
            let id = platform.submit(waiting).await;
            platform.act(id, Action::Cancel).await;
            id
        }
        Status::ManuallyProcessed => {
            let id = ended(Outcome::Failure).await;
            platform.act(id, Action::Resolve { remark: None, result: None }).await;
            id
        }
        Status::Completed => {
            // No type can owe a callback yet, so a task is put there by hand.
            let id = platform.submit(waiting).await;
            let sql = format!("UPDATE task_waiting SET status = {}, lane = '' WHERE id = {id}", status.code());
            let mut raw = platform.raw().await;
            assert_eq!(raw.run(&sql).await, 1);
            if platform.dialect() == Dialect::Mysql {
                let sql = "INSERT INTO task_waiting_status SELECT tenant, status, id FROM task_waiting WHERE id = ";
                assert_eq!(raw.run(&format!("{sql}{id}")).await, 1);
            }
            id
        }
    };
    assert_eq!(platform.status(id).await, status);
    id
}

/// Tries an action in each status; the statuses are those of `Status::ALL`, in its order.
async fn in_every_status(platform: &Platform, action: &Action, expected: [fn(Status) -> Acted; 9]) {
    for (status, expected) in Status::ALL.into_iter().zip(expected) {
        let id = in_status(platform, status).await;
        let before = platform.task(id).await;
        let acted = platform.act(id, action.clone()).await;
        assert_eq!(acted, expected(status), "{action:?} of a task in {status}");
        match acted {
            Changed(_) if *action == Action::Delete => {
                assert!(platform.store.get(None, id).await.unwrap().is_none(), "{status}");
            }
            Changed(next) => assert_eq!(platform.status(id).await, next, "{action:?} of {status}"),
            _ => assert_eq!(platform.task(id).await, before, "{action:?} of {status} left a trace"),
        }
    }
}

const UNCHANGED: fn(Status) -> Acted = Unchanged;
const CONFLICT: fn(Status) -> Acted = Conflict;
const SAME: fn(Status) -> Acted = Changed;

async fn cancel_ends_what_is_live_and_not_done(platform: &Platform) {
    const GONE: fn(Status) -> Acted = |_| Changed(Status::Cancelled);
    // New, Executing, Success, Completed, Error, Failure, Pending, ManuallyProcessed, Cancelled.
    let expected = [GONE, GONE, CONFLICT, CONFLICT, GONE, CONFLICT, GONE, CONFLICT, UNCHANGED];
    in_every_status(platform, &Action::Cancel, expected).await;
}

async fn retry_revives_what_failed_was_cancelled_or_waits_for_a_person(platform: &Platform) {
    const NEW: fn(Status) -> Acted = |_| Changed(Status::New);
    let expected = [UNCHANGED, CONFLICT, CONFLICT, CONFLICT, CONFLICT, NEW, NEW, CONFLICT, NEW];
    in_every_status(platform, &Action::Retry, expected).await;
}

async fn run_now_makes_a_waiting_task_due(platform: &Platform) {
    let expected = [SAME, CONFLICT, CONFLICT, CONFLICT, SAME, CONFLICT, CONFLICT, CONFLICT, CONFLICT];
    in_every_status(platform, &Action::RunNow, expected).await;
}

async fn resolve_settles_what_failed_or_waits_for_a_person(platform: &Platform) {
    const DONE: fn(Status) -> Acted = |_| Changed(Status::ManuallyProcessed);
    let resolve = Action::Resolve { remark: Some("paid by hand".into()), result: Some("7".into()) };
    let expected = [CONFLICT, CONFLICT, CONFLICT, CONFLICT, CONFLICT, DONE, DONE, UNCHANGED, CONFLICT];
    in_every_status(platform, &resolve, expected).await;
}

async fn edit_changes_what_waits_or_runs(platform: &Platform) {
    let edits = [
        Edit { priority: Some(8), ..Edit::default() },
        Edit { run_at: Some(platform.now().plus_ms(5_000)), ..Edit::default() },
        Edit { payload: Some(Some("{}".into())), remark: Some(Some("both".into())), ..Edit::default() },
    ];
    for edit in edits {
        let expected = [SAME, SAME, CONFLICT, CONFLICT, SAME, CONFLICT, SAME, CONFLICT, CONFLICT];
        in_every_status(platform, &Action::Edit(edit), expected).await;
    }
}

async fn a_remark_can_be_changed_in_every_status(platform: &Platform) {
    let edit = Edit { remark: Some(Some("seen".into())), ..Edit::default() };
    in_every_status(platform, &Action::Edit(edit), [SAME; 9]).await;
}

async fn an_edit_that_changes_nothing_is_unchanged(platform: &Platform) {
    let id = in_status(platform, Status::New).await;
    let edit = Edit { priority: Some(1), ..Edit::default() };
    assert_eq!(platform.act(id, Action::Edit(edit)).await, Unchanged(Status::New));
}

async fn delete_removes_finished_tasks_only(platform: &Platform) {
    let expected = [CONFLICT, CONFLICT, SAME, CONFLICT, CONFLICT, SAME, CONFLICT, SAME, SAME];
    in_every_status(platform, &Action::Delete, expected).await;
}

async fn an_unknown_or_foreign_task_is_not_found(platform: &Platform) {
    let id = platform.submit(NewTask { tenant: "acme".into(), ..task("mail") }).await;
    let actions = [
        Action::Cancel,
        Action::Retry,
        Action::RunNow,
        Action::Resolve { remark: None, result: None },
        Action::Edit(Edit { priority: Some(9), ..Edit::default() }),
        Action::Delete,
    ];
    for action in actions {
        let ids = vec![id, TaskId(4_711)];
        let acted = platform.store.act(Some("other".into()), ids, action.clone()).await.unwrap();
        assert_eq!(acted, [Acted::NotFound, Acted::NotFound], "{action:?}");
    }
    assert_eq!(platform.status(id).await, Status::New);
    let acted = platform.store.act(Some("acme".into()), vec![id], Action::Cancel).await.unwrap();
    assert_eq!(acted, [Changed(Status::Cancelled)]);
}

async fn a_retry_starts_a_new_round_and_keeps_what_was_learnt(platform: &Platform) {
    let claimed = platform.start(NewTask { max_attempts: Some(1), ..task("mail") }).await;
    let report = Report {
        checkpoint: Some("\"half\"".into()),
        error: Some("broken".into()),
        ..Report::new(claimed.id, claimed.exec_id, Outcome::Error)
    };
    platform.report(report).await;
    assert_eq!(platform.status(claimed.id).await, Status::Failure);
    platform.advance_ms(1_000);
    assert_eq!(platform.act(claimed.id, Action::Retry).await, Changed(Status::New));
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.round, shown.attempts, shown.error_count), (2, 0, 0));
    assert_eq!((shown.run_at, shown.finished_at), (platform.now(), None));
    assert_eq!(platform.log(claimed.id).await.len(), 1);
    let again = platform.claim_one("mail").await;
    assert_eq!((again.id, again.round, again.attempt), (claimed.id, 2, 1));
    assert_eq!(again.checkpoint.as_deref(), Some("\"half\""));
}

async fn a_retry_leaves_the_log_as_it_was(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let error = Some("broken".to_owned());
    platform.report(Report { error, ..Report::new(claimed.id, claimed.exec_id, Outcome::Error) }).await;
    platform.advance_ms(60_000);
    platform.claim_one("mail").await;
    platform.act(claimed.id, Action::Cancel).await;
    let before = platform.log(claimed.id).await;
    assert_eq!(before.last().map(|last| (last.outcome, last.error.clone())), Some((Some(Outcome::Cancelled), None)));
    platform.act(claimed.id, Action::Retry).await;
    assert_eq!(platform.log(claimed.id).await, before);
}

async fn a_resolve_keeps_remark_and_result(platform: &Platform) {
    for status in [Status::Failure, Status::Pending] {
        let id = in_status(platform, status).await;
        platform.advance_ms(10);
        let resolve = Action::Resolve { remark: Some("paid by hand".into()), result: Some(r#"{"by":"eve"}"#.into()) };
        platform.act(id, resolve).await;
        let shown = platform.task(id).await;
        assert_eq!((shown.remark.as_deref(), shown.result.as_deref()), (Some("paid by hand"), Some(r#"{"by":"eve"}"#)));
        assert_eq!(shown.status, Status::ManuallyProcessed);
        assert!(shown.finished_at.is_some());
        assert_eq!(platform.log(id).await.len(), 1);
    }
}

async fn many_tasks_are_acted_on_each_by_itself(platform: &Platform) {
    let mut ids = Vec::new();
    for status in Status::ALL {
        ids.push(in_status(platform, status).await);
    }
    ids.push(TaskId(4_711));
    ids.push(ids[0]);
    let acted = platform.store.act(None, ids, Action::Cancel).await.unwrap();
    let expected = [
        Changed(Status::Cancelled),
        Changed(Status::Cancelled),
        Conflict(Status::Success),
        Conflict(Status::Completed),
        Changed(Status::Cancelled),
        Conflict(Status::Failure),
        Changed(Status::Cancelled),
        Conflict(Status::ManuallyProcessed),
        Unchanged(Status::Cancelled),
        Acted::NotFound,
        Unchanged(Status::Cancelled),
    ];
    assert_eq!(acted, expected);
}

async fn one_task_named_twice_is_acted_on_once(platform: &Platform) {
    let id = in_status(platform, Status::New).await;
    let edit = Action::Edit(Edit { priority: Some(7), ..Edit::default() });
    let acted = platform.store.act(None, vec![id, id], edit).await.unwrap();
    assert_eq!(acted[0], Changed(Status::New));
    assert_eq!(platform.task(id).await.priority, 7);
    let done = in_status(platform, Status::Success).await;
    let acted = platform.store.act(None, vec![done, done], Action::Delete).await.unwrap();
    assert_eq!(acted, [Changed(Status::Success), Acted::NotFound]);
}

facts![
    a_retry_leaves_the_log_as_it_was,
    cancel_ends_what_is_live_and_not_done,
    retry_revives_what_failed_was_cancelled_or_waits_for_a_person,
    run_now_makes_a_waiting_task_due,
    resolve_settles_what_failed_or_waits_for_a_person,
    edit_changes_what_waits_or_runs,
    a_remark_can_be_changed_in_every_status,
    an_edit_that_changes_nothing_is_unchanged,
    delete_removes_finished_tasks_only,
    an_unknown_or_foreign_task_is_not_found,
    a_retry_starts_a_new_round_and_keeps_what_was_learnt,
    a_resolve_keeps_remark_and_result,
    many_tasks_are_acted_on_each_by_itself,
    one_task_named_twice_is_acted_on_once,
];
