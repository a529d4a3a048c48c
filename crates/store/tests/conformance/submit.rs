//! Submit: what is stored, and when it is due.

use crate::facts;
use crate::support::{Platform, due_at, due_in, task};
use taskwheel_model::{NewTask, RetryPolicy, Slot, Status, TaskId, TypeSettings};

async fn a_submitted_task_is_shown_as_it_was_given(platform: &Platform) {
    let now = platform.now();
    let given = NewTask {
        tenant: "acme".into(),
        key: Some("order-7 ✓ 😀".into()),
        payload: Some(r#"{"to": "a@b.c", "n": [1, 2.50, "é\u0000😀"]}"#.into()),
        priority: Some(7),
        expire_at: Some(now.plus_ms(60_001)),
        max_attempts: Some(5),
        retry: Some(RetryPolicy::Sequence { intervals_ms: vec![1, 2, 3] }),
        timeout_ms: Some(30_000),
        category: Some("mails".into()),
        creator: Some("shop".into()),
        route_key: Some("customer-9".into()),
        unique_key: Some("u-7".into()),
        affinity: Some("host-a".into()),
        ..due_at("mail.send", now.plus_ms(1_234))
    };
    let id = platform.submit(given.clone()).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.tenant.as_str(), shown.task_type.as_str()), ("acme", "mail.send"));
    assert_eq!((&shown.key, &shown.payload), (&given.key, &given.payload));
    assert_eq!((shown.priority, shown.run_at, shown.expire_at), (7, now.plus_ms(1_234), given.expire_at));
    assert_eq!((shown.max_attempts, &shown.retry, shown.timeout_ms), (Some(5), &given.retry, Some(30_000)));
    assert_eq!((&shown.category, &shown.creator), (&given.category, &given.creator));
    assert_eq!((&shown.route_key, &shown.unique_key), (&given.route_key, &given.unique_key));
    assert_eq!(shown.affinity, given.affinity);
    assert_eq!(shown.slot, Slot::of_route_key("customer-9").get());
    assert_eq!((shown.created_at, shown.updated_at), (now, now));
    assert_eq!((shown.status, shown.round, shown.attempts, shown.error_count), (Status::New, 1, 0, 0));
    assert_eq!((shown.host, shown.worker_id, shown.exec_id, shown.lease_until), (None, None, None, None));
    assert_eq!((shown.started_at, shown.finished_at, shown.exec_ms, shown.remark), (None, None, None, None));
    assert_eq!((shown.result, shown.checkpoint, shown.progress, shown.error_info), (None, None, None, None));
}

