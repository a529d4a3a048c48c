//! Lists: every filter, every order, every page.

use crate::facts;
use crate::support::{Dialect, Platform, due_in, task, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use taskwheel_model::submit::RunAt;
use taskwheel_model::{NewTask, Outcome, Status, TaskId, TypeSettings};
use taskwheel_store::people::{Action, Edit};
use taskwheel_store::search::{Filter, Listing, Sort};
use taskwheel_store::worker::{ClaimRequest, Report};

/// A small world: tasks of two tenants, three types and all kinds of ends, a second apart from each other.
struct World {
    ids: Vec<TaskId>,
}

async fn world(platform: &Platform) -> World {
    let settings = TypeSettings { category: Some("mails".into()), need_manual: true, ..TypeSettings::default() };
    platform.store.put_type("letter".into(), settings).await.unwrap();
    let mut ids = Vec::new();
    for n in 0_i64..60 {
        let task_type = ["mail", "letter", "sms"][(n % 3) as usize];
        let due = NewTask {
            tenant: if n % 5 == 0 { "acme" } else { "default" }.into(),
            key: Some(format!("key-{}", n % 7)),
            payload: Some(format!(r#"{{"n": "100%_{n}!"}}"#)),
            priority: Some(1 + (n % 9) as u8),
            category: (n % 4 == 0).then(|| "mails".to_owned()),
            creator: (n % 2 == 0).then(|| format!("creator-{}", n % 6)),
            max_attempts: Some(1),
            ..due_in(task_type, (n * 37 % 11) * 1_000)
        };
        ids.push(platform.submit(due).await);
        platform.advance_ms(1_000);
    }
    platform.advance_ms(60_000);
    let host =
        |name: &str| ClaimRequest { worker_id: name.into(), host: name.into(), max: 20, ..worker(&["mail", "letter"]) };
    let (on_a, on_b) = (platform.claim_for(host("a")).await, platform.claim_for(host("b")).await);
    let outcomes = [Some(Outcome::Success), Some(Outcome::Error), Some(Outcome::Failure), None];
    for (n, claimed) in on_a.iter().chain(&on_b).enumerate() {
        if let Some(outcome) = outcomes[n % 4] {
            let error = (outcome != Outcome::Success).then(|| format!("broken pipe {n}"));
            platform.report(Report { error, ..Report::new(claimed.id, claimed.exec_id, outcome) }).await;
        }
    }
    for id in [ids[2], ids[5], ids[8]] {
        platform.act(id, Action::Cancel).await;
    }
    let remark = Action::Edit(Edit { remark: Some(Some("call the customer".into())), ..Edit::default() });
    platform.act(ids[11], remark).await;
    World { ids }
}

/// Walks a listing with small pages and with one large one, in every order, and compares with a filter by hand over all tasks.
async fn check(
    platform: &Platform,
    tenant: Option<&str>,
    filter: Filter,
    wanted: impl Fn(&taskwheel_store::task::Task) -> bool,
) -> usize {
    let all = platform.all_tasks().await;
    let of_tenant = |task: &&taskwheel_store::task::Task| tenant.is_none_or(|tenant| task.tenant == tenant);
    let mut expected: Vec<_> = all.iter().filter(of_tenant).filter(|task| wanted(task)).collect();
    // By due time, tasks are indexed by tenant only: `a_list_by_due_time_needs_a_tenant`.
    let sorts = [Sort::IdAscending, Sort::IdDescending, Sort::RunAtAscending, Sort::RunAtDescending];
    for sort in sorts.into_iter().take(if tenant.is_some() { 4 } else { 2 }) {
        match sort {
            Sort::IdAscending => expected.sort_by_key(|task| task.id),
            Sort::IdDescending => expected.sort_by_key(|task| std::cmp::Reverse(task.id)),
            Sort::RunAtAscending => expected.sort_by_key(|task| (task.run_at, task.id)),
            Sort::RunAtDescending => expected.sort_by_key(|task| std::cmp::Reverse((task.run_at, task.id))),
        }
        for limit in [7, 500] {
            let listing =
                Listing { tenant: tenant.map(str::to_owned), filter: filter.clone(), sort, limit, cursor: None };
            let walked = platform.walk(listing).await;
            let ids = |tasks: &[&taskwheel_store::task::Task]| tasks.iter().map(|task| task.id.0).collect::<Vec<_>>();
            let walked: Vec<_> = walked.iter().collect();
            assert_eq!(ids(&walked), ids(&expected), "{filter:?} by {sort:?}, {limit} to a page, of {tenant:?}");
            assert_eq!(walked, expected, "{filter:?}: a task looks the same in every list");
        }
    }
    expected.len()
}

/// Checks a filter over all tenants, and for one and the other; it must find some and not all.
async fn check_everywhere(platform: &Platform, filter: Filter, wanted: impl Fn(&taskwheel_store::task::Task) -> bool) {
    let found = check(platform, None, filter.clone(), &wanted).await;
    assert!(found > 0 && found < 60, "{filter:?} finds {found}: not much of a test");
    check(platform, Some("default"), filter.clone(), &wanted).await;
    check(platform, Some("acme"), filter, &wanted).await;
}

async fn no_filter_lists_everything_live_and_finished(platform: &Platform) {
    let world = world(platform).await;
    assert_eq!(check(platform, None, Filter::default(), |_| true).await, world.ids.len());
    assert!(check(platform, Some("acme"), Filter::default(), |_| true).await > 0);
    assert_eq!(check(platform, Some("nobody"), Filter::default(), |_| true).await, 0);
}

async fn statuses_are_listed_alone_and_together(platform: &Platform) {
    world(platform).await;
    let with = |statuses: &[Status]| Filter { statuses: statuses.to_vec(), ..Filter::default() };
    let kinds = [Status::New, Status::Executing, Status::Success, Status::Failure, Status::Pending, Status::Cancelled];
    for status in kinds {
        check_everywhere(platform, with(&[status]), |task| task.status == status).await;
    }
    for none in [Status::Completed, Status::ManuallyProcessed] {
        assert_eq!(check(platform, None, with(&[none]), |_| false).await, 0);
    }
    let finished: Vec<_> = Status::ALL.into_iter().filter(|status| status.is_finished()).collect();
    let live: Vec<_> = Status::ALL.into_iter().filter(|status| status.is_live()).collect();
    check_everywhere(platform, with(&finished), |task| task.status.is_finished()).await;
    check_everywhere(platform, with(&live), |task| task.status.is_live()).await;
    let mixed = [Status::New, Status::Success];
    check_everywhere(platform, with(&mixed), |task| mixed.contains(&task.status)).await;
}

async fn types_categories_keys_and_creators_are_exact(platform: &Platform) {
    world(platform).await;
    let of_type = Filter { task_type: Some("mail".into()), ..Filter::default() };
    check_everywhere(platform, of_type, |task| task.task_type == "mail").await;
    let category = Filter { category: Some("mails".into()), ..Filter::default() };
    check_everywhere(platform, category, |task| task.category.as_deref() == Some("mails")).await;
    let key = Filter { key: Some("key-3".into()), ..Filter::default() };
    check_everywhere(platform, key, |task| task.key.as_deref() == Some("key-3")).await;
    let creator = Filter { creator: Some("creator-2".into()), ..Filter::default() };
    check_everywhere(platform, creator, |task| task.creator.as_deref() == Some("creator-2")).await;
    for other in ["key", "KEY-3", "key-3 ", "%", "key-_"] {
        let none = Filter { key: Some(other.into()), ..Filter::default() };
        assert_eq!(check(platform, None, none, |_| false).await, 0, "{other}");
    }
}

async fn hosts_and_priorities_are_exact(platform: &Platform) {
    world(platform).await;
    for host in ["a", "b"] {
        let filter = Filter { host: Some(host.into()), ..Filter::default() };
        check_everywhere(platform, filter, |task| task.host.as_deref() == Some(host)).await;
    }
    let priority = Filter { priority: Some(3), ..Filter::default() };
    check_everywhere(platform, priority, |task| task.priority == 3).await;
}

async fn times_are_ranges_with_both_ends(platform: &Platform) {
    let world = world(platform).await;
    let middle = platform.task(world.ids[30]).await;
    let (created, run_at) = (middle.created_at, middle.run_at);
    let filters = [
        Filter { created_from: Some(created), ..Filter::default() },
        Filter { created_to: Some(created), ..Filter::default() },
        Filter { created_from: Some(created.plus_ms(-5_000)), created_to: Some(created), ..Filter::default() },
        Filter { run_at_from: Some(run_at), ..Filter::default() },
        Filter { run_at_to: Some(run_at), ..Filter::default() },
        Filter { run_at_from: Some(run_at), run_at_to: Some(run_at.plus_ms(9_000)), ..Filter::default() },
        Filter { created_from: Some(created), run_at_to: Some(run_at.plus_ms(9_000)), ..Filter::default() },
    ];
    for filter in filters {
        let wanted = |task: &taskwheel_store::task::Task| {
            filter.created_from.is_none_or(|time| task.created_at >= time)
                && filter.created_to.is_none_or(|time| task.created_at <= time)
                && filter.run_at_from.is_none_or(|time| task.run_at >= time)
                && filter.run_at_to.is_none_or(|time| task.run_at <= time)
        };
        check_everywhere(platform, filter.clone(), wanted).await;
    }
    let never = Filter { created_from: Some(created.plus_ms(86_400_000)), ..Filter::default() };
    assert_eq!(check(platform, None, never, |_| false).await, 0);
}

async fn text_is_found_in_key_payload_error_and_remark(platform: &Platform) {
    let world = world(platform).await;
    for text in ["key-3", "100%_5", "broken pipe", "customer"] {
        let filter = Filter { text: Some(text.into()), ..Filter::default() };
        let wanted = |task: &taskwheel_store::task::Task| {
            [&task.key, &task.payload, &task.error_info, &task.remark]
                .into_iter()
                .any(|place| place.as_ref().is_some_and(|place| place.contains(text)))
        };
        check_everywhere(platform, filter, wanted).await;
    }
    for none in ["100_%", "broken%pipe", "' OR 1 = 1 --", "no such text"] {
        let filter = Filter { text: Some(none.into()), ..Filter::default() };
        assert_eq!(check(platform, None, filter, |_| false).await, 0, "{none}");
    }
    let filter = Filter { text: Some("customer".into()), ..Filter::default() };
    let listing = Listing { filter, limit: 5, ..Listing::default() };
    assert_eq!(platform.walk(listing).await[0].id, world.ids[11]);
}

async fn filters_together_narrow_each_other(platform: &Platform) {
    world(platform).await;
    let filters = [
        Filter { task_type: Some("mail".into()), statuses: vec![Status::Success], ..Filter::default() },
        Filter { task_type: Some("mail".into()), statuses: vec![Status::New, Status::Failure], ..Filter::default() },
        Filter { category: Some("mails".into()), statuses: vec![Status::Success], ..Filter::default() },
        Filter { host: Some("a".into()), statuses: vec![Status::Executing], ..Filter::default() },
        Filter { host: Some("b".into()), task_type: Some("letter".into()), ..Filter::default() },
        Filter { creator: Some("creator-4".into()), text: Some("100".into()), ..Filter::default() },
        Filter { key: Some("key-2".into()), priority: Some(1), ..Filter::default() },
    ];
    for filter in filters {
        let wanted = |task: &taskwheel_store::task::Task| {
            (filter.statuses.is_empty() || filter.statuses.contains(&task.status))
                && filter.task_type.as_ref().is_none_or(|wanted| task.task_type == *wanted)
                && (filter.category.is_none() || task.category == filter.category)
                && (filter.key.is_none() || task.key == filter.key)
                && (filter.creator.is_none() || task.creator == filter.creator)
                && (filter.host.is_none() || task.host == filter.host)
                && filter.priority.is_none_or(|priority| task.priority == priority)
                && filter.text.as_ref().is_none_or(|text| task.payload.as_ref().unwrap().contains(text))
        };
        assert!(check(platform, None, filter.clone(), wanted).await > 0, "{filter:?} finds nothing");
    }
}

async fn tasks_of_a_schedule_are_found(platform: &Platform) {
    world(platform).await;
    let mut raw = platform.raw().await;
    raw.run("INSERT INTO task (type, schedule_id, run_id) VALUES ('mail', 7, 1), ('mail', 8, 2), ('sms', 7, 3)").await;
    let of_schedule = Filter { schedule_id: Some(7), ..Filter::default() };
    let found = check(platform, None, of_schedule.clone(), |task| task.schedule_id == Some(7)).await;
    assert_eq!(found, 2);
    let and_type = Filter { task_type: Some("sms".into()), ..of_schedule };
    let found = check(platform, Some("default"), and_type, |task| task.run_id == Some(3)).await;
    assert_eq!(found, 1);
}

async fn a_cursor_stays_valid_while_tasks_come_and_go(platform: &Platform) {
    let ids = platform.submit_all((0..10).map(|_| task("mail")).collect()).await;
    let listing = Listing { sort: Sort::IdAscending, limit: 4, ..Listing::default() };
    let first = platform.store.list(listing.clone()).await.unwrap();
    platform.act(ids[3], Action::Cancel).await;
    platform.act(ids[3], Action::Delete).await;
    let later = platform.submit(task("mail")).await;
    assert_eq!(platform.walk(Listing { limit: 1, ..listing.clone() }).await.len(), 10, "one to a page");
    let rest = platform.walk(Listing { cursor: first.next, ..listing }).await;
    let rest: Vec<_> = rest.iter().map(|task| task.id).collect();
    assert_eq!(rest, [&ids[4..], &[later]].concat());
}

async fn neither_the_first_nor_the_last_year_ends_a_list(platform: &Platform) {
    // What a program inserts that leaves a time unset.
    let (first, last) = match platform.dialect() {
        Dialect::Sqlite => ("-62135596800000", "9224318015999999"),
        Dialect::Postgres => ("'0001-01-01 00:00:00Z'", "'294276-12-31 00:00:00Z'"),
        Dialect::Mysql => ("'1000-01-01 00:00:00'", "'9999-12-31 00:00:00'"),
    };
    platform
        .raw()
        .await
        .run(&format!("INSERT INTO task (type, run_at) VALUES ('mail', {first}), ('mail', {last})"))
        .await;
    platform.submit_all(vec![task("mail"), task("mail")]).await;
    for sort in [Sort::IdAscending, Sort::IdDescending, Sort::RunAtAscending, Sort::RunAtDescending] {
        for tenant in [None, Some("default".to_owned())] {
            let first = Listing { tenant, sort, limit: 1, ..Listing::default() };
            let (mut listing, mut found) = (first, 0);
            loop {
                let page = platform.store.list(listing.clone()).await.unwrap();
                found += page.items.len();
                let Some(next) = page.next else { break };
                // As a client gives it back.
                listing.cursor = Some(next.to_string().parse().expect("a cursor of ours is one"));
            }
            assert_eq!(found, 4, "{sort:?}");
        }
    }
}

async fn a_page_that_looks_at_many_rows_may_be_short_and_goes_on(platform: &Platform) {
    let needle = platform.submit(NewTask { key: Some("needle".into()), ..task("mail") }).await;
    for _ in 0..5 {
        platform.submit_all((0..9_000).map(|_| task("mail")).collect()).await;
    }
    for sort in [Sort::IdDescending, Sort::RunAtDescending, Sort::IdAscending] {
        let filter = Filter { text: Some("needle".into()), ..Filter::default() };
        let listing = Listing { tenant: Some("default".into()), filter, sort, limit: 50, cursor: None };
        let found: Vec<_> = platform.walk(listing).await.iter().map(|task| task.id).collect();
        assert_eq!(found, [needle], "{sort:?}");
    }
}

async fn a_list_by_due_time_goes_over_all_tenants(platform: &Platform) {
    let mut ids = Vec::new();
    for (minute, tenant) in [(3, "b"), (1, "a"), (2, "c"), (1, "b"), (5, "a"), (4, "default")] {
        let run_at = RunAt::After(minute * 60_000);
        ids.push(platform.submit(NewTask { tenant: tenant.into(), run_at, ..task("mail") }).await);
    }
    let wanted = [1, 3, 2, 0, 5, 4].map(|place| ids[place]);
    for (sort, limit) in [(Sort::RunAtAscending, 1), (Sort::RunAtAscending, 4), (Sort::RunAtDescending, 2)] {
        let listing = Listing { sort, limit, ..Listing::default() };
        let mut found: Vec<_> = platform.walk(listing).await.iter().map(|task| task.id).collect();
        if sort == Sort::RunAtDescending {
            found.reverse();
        }
        assert_eq!(found, wanted, "{sort:?} in pages of {limit}");
    }
}

async fn what_is_submitted_while_a_list_is_read_makes_no_task_come_twice(platform: &Platform) {
    // More than one page looks at, of which few match.
    for _ in 0..3 {
        platform.submit_all(vec![task("mail"); 1_000]).await;
        platform.submit_all(vec![task("letter"); 5]).await;
    }
    let (store, stop) = (platform.store.clone(), Arc::new(AtomicBool::new(false)));
    let submitter = {
        let stop = stop.clone();
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                store.submit(vec![task("mail"); 20]).await.expect("the submit goes through");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    for _ in 0..10 {
        let filter = Filter { task_type: Some("letter".into()), ..Filter::default() };
        let mut ids: Vec<_> = platform
            .walk(Listing { filter, limit: 100, ..Listing::default() })
            .await
            .iter()
            .map(|one| one.id)
            .collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!((ids.len(), all), (15, 15));
    }
    stop.store(true, Ordering::Relaxed);
    submitter.await.unwrap();
}

facts![
    neither_the_first_nor_the_last_year_ends_a_list,
    what_is_submitted_while_a_list_is_read_makes_no_task_come_twice,
    a_list_by_due_time_goes_over_all_tenants,
    no_filter_lists_everything_live_and_finished,
    statuses_are_listed_alone_and_together,
    types_categories_keys_and_creators_are_exact,
    hosts_and_priorities_are_exact,
    times_are_ranges_with_both_ends,
    text_is_found_in_key_payload_error_and_remark,
    filters_together_narrow_each_other,
    tasks_of_a_schedule_are_found,
    a_cursor_stays_valid_while_tasks_come_and_go,
    a_page_that_looks_at_many_rows_may_be_short_and_goes_on,
];
