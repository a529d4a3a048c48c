//! Claim: who gets what, in which order.

use crate::facts;
use crate::support::{Platform, due_at, due_in, task, worker};
use std::collections::HashSet;
use std::time::Duration;
use taskwheel_model::{NewTask, Status, TaskId, TypeSettings, limits};
use taskwheel_store::people::Action;
use taskwheel_store::worker::ClaimRequest;

async fn a_claim_hands_out_the_whole_task(platform: &Platform) {
    let now = platform.now();
    let given = NewTask {
        tenant: "acme".into(),
        key: Some("order-7".into()),
        payload: Some(r#"{"a":"é"}"#.into()),
        priority: Some(4),
        timeout_ms: Some(30_000),
        category: Some("mails".into()),
        creator: Some("shop".into()),
        ..due_at("mail", now.plus_ms(-5))
    };
    let id = platform.submit(given.clone()).await;
    let claimed = platform.claim_one("mail").await;
    assert_eq!((claimed.id, claimed.tenant.as_str(), claimed.task_type.as_str()), (id, "acme", "mail"));
    assert_eq!((&claimed.key, &claimed.payload), (&given.key, &given.payload));
    assert_eq!((&claimed.category, &claimed.creator), (&given.category, &given.creator));
    assert_eq!((claimed.priority, claimed.run_at, claimed.round, claimed.attempt), (4, now.plus_ms(-5), 1, 1));
    assert_eq!((claimed.timeout_ms, claimed.checkpoint), (30_000, None));
    assert_eq!((claimed.started_at, claimed.lease_until), (now, now.plus_ms(30_000)));

    let shown = platform.task(id).await;
    assert_eq!((shown.status, shown.attempts, shown.exec_id), (Status::Executing, 1, Some(claimed.exec_id)));
    assert_eq!((shown.host.as_deref(), shown.worker_id.as_deref()), (Some("host"), Some("worker")));
    assert_eq!((shown.started_at, shown.lease_until), (Some(now), Some(claimed.lease_until)));
}

async fn a_task_is_handed_out_once(platform: &Platform) {
    platform.submit(task("mail")).await;
    platform.claim_one("mail").await;
    assert!(platform.claim("mail").await.is_empty());
}

async fn nothing_due_is_an_empty_answer(platform: &Platform) {
    platform.submit(due_in("mail", 1)).await;
    platform.submit(task("sms")).await;
    assert!(platform.claim("mail").await.is_empty());
}

async fn who_asks_whether_something_is_due_takes_nothing(platform: &Platform) {
    let wanted = worker(&["mail"]);
    let is_due = async || platform.store.is_due(wanted.clone()).await.unwrap();
    platform.submit(due_in("mail", 1)).await;
    platform.submit(task("sms")).await;
    assert!(!is_due().await);
    let id = platform.submit(task("mail")).await;
    assert!(is_due().await && is_due().await);
    platform.store.pause_type("mail".into(), true).await.unwrap();
    assert!(!is_due().await);
    platform.store.pause_type("mail".into(), false).await.unwrap();
    assert_eq!(platform.claim_one("mail").await.id, id);
    assert!(!is_due().await);
}

async fn the_highest_priority_goes_first_then_the_earliest_due_then_the_lowest_id(platform: &Platform) {
    let now = platform.now();
    let mut expected = Vec::new();
    let mut batch = Vec::new();
    for n in 0_i64..120 {
        // Types, priorities and times in no order at all.
        let (task_type, priority, late_ms) = (["a", "b", "c"][(n % 3) as usize], 1 + (n * 7 % 9) as u8, n * 31 % 10);
        batch.push(NewTask { priority: Some(priority), ..due_at(task_type, now.plus_ms(-late_ms)) });
        expected.push((9 - priority, -late_ms));
    }
    let ids = platform.submit_all(batch).await;
    let mut expected: Vec<_> = expected.into_iter().zip(ids).map(|((rank, due), id)| (rank, due, id)).collect();
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, id)| id).collect();

    // In one claim and over several small ones the order is the same.
    let mut claimed = platform.claim_ids(ClaimRequest { max: 50, ..worker(&["a", "b", "c"]) }).await;
    while claimed.len() < expected.len() {
        let next = platform.claim_ids(ClaimRequest { max: 7, ..worker(&["a", "b", "c"]) }).await;
        assert!(!next.is_empty(), "{} of {} came", claimed.len(), expected.len());
        claimed.extend(next);
    }
    assert_eq!(claimed, expected);
}