async fn a_type_alone_is_a_whole_task(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.tenant.as_str(), shown.status, shown.priority), ("default", Status::New, 1));
    assert_eq!((shown.key, shown.payload, shown.category, shown.creator), (None, None, None, None));
    assert_eq!(shown.run_at, platform.now());
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn a_delay_is_added_to_the_stores_clock(platform: &Platform) {
    let id = platform.submit(due_in("mail", 5_000)).await;
    assert_eq!(platform.task(id).await.run_at, platform.now().plus_ms(5_000));
    platform.advance_ms(4_999);
    assert!(platform.claim("mail").await.is_empty());
    platform.advance_ms(1);
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn a_time_in_the_past_is_due_now(platform: &Platform) {
    let id = platform.submit(due_at("mail", platform.now().plus_ms(-86_400_000))).await;
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn a_batch_answers_its_ids_in_order(platform: &Platform) {
    let batch: Vec<_> = (0..500).map(|n| NewTask { key: Some(format!("k{n}")), ..task("mail") }).collect();
    let ids = platform.submit_all(batch).await;
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    for n in [0, 1, 250, 499] {
        assert_eq!(platform.task(ids[n]).await.key, Some(format!("k{n}")));
    }
}

async fn batches_of_any_size_and_shape_are_stored_as_they_are_answered(platform: &Platform) {
    let given = |batch: usize, place: usize| {
        let plain = NewTask { key: Some(format!("{batch}-{place}")), ..task("mail") };
        match (batch + place) % 3 {
            0 => NewTask { creator: Some("shop".into()), ..plain },
            1 => NewTask { unique_key: plain.key.clone(), ..plain },
            _ => plain,
        }
    };
    let heavy = |place: usize| {
        let payload = Some(format!("\"{}\"", "x".repeat(200_000)));
        NewTask { key: Some(format!("heavy-{place}")), payload, ..task("mail") }
    };
    let mut batches: Vec<Vec<_>> = Vec::new();
    for size in [1, 2, 3, 63, 64, 65, 130, 600] {
        let batch = batches.len();
        batches.push((0..size).map(|place| given(batch, place)).collect());
        batches.push(
            (0..size).map(|place| NewTask { key: Some(format!("plain-{size}-{place}")), ..task("mail") }).collect(),
        );
    }
    batches.push((0..12).map(heavy).collect());
    let mut expected = Vec::new();
    for batch in batches {
        let keys: Vec<_> = batch.iter().map(|task| task.key.clone()).collect();
        expected.extend(platform.submit_all(batch).await.into_iter().zip(keys));
    }
    let mut claimed = Vec::new();
    while claimed.len() < expected.len() {
        let tasks = platform.claim("mail").await;
        assert!(!tasks.is_empty(), "{} of {} tasks wait", claimed.len(), expected.len());
        claimed.extend(tasks.into_iter().map(|task| (task.id, task.key)));
    }
    claimed.sort_unstable();
    assert_eq!(claimed, expected);
}

async fn an_empty_batch_is_answered_with_nothing(platform: &Platform) {
    assert_eq!(platform.store.submit(Vec::new()).await.unwrap(), []);
}

async fn tasks_of_several_tenants_and_types_fit_in_one_batch(platform: &Platform) {
    let of = |tenant: &str, task_type: &str| NewTask { tenant: tenant.into(), ..task(task_type) };
    let ids = platform.submit_all(vec![of("a", "mail"), of("b", "sms"), of("a", "sms")]).await;
    let shown = [platform.task(ids[0]).await, platform.task(ids[1]).await, platform.task(ids[2]).await];
    let names: Vec<_> = shown.iter().map(|task| (task.tenant.as_str(), task.task_type.as_str())).collect();
    assert_eq!(names, [("a", "mail"), ("b", "sms"), ("a", "sms")]);
}

async fn the_priority_is_settled_at_submit(platform: &Platform) {
    let settings = TypeSettings { priority: Some(6), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let of_type = platform.submit(task("mail")).await;
    let given = platform.submit(NewTask { priority: Some(3), ..task("mail") }).await;
    let built_in = platform.submit(task("sms")).await;
    let settings = TypeSettings { priority: Some(9), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    assert_eq!(platform.task(of_type).await.priority, 6);
    assert_eq!(platform.task(given).await.priority, 3);
    assert_eq!(platform.task(built_in).await.priority, 1);
}

async fn values_not_given_follow_the_type_at_any_time(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.max_attempts, shown.timeout_ms, shown.category), (Some(3), Some(-1), None));
    assert_eq!(shown.retry, Some(RetryPolicy::BUILT_IN));

    let settings = TypeSettings {
        category: Some("mails".into()),
        retry: Some(RetryPolicy::Fixed { delay_ms: 7 }),
        max_attempts: Some(9),
        timeout_ms: Some(1_000),
        ..TypeSettings::default()
    };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let shown = platform.task(id).await;
    assert_eq!((shown.max_attempts, shown.timeout_ms), (Some(9), Some(1_000)));
    assert_eq!((shown.category.as_deref(), shown.retry), (Some("mails"), Some(RetryPolicy::Fixed { delay_ms: 7 })));
    let claimed = platform.claim_one("mail").await;
    assert_eq!((claimed.timeout_ms, claimed.category.as_deref()), (1_000, Some("mails")));
}

async fn a_slot_comes_from_the_route_key_or_else_from_the_id(platform: &Platform) {
    let routed = platform.submit(NewTask { route_key: Some("abc".into()), ..task("mail") }).await;
    let plain = platform.submit(task("mail")).await;
    assert_eq!(platform.task(routed).await.slot, 0xba78 >> 6);
    assert_eq!(platform.task(plain).await.slot, Slot::of_id(plain).get());
    let mut raw = platform.raw().await;
    let slot = raw.number(&format!("SELECT slot FROM task_view WHERE id = {plain}")).await;
    assert_eq!(slot, i64::from(Slot::of_id(plain).get()));
}

async fn a_task_is_shown_at_its_submit_as_it_is_when_it_is_read(platform: &Platform) {
    let settings =
        TypeSettings { priority: Some(6), max_attempts: Some(9), category: Some("out".into()), ..Default::default() };
    platform.store.put_type("set".into(), settings).await.unwrap();
    let given = NewTask {
        key: Some("k".into()),
        payload: Some("{\"a\": 1}".into()),
        route_key: Some("r".into()),
        unique_key: Some("u".into()),
        creator: Some("me".into()),
        affinity: Some("host".into()),
        retry: Some(RetryPolicy::Fixed { delay_ms: 5 }),
        expire_at: Some(platform.now().plus_ms(90_000)),
        ..due_in("mail", 60_000)
    };
    for task in [task("mail"), task("set"), given.clone()] {
        let (submitted, shown, _) = platform.store.submit_and_show(task, None).await.unwrap();
        assert!(submitted.created);
        assert_eq!(shown, Some(platform.task(submitted.id).await));
    }
    let (submitted, shown, _) = platform.store.submit_and_show(given, None).await.unwrap();
    assert!(!submitted.created && shown.is_none(), "its unique key is live");
}

async fn an_unknown_task_is_not_found(platform: &Platform) {
    assert_eq!(platform.store.get(None, TaskId(4_711)).await.unwrap(), None);
}

async fn a_tenant_reads_only_its_own(platform: &Platform) {
    let id = platform.submit(NewTask { tenant: "acme".into(), ..task("mail") }).await;
    assert!(platform.store.get(Some("acme".into()), id).await.unwrap().is_some());
    assert!(platform.store.get(Some("other".into()), id).await.unwrap().is_none());
}

facts![
    a_submitted_task_is_shown_as_it_was_given,
    a_type_alone_is_a_whole_task,
    a_delay_is_added_to_the_stores_clock,
    a_time_in_the_past_is_due_now,
    a_batch_answers_its_ids_in_order,
    batches_of_any_size_and_shape_are_stored_as_they_are_answered,
    an_empty_batch_is_answered_with_nothing,
    tasks_of_several_tenants_and_types_fit_in_one_batch,
    the_priority_is_settled_at_submit,
    values_not_given_follow_the_type_at_any_time,
    a_slot_comes_from_the_route_key_or_else_from_the_id,
    a_task_is_shown_at_its_submit_as_it_is_when_it_is_read,
    an_unknown_task_is_not_found,
    a_tenant_reads_only_its_own,
];
