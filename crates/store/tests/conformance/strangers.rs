//! Users of the database beside us: their transactions and ours do not stand in each other's way.

use crate::facts;
use crate::support::{Dialect, Platform, due_in, eventually, task, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use taskwheel_model::Outcome;
use taskwheel_store::people::Action;
use taskwheel_store::worker::Report;

const PATIENCE: Duration = Duration::from_secs(5);

async fn an_open_plain_insert_holds_up_nobody(platform: &Platform) {
    if platform.dialect() == Dialect::Sqlite {
        // SQLite has one writer at a time, whoever that is.
        return;
    }
    let (running, failing) = (platform.start(task("mail")).await, platform.start(task("mail")).await);
    let mut stranger = platform.raw().await;
    stranger.run("BEGIN").await;
    // From here on the database keeps for the stranger what others remove.
    assert_eq!(stranger.number("SELECT count(*) FROM task").await, 2);
    stranger.run("INSERT INTO task (type) VALUES ('mail'), ('mail')").await;
    platform.advance_ms(120_000);
    let undisturbed = async {
        let ids = platform.submit_all(vec![task("mail"), due_in("mail", 60_000)]).await;
        let claimed = platform.claim_one("mail").await;
        assert_eq!(claimed.id, ids[0], "what is not committed is not there");
        platform.renew(&claimed).await;
        platform.finish(&claimed, Outcome::Error).await;
        platform.act(ids[1], Action::RunNow).await;
        platform.finish(&running, Outcome::Success).await;
        platform.finish(&failing, Outcome::Error).await;
        platform.rescue().await;
        platform.all_tasks().await;
    };
    tokio::time::timeout(PATIENCE, undisturbed).await.expect("nobody waits for the stranger");
    stranger.run("COMMIT").await;
    // The stranger's two and the one made due: what came past the store is found within a second.
    let claimed = AtomicUsize::new(0);
    eventually("all three are claimed", || async {
        let count = platform.claim("mail").await.len();
        (claimed.fetch_add(count, Ordering::SeqCst) + count == 3).then_some(())
    })
    .await;
}

async fn an_open_read_of_the_view_holds_up_nobody(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let mut stranger = platform.raw().await;
    stranger.run("BEGIN").await;
    assert_eq!(stranger.number("SELECT count(*) FROM task_view").await, 1);
    let undisturbed = async {
        let claimed = platform.claim_one("mail").await;
        platform.finish(&claimed, Outcome::Success).await;
        platform.act(id, Action::Delete).await;
        platform.submit(task("mail")).await;
    };
    tokio::time::timeout(PATIENCE, undisturbed).await.expect("nobody waits for the reader");
    stranger.run("ROLLBACK").await;
}

async fn plain_inserts_and_claims_at_once_neither_fail_nor_deadlock(platform: &Platform) {
    const INSERTERS: usize = 4;
    const EACH: usize = 40;
    let store = platform.with_real_clock().await;
    platform.raw().await.run("CREATE TABLE orders (id BIGINT PRIMARY KEY)").await;
    let mut inserters = Vec::new();
    for inserter in 0..INSERTERS {
        let mut raw = platform.raw().await;
        inserters.push(tokio::spawn(async move {
            for n in 0..EACH {
                // At the database's default isolation.
                raw.run("BEGIN").await;
                raw.run(&format!("INSERT INTO orders (id) VALUES ({})", inserter * EACH + n)).await;
                raw.run("INSERT INTO task (type, task_key, payload) VALUES ('mail', 'a', '{}')").await;
                raw.run("INSERT INTO task (type, priority) VALUES ('mail', 5)").await;
                raw.run("COMMIT").await;
            }
        }));
    }
    let done = Arc::new(AtomicUsize::new(0));
    let claimers: Vec<_> = (0..4)
        .map(|_| {
            let (store, done, began) = (store.clone(), done.clone(), Instant::now());
            tokio::spawn(async move {
                while done.load(Ordering::SeqCst) < 2 * INSERTERS * EACH {
                    assert!(began.elapsed() < Duration::from_secs(60), "every insert was claimed in good time");
                    let claimed = store.claim(vec![worker(&["mail"])]).await.expect("a claim goes through").remove(0);
                    done.fetch_add(claimed.len(), Ordering::SeqCst);
                    let reports = claimed.iter().map(|one| Report::new(one.id, one.exec_id, Outcome::Success));
                    store.finish(reports.collect()).await.expect("a report goes through");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    for inserter in inserters {
        inserter.await.expect("no insert fails or is a deadlock's victim");
    }
    for claimer in claimers {
        claimer.await.unwrap();
    }
    assert_eq!(platform.all_tasks().await.len(), 2 * INSERTERS * EACH);
}

facts![
    an_open_plain_insert_holds_up_nobody,
    an_open_read_of_the_view_holds_up_nobody,
    plain_inserts_and_claims_at_once_neither_fail_nor_deadlock,
];