async fn a_late_priority_passes_everything_below_it(platform: &Platform) {
    let first = platform.submit_all(vec![task("mail"), task("mail"), task("mail")]).await;
    assert_eq!(platform.claim_ids(ClaimRequest { max: 1, ..worker(&["mail"]) }).await, [first[0]]);
    let urgent = platform.submit(NewTask { priority: Some(9), ..task("mail") }).await;
    let early = platform.submit(due_at("mail", platform.now().plus_ms(-60_000))).await;
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, [urgent, early, first[1], first[2]]);
}

async fn future_tasks_of_a_high_priority_do_not_hold_up_due_ones(platform: &Platform) {
    let future = |_| NewTask { priority: Some(9), ..due_in("mail", 60_000) };
    platform.submit_all((0..100).map(future).collect()).await;
    let due = platform.submit(task("mail")).await;
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, [due]);
    platform.advance_ms(60_000);
    assert_eq!(platform.claim("mail").await.len(), 100);
}

async fn what_is_due_is_found_among_many_that_are_not(platform: &Platform) {
    let at = |ms: i64, priority: u8| NewTask { priority: Some(priority), ..due_in("mail", ms) };
    for (future, due) in [(9, 9), (9, 5), (5, 9), (1, 1), (5, 1)] {
        for dues in [1, 15, 16, 17, 40] {
            platform.submit_all((0..30).map(|number| at(60_000 + number, future)).collect()).await;
            platform.submit_all((0..dues).map(|_| at(0, due)).collect()).await;
            let tenant = Some("default".into());
            let some = platform.claim_ids(ClaimRequest { max: 10, tenant, ..worker(&["mail"]) }).await;
            let rest = platform.claim_ids(worker(&["mail"])).await;
            assert_eq!((some.len(), some.len() + rest.len()), (dues.min(10), dues), "{dues} at {due} beside {future}");
        }
    }
}

async fn a_claim_takes_no_more_than_its_maximum(platform: &Platform) {
    platform.submit_all((0..10).map(|_| task("mail")).collect()).await;
    assert_eq!(platform.claim_ids(ClaimRequest { max: 4, ..worker(&["mail"]) }).await.len(), 4);
    assert_eq!(platform.claim("mail").await.len(), 6);
}

async fn requests_of_one_call_are_answered_each_and_share_nothing(platform: &Platform) {
    let ids = platform.submit_all((0..5).map(|_| task("mail")).collect()).await;
    let of = |name: &str, max| ClaimRequest { worker_id: name.into(), max, ..worker(&["mail"]) };
    let answers = platform.store.claim(vec![of("a", 2), of("b", 2), of("c", 2)]).await.unwrap();
    let got: Vec<Vec<TaskId>> = answers.iter().map(|tasks| tasks.iter().map(|task| task.id).collect()).collect();
    assert_eq!(got, [ids[0..2].to_vec(), ids[2..4].to_vec(), ids[4..].to_vec()]);
    assert_eq!(platform.task(ids[2]).await.worker_id.as_deref(), Some("b"));
}

async fn the_largest_claim_goes_through(platform: &Platform) {
    platform.submit_all((0..1_100).map(|_| task("mail")).collect()).await;
    let claimed = platform.claim_ids(ClaimRequest { max: limits::CLAIM_BATCH_MAX, ..worker(&["mail"]) }).await;
    assert_eq!(claimed.len(), limits::CLAIM_BATCH_MAX);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), claimed.len());
}

async fn a_thousand_types_fit_in_one_claim(platform: &Platform) {
    let names: Vec<_> = (0..limits::CLAIM_LANES_MAX).map(|n| format!("type-{n}")).collect();
    let ids = platform.submit_all(vec![task("type-999"), task("type-0")]).await;
    let request = ClaimRequest { types: names, ..worker(&[]) };
    assert_eq!(platform.claim_ids(request).await, ids);
}

