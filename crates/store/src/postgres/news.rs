//! News by LISTEN and NOTIFY: what became due by plain SQL or through another node.
//!
//! ```text
//!  plain INSERT --> trigger ----------------\
//!                                            NOTIFY taskwheel, 'node due type' --> listen() --> next()
//!  verbs --> tell() --> teller(), per node --/
//! ```
//!
//! The authority are the tables: news are hints, and all may be lost. A transaction that notifies waits for every other that
//! does when it commits, so the verbs never notify in their own. A teller does it after them, at most every 20 ms for all that
//! came meanwhile, and only while another node listens. Whoever loses the connection opens another; what was not heard
//! meanwhile is found by the engine's next look.

use super::PgServer;
use crate::clock::here;
use crate::connections::Connections;
use crate::pooled::Server;
use crate::session::{Attempted, News};
use crate::verbs::Upcoming;
use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::Time;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use uuid::Uuid;

/// The trigger on `task` has it too.
const CHANNEL: &str = "taskwheel";
/// By this name nodes know each other's connections that listen.
const LISTENER: &str = "taskwheel listener";
/// What falls due later is seen by a look before that; the trigger on `task` has the same limit.
const AHEAD_MS_MAX: i64 = 5_000;
/// A node tells others at most so often.
const TELL_EVERY: Duration = Duration::from_millis(20);
/// Types that are told of at once.
const TOLD_TYPES_MAX: usize = 100;
/// How long it is believed who else is there.
const NODES_EVERY: Duration = Duration::from_secs(1);
/// News that nobody has taken yet; more are left to the next look.
const HEARD_MAX: usize = 1_000;
/// The pause before a lost connection is opened again.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// News of one node. What it starts in the background ends with it.
pub(super) struct Grapevine {
    untold: Arc<Untold>,
    heard: tokio::sync::Mutex<mpsc::Receiver<Upcoming>>,
    hearing: mpsc::Sender<Upcoming>,
    connect: PgConnectOptions,
    work: Arc<Connections<PgConnection>>,
    background: Mutex<JoinSet<()>>,
    listens: Once,
    tells: Once,
}

/// What others have not been told yet: by type, the earliest time at which something is due.
struct Untold {
    node: String,
    dues: Mutex<HashMap<String, Time>>,
    more: Notify,
}

impl Grapevine {
    pub(super) fn new(connect: PgConnectOptions, work: Arc<Connections<PgConnection>>) -> Grapevine {
        let (hearing, heard) = mpsc::channel(HEARD_MAX);
        let node = Uuid::new_v4().simple().to_string();
        Grapevine {
            untold: Arc::new(Untold { node, dues: Mutex::default(), more: Notify::new() }),
            heard: tokio::sync::Mutex::new(heard),
            hearing,
            connect: connect.application_name(LISTENER),
            work,
            background: Mutex::default(),
            listens: Once::new(),
            tells: Once::new(),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }
}

#[async_trait]
impl News for Grapevine {
    fn tell(&self, dues: &mut dyn Iterator<Item = (&str, Time)>) {
        let soon = here().plus_ms(AHEAD_MS_MAX);
        let mut any = false;
        let mut untold = self.untold.dues.lock().unwrap_or_else(PoisonError::into_inner);
        for (task_type, due) in dues.filter(|(_, due)| *due <= soon) {
            if let Some(known) = untold.get_mut(task_type) {
                *known = due.min(*known);
            } else if untold.len() < TOLD_TYPES_MAX {
                untold.insert(task_type.to_owned(), due);
            }
            any = true;
        }
        drop(untold);
        if any {
            self.untold.more.notify_one();
            self.tells.call_once(|| self.spawn(teller(self.untold.clone(), self.work.clone())));
        }
    }

