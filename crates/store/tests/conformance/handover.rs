//! A submit with a claim that waits for it: one transaction stores the task and hands out what is due.

use crate::facts;
use crate::support::{Platform, Raw, due_in, eventually, task, worker};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{NewTask, Outcome, Status, TaskId, Time, limits};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report, Reported};
use taskwheel_store::{Clock, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

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

/// A claim that looks as it did before, and costs little by now, so that the store may answer it by a shorter way.
async fn known(platform: &Platform) -> ClaimRequest {
    let request = worker(&["mail"]);
    for _ in 0..10 {
        assert_eq!(platform.claim_for(request.clone()).await, []);
    }
    request
}

async fn a_worker_that_asked_before_is_handed_one_task_after_the_other(platform: &Platform) {
    let request = known(platform).await;
    for attempt in 0..10 {
        let given = NewTask { affinity: (attempt == 1).then(|| "host".into()), priority: Some(4), ..task("mail") };
        let (id, claimed) = submit_for(platform, given, request.clone()).await;
        let [claimed] = &*claimed else { panic!("one task, not {claimed:?}") };
        assert_eq!((claimed.id, claimed.attempt, claimed.priority), (id, 1, 4));
        let stored = platform.task(id).await;
        assert_eq!((stored.status, stored.exec_id), (Status::Executing, Some(claimed.exec_id)));
        assert!(platform.claim("mail").await.is_empty(), "nobody else gets it");
        assert_eq!(platform.finish(claimed, Outcome::Success).await, Reported::Accepted(Status::Success));
        assert_eq!(platform.store.contradictions().await.unwrap(), 0);
        let plain = platform.submit(task("mail")).await;
        let waited = platform.claim_one("mail").await;
        assert_eq!(waited.id, plain, "what comes on the same connection waits as ever");
        platform.finish(&waited, Outcome::Success).await;
    }
}

async fn what_is_due_for_a_worker_that_asked_before_goes_first(platform: &Platform) {
    let request = known(platform).await;
    let urgent = platform.submit(NewTask { priority: Some(9), ..task("mail") }).await;
    let (id, claimed) = submit_for(platform, task("mail"), ClaimRequest { max: 1, ..request.clone() }).await;
    assert!(claimed.iter().all(|task| task.id == urgent), "{id} is less urgent than {urgent}");
    let mut all: Vec<_> = claimed.into_iter().map(|task| task.id).collect();
    all.extend(platform.claim_ids(request).await);
    assert_eq!(all, [urgent, id]);
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

/// Counts the tasks that wait, if only for a moment, from now on.
async fn count_waiting(raw: &mut Raw) {
    raw.run(
        "CREATE TABLE waited (id bigint);
         CREATE FUNCTION note_waiting() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO waited VALUES (NEW.id); RETURN NULL; END $$;
         CREATE TRIGGER note_waiting AFTER INSERT ON task_waiting FOR EACH ROW EXECUTE FUNCTION note_waiting()",
    )
    .await;
}

/// Hands over tasks until one came without waiting; a machine that has much to do may let the first ones wait.
async fn hand_over_at_once(platform: &Platform) -> TaskId {
    let raw = Mutex::new(platform.raw().await);
    count_waiting(&mut *raw.lock().await).await;
    eventually("a task is begun at once", || async {
        let request = known(platform).await;
        let (id, claimed) = submit_for(platform, task("mail"), request).await;
        let [claimed] = &*claimed else { panic!("one task, not {claimed:?}") };
        platform.finish(claimed, Outcome::Success).await;
        let waited = raw.lock().await.number(&format!("SELECT count(*) FROM waited WHERE id = {id}")).await;
        (waited == 0).then_some(id)
    })
    .await
}

async fn a_task_for_which_a_worker_waits_does_not_wait(platform: &Platform) {
    let id = hand_over_at_once(platform).await;
    assert_eq!(platform.task(id).await.status, Status::Success);
    assert_eq!(platform.store.contradictions().await.unwrap(), 0);
}

async fn what_a_trigger_of_yours_adds_to_a_task_that_is_begun_waits(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run(
        "CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO task (type, task_key) VALUES ('follow', NEW.id::text); RETURN NULL; END $$;
         CREATE TRIGGER follow AFTER INSERT ON task FOR EACH ROW WHEN (NEW.type = 'mail') EXECUTE FUNCTION follow()",
    )
    .await;
    let id = hand_over_at_once(platform).await;
    let follows = format!("SELECT count(*) FROM task_waiting JOIN task USING (id) WHERE task_key = '{id}'");
    assert_eq!(raw.number(&follows).await, 1);
}

/// A link to a database on which the clock's answers take so long.
async fn slow_clock(url: &str, delay: Duration) -> String {
    let address = url.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = url.replace(&address, &listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(pass_on(stream, server, delay));
        }
    });
    slow
}

