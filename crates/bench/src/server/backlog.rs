//! Backlog: a server with a million tasks that wait for a day far in the future, which several measurements share.

use super::calls;
use super::memory::Peaks;
use super::process::Server;
use super::settings::Settings;
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::progress;
use crate::floor::{Result, State};

/// The type of the waiting tasks, and of those that fall due among them.
pub(super) const TYPE: &str = "reminder";
const TASKS: u64 = 1_000_000;
const FAR_MS: i64 = 24 * 3_600 * 1_000;

/// A database with the tasks, and a server on it.
pub(super) struct Backlog {
    pub(super) database: Database,
    pub(super) server: Server,
    pub(super) tasks: u64,
}

impl Backlog {
    /// Submits the tasks, in batches over HTTP.
    pub(super) async fn load(settings: &Settings) -> Result<Backlog> {
        let tasks = settings.scaled(TASKS);
        let database = Database::create(&settings.url, "backlog").await?;
        let server = Server::start(&database).await?;
        progress(&format!("loading {tasks} tasks that wait"));
        let far = now_ms() + FAR_MS;
        calls::load(server.address, tasks, move |number| due_at(far + number.cast_signed())).await?;
        database.bring_into(State::Vacuumed).await?;
        Ok(Backlog { database, server, tasks })
    }

    /// Kills the server and starts another.
    pub(super) async fn restart(self, peaks: &mut Peaks) -> Result<Backlog> {
        let Backlog { database, server, tasks } = self;
        peaks.add("the backlog", server.kill()?);
        let server = Server::start(&database).await?;
        Ok(Backlog { database, server, tasks })
    }

    /// Insists that all of them still wait, and removes everything.
    pub(super) async fn remove(self, peaks: &mut Peaks) -> Result<()> {
        peaks.add("the backlog", self.server.kill()?);
        let waiting = self.database.sql().await?.number("SELECT COUNT(*) FROM task_waiting").await?;
        if u64::try_from(waiting)? != self.tasks {
            return Err(format!("{} tasks should wait; {waiting} do", self.tasks).into());
        }
        self.database.remove().await
    }
}

/// A task that is due at a time, which it carries.
pub(super) fn due_at(ms: i64) -> String {
    let run_at = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{{\"type\":\"{TYPE}\",\"run_at\":\"{run_at:.3}\",\"payload\":{ms}}}")
}
