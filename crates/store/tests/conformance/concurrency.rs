//! Many at once: claims share nothing, and races have one winner who is told so.

use crate::facts;
use crate::support::{Platform, random_below, task, worker};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use taskwheel_model::{ExecId, NewTask, Outcome, RetryPolicy, Status, TaskId};
use taskwheel_store::Store;
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::worker::{ClaimRequest, Report, Reported};

const DEADLINE: Duration = Duration::from_secs(60);

fn named(number: usize, max: usize) -> ClaimRequest {
    ClaimRequest { worker_id: format!("worker-{number}"), max, ..worker(&["mail"]) }
}

/// Claims and finishes until so many are done over all claimers; answers what this one had.
async fn work(
    store: Arc<dyn Store>,
    request: ClaimRequest,
    done: Arc<AtomicUsize>,
    all: usize,
) -> Vec<(TaskId, ExecId)> {
    let (began, mut had) = (Instant::now(), Vec::new());
    while done.load(Ordering::SeqCst) < all {
        assert!(began.elapsed() < DEADLINE, "{} of {all} were done in good time", done.load(Ordering::SeqCst));
        let claimed = store.claim(vec![request.clone()]).await.expect("a claim goes through").remove(0);
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
        let answers = store.finish(reports).await.expect("a report goes through");
        assert!(answers.iter().all(|answer| *answer == Reported::Accepted(Status::Success)), "{answers:?}");
        done.fetch_add(claimed.len(), Ordering::SeqCst);
        had.extend(claimed.iter().map(|one| (one.id, one.exec_id)));
    }
    had
}

async fn sixty_four_claimers_never_share_a_task(platform: &Platform) {
    const TASKS: usize = 1_280;
    let stores = [platform.with_real_clock().await, platform.with_real_clock().await];
    let ids = platform.submit_all(vec![task("mail"); TASKS]).await;
    let done = Arc::new(AtomicUsize::new(0));
    let claimers: Vec<_> = (0..64)
        .map(|number| {
            tokio::spawn(work(stores[number % 2].clone(), named(number, 1 + number % 7), done.clone(), TASKS))
        })
        .collect();
    let mut executions: HashMap<TaskId, Vec<ExecId>> = HashMap::new();
    for claimer in claimers {
        for (id, exec_id) in claimer.await.unwrap() {
            executions.entry(id).or_default().push(exec_id);
        }
    }
    assert_eq!(executions.len(), TASKS);
    for id in ids {
        assert_eq!(executions[&id].len(), 1, "task {id} was handed out more than once");
    }
    assert!(platform.all_tasks().await.iter().all(|task| task.status == Status::Success && task.attempts == 1));
}

async fn a_rescue_and_a_report_at_once_have_one_winner(platform: &Platform) {
    let other = platform.open_again(|_| ()).await.unwrap();
    let retry = Some(RetryPolicy::Fixed { delay_ms: 86_400_000 });
    for round in 0..4 {
        let timed = NewTask { timeout_ms: Some(1_000), retry: retry.clone(), ..task("mail") };
        platform.submit_all(vec![timed; 20]).await;
        let claimed = platform.claim("mail").await;
        platform.advance_ms(1_000);
        let rescues: Vec<_> = [platform.store.clone(), other.clone()]
            .into_iter()
            .map(|store| tokio::spawn(async move { store.rescue().await.unwrap().timed_out }))
            .collect();
        let reports: Vec<_> = claimed
            .iter()
            .map(|one| {
                let store = if one.id.0 % 2 == 0 { platform.store.clone() } else { other.clone() };
                let report = Report::new(one.id, one.exec_id, Outcome::Success);
                tokio::spawn(async move { store.finish(vec![report]).await.unwrap()[0] })
            })
            .collect();
        let mut rescued = 0;
        for rescue in rescues {
            rescued += rescue.await.unwrap();
        }
        let mut lost = 0;
        for (one, report) in claimed.iter().zip(reports) {
            let (answer, log) = (report.await.unwrap(), platform.log(one.id).await);
            assert_eq!(log.len(), 1, "round {round}: one attempt, one end");
            match answer {
                Reported::Accepted(status) => {
                    assert_eq!((status, log[0].outcome), (Status::Success, Some(Outcome::Success)));
                    assert_eq!(platform.status(one.id).await, Status::Success);
                }
                Reported::Superseded(status) => {
                    lost += 1;
                    assert_eq!((status, log[0].outcome), (Some(Status::Error), Some(Outcome::Timeout)));
                    assert_eq!(platform.status(one.id).await, Status::Error);
                }
            }
        }
        assert_eq!(rescued, lost, "round {round}: each rescue was told to its worker");
    }
}

