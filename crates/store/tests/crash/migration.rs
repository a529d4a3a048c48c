//! Migrations by processes of their own: many at once, and killed in the middle.

use crate::process::{URL, Victim};
use crate::support::{Dialect, TestDatabase, random_below, task, worker};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};
use taskwheel_store::Options;

/// The test harness writes to the same output.
const BEGINS: &str = "@begins";
const OPEN: &str = "@open";
const PROCESSES: usize = 20;
const KILLS: usize = 8;

fn say(word: &str) {
    std::io::stdout().write_all(format!("{word}\n").as_bytes()).expect("the output takes a line");
}

/// Not a test by itself: the body of the processes that the tests below start.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_opens() {
    let Ok(url) = std::env::var(URL) else { return };
    say(BEGINS);
    let store = taskwheel_store::open(Options { connections_max: 2, ..Options::new(url) }).await;
    store.expect("the store opens").inspect().await.expect("its schema is whole");
    say(OPEN);
}

fn opens(url: &str) -> Victim {
    Victim::start("migration::the_process_that_opens", url)
}

/// Reads until a word comes, and answers whether it did.
fn says(output: &mut impl BufRead, word: &str) -> bool {
    output.lines().map_while(Result::ok).any(|line| line.contains(word))
}

async fn assert_works(url: &str) {
    let store = taskwheel_store::open(Options::new(url)).await.expect("the store opens");
    let id = store.submit(vec![task("mail")]).await.unwrap()[0].id;
    let claimed = store.claim(vec![worker(&["mail"])]).await.unwrap().remove(0);
    assert_eq!(claimed.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    assert_eq!(store.contradictions().await.unwrap(), 0);
}

async fn twenty_processes_may_open_an_empty_database_at_once(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| opens(&database.url)).collect();
    for process in &mut processes {
        assert!(says(&mut process.output(), OPEN), "each of them opens");
    }
    drop(processes);
    assert_works(&database.url).await;
    database.remove().await;
}

async fn a_migration_whose_process_is_killed_is_completed_by_the_next(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let began = Instant::now();
    drop(taskwheel_store::open(Options::new(&database.url)).await.expect("the store opens"));
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap();
    database.remove().await;
    let mut interrupted = 0;
    for _ in 0..KILLS {
        let database = TestDatabase::create(dialect).await;
        // Two kills, one in what the other left.
        for _ in 0..2 {
            let mut process = opens(&database.url);
            let mut output = process.output();
            assert!(says(&mut output, BEGINS));
            tokio::time::sleep(Duration::from_micros(random_below(took_us))).await;
            process.0.kill().expect("the process can be killed");
            interrupted += usize::from(!says(&mut output, OPEN));
        }
        assert_works(&database.url).await;
        database.remove().await;
    }
    assert!(interrupted > 0, "all were faster than their kill");
}

macro_rules! on {
    ($name:ident, $dialect:expr) => {
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn twenty_processes_may_open_an_empty_database_at_once() {
                super::twenty_processes_may_open_an_empty_database_at_once($dialect).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_migration_whose_process_is_killed_is_completed_by_the_next() {
                super::a_migration_whose_process_is_killed_is_completed_by_the_next($dialect).await;
            }
        }
    };
}
on!(sqlite, crate::support::Dialect::Sqlite);
on!(postgres, crate::support::Dialect::Postgres);
on!(mysql, crate::support::Dialect::Mysql);
