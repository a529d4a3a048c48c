//! The client's calls.

use crate::facts;
use crate::support::Platform;
use serde_json::json;
use std::time::Duration;
use taskwheel_client::{
    Bulk, BulkAction, Edit, Error, Filter, Listing, NewTask, Resolution, RetryPolicy, Sort, Status, TaskContext,
    TaskError, TaskId, Timestamp, TypeSettings,
};

fn mail() -> NewTask {
    NewTask::new("mail", &json!({"to": "a@b.c"}))
}

async fn what_is_submitted_is_shown(platform: &Platform) {
    let due: Timestamp = "2030-01-31T12:00:00.5Z".parse().unwrap();
    let task = mail()
        .key("order-7")
        .priority(7)
        .run_at(due)
        .expire_at("2031-01-01T00:00:00Z".parse().unwrap())
        .retry(RetryPolicy::Sequence { intervals_ms: vec![1, 2] })
        .max_attempts(5)
        .timeout(Duration::from_secs(9))
        .category("post")
        .creator("shop")
        .route_key("r")
        .unique_key("u")
        .affinity("here");
    let submitted = platform.client.submit(task).await.unwrap();
    assert!(submitted.created);
    let shown = platform.task(submitted.id).await;
    assert_eq!((shown.task_type.as_str(), shown.key.as_deref(), shown.priority), ("mail", Some("order-7"), 7));
    assert_eq!((shown.payload, shown.status), (Some(json!({"to": "a@b.c"})), Status::New));
    assert_eq!((shown.run_at, shown.max_attempts, shown.timeout_ms), (due, Some(5), Some(9_000)));
    assert_eq!(shown.retry, Some(RetryPolicy::Sequence { intervals_ms: vec![1, 2] }));
    assert_eq!((shown.category.as_deref(), shown.creator.as_deref()), (Some("post"), Some("shop")));
    assert_eq!((shown.route_key.as_deref(), shown.affinity.as_deref()), (Some("r"), Some("here")));
    assert_eq!(shown.expire_at, Some("2031-01-01T00:00:00Z".parse().unwrap()));
}

async fn keys_are_answered_with_the_task_that_has_them(platform: &Platform) {
    let first = platform.client.submit(mail().unique_key("u")).await.unwrap();
    let second = platform.client.submit(mail().unique_key("u")).await.unwrap();
    assert_eq!((second.id, second.created), (first.id, false));
    let once = platform.client.submit_once("call-1", mail()).await.unwrap();
    assert_eq!(platform.client.submit_once("call-1", mail()).await.unwrap().id, once.id);
    let refused = platform.client.submit_once("call-1", mail().priority(9)).await;
    assert!(matches!(&refused, Err(Error::Invalid(fields)) if fields[0].field == "Idempotency-Key"), "{refused:?}");
}

async fn keys_and_filters_that_are_none_are_refused_by_name(platform: &Platform) {
    let client = &platform.client;
    for key in ["", "é", "a\nb", "a\tb", "\u{7f}", &"k".repeat(201)] {
        let refused = client.submit_once(key, mail()).await;
        let Err(Error::Invalid(fields)) = &refused else { panic!("{key:?}: {refused:?}") };
        let words = (fields[0].field.as_str(), fields[0].message.as_str());
        assert_eq!(words, ("Idempotency-Key", "must have 1 to 200 visible ASCII characters"), "{key:?}");
    }
    assert!(client.submit_once(&format!("order 7 ~ {}", "k".repeat(190)), mail()).await.unwrap().created);
    let filter = || Filter { priority: Some(12), ..Filter::default() };
    let listed = client.list(filter()).await.map(drop);
    let done = client.bulk(Bulk::new(filter(), BulkAction::Cancel)).await.map(drop);
    for refused in [listed, done] {
        let Err(Error::Invalid(fields)) = &refused else { panic!("{refused:?}") };
        let words = (fields[0].field.as_str(), fields[0].message.as_str());
        assert_eq!(words, ("priority", "must be between 1 and 9, is 12"));
    }
}

async fn a_null_is_nothing(platform: &Platform) {
    let client = &platform.client;
    let id = platform.submit(mail().max_attempts(1)).await;
    let edited = client.edit(id, Edit::new().payload(serde_json::Value::Null)).await.unwrap();
    assert_eq!(edited.payload, None);
    let no = async |_: TaskContext, (): ()| Err::<(), _>(TaskError::fail("no"));
    platform.worker().handle("mail", no).run_until_idle().await.unwrap();
    let resolution = Resolution { result: Some(serde_json::Value::Null), ..Resolution::default() };
    let resolved = client.resolve(id, resolution).await.unwrap();
    assert_eq!((resolved.status, resolved.payload, resolved.result), (Status::ManuallyProcessed, None, None));
    let stored = platform.store().get(None, id).await.unwrap().unwrap().task;
    assert_eq!((stored.payload, stored.result), (None, None));
}

async fn a_batch_is_stored_whole_or_not_at_all(platform: &Platform) {
    let submitted = platform.client.submit_batch([mail(), mail(), mail()]).await.unwrap();
    assert_eq!(submitted.iter().filter(|one| one.created).count(), 3);
    assert!(platform.client.submit_batch([]).await.unwrap().is_empty());
    let refused = platform.client.submit_batch([mail(), mail().priority(10)]).await;
    assert!(matches!(&refused, Err(Error::Invalid(fields)) if fields[0].index == Some(1)), "{refused:?}");
    let partial = platform.client.submit_partial([mail().priority(10), mail()]).await.unwrap();
    assert_eq!((partial.items[0].0, partial.items.len(), partial.errors[0].field.as_str()), (1, 1, "priority"));
    assert_eq!(platform.client.list(Filter::of_type("mail")).await.unwrap().items.len(), 4);
}