async fn a_cancel_and_a_report_at_once_have_one_winner(platform: &Platform) {
    platform.submit_all(vec![task("mail"); 40]).await;
    let claimed = platform.claim("mail").await;
    let races: Vec<_> = claimed
        .iter()
        .map(|one| {
            let (store, id) = (platform.store.clone(), one.id);
            let cancel = tokio::spawn(async move { store.act(None, vec![id], Action::Cancel).await.unwrap()[0] });
            let (store, report) = (platform.store.clone(), Report::new(id, one.exec_id, Outcome::Success));
            (id, cancel, tokio::spawn(async move { store.finish(vec![report]).await.unwrap()[0] }))
        })
        .collect();
    for (id, cancel, report) in races {
        let (acted, reported, status) = (cancel.await.unwrap(), report.await.unwrap(), platform.status(id).await);
        match status {
            Status::Success => {
                assert_eq!((acted, reported), (Acted::Conflict(Status::Success), Reported::Accepted(Status::Success)));
            }
            _ => {
                assert_eq!(acted, Acted::Changed(Status::Cancelled));
                assert_eq!(reported, Reported::Superseded(Some(Status::Cancelled)));
            }
        }
    }
}

async fn of_many_retries_at_once_one_counts(platform: &Platform) {
    for _ in 0..5 {
        let id = platform.submit(task("mail")).await;
        platform.act(id, Action::Cancel).await;
        let retries: Vec<_> = (0..8)
            .map(|_| {
                let store = platform.store.clone();
                tokio::spawn(async move { store.act(None, vec![id], Action::Retry).await.unwrap()[0] })
            })
            .collect();
        let mut changed = 0;
        for retry in retries {
            match retry.await.unwrap() {
                Acted::Changed(Status::New) => changed += 1,
                other => assert_eq!(other, Acted::Unchanged(Status::New)),
            }
        }
        assert_eq!((changed, platform.task(id).await.round), (1, 2));
    }
}

/// One of everything that can be done, to tasks that others do it to as well.
async fn anything(store: &dyn Store, number: usize, ids: &[TaskId]) {
    let id = ids[random_below(ids.len() as u64) as usize];
    let some: Vec<_> = (0..5).map(|_| ids[random_below(ids.len() as u64) as usize]).collect();
    let actions = [Action::Cancel, Action::Retry, Action::RunNow, Action::Resolve { remark: None, result: None }];
    match random_below(8) {
        0 | 1 => drop(store.submit(vec![task("mail"); 3]).await.unwrap()),
        2..=4 => {
            let claimed = store.claim(vec![named(number, 5)]).await.unwrap().remove(0);
            let renewals = claimed.iter().map(crate::support::platform::renewal).collect();
            let renewed = store.renew(vec![format!("worker-{number}").into()], renewals).await.unwrap();
            assert_eq!(renewed.len(), claimed.len());
            let outcomes = [Outcome::Success, Outcome::Error, Outcome::Release, Outcome::Failure];
            let report = |one: &taskwheel_store::worker::ClaimedTask| {
                Report::new(one.id, one.exec_id, outcomes[random_below(4) as usize])
            };
            store.finish(claimed.iter().map(report).collect()).await.unwrap();
        }
        5 => drop(store.rescue().await.unwrap()),
        6 => drop(store.act(None, some, actions[random_below(4) as usize].clone()).await.unwrap()),
        _ => drop(store.get(None, id).await.unwrap()),
    }
}

async fn verbs_of_all_kinds_at_once_never_fail(platform: &Platform) {
    let stores = [platform.with_real_clock().await, platform.with_real_clock().await];
    let retry = Some(RetryPolicy::Fixed { delay_ms: 0 });
    let shared = NewTask { retry, max_attempts: Some(-1), unique_key: None, ..task("mail") };
    let ids = Arc::new(platform.submit_all(vec![shared; 40]).await);
    let callers: Vec<_> = (0..12)
        .map(|number| {
            let (store, ids) = (stores[number % 2].clone(), ids.clone());
            tokio::spawn(async move {
                for _ in 0..40 {
                    anything(&*store, number, &ids).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

facts![
    sixty_four_claimers_never_share_a_task,
    a_rescue_and_a_report_at_once_have_one_winner,
    a_cancel_and_a_report_at_once_have_one_winner,
    of_many_retries_at_once_one_counts,
    verbs_of_all_kinds_at_once_never_fail,
];
