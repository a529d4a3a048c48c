//! Unique keys: one live task of a tenant and type.

use crate::facts;
use crate::support::{Platform, task};
use std::collections::HashSet;
use taskwheel_model::{NewTask, Outcome, Status, TypeSettings};
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::task::Submitted;

fn keyed(key: &str) -> NewTask {
    NewTask { unique_key: Some(key.into()), ..task("mail") }
}

async fn a_live_key_answers_the_existing_task(platform: &Platform) {
    let id = platform.submit(keyed("a")).await;
    assert_eq!(platform.offer(keyed("a")).await, Submitted { id, created: false });
    platform.claim_one("mail").await;
    assert_eq!(platform.offer(keyed("a")).await, Submitted { id, created: false }, "while it executes, too");
    assert_eq!(platform.all_tasks().await.len(), 1);
}

async fn the_later_of_equal_keys_in_a_batch_answers_the_first(platform: &Platform) {
    let batch = vec![keyed("a"), task("mail"), keyed("b"), keyed("a"), keyed("b")];
    let answers = platform.store.submit(batch).await.unwrap();
    assert_eq!(answers.iter().map(|one| one.created).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert_eq!((answers[3].id, answers[4].id), (answers[0].id, answers[2].id));
    assert_eq!(platform.all_tasks().await.len(), 3);
}

async fn keys_are_apart_by_tenant_and_type(platform: &Platform) {
    let others = [
        NewTask { tenant: "acme".into(), ..keyed("a") },
        NewTask { task_type: "sms".into(), ..keyed("a") },
        keyed("b"),
        keyed("A"),
        keyed("á"),
        keyed("a "),
    ];
    platform.submit(keyed("a")).await;
    for other in others {
        assert!(platform.offer(other.clone()).await.created, "{other:?}");
    }
}

async fn a_key_is_free_once_its_task_has_finished(platform: &Platform) {
    let mut ids = HashSet::new();
    for outcome in [Outcome::Success, Outcome::Failure] {
        let claimed = platform.start(keyed("a")).await;
        platform.finish(&claimed, outcome).await;
        assert!(ids.insert(claimed.id));
    }
    let waiting = platform.submit(keyed("a")).await;
    platform.act(waiting, Action::Cancel).await;
    let last = platform.submit(keyed("a")).await;
    assert_eq!(platform.status(last).await, Status::New);
}

async fn a_key_stays_taken_while_its_task_waits_for_a_retry_or_a_person(platform: &Platform) {
    let settings = TypeSettings { need_manual: true, max_attempts: Some(2), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let claimed = platform.start(keyed("a")).await;
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.offer(keyed("a")).await.id, claimed.id, "Error is live");
    platform.advance_ms(60_000);
    let claimed = platform.claim_one("mail").await;
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.status(claimed.id).await, Status::Pending);
    assert_eq!(platform.offer(keyed("a")).await, Submitted { id: claimed.id, created: false }, "Pending is live");
    platform.act(claimed.id, Action::Resolve { remark: None, result: None }).await;
    assert!(platform.offer(keyed("a")).await.created);
}

async fn a_retry_is_refused_while_the_key_is_live_elsewhere(platform: &Platform) {
    let first = platform.submit(keyed("a")).await;
    platform.act(first, Action::Cancel).await;
    let second = platform.submit(keyed("a")).await;
    assert_eq!(platform.act(first, Action::Retry).await, Acted::UniqueKeyTaken(Status::Cancelled));
    assert_eq!(platform.status(first).await, Status::Cancelled);
    platform.act(second, Action::Cancel).await;
    assert_eq!(platform.act(first, Action::Retry).await, Acted::Changed(Status::New));
    assert_eq!(platform.offer(keyed("a")).await, Submitted { id: first, created: false }, "it has its key back");
    assert_eq!(platform.act(second, Action::Retry).await, Acted::UniqueKeyTaken(Status::Cancelled));
}

async fn of_two_retried_at_once_with_one_key_the_first_lives(platform: &Platform) {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let id = platform.submit(keyed("a")).await;
        platform.act(id, Action::Cancel).await;
        ids.push(id);
    }
    let acted = platform.store.act(None, ids, Action::Retry).await.unwrap();
    assert_eq!(acted, [Acted::Changed(Status::New), Acted::UniqueKeyTaken(Status::Cancelled)]);
}

async fn concurrent_submits_of_one_key_make_one_task(platform: &Platform) {
    let other = platform.open_again(|_| ()).await.unwrap();
    for round in 0..10 {
        let key = format!("k{round}");
        let submits: Vec<_> = (0..16)
            .map(|n| {
                let store = if n % 2 == 0 { platform.store.clone() } else { other.clone() };
                let batch = vec![keyed(&key), keyed(&format!("{key}-{n}"))];
                tokio::spawn(async move { store.submit(batch).await })
            })
            .collect();
        let mut answers = Vec::new();
        for submit in submits {
            answers.push(submit.await.unwrap().expect("a taken key is an answer, not an error")[0]);
        }
        assert_eq!(answers.iter().filter(|one| one.created).count(), 1, "{answers:?}");
        assert!(answers.iter().all(|one| one.id == answers[0].id), "{answers:?}");
    }
}

async fn a_purged_task_leaves_its_key_to_others(platform: &Platform) {
    let claimed = platform.start(keyed("a")).await;
    platform.finish(&claimed, Outcome::Success).await;
    let next = platform.submit(keyed("a")).await;
    assert_eq!(platform.act(claimed.id, Action::Delete).await, Acted::Changed(Status::Success));
    assert_eq!(platform.offer(keyed("a")).await, Submitted { id: next, created: false });
}

facts![
    a_live_key_answers_the_existing_task,
    the_later_of_equal_keys_in_a_batch_answers_the_first,
    keys_are_apart_by_tenant_and_type,
    a_key_is_free_once_its_task_has_finished,
    a_key_stays_taken_while_its_task_waits_for_a_retry_or_a_person,
    a_retry_is_refused_while_the_key_is_live_elsewhere,
    of_two_retried_at_once_with_one_key_the_first_lives,
    concurrent_submits_of_one_key_make_one_task,
    a_purged_task_leaves_its_key_to_others,
];