async fn tasks_of_many_types_come_in_one_order_and_each_once(platform: &Platform) {
    let names: Vec<_> = (0..12).map(|number| format!("type{number}")).collect();
    let types: Vec<_> = names.iter().map(String::as_str).collect();
    let mut expected = Vec::new();
    for number in 0..400_i64 {
        // One type has nearly all that is early, and each has some of every priority.
        let place = if number < 150 { 3 } else { number as usize % types.len() };
        let priority = [5, 9, 1][number as usize % 3];
        let due = NewTask { priority: Some(priority), ..due_in(types[place], number / 4) };
        expected.push((9 - priority, number / 4, platform.submit(due).await));
    }
    platform.advance_ms(1_000);
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, id)| id).collect();
    let mut claimed = Vec::new();
    while claimed.len() < 200 {
        claimed.extend(platform.claim_ids(ClaimRequest { max: 20, ..worker(&types) }).await);
    }
    assert_eq!(claimed, expected[..200]);
    let claims = (0..8).map(|number| {
        let store = platform.store.clone();
        let request = ClaimRequest { worker_id: format!("w{number}"), max: 7, ..worker(&types) };
        tokio::spawn(async move {
            let mut ids = Vec::new();
            while let Some(tasks) =
                store.claim(vec![request.clone()]).await.unwrap().pop().filter(|some| !some.is_empty())
            {
                ids.extend(tasks.into_iter().map(|task| task.id));
            }
            ids
        })
    });
    for claim in claims.collect::<Vec<_>>() {
        claimed.extend(claim.await.unwrap());
    }
    // What others had locked when it was looked for is found by a later look, twenty times as long after as that took.
    for _ in 0..100 {
        claimed.extend(platform.claim_ids(worker(&types)).await);
        if claimed.len() == expected.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    claimed[200..].sort_unstable();
    let mut rest = expected[200..].to_vec();
    rest.sort_unstable();
    assert_eq!(claimed[200..], rest);
}

async fn types_are_told_apart_letter_by_letter(platform: &Platform) {
    let ids = platform.submit_all(vec![task("Mail"), task("mail"), task("mail_"), task("mail.")]).await;
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, [ids[1]]);
    assert_eq!(platform.claim_ids(worker(&["Mail", "mail."])).await, [ids[0], ids[3]]);
}

async fn a_claim_of_a_tenant_or_creator_gets_only_theirs(platform: &Platform) {
    let of =
        |tenant: &str, creator: &str| NewTask { tenant: tenant.into(), creator: Some(creator.into()), ..task("mail") };
    let ids = platform.submit_all(vec![of("a", "x"), of("b", "x"), of("b", "y"), of("default", "x")]).await;
    let asked = |tenant: Option<&str>, creator: Option<&str>| ClaimRequest {
        tenant: tenant.map(str::to_owned),
        creator: creator.map(str::to_owned),
        ..worker(&["mail"])
    };
    assert_eq!(platform.claim_ids(asked(Some("none"), None)).await, []);
    assert_eq!(platform.claim_ids(asked(Some("b"), Some("y"))).await, [ids[2]]);
    assert_eq!(platform.claim_ids(asked(Some("default"), None)).await, [ids[3]]);
    assert_eq!(platform.claim_ids(asked(Some("b"), None)).await, [ids[1]]);
    assert_eq!(platform.claim_ids(asked(None, Some("y"))).await, []);
    assert_eq!(platform.claim_ids(asked(None, Some("x"))).await, [ids[0]]);
}

async fn a_category_finds_its_own_tasks_and_those_of_its_types(platform: &Platform) {
    let settings = TypeSettings { category: Some("mails".into()), ..TypeSettings::default() };
    platform.store.put_type("letter".into(), settings).await.unwrap();
    let in_category = |task_type: &str, category: &str| NewTask { category: Some(category.into()), ..task(task_type) };
    let ids = platform
        .submit_all(vec![
            in_category("sms", "mails"),
            task("letter"),
            in_category("letter", "other"),
            task("sms"),
            in_category("letter", "mails"),
        ])
        .await;
    let by = |types: &[&str], categories: &[&str]| ClaimRequest {
        categories: categories.iter().map(ToString::to_string).collect(),
        ..worker(types)
    };
    assert_eq!(platform.claim_ids(by(&[], &["none"])).await, []);
    assert_eq!(platform.claim_ids(ClaimRequest { max: 1, ..by(&[], &["mails"]) }).await, [ids[0]]);
    assert_eq!(platform.claim_ids(by(&[], &["mails"])).await, [ids[1], ids[4]], "the task's own category goes first");
    assert_eq!(platform.claim_ids(by(&["sms"], &["other"])).await, [ids[2], ids[3]], "types and categories together");
}

async fn a_task_wanted_by_type_and_by_category_comes_once(platform: &Platform) {
    let settings = TypeSettings { category: Some("mails".into()), ..TypeSettings::default() };
    platform.store.put_type("letter".into(), settings).await.unwrap();
    let own = NewTask { category: Some("mails".into()), ..task("letter") };
    let ids = platform.submit_all(vec![own, task("letter")]).await;
    let request = ClaimRequest { categories: vec!["mails".into()], ..worker(&["letter"]) };
    assert_eq!(platform.claim_ids(request).await, ids);
}

