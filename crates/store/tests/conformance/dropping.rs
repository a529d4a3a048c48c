//! Futures dropped at any moment leave no open transaction and lose nothing that was acknowledged.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, random_below, task, worker};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Outcome, Status};
use taskwheel_store::Store;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewal, Renewed, Report, Reported};

const TRIES: usize = 500;
const STREAMS: usize = 4;

/// The answer of work that is dropped when its time is over. Timers are too coarse for this.
async fn within<T>(budget: Duration, work: impl Future<Output = T>) -> Option<T> {
    let over = async {
        let began = Instant::now();
        while began.elapsed() < budget {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = work => Some(answer),
        () = over => None,
    }
}

/// Runs a call many times, each within a random budget around what it takes; answers what was acknowledged, and its number.
async fn drop_at_random<T, F>(platform: &Platform, call: impl Fn(Arc<dyn Store>, usize) -> F) -> Vec<(usize, T)>
where
    T: Send + 'static,
    F: Future<Output = taskwheel_store::Result<T>> + Send + 'static,
{
    let began = Instant::now();
    platform.store.get(None, taskwheel_model::TaskId(1)).await.unwrap();
    let most_us = 6 * u64::try_from(began.elapsed().as_micros()).unwrap() + 100;
    let mut acknowledged = Vec::new();
    for chunk in (0..TRIES).collect::<Vec<_>>().chunks(STREAMS) {
        let calls: Vec<_> = chunk
            .iter()
            .map(|number| {
                let work = call(platform.store.clone(), *number);
                // Some are dropped at their very first await.
                let budget = if number % 10 == 0 { 0 } else { random_below(most_us) };
                tokio::spawn(within(Duration::from_micros(budget), work))
            })
            .collect();
        for (number, call) in chunk.iter().zip(calls) {
            match call.await.unwrap() {
                Some(answer) => acknowledged.push((*number, answer.expect("a call that is not dropped goes through"))),
                None => continue,
            }
        }
    }
    assert!(acknowledged.len() < TRIES, "none was dropped");
    let mut raw = platform.raw().await;
    platform.assert_no_open_transaction(&mut raw).await;
    acknowledged
}

async fn dropped_submits_lose_nothing(platform: &Platform) {
    let keyed = |number: usize| NewTask { key: Some(format!("k{number}")), ..task("mail") };
    let acknowledged =
        drop_at_random(platform, |store, number| async move { store.submit(vec![keyed(number), keyed(number)]).await })
            .await;
    let all = platform.all_tasks().await;
    for (number, submitted) in &acknowledged {
        let key = Some(format!("k{number}"));
        let stored: Vec<_> = all.iter().filter(|task| task.key == key).map(|task| task.id).collect();
        assert_eq!(stored, [submitted[0].id, submitted[1].id], "submit {number} was acknowledged");
    }
    assert_eq!(all.len() % 2, 0, "a batch is stored whole or not at all");
    assert!(all.len() / 2 >= acknowledged.len());
    still_works(platform).await;
}

async fn dropped_claims_lose_nothing(platform: &Platform) {
    platform.submit_all(vec![task("mail"); TRIES]).await;
    let request = ClaimRequest { max: 1, ..worker(&["mail"]) };
    let acknowledged = drop_at_random(platform, |store, _| {
        let request = request.clone();
        async move { store.claim(vec![request]).await }
    })
    .await;
    let claimed: Vec<_> = acknowledged.into_iter().flat_map(|(_, answers)| answers.into_iter().flatten()).collect();
    assert_eq!(claimed.iter().map(|one| one.id).collect::<HashSet<_>>().len(), claimed.len(), "a task came twice");
    for one in &claimed {
        assert_eq!(platform.task(one.id).await.exec_id, Some(one.exec_id));
        assert_eq!(platform.finish(one, Outcome::Success).await, Reported::Accepted(Status::Success));
    }
    // Calls that were dropped are answered all the same, to nobody: one that comes after them is answered after them.
    assert!(platform.claim("nothing").await.is_empty());
    platform.assert_no_open_transaction(&mut platform.raw().await).await;
    // What was claimed for somebody who went away comes back when its lease ends.
    platform.advance_ms(15 * 60_000);
    platform.rescue().await;
    assert_eq!(platform.claim("mail").await.len(), TRIES - claimed.len());
    still_works(platform).await;
}

async fn running(platform: &Platform) -> Vec<ClaimedTask> {
    platform.submit_all(vec![task("mail"); TRIES]).await;
    platform.claim("mail").await
}

async fn dropped_reports_lose_nothing(platform: &Platform) {
    let claimed = running(platform).await;
    let outcomes = [Outcome::Success, Outcome::Error, Outcome::Failure];
    let statuses = [Status::Success, Status::Error, Status::Failure];
    let report = |number: usize| Report::new(claimed[number].id, claimed[number].exec_id, outcomes[number % 3]);
    let acknowledged = drop_at_random(platform, |store, number| {
        let report = report(number);
        async move { store.finish(vec![report]).await }
    })
    .await;
    for (number, answers) in &acknowledged {
        assert_eq!(answers[0], Reported::Accepted(statuses[number % 3]));
        assert_eq!(platform.status(claimed[*number].id).await, statuses[number % 3]);
    }
    // A worker that got no answer says it again.
    let answers = platform.store.finish((0..TRIES).map(report).collect()).await.unwrap();
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, Reported::Accepted(statuses[number % 3]), "report {number}");
        assert_eq!(platform.log(claimed[number].id).await.len(), 1, "report {number}");
    }
    still_works(platform).await;
}

async fn dropped_renewals_lose_nothing(platform: &Platform) {
    let claimed = running(platform).await;
    let acknowledged = drop_at_random(platform, |store, number| {
        let item = Renewal { checkpoint: Some(number.to_string()), ..renewal(&claimed[number]) };
        async move { store.renew(vec!["worker".into()], vec![item]).await }
    })
    .await;
    for (number, answers) in &acknowledged {
        assert!(matches!(answers[0], Renewed::Ok(_)));
        assert_eq!(platform.task(claimed[*number].id).await.checkpoint, Some(number.to_string()));
    }
    assert!(platform.all_tasks().await.iter().all(|task| task.status == Status::Executing));
    still_works(platform).await;
}

/// More calls at once than there are connections: none of them was lost to a future that went away.
async fn still_works(platform: &Platform) {
    let calls: Vec<_> = (0..32)
        .map(|_| {
            let store = platform.store.clone();
            tokio::spawn(async move { store.submit(vec![task("after")]).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().expect("the store still works");
    }
    assert_eq!(platform.claim("after").await.len(), 32);
}

facts![
    dropped_submits_lose_nothing,
    dropped_claims_lose_nothing,
    dropped_reports_lose_nothing,
    dropped_renewals_lose_nothing,
];