    async fn next(&self) -> Upcoming {
        self.listens.call_once(|| {
            self.spawn(listen_on(self.connect.clone(), self.untold.node.clone(), self.hearing.clone()));
        });
        match self.heard.lock().await.recv().await {
            Some(upcoming) => upcoming,
            None => std::future::pending().await,
        }
    }
}

/// Listens, over connection after connection.
async fn listen_on(connect: PgConnectOptions, node: String, hearing: mpsc::Sender<Upcoming>) {
    loop {
        if let Err(error) = listen(&connect, &node, &hearing).await {
            tracing::debug!(%error, "news cannot be heard; looks find what came, and it is tried again");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

/// Passes on what is heard until the connection fails.
async fn listen(connect: &PgConnectOptions, node: &str, hearing: &mpsc::Sender<Upcoming>) -> sqlx::Result<()> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let mut listener = PgListener::connect_with(&pool.connect_lazy_with(connect.clone())).await?;
    listener.listen(CHANNEL).await?;
    loop {
        if let Some(upcoming) = understood(listener.recv().await?.payload(), node) {
            // Where so much is waiting to be taken, one more hint is none.
            let _ = hearing.try_send(upcoming);
        }
    }
}

/// What a word of another says: `node due type`.
fn understood(word: &str, node: &str) -> Option<Upcoming> {
    let mut parts = word.splitn(3, ' ');
    let (from, due, task_type) = (parts.next()?, parts.next()?, parts.next()?);
    (from != node).then_some(())?;
    Some(Upcoming { task_type: task_type.to_owned(), due: Time(due.parse().ok()?) })
}

/// Tells others what became due through this node, while there are any.
async fn teller(untold: Arc<Untold>, work: Arc<Connections<PgConnection>>) {
    let (mut others, mut counted) = (false, None::<Instant>);
    loop {
        untold.more.notified().await;
        let dues = std::mem::take(&mut *untold.dues.lock().unwrap_or_else(PoisonError::into_inner));
        let words: Vec<_> =
            dues.iter().map(|(task_type, due)| format!("{} {} {task_type}", untold.node, due.0)).collect();
        let is_stale = counted.is_none_or(|counted| counted.elapsed() >= NODES_EVERY);
        match tell_others(&work, words, (!is_stale).then_some(others)).await {
            Ok(there) if is_stale => (others, counted) = (there, Some(Instant::now())),
            Ok(_) => {}
            Err(fault) => tracing::debug!(?fault, "other nodes were not told; their looks find what came"),
        }
        tokio::time::sleep(TELL_EVERY).await;
    }
}

const COUNT_LISTENERS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1";

/// Tells others, if there are any, and says whether there are.
async fn tell_others(work: &Connections<PgConnection>, words: Vec<String>, known: Option<bool>) -> Attempted<bool> {
    if known == Some(false) {
        return Ok(false);
    }
    let mut lent = work.lend().await.map_err(PgServer::fault)?;
    let others = match known {
        Some(others) => others,
        None => {
            let row = sqlx::query(COUNT_LISTENERS).bind(LISTENER).fetch_one(lent.connection()).await;
            row.and_then(|row| row.try_get::<i64, _>(0)).map_err(PgServer::fault)? > 1
        }
    };
    if others {
        sqlx::query("SELECT pg_notify($1, word) FROM unnest($2::text[]) AS word")
            .bind(CHANNEL)
            .bind(words)
            .execute(lent.connection())
            .await
            .map_err(PgServer::fault)?;
    }
    lent.give_back();
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_is_due_when_and_own_words_say_nothing() {
        let mail = |due| Some(Upcoming { task_type: "mail:a".into(), due: Time(due) });
        assert_eq!(understood("- 0 mail:a", "me"), mail(0));
        assert_eq!(understood("other 17 mail:a", "me"), mail(17));
        assert_eq!(understood("me 17 mail:a", "me"), None);
        for odd in ["", "-", "- 0", "- soon mail"] {
            assert_eq!(understood(odd, "me"), None, "{odd}");
        }
    }
}