async fn a_category_that_is_named_twice_finds_its_tasks_once(platform: &Platform) {
    let own = NewTask { category: Some("mails".into()), ..task("letter") };
    let id = platform.submit(own).await;
    let request = ClaimRequest { categories: vec!["mails".into(), "mails".into()], ..worker(&[]) };
    assert_eq!(platform.claim_ids(request).await, [id]);
}

async fn categories_keep_strict_priority_with_types(platform: &Platform) {
    let of = |task_type: &str, category: Option<&str>, priority| NewTask {
        category: category.map(str::to_owned),
        priority: Some(priority),
        ..task(task_type)
    };
    let ids = platform.submit_all(vec![of("a", None, 3), of("b", Some("mails"), 9), of("a", None, 5)]).await;
    let request = ClaimRequest { categories: vec!["mails".into()], ..worker(&["a"]) };
    assert_eq!(platform.claim_ids(request).await, [ids[1], ids[2], ids[0]]);
}

async fn a_paused_type_is_held_back_until_it_resumes(platform: &Platform) {
    let in_category = NewTask { category: Some("mails".into()), ..task("mail") };
    let ids = platform.submit_all(vec![task("mail"), in_category, task("sms")]).await;
    let request = ClaimRequest { categories: vec!["mails".into()], ..worker(&["mail", "sms"]) };
    assert!(platform.store.pause_type("mail".into(), true).await.unwrap().paused);
    assert_eq!(platform.claim_ids(request.clone()).await, [ids[2]]);
    assert_eq!(platform.status(ids[0]).await, Status::New);
    assert!(!platform.store.pause_type("mail".into(), false).await.unwrap().paused);
    assert_eq!(platform.claim_ids(request).await, ids[..2]);
}

async fn pausing_does_not_stop_what_already_runs(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.store.pause_type("mail".into(), true).await.unwrap();
    let answer = platform.finish(&claimed, taskwheel_model::Outcome::Success).await;
    assert_eq!(answer, taskwheel_store::worker::Reported::Accepted(Status::Success));
}

async fn a_task_made_due_by_a_person_is_claimed_at_once(platform: &Platform) {
    let later = platform.submit(due_in("mail", 60_000)).await;
    platform.submit(task("mail")).await;
    platform.claim_one("mail").await;
    platform.act(later, Action::RunNow).await;
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, [later]);
}

async fn upcoming_names_the_next_due_times(platform: &Platform) {
    let now = platform.now();
    let batch = vec![
        due_in("mail", 3_000),
        NewTask { priority: Some(9), ..due_in("mail", 1_000) },
        due_in("sms", 2_000),
        due_in("other", 500),
        task("mail"),
        due_in("mail", 99_000),
    ];
    platform.submit_all(batch).await;
    let types = vec!["mail".to_owned(), "sms".to_owned()];
    let found = platform.store.upcoming(types.clone(), 10_000, 10).await.unwrap();
    let off_us = found.clock_us - taskwheel_store::clock::here().0 * 1_000;
    assert!(off_us.abs() < 60_000_000, "the database's own clock is off by {off_us} us");
    let found: Vec<_> = found.dues.iter().map(|one| (one.task_type.as_str(), one.due.ms_since(now))).collect();
    assert_eq!(found, [("mail", 1_000), ("sms", 2_000), ("mail", 3_000)]);
    assert_eq!(platform.store.upcoming(types, 10_000, 1).await.unwrap().dues.len(), 1);
}

facts![
    a_claim_hands_out_the_whole_task,
    a_task_is_handed_out_once,
    nothing_due_is_an_empty_answer,
    who_asks_whether_something_is_due_takes_nothing,
    the_highest_priority_goes_first_then_the_earliest_due_then_the_lowest_id,
    a_late_priority_passes_everything_below_it,
    future_tasks_of_a_high_priority_do_not_hold_up_due_ones,
    what_is_due_is_found_among_many_that_are_not,
    a_claim_takes_no_more_than_its_maximum,
    requests_of_one_call_are_answered_each_and_share_nothing,
    the_largest_claim_goes_through,
    a_thousand_types_fit_in_one_claim,
    tasks_of_many_types_come_in_one_order_and_each_once,
    types_are_told_apart_letter_by_letter,
    a_claim_of_a_tenant_or_creator_gets_only_theirs,
    a_category_finds_its_own_tasks_and_those_of_its_types,
    a_task_wanted_by_type_and_by_category_comes_once,
    a_category_that_is_named_twice_finds_its_tasks_once,
    categories_keep_strict_priority_with_types,
    a_paused_type_is_held_back_until_it_resumes,
    pausing_does_not_stop_what_already_runs,
    a_task_made_due_by_a_person_is_claimed_at_once,
    upcoming_names_the_next_due_times,
];
