//! Bulk actions: over all that a filter matches, chunk by chunk.

use crate::facts;
use crate::support::platform::due_at;
use crate::support::{Platform, due_in, task, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use taskwheel_model::{NewTask, Outcome, Status, TaskId, TypeSettings, limits};
use taskwheel_store::people::{Action, BulkRequest, Edit};
use taskwheel_store::search::Filter;
use taskwheel_store::task::Task;
use taskwheel_store::worker::{ClaimRequest, Report};

fn request(filter: Filter, action: Action) -> BulkRequest {
    BulkRequest { tenant: None, filter, action, after: TaskId(0), up_to: TaskId(i64::MAX), dry_run: false, audit: None }
}

/// Runs a bulk action to its end: (matched, changed).
async fn run(platform: &Platform, mut request: BulkRequest) -> (u64, u64) {
    let (mut matched, mut changed) = (0, 0);
    loop {
        let chunk = platform.store.bulk(request.clone()).await.unwrap();
        assert!(chunk.matched <= limits::CHUNK_ROWS_MAX as u64 && chunk.changed <= chunk.matched);
        matched += chunk.matched;
        changed += chunk.changed;
        let Some(next) = chunk.next else { return (matched, changed) };
        assert!(next > request.after, "a chunk goes on where the last one ended");
        request.after = next;
    }
}

fn of_type(name: &str) -> Filter {
    Filter { task_type: Some(name.into()), ..Filter::default() }
}

async fn every_filter_selects(platform: &Platform) {
    let now = platform.now();
    let settings = TypeSettings { category: Some("mails".into()), ..TypeSettings::default() };
    platform.store.put_type("letter".into(), settings).await.unwrap();
    let ids = platform
        .submit_all(vec![
            NewTask { key: Some("k".into()), ..task("a") },
            NewTask { creator: Some("c".into()), ..task("a") },
            NewTask { category: Some("mails".into()), ..task("a") },
            NewTask { priority: Some(7), ..task("a") },
            NewTask { payload: Some("\"findme\"".into()), ..task("a") },
            due_in("a", 50_000),
            task("letter"),
        ])
        .await;
    platform.advance_ms(1_000);
    let last = platform.submit(task("b")).await;
    let cases = [
        (Filter { key: Some("k".into()), ..Filter::default() }, vec![ids[0]]),
        (Filter { creator: Some("c".into()), ..Filter::default() }, vec![ids[1]]),
        (Filter { category: Some("mails".into()), ..Filter::default() }, vec![ids[2], ids[6]]),
        (Filter { priority: Some(7), ..Filter::default() }, vec![ids[3]]),
        (Filter { text: Some("findme".into()), ..Filter::default() }, vec![ids[4]]),
        (Filter { run_at_from: Some(now.plus_ms(9_000)), ..Filter::default() }, vec![ids[5]]),
        (Filter { created_from: Some(now.plus_ms(1)), ..Filter::default() }, vec![last]),
        (Filter { statuses: vec![Status::Executing], ..Filter::default() }, vec![]),
        (of_type("b"), vec![last]),
        (Filter { host: Some("nowhere".into()), ..Filter::default() }, vec![]),
    ];
    for (number, (filter, expected)) in (0..).zip(cases) {
        let remark = format!("case {number}");
        let edit = Action::Edit(Edit { remark: Some(Some(remark.clone())), ..Edit::default() });
        let (matched, changed) = run(platform, request(filter.clone(), edit)).await;
        assert_eq!((matched, changed), (expected.len() as u64, expected.len() as u64), "{filter:?}");
        let marked: Vec<_> = platform
            .all_tasks()
            .await
            .iter()
            .filter(|task| task.remark.as_ref() == Some(&remark))
            .map(|task| task.id)
            .collect();
        assert_eq!(marked, expected, "{filter:?}");
    }
}

async fn every_action_works_in_bulk(platform: &Platform) {
    let day = 86_400_000;
    platform.submit_all((0..5).map(|_| due_in("mail", day)).collect()).await;
    assert_eq!(run(platform, request(of_type("mail"), Action::RunNow)).await, (5, 5));
    let later = Edit { run_at: Some(platform.now().plus_ms(day)), ..Edit::default() };
    assert_eq!(run(platform, request(of_type("mail"), Action::Edit(later))).await, (5, 5));
    assert!(platform.claim("mail").await.is_empty());
    let priority = Edit { priority: Some(4), ..Edit::default() };
    assert_eq!(run(platform, request(of_type("mail"), Action::Edit(priority))).await, (5, 5));
    assert_eq!(run(platform, request(of_type("mail"), Action::Cancel)).await, (5, 5));
    assert_eq!(run(platform, request(of_type("mail"), Action::Retry)).await, (5, 5));
    let claimed = platform.claim("mail").await;
    assert!(claimed.iter().all(|task| task.priority == 4));
    for one in &claimed {
        platform.finish(one, Outcome::Failure).await;
    }
    let resolve = Action::Resolve { remark: Some("all good".into()), result: None };
    assert_eq!(run(platform, request(of_type("mail"), resolve)).await, (5, 5));
    assert_eq!(run(platform, request(of_type("mail"), Action::Delete)).await, (5, 5));
    assert!(platform.all_tasks().await.is_empty());
}

async fn what_cannot_change_matches_and_stays(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    let waiting = platform.submit(task("mail")).await;
    assert_eq!(run(platform, request(of_type("mail"), Action::Cancel)).await, (2, 1));
    assert_eq!(platform.status(claimed.id).await, Status::Success);
    assert_eq!(platform.status(waiting).await, Status::Cancelled);
}

async fn a_dry_run_counts_and_changes_nothing(platform: &Platform) {
    let ids = platform.submit_all((0..3).map(|_| task("mail")).collect()).await;
    let dry = BulkRequest { dry_run: true, ..request(of_type("mail"), Action::Cancel) };
    assert_eq!(run(platform, dry).await, (3, 0));
    assert_eq!(platform.status(ids[0]).await, Status::New);
}

async fn it_acts_on_ids_up_to_the_highest_at_its_start(platform: &Platform) {
    platform.submit_all((0..3).map(|_| task("mail")).collect()).await;
    let up_to = platform.store.highest_id().await.unwrap();
    let later = platform.submit(task("mail")).await;
    let bounded = BulkRequest { up_to, ..request(of_type("mail"), Action::Cancel) };
    assert_eq!(run(platform, bounded).await, (3, 3));
    assert_eq!(platform.status(later).await, Status::New);
}

async fn many_tasks_are_changed_in_chunks(platform: &Platform) {
    let many = 2 * limits::CHUNK_ROWS_MAX as u64 + 100;
    let batch = (0..many).map(|n| if n % 2 == 0 { task("mail") } else { NewTask { priority: Some(2), ..task("sms") } });
    platform.submit_all(batch.collect()).await;
    let everything = request(Filter::default(), Action::Cancel);
    let first = platform.store.bulk(everything.clone()).await.unwrap();
    assert_eq!((first.matched, first.changed), (limits::CHUNK_ROWS_MAX as u64, limits::CHUNK_ROWS_MAX as u64));
    assert!(first.next.is_some());
    let rest = run(platform, BulkRequest { after: first.next.unwrap(), ..everything.clone() }).await;
    assert_eq!(rest.1 + first.changed, many);
    assert_eq!(run(platform, everything).await, (many, 0), "all are cancelled already");
    assert_eq!(run(platform, request(of_type("sms"), Action::Retry)).await.1, many / 2);
}

async fn an_action_that_moves_tasks_out_of_its_filter_misses_none(platform: &Platform) {
    let many = limits::CHUNK_ROWS_MAX as u64 + 500;
    platform.submit_all((0..many).map(|_| task("mail")).collect()).await;
    let new = Filter { statuses: vec![Status::New], ..Filter::default() };
    assert_eq!(run(platform, request(new, Action::Cancel)).await, (many, many));
    let cancelled = Filter { statuses: vec![Status::Cancelled], ..Filter::default() };
    assert_eq!(run(platform, request(cancelled, Action::Delete)).await, (many, many));
}

async fn a_tenant_changes_only_its_own(platform: &Platform) {
    let of = |tenant: &str| NewTask { tenant: tenant.into(), ..task("mail") };
    let ids = platform.submit_all(vec![of("a"), of("b")]).await;
    let own = BulkRequest { tenant: Some("b".into()), ..request(Filter::default(), Action::Cancel) };
    assert_eq!(run(platform, own).await, (1, 1));
    assert_eq!(platform.status(ids[0]).await, Status::New);
}

async fn of_one_unique_key_one_task_is_retried(platform: &Platform) {
    let keyed = NewTask { unique_key: Some("u".into()), ..task("mail") };
    for _ in 0..3 {
        let id = platform.submit(keyed.clone()).await;
        platform.act(id, Action::Cancel).await;
    }
    assert_eq!(run(platform, request(of_type("mail"), Action::Retry)).await, (3, 1));
}

/// Workers take tasks away while a bulk action looks for its own.
async fn what_goes_meanwhile_takes_no_other_along(platform: &Platform) {
    const TASKS: usize = 8_000;
    // Their order is another than that of their ids, so that workers take them from everywhere.
    let due = |number: usize| platform.now().plus_ms(-((number * 7_919 % TASKS) as i64));
    // So few are wanted that each chunk ends where it has looked at as many tasks as it may.
    let word = |number: usize| if number.is_multiple_of(5) { "\"wanted\"" } else { "\"other\"" };
    let told = |number| NewTask { payload: Some(word(number).into()), ..due_at("mail", due(number)) };
    platform.submit_all((0..TASKS).map(told).collect()).await;
    let (is_over, store) = (Arc::new(AtomicBool::new(false)), platform.store.clone());
    let over = is_over.clone();
    let claimer = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            let few = ClaimRequest { max: 100, ..worker(&["mail"]) };
            let claimed = store.claim(vec![few]).await.unwrap().remove(0);
            let ends = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success)).collect();
            store.finish(ends).await.unwrap();
        }
    });
    let filter = Filter { statuses: vec![Status::New], text: Some("wanted".into()), ..Filter::default() };
    let edit = Action::Edit(Edit { remark: Some(Some("seen".into())), ..Edit::default() });
    run(platform, BulkRequest { tenant: Some("default".into()), ..request(filter, edit) }).await;
    is_over.store(true, Ordering::SeqCst);
    claimer.await.unwrap();
    let is_left = |task: &Task| task.status == Status::New && task.payload.as_deref() == Some("\"wanted\"");
    let left = platform.all_tasks().await.into_iter().filter(is_left);
    let missed = left.filter(|task| task.remark.is_none()).count();
    assert_eq!(missed, 0, "they were there all the time");
}