async fn pages_lead_to_all_tasks(platform: &Platform) {
    let submitted = platform.client.submit_batch((0..5).map(|n| mail().key(format!("k{n}")))).await.unwrap();
    let mut listing = Listing { sort: Sort::OldestFirst, limit: 2, ..Filter::of_type("mail").live().into() };
    let mut found: Vec<TaskId> = Vec::new();
    loop {
        let page = platform.client.list(listing.clone()).await.unwrap();
        found.extend(page.items.iter().map(|task| task.id));
        listing.cursor = page.next_cursor;
        if listing.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, submitted.iter().map(|one| one.id).collect::<Vec<_>>());
    let filter = Filter { key: Some("k3".into()), ..Filter::default() };
    assert_eq!(platform.client.list(filter).await.unwrap().items[0].id, submitted[3].id);
    let filter = Filter { created_from: Some("2999-01-01T00:00:00Z".parse().unwrap()), ..Filter::default() };
    assert!(platform.client.list(filter).await.unwrap().items.is_empty());
    let bad = Listing { cursor: Some("nonsense".into()), ..Listing::default() };
    assert!(matches!(platform.client.list(bad).await, Err(Error::Invalid(fields)) if fields[0].field == "cursor"));
}

async fn people_step_in(platform: &Platform) {
    let client = &platform.client;
    let id = platform.submit(mail().delay(Duration::from_secs(3_600))).await;
    let edited = client.edit(id, Edit::new().priority(9).remark("soon".to_owned()).max_attempts(1)).await.unwrap();
    assert_eq!((edited.priority, edited.remark.as_deref(), edited.max_attempts), (9, Some("soon"), Some(1)));
    let edited = client.edit(id, Edit::new().payload(json!([1])).max_attempts(None)).await.unwrap();
    assert_eq!((edited.payload, edited.max_attempts), (Some(json!([1])), Some(3)));
    assert!(client.run_now(id).await.unwrap().run_at < edited.run_at);
    assert_eq!(client.cancel(id).await.unwrap().status, Status::Cancelled);
    assert_eq!(client.retry(id).await.unwrap().status, Status::New);
    assert!(matches!(client.resolve(id, Resolution::default()).await, Err(Error::Conflict(_))));
    assert!(matches!(client.delete(id).await, Err(Error::Conflict(_))));

    let no = async |_: TaskContext, _: serde_json::Value| Err::<(), _>(TaskError::fail("no"));
    platform.worker().handle("mail", no).run_until_idle().await.unwrap();
    let resolution = Resolution { result: Some(json!("by hand")), ..Resolution::remark("called them") };
    let resolved = client.resolve(id, resolution).await.unwrap();
    assert_eq!((resolved.status, resolved.result), (Status::ManuallyProcessed, Some(json!("by hand"))));
    client.delete(id).await.unwrap();
    assert_eq!(client.find(id).await.unwrap(), None);
    assert!(matches!(client.get(id).await, Err(Error::NotFound(_))));
    assert!(matches!(client.cancel(id).await, Err(Error::NotFound(_))));
}

async fn many_are_changed_at_once(platform: &Platform) {
    let client = &platform.client;
    client.submit_batch((0..4).map(|_| mail())).await.unwrap();
    platform.submit(NewTask::new("sms", &())).await;
    let mails = || Filter::of_type("mail");
    let done = client.bulk(Bulk::new(mails(), BulkAction::Cancel).dry_run()).await.unwrap();
    assert_eq!((done.matched, done.changed), (4, 0));
    assert_eq!(client.bulk(Bulk::new(mails(), BulkAction::SetPriority(5))).await.unwrap().changed, 4);
    let later = "2030-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(client.bulk(Bulk::new(mails(), BulkAction::Reschedule(later))).await.unwrap().changed, 4);
    let task = client.list(mails()).await.unwrap().items.remove(0);
    assert_eq!((task.priority, task.run_at), (5, later));
    let empty = client.bulk(Bulk::new(Filter::default(), BulkAction::Cancel)).await;
    assert!(matches!(&empty, Err(Error::Invalid(fields)) if fields[0].field == "filter"), "{empty:?}");
    assert_eq!(client.bulk(Bulk::all(BulkAction::Cancel)).await.unwrap().changed, 5);
}

async fn a_paused_type_is_held_back(platform: &Platform) {
    let client = &platform.client;
    let settings = TypeSettings { priority: Some(4), max_attempts: Some(9), ..TypeSettings::default() };
    let put = client.put_type("mail", settings.clone()).await.unwrap();
    assert_eq!((&put.settings, put.paused), (&settings, false));
    assert!(client.pause_type("mail").await.unwrap().paused);
    assert_eq!(client.types().await.unwrap()[0].task_type, "mail");
    let id = platform.submit(mail()).await;
    let done = async |_: TaskContext, _: serde_json::Value| Ok::<(), TaskError>(());
    let worker = || platform.worker().handle("mail", done);
    worker().run_until_idle().await.unwrap();
    assert_eq!(platform.task(id).await.status, Status::New);
    assert!(!client.resume_type("mail").await.unwrap().paused);
    worker().run_until_idle().await.unwrap();
    let task = platform.task(id).await;
    assert_eq!((task.status, task.priority, task.max_attempts), (Status::Success, 4, Some(9)));
}

facts! {
    what_is_submitted_is_shown,
    keys_are_answered_with_the_task_that_has_them,
    keys_and_filters_that_are_none_are_refused_by_name,
    a_null_is_nothing,
    a_batch_is_stored_whole_or_not_at_all,
    pages_lead_to_all_tasks,
    people_step_in,
    many_are_changed_at_once,
    a_paused_type_is_held_back,
}
