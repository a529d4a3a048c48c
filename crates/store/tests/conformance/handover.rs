//! A submit with a claim that waits for it: one transaction stores the task and hands out what is due.

use crate::facts;
use crate::support::{Platform, due_in, task, worker};
use std::collections::HashSet;
use std::sync::Arc;
use taskwheel_model::{NewTask, Outcome, Status, TaskId};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report, Reported};

async fn submit_for(platform: &Platform, task: NewTask, request: ClaimRequest) -> (TaskId, Vec<ClaimedTask>) {
    let (submitted, _, claimed) = platform.store.submit_and_show(task, Some(Arc::new(request))).await.unwrap();
    assert!(submitted.created);
    (submitted.id, claimed)
}

async fn a_task_is_handed_to_the_claim_that_waits_for_it(platform: &Platform) {
    let given = NewTask { payload: Some("{\"a\":1}".into()), key: Some("k".into()), ..task("mail") };
    let (submitted, shown, claimed) =
        platform.store.submit_and_show(given.clone(), Some(Arc::new(worker(&["mail"])))).await.unwrap();
    assert_eq!(shown.map(|task| (task.id, task.status)), Some((submitted.id, Status::New)));
    let [claimed] = &*claimed else { panic!("one task, not {claimed:?}") };
    assert_eq!((claimed.id, &claimed.payload, &claimed.key), (submitted.id, &given.payload, &given.key));
    assert_eq!((claimed.attempt, claimed.started_at), (1, platform.now()));
    let stored = platform.task(submitted.id).await;
    assert_eq!((stored.status, stored.exec_id), (Status::Executing, Some(claimed.exec_id)));
    assert!(platform.claim("mail").await.is_empty(), "nobody else gets it");
    let report = Report::new(claimed.id, claimed.exec_id, Outcome::Success);
    assert_eq!(platform.store.finish(vec![report]).await.unwrap(), [Reported::Accepted(Status::Success)]);
    assert_eq!(platform.store.contradictions().await.unwrap(), 0);
}

async fn what_waits_longer_or_is_more_urgent_goes_first(platform: &Platform) {
    let urgent = platform.submit(NewTask { priority: Some(9), ..task("mail") }).await;
    let earlier = platform.submit(task("mail")).await;
    let request = || ClaimRequest { max: 1, ..worker(&["mail"]) };
    let (first, claimed) = submit_for(platform, NewTask { priority: Some(5), ..task("mail") }, request()).await;
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [urgent]);
    let (second, claimed) = submit_for(platform, task("mail"), worker(&["mail"])).await;
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [first, earlier, second]);
}

async fn what_a_claim_may_not_have_is_stored_and_waits(platform: &Platform) {
    platform.store.pause_type("paused".into(), true).await.unwrap();
    let other = ClaimRequest { tenant: Some("other".into()), ..worker(&["mail"]) };
    for (task, request) in [
        (due_in("mail", 60_000), worker(&["mail"])),
        (task("paused"), worker(&["paused"])),
        (task("mail"), other),
        (task("sms"), worker(&["fax"])),
        (NewTask { unique_key: Some("u".into()), ..task("unique") }, worker(&["unique"])),
    ] {
        let (id, claimed) = submit_for(platform, task, request).await;
        assert_eq!(claimed, []);
        assert_eq!(platform.task(id).await.status, Status::New);
    }
}

async fn a_claim_that_is_refused_does_not_refuse_the_submit(platform: &Platform) {
    let of_a = ClaimRequest { owner: Some("a".into()), ..worker(&["mail"]) };
    platform.store.claim(vec![of_a.clone()]).await.unwrap();
    let of_b = ClaimRequest { owner: Some("b".into()), ..of_a.clone() };
    assert!(platform.store.claim(vec![of_b.clone()]).await.is_err(), "the id is another's");
    let (id, claimed) = submit_for(platform, task("mail"), of_b).await;
    assert_eq!(claimed, []);
    assert_eq!(platform.claim_ids(of_a).await, [id]);
}

async fn many_at_once_are_each_handed_out_once(platform: &Platform) {
    let (first, handed) = submit_for(platform, task("mail"), worker(&["mail"])).await;
    let (mut ids, mut claimed) = (HashSet::from([first]), vec![first]);
    assert_eq!(handed.iter().map(|task| task.id).collect::<Vec<_>>(), claimed, "it came alone");
    let submits = (1..200).map(|number| {
        let store = platform.store.clone();
        let request = ClaimRequest { worker_id: format!("w{}", number % 8), max: 2, ..worker(&["mail"]) };
        tokio::spawn(async move { store.submit_and_show(task("mail"), Some(Arc::new(request))).await.unwrap() })
    });
    for submit in submits.collect::<Vec<_>>() {
        let (submitted, _, tasks) = submit.await.unwrap();
        ids.insert(submitted.id);
        claimed.extend(tasks.into_iter().map(|task| task.id));
    }
    loop {
        let more = platform.claim_ids(worker(&["mail"])).await;
        if more.is_empty() {
            break;
        }
        claimed.extend(more);
    }
    assert_eq!((ids.len(), claimed.len()), (200, 200));
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>(), ids);
}

facts![
    a_task_is_handed_to_the_claim_that_waits_for_it,
    what_waits_longer_or_is_more_urgent_goes_first,
    what_a_claim_may_not_have_is_stored_and_waits,
    a_claim_that_is_refused_does_not_refuse_the_submit,
    many_at_once_are_each_handed_out_once,
];
