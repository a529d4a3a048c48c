//! What must be true after every test.

use super::{Dialect, Platform, Raw};
use std::time::{Duration, Instant};
use taskwheel_store::search::{Listing, Sort};
use taskwheel_store::task::Task;

impl Platform {
    /// Every task there is, oldest first.
    pub(crate) async fn all_tasks(&self) -> Vec<Task> {
        self.walk(Listing { sort: Sort::IdAscending, limit: 500, ..Listing::default() }).await
    }

    /// Every page of a listing, one after the other.
    pub(crate) async fn walk(&self, mut listing: Listing) -> Vec<Task> {
        let mut tasks = Vec::new();
        loop {
            let page = self.store.list(listing.clone()).await.expect("the list answers");
            assert!(page.items.len() <= listing.limit, "a page has more than was asked for");
            tasks.extend(page.items);
            let Some(next) = page.next else { return tasks };
            // A cursor survives its way through the API as text.
            listing.cursor = Some(next.to_string().parse().expect("a cursor reads back"));
        }
    }

    pub(super) async fn assert_nothing_leaked(&self) {
        let contradictions = self.store.contradictions().await.expect("the check answers");
        assert_eq!(contradictions, 0, "tasks are in two places at once, or in none");
        for task in self.all_tasks().await {
            let max = task.max_attempts.expect("a shown task has its effective maximum");
            let within = max == -1 || i64::from(task.attempts) <= i64::from(max) || self.is_maximum_lowered();
            assert!(within, "task {} had {} attempts of {max}", task.id, task.attempts);
        }
        let mut raw = self.raw().await;
        self.assert_no_open_transaction(&mut raw).await;
    }

    /// Waits for transactions that callers no longer wait for; one that never ends is a leak.
    pub(crate) async fn assert_no_open_transaction(&self, raw: &mut Raw) {
        let began = Instant::now();
        while self.open_transactions(raw).await > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "a transaction was left open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn open_transactions(&self, raw: &mut Raw) -> usize {
        match self.dialect() {
            Dialect::Sqlite => {
                // Only one transaction can write: getting in means that nobody else is.
                raw.run("BEGIN IMMEDIATE; ROLLBACK").await;
                0
            }
            Dialect::Postgres => {
                let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                           AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";
                usize::try_from(raw.number(sql).await).expect("a count")
            }
            // Not from information_schema.innodb_trx: it stands still while it is asked more than ten times a second.
            Dialect::Mysql => {
                let sql =
                    "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()";
                let ours: Vec<_> = raw.rows(sql).await.into_iter().flatten().flatten().collect();
                let status = raw.rows("SHOW ENGINE INNODB STATUS").await.remove(0).remove(2).unwrap_or_default();
                let is_ours = |transaction: &&str| {
                    ours.iter().any(|id| transaction.contains(&format!("thread id {id},")))
                        && transaction.lines().next().is_some_and(|first| first.contains("ACTIVE"))
                };
                status.split("---TRANSACTION").skip(1).filter(is_ours).count()
            }
        }
    }
}
