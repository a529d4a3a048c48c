//! Calls that come at the same time may share a transaction: each still gets its own answer.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::{NewTask, Outcome, Status};
use taskwheel_store::worker::{ClaimRequest, Renewal, Renewed, Report, Reported};

const CALLS: usize = 120;

/// Makes many calls at once; their answers come in the order of their numbers.
async fn all_at_once<T, F>(call: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let calls: Vec<_> = (0..CALLS).map(|number| tokio::spawn(call(number))).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("a call does not panic"));
    }
    answers
}

fn numbered(number: usize) -> NewTask {
    NewTask { key: Some(format!("k{number}")), ..task(&format!("type-{}", number % 10)) }
}

async fn submits_claims_renewals_and_reports_each_get_their_own_answer(platform: &Platform) {
    let submitted = all_at_once(|number| {
        let store = platform.store.clone();
        async move { store.submit(vec![numbered(number)]).await.unwrap()[0] }
    })
    .await;
    for (number, one) in submitted.iter().enumerate() {
        assert_eq!(platform.task(one.id).await.key, Some(format!("k{number}")));
    }
    let claimed = all_at_once(|number| {
        let store = platform.store.clone();
        let worker_id = format!("worker-{number}");
        let request = ClaimRequest { worker_id, max: 1, ..worker(&[&format!("type-{}", number % 10)]) };
        async move { store.claim(vec![request]).await.unwrap().remove(0).remove(0) }
    })
    .await;
    for (number, one) in claimed.iter().enumerate() {
        assert_eq!(one.task_type, format!("type-{}", number % 10));
        assert_eq!(platform.task(one.id).await.worker_id, Some(format!("worker-{number}")));
    }
    let renewed = all_at_once(|number| {
        let (store, workers) = (platform.store.clone(), vec![format!("worker-{number}")]);
        let mut item = Renewal { checkpoint: Some(number.to_string()), ..renewal(&claimed[number]) };
        if number % 3 == 0 {
            item.exec_id = claimed[(number + 1) % CALLS].exec_id;
        }
        async move { store.renew(workers.into_iter().map(Into::into).collect(), vec![item]).await.unwrap()[0] }
    })
    .await;
    for (number, answer) in renewed.iter().enumerate() {
        let is_kept = matches!(answer, Renewed::Ok(_));
        assert_eq!(is_kept, number % 3 != 0, "renewal {number}: {answer:?}");
        let checkpoint = (number % 3 != 0).then(|| number.to_string());
        assert_eq!(platform.task(claimed[number].id).await.checkpoint, checkpoint);
    }
    let outcomes = [Outcome::Success, Outcome::Error, Outcome::Failure, Outcome::Release];
    let statuses = [Status::Success, Status::Error, Status::Failure, Status::New];
    let reported = all_at_once(|number| {
        let report = Report::new(claimed[number].id, claimed[number].exec_id, outcomes[number % 4]);
        let store = platform.store.clone();
        async move { store.finish(vec![report]).await.unwrap()[0] }
    })
    .await;
    for (number, answer) in reported.iter().enumerate() {
        assert_eq!(*answer, Reported::Accepted(statuses[number % 4]), "report {number}");
        assert_eq!(platform.status(claimed[number].id).await, statuses[number % 4]);
    }
}

async fn the_same_report_many_times_at_once_counts_once(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let answers = all_at_once(|number| {
        let outcome = if number % 2 == 0 { Outcome::Success } else { Outcome::Error };
        let (store, report) = (platform.store.clone(), Report::new(claimed.id, claimed.exec_id, outcome));
        async move { store.finish(vec![report]).await.unwrap()[0] }
    })
    .await;
    let log = platform.log(claimed.id).await;
    assert_eq!(log.len(), 1);
    let status = platform.status(claimed.id).await;
    for (number, answer) in answers.into_iter().enumerate() {
        let outcome = if number % 2 == 0 { Outcome::Success } else { Outcome::Error };
        match answer {
            Reported::Accepted(told) => assert_eq!((told, log[0].outcome), (status, Some(outcome)), "report {number}"),
            Reported::Superseded(told) => {
                assert_eq!(told, Some(status), "report {number}");
                assert_ne!(log[0].outcome, Some(outcome), "report {number}");
            }
        }
    }
}

async fn one_bad_call_does_not_spoil_the_others(platform: &Platform) {
    let answers = all_at_once(|number| {
        let priority = if number % 10 == 0 { 10 } else { 5 };
        let (store, given) = (platform.store.clone(), NewTask { priority: Some(priority), ..task("mail") });
        async move { store.submit(vec![given]).await.is_ok() }
    })
    .await;
    assert!(answers.iter().enumerate().all(|(number, ok)| *ok == (number % 10 != 0)), "{answers:?}");
    assert_eq!(platform.all_tasks().await.len(), CALLS - CALLS / 10);
}

async fn small_and_large_batches_at_once_are_all_stored(platform: &Platform) {
    let answers = all_at_once(|number| {
        let store = platform.store.clone();
        let size = if number % 20 == 0 { 600 } else { 1 + number % 5 };
        async move { (size, store.submit(vec![numbered(number); size]).await.unwrap()) }
    })
    .await;
    let mut ids = Vec::new();
    for (size, submitted) in answers {
        assert_eq!(submitted.len(), size);
        ids.extend(submitted.into_iter().map(|one| one.id));
    }
    ids.sort_unstable();
    let stored: Vec<_> = platform.all_tasks().await.iter().map(|task| task.id).collect();
    assert_eq!(stored, ids);
}

facts![
    submits_claims_renewals_and_reports_each_get_their_own_answer,
    the_same_report_many_times_at_once_counts_once,
    one_bad_call_does_not_spoil_the_others,
    small_and_large_batches_at_once_are_all_stored,
];
