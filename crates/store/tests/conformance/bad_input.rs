//! Bad input: refused with the field and the item named, and nothing stored.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status, TaskId, Time, TypeSettings, limits};
use taskwheel_store::people::{Action, BulkRequest, Edit};
use taskwheel_store::search::{Filter, Listing};
use taskwheel_store::worker::{ClaimRequest, Renewal, Report};
use taskwheel_store::{Result, StoreError};

/// 9999-12-31T23:59:59Z.
const YEAR_9999: Time = Time(253_402_300_799_000);

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>) -> (usize, String) {
    match answer {
        Err(StoreError::Invalid { index, errors }) => {
            assert!(errors.iter().all(|error| !error.message.is_empty()));
            (index, errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>().join(","))
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn long(chars: usize) -> Option<String> {
    Some("é".repeat(chars))
}

async fn a_bad_field_of_a_submit_is_named_with_its_item(platform: &Platform) {
    let payload = |bytes: usize| Some(format!("\"{}\"", "x".repeat(bytes - 2)));
    let bad = [
        ("type", NewTask { task_type: String::new(), ..task("mail") }),
        ("type", task("two words")),
        ("type", task(&"x".repeat(201))),
        ("type", task("a\0")),
        ("tenant", NewTask { tenant: String::new(), ..task("mail") }),
        ("tenant", NewTask { tenant: "é".repeat(65), ..task("mail") }),
        ("key", NewTask { key: long(201), ..task("mail") }),
        ("key", NewTask { key: Some("a\0b".into()), ..task("mail") }),
        ("payload", NewTask { payload: payload(300 * 1024), ..task("mail") }),
        ("payload", NewTask { payload: payload(limits::PAYLOAD_BYTES_MAX + 1), ..task("mail") }),
        ("payload", NewTask { payload: Some("{oops".into()), ..task("mail") }),
        ("payload", NewTask { payload: Some("\"\0\"".into()), ..task("mail") }),
        ("payload", NewTask { payload: Some(r#""\ud800""#.into()), ..task("mail") }),
        ("payload", NewTask { payload: Some(String::new()), ..task("mail") }),
        ("priority", NewTask { priority: Some(0), ..task("mail") }),
        ("priority", NewTask { priority: Some(10), ..task("mail") }),
        ("delay_ms", NewTask { run_at: RunAt::After(-1), ..task("mail") }),
        ("delay_ms", NewTask { run_at: RunAt::After(i64::MAX), ..task("mail") }),
        ("run_at", NewTask { run_at: RunAt::At(YEAR_9999), ..task("mail") }),
        ("run_at", NewTask { run_at: RunAt::At(Time(-1)), ..task("mail") }),
        ("expire_at", NewTask { expire_at: Some(YEAR_9999), ..task("mail") }),
        ("max_attempts", NewTask { max_attempts: Some(0), ..task("mail") }),
        ("max_attempts", NewTask { max_attempts: Some(-2), ..task("mail") }),
        ("timeout_ms", NewTask { timeout_ms: Some(0), ..task("mail") }),
        ("retry.delay_ms", NewTask { retry: Some(RetryPolicy::Fixed { delay_ms: -1 }), ..task("mail") }),
        ("retry.intervals_ms", NewTask { retry: Some(RetryPolicy::Sequence { intervals_ms: vec![] }), ..task("mail") }),
        ("category", NewTask { category: Some(String::new()), ..task("mail") }),
        ("creator", NewTask { creator: long(65), ..task("mail") }),
        ("route_key", NewTask { route_key: long(201), ..task("mail") }),
        ("unique_key", NewTask { unique_key: Some(String::new()), ..task("mail") }),
        ("affinity", NewTask { affinity: long(65), ..task("mail") }),
    ];
    for (field, bad) in bad {
        let answer = platform.store.submit(vec![task("mail"), task("mail"), bad]).await;
        assert_eq!(refused(answer), (2, field.to_owned()));
    }
    assert!(platform.all_tasks().await.is_empty(), "nothing of a refused batch is stored");
}

async fn all_bad_fields_of_an_item_are_named_at_once(platform: &Platform) {
    let bad = NewTask { priority: Some(0), key: long(201), ..task("") };
    assert_eq!(refused(platform.store.submit(vec![bad]).await), (0, "type,key,priority".to_owned()));
}

async fn values_at_their_limits_are_kept_whole(platform: &Platform) {
    let emoji = |count: usize| Some("😀".repeat(count));
    let given = NewTask {
        tenant: "é".repeat(64),
        task_type: "x".repeat(200),
        key: emoji(200),
        payload: Some(format!("\"{}\"", "é".repeat(limits::PAYLOAD_BYTES_MAX / 2 - 1))),
        priority: Some(9),
        run_at: RunAt::At(Time(limits::TIME_MS_MAX)),
        expire_at: Some(Time(limits::TIME_MS_MAX)),
        max_attempts: Some(limits::ATTEMPTS_MAX),
        retry: Some(RetryPolicy::Sequence {
            intervals_ms: vec![limits::RETRY_DELAY_MS_MAX; limits::RETRY_INTERVALS_MAX],
        }),
        timeout_ms: Some(limits::TIMEOUT_MS_MAX),
        category: emoji(200),
        creator: emoji(64),
        route_key: emoji(200),
        unique_key: emoji(200),
        affinity: emoji(64),
        token_id: Some(i64::MAX),
        trace_parent: Some("0".repeat(55)),
    };
    let id = platform.submit(given.clone()).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.tenant, shown.task_type), (given.tenant.clone(), given.task_type.clone()));
    assert_eq!((shown.key, shown.payload), (given.key.clone(), given.payload.clone()));
    assert_eq!((shown.run_at, shown.expire_at), (Time(limits::TIME_MS_MAX), given.expire_at));
    assert_eq!(
        (shown.max_attempts, shown.retry, shown.timeout_ms),
        (given.max_attempts, given.retry.clone(), given.timeout_ms)
    );
    assert_eq!((shown.category, shown.creator), (given.category.clone(), given.creator.clone()));
    assert_eq!((shown.unique_key, shown.affinity), (given.unique_key.clone(), given.affinity.clone()));
    assert!(!platform.offer(given).await.created);
    let oldest = platform.submit(NewTask { run_at: RunAt::At(Time(0)), ..task("mail") }).await;
    assert_eq!(platform.claim_one("mail").await.id, oldest);
}

async fn a_batch_that_is_too_large_is_refused_whole(platform: &Platform) {
    let many = vec![task("mail"); limits::SUBMIT_BATCH_MAX + 1];
    assert_eq!(refused(platform.store.submit(many).await).1, "tasks");
    assert!(platform.all_tasks().await.is_empty());
    let claimed = platform.start(task("mail")).await;
    let reports = vec![Report::new(claimed.id, claimed.exec_id, Outcome::Success); limits::REPORT_BATCH_MAX + 1];
    assert_eq!(refused(platform.store.finish(reports).await).1, "items");
    let items = vec![renewal(&claimed); limits::REPORT_BATCH_MAX + 1];
    assert_eq!(refused(platform.store.renew(Vec::new(), items).await).1, "items");
    let ids = vec![claimed.id; limits::CHUNK_ROWS_MAX + 1];
    assert_eq!(refused(platform.store.act(None, ids, Action::Cancel).await).1, "ids");
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
}

async fn the_largest_batch_goes_through(platform: &Platform) {
    let ids = platform.submit_all(vec![task("mail"); limits::SUBMIT_BATCH_MAX]).await;
    assert_eq!(ids.len(), limits::SUBMIT_BATCH_MAX);
}

async fn a_bad_claim_names_its_field(platform: &Platform) {
    let good = worker(&["mail"]);
    let bad = [
        ("worker_id", ClaimRequest { worker_id: String::new(), ..good.clone() }),
        ("host", ClaimRequest { host: "x".repeat(65), ..good.clone() }),
        ("app", ClaimRequest { app: Some(String::new()), ..good.clone() }),
        ("types", ClaimRequest { types: Vec::new(), ..good.clone() }),
        ("types", worker(&["two words"])),
        ("types", ClaimRequest { types: vec!["mail".into(); limits::CLAIM_LANES_MAX + 1], ..good.clone() }),
        ("categories", ClaimRequest { categories: vec![String::new()], ..good.clone() }),
        ("heartbeat_ms", ClaimRequest { heartbeat_ms: Some(0), ..good.clone() }),
        ("max", ClaimRequest { max: 0, ..good.clone() }),
        ("max", ClaimRequest { max: 1_001, ..good.clone() }),
    ];
    platform.submit(task("mail")).await;
    for (field, bad) in bad {
        assert_eq!(refused(platform.store.claim(vec![good.clone(), bad]).await), (1, field.to_owned()));
    }
    assert_eq!(platform.claim("mail").await.len(), 1, "nothing was handed out");
}

async fn a_bad_report_or_renewal_names_its_field(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let good = Report::new(claimed.id, claimed.exec_id, Outcome::Success);
    let large = Some(format!("\"{}\"", "x".repeat(300 * 1024)));
    let bad = [
        ("outcome", Report { outcome: Outcome::Lost, ..good.clone() }),
        ("outcome", Report { outcome: Outcome::Cancelled, ..good.clone() }),
        ("outcome", Report { outcome: Outcome::Timeout, ..good.clone() }),
        ("result", Report { result: large.clone(), ..good.clone() }),
        ("result", Report { result: Some("{".into()), ..good.clone() }),
        ("checkpoint", Report { checkpoint: large.clone(), ..good.clone() }),
        ("retry_after_ms", Report { retry_after_ms: Some(-1), ..good.clone() }),
    ];
    for (field, bad) in bad {
        assert_eq!(refused(platform.store.finish(vec![good.clone(), bad]).await), (1, field.to_owned()));
    }
    let bad = [
        ("checkpoint", Renewal { checkpoint: large.clone(), ..renewal(&claimed) }),
        ("progress", Renewal { progress: large, ..renewal(&claimed) }),
        ("progress", Renewal { progress: Some("half".into()), ..renewal(&claimed) }),
    ];
    for (field, bad) in bad {
        let answer = platform.store.renew(vec!["worker".into()], vec![renewal(&claimed), bad]).await;
        assert_eq!(refused(answer), (1, field.to_owned()));
    }
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
    assert_eq!(refused(platform.store.renew(vec!["a\0b".into()], Vec::new()).await), (0, "worker_id".into()));
}

async fn a_bad_edit_resolve_or_type_names_its_field(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let edits = [
        ("priority", Edit { priority: Some(10), ..Edit::default() }),
        ("run_at", Edit { run_at: Some(YEAR_9999), ..Edit::default() }),
        ("payload", Edit { payload: Some(Some("{".into())), ..Edit::default() }),
        ("expire_at", Edit { expire_at: Some(Some(YEAR_9999)), ..Edit::default() }),
        ("max_attempts", Edit { max_attempts: Some(Some(0)), ..Edit::default() }),
        ("retry.delay_ms", Edit { retry: Some(Some(RetryPolicy::Fixed { delay_ms: -1 })), ..Edit::default() }),
        ("timeout_ms", Edit { timeout_ms: Some(Some(0)), ..Edit::default() }),
        ("remark", Edit { remark: Some(long(4_001)), ..Edit::default() }),
    ];
    for (field, edit) in edits {
        assert_eq!(refused(platform.store.act(None, vec![id], Action::Edit(edit)).await).1, field);
    }
    let resolve = Action::Resolve { remark: Some("\0".into()), result: None };
    assert_eq!(refused(platform.store.act(None, vec![id], resolve).await).1, "remark");
    let resolve = Action::Resolve { remark: None, result: Some("{".into()) };
    assert_eq!(refused(platform.store.act(None, vec![id], resolve).await).1, "result");

    let settings = TypeSettings { priority: Some(10), ..TypeSettings::default() };
    assert_eq!(refused(platform.store.put_type("mail".into(), settings).await).1, "priority");
    assert_eq!(refused(platform.store.put_type(String::new(), TypeSettings::default()).await).1, "type");
    assert_eq!(refused(platform.store.pause_type("two words".into(), true).await).1, "type");
    assert_eq!(platform.store.types().await.unwrap(), []);
}

async fn a_bad_list_or_bulk_names_its_field(platform: &Platform) {
    let good = Listing { limit: 10, ..Listing::default() };
    let with = |filter: Filter| Listing { filter, ..good.clone() };
    let bad = [
        ("limit", Listing { limit: 0, ..good.clone() }),
        ("limit", Listing { limit: 501, ..good.clone() }),
        ("key", with(Filter { key: long(201), ..Filter::default() })),
        ("text", with(Filter { text: Some("a\0".into()), ..Filter::default() })),
        ("run_at_from", with(Filter { run_at_from: Some(YEAR_9999), ..Filter::default() })),
    ];
    for (field, listing) in bad {
        assert_eq!(refused(platform.store.list(listing).await).1, field);
    }
    let bulk = |filter, action| BulkRequest {
        tenant: None,
        filter,
        action,
        after: TaskId(0),
        up_to: TaskId(i64::MAX),
        dry_run: false,
        audit: None,
    };
    let filter = Filter { creator: long(65), ..Filter::default() };
    assert_eq!(refused(platform.store.bulk(bulk(filter, Action::Cancel)).await).1, "creator");
    let edit = Action::Edit(Edit { priority: Some(0), ..Edit::default() });
    assert_eq!(refused(platform.store.bulk(bulk(Filter::default(), edit)).await).1, "priority");
}

facts![
    a_bad_field_of_a_submit_is_named_with_its_item,
    all_bad_fields_of_an_item_are_named_at_once,
    values_at_their_limits_are_kept_whole,
    a_batch_that_is_too_large_is_refused_whole,
    the_largest_batch_goes_through,
    a_bad_claim_names_its_field,
    a_bad_report_or_renewal_names_its_field,
    a_bad_edit_resolve_or_type_names_its_field,
    a_bad_list_or_bulk_names_its_field,
];