async fn pass_on(mut client: TcpStream, mut server: TcpStream, delay: Duration) {
    let (mut asked, mut answered, mut is_of_clock) = ([0; 65_536], [0; 65_536], false);
    loop {
        let is_passed_on = tokio::select! {
            Ok(bytes @ 1..) = client.read(&mut asked) => {
                is_of_clock |= asked[..bytes].windows(15).any(|word| word == b"clock_timestamp");
                server.write_all(&asked[..bytes]).await
            }
            Ok(bytes @ 1..) = server.read(&mut answered) => {
                if std::mem::take(&mut is_of_clock) {
                    tokio::time::sleep(delay).await;
                }
                client.write_all(&answered[..bytes]).await
            }
            else => return,
        };
        if is_passed_on.is_err() {
            return;
        }
    }
}

/// The time that is counted on from a reading lags by what its answer took; a lease does not.
async fn a_lease_begins_no_earlier_than_it_was_asked_for(platform: &Platform) {
    let raw = Mutex::new(platform.raw().await);
    count_waiting(&mut *raw.lock().await).await;
    let url = slow_clock(platform.url(), Duration::from_millis(10)).await;
    let change = |options: &mut Options| (options.url, options.clock) = (url, Clock::Database);
    let store = platform.open_again(change).await.unwrap();
    eventually("a task is begun at once", || async {
        let request = worker(&["mail"]);
        for _ in 0..10 {
            assert_eq!(store.claim(vec![request.clone()]).await.unwrap(), [vec![]]);
        }
        let clock = "SELECT floor(date_part('epoch', clock_timestamp()) * 1000)::bigint";
        let asked_at = Time(raw.lock().await.number(clock).await);
        let (_, _, claimed) = store.submit_and_show(task("mail"), Some(Arc::new(request))).await.unwrap();
        let [claimed] = &*claimed else { panic!("one task, not {claimed:?}") };
        assert!(claimed.started_at >= asked_at, "{:?} is before {asked_at:?}", claimed.started_at);
        assert_eq!(claimed.lease_until.ms_since(claimed.started_at), limits::LEASE_MS_DEFAULT);
        let stored = store.get(None, claimed.id).await.unwrap().expect("it is there").task;
        assert_eq!((stored.started_at, stored.lease_until), (Some(claimed.started_at), Some(claimed.lease_until)));
        store.finish(vec![Report::new(claimed.id, claimed.exec_id, Outcome::Success)]).await.unwrap();
        let waited = raw.lock().await.number(&format!("SELECT count(*) FROM waited WHERE id = {}", claimed.id)).await;
        (waited == 0).then_some(())
    })
    .await;
}

/// As databases have it that an earlier program made.
async fn a_trigger_that_does_not_listen_is_not_relied_upon(platform: &Platform) {
    let mut raw = platform.raw().await;
    raw.run(
        "DROP TRIGGER task_goes_live ON task;
         CREATE TRIGGER task_goes_live AFTER INSERT ON task
           REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION task_goes_live()",
    )
    .await;
    for _ in 0..10 {
        let request = known(platform).await;
        let (id, claimed) = submit_for(platform, task("mail"), request).await;
        assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
        assert!(platform.claim("mail").await.is_empty(), "nobody else gets it");
        platform.finish(&claimed[0], Outcome::Success).await;
    }
    assert_eq!(platform.store.contradictions().await.unwrap(), 0);
}

facts![
    a_task_is_handed_to_the_claim_that_waits_for_it,
    what_waits_longer_or_is_more_urgent_goes_first,
    a_worker_that_asked_before_is_handed_one_task_after_the_other,
    what_is_due_for_a_worker_that_asked_before_goes_first,
    what_a_claim_may_not_have_is_stored_and_waits,
    a_claim_that_is_refused_does_not_refuse_the_submit,
    many_at_once_are_each_handed_out_once,
];

facts! { in at_once_on_postgres on Postgres: a_task_for_which_a_worker_waits_does_not_wait,
what_a_trigger_of_yours_adds_to_a_task_that_is_begun_waits, a_trigger_that_does_not_listen_is_not_relied_upon,
a_lease_begins_no_earlier_than_it_was_asked_for }