/// Who asks for what waits gets nothing that was claimed since it was found.
async fn what_is_claimed_meanwhile_is_not_cancelled(platform: &Platform) {
    const TASKS: usize = 8_000;
    platform.submit_all((0..TASKS).map(|_| task("mail")).collect()).await;
    let store = platform.store.clone();
    let claimer = tokio::spawn(async move {
        let few = || ClaimRequest { max: 20, ..worker(&["mail"]) };
        while !store.claim(vec![few()]).await.unwrap().remove(0).is_empty() {}
    });
    run(platform, request(Filter { statuses: vec![Status::New], ..Filter::default() }, Action::Cancel)).await;
    claimer.await.unwrap();
    let is_stopped = |task: &Task| task.status == Status::Cancelled && task.attempts > 0;
    assert_eq!(platform.all_tasks().await.into_iter().filter(is_stopped).count(), 0, "they ran");
}

facts![
    what_goes_meanwhile_takes_no_other_along,
    what_is_claimed_meanwhile_is_not_cancelled,
    every_filter_selects,
    every_action_works_in_bulk,
    what_cannot_change_matches_and_stays,
    a_dry_run_counts_and_changes_nothing,
    it_acts_on_ids_up_to_the_highest_at_its_start,
    many_tasks_are_changed_in_chunks,
    an_action_that_moves_tasks_out_of_its_filter_misses_none,
    a_tenant_changes_only_its_own,
    of_one_unique_key_one_task_is_retried,
];
