//! Workers: who called when, written at most ten times per heartbeat.
//!
//! Many calls of one worker may be under way at once. If each wrote that it was seen, they would queue up behind one row.
//! So a call writes only when the last write is older than a tenth of the heartbeat, and a worker counts as silent only
//! a tenth of a heartbeat after its lease: nobody is given up too early. The rows in the database are the authority; this
//! memory only says when they need no writing.

use crate::StoreError;
use crate::plain::{Kind, plain};
use crate::session::{Attempted, Session};
use crate::worker::{ClaimRequest, Heartbeat, Worker};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use taskwheel_model::{FieldError, Time, limits};

/// A worker without a heartbeat counts as alive for so long after its last call.
const ALIVE_MS: i64 = 90_000;
/// How often the calls of a worker without a heartbeat are written.
const SEEN_EVERY_MS: i64 = 1_000;
/// Workers that have not called for so long are dropped from memory.
const REMEMBERED_MS: i64 = 10 * 60 * 1_000;
const REMEMBERED_MAX: usize = 10_000;

const OWNER: &str = "SELECT tenant FROM task_worker WHERE worker_id = ?";

const EXECUTING: &str = "SELECT r.worker_id, COUNT(*) FROM task_running r GROUP BY r.worker_id";

/// How many executions each worker has under way.
pub(super) async fn executing(session: &mut dyn Session) -> Attempted<HashMap<String, u64>> {
    let rows = session.rows(&plain(EXECUTING), &[Kind::Text, Kind::Number]).await?;
    rows.into_iter().map(|mut row| Ok((row.text()?, row.number()?.unsigned_abs()))).collect()
}

/// Locks workers, in the order of their ids, and says when each was last seen. Who is gone is left out.
pub(super) async fn lock<'w>(
    session: &mut dyn Session,
    worker_ids: impl Iterator<Item = &'w String>,
) -> Attempted<HashMap<String, Time>> {
    let mut seen_at = HashMap::new();
    for id in worker_ids.collect::<BTreeSet<_>>() {
        let row = session.rows(&plain(SEEN_AT).bind(id.as_str()).lock("w"), &[Kind::Number]).await?.into_iter().next();
        if let Some(mut row) = row {
            seen_at.insert(id.clone(), Time(row.number()?));
        }
    }
    Ok(seen_at)
}

const SEEN_AT: &str = "SELECT w.seen_at FROM task_worker w WHERE w.worker_id = ?";

#[derive(Default)]
pub(super) struct WorkerCache(Mutex<HashMap<String, Known>>);

struct Known {
    owner: Option<String>,
    /// A hash of what the worker said about itself.
    said: u64,
    heartbeat_ms: Option<i64>,
    written_at: Time,
}

impl WorkerCache {
    /// Writes down a worker that claims, where that is due. An id that is another's is refused: a worker is known by it, and who
    /// could speak for others could take their tasks away, or keep them.
    pub(super) async fn register(&self, session: &mut dyn Session, request: &ClaimRequest) -> Attempted<()> {
        let now = session.now();
        let said = fingerprint(request);
        if self.is_fresh(request, said, now) {
            return Ok(());
        }
        if self.owner(session, &request.worker_id).await?.is_some_and(|owner| owner != request.owner) {
            let message = "is that of another's worker: choose one that is new at each start";
            return Err(StoreError::field(FieldError::new("worker_id", message)).into());
        }
        let worker = Worker {
            worker_id: request.worker_id.clone(),
            host: request.host.clone(),
            app: request.app.clone(),
            types: request.types.clone(),
            categories: request.categories.clone(),
            heartbeat_ms: request.heartbeat_ms,
            started_at: now,
            seen_at: now,
            tenant: request.owner.clone(),
        };
        session.register(&worker).await?;
        let (owner, heartbeat_ms) = (request.owner.clone(), request.heartbeat_ms);
        self.remember(&request.worker_id, Known { owner, said, heartbeat_ms, written_at: now });
        Ok(())
    }

    /// Whose worker an id is; `None` where it is nobody's yet.
    async fn owner(&self, session: &mut dyn Session, worker_id: &str) -> Attempted<Option<Option<String>>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(worker_id).map(|one| one.owner.clone());
        if known.is_some() {
            return Ok(known);
        }
        let found = session.rows(&plain(OWNER).bind(worker_id), &[Kind::Text]).await?.into_iter().next();
        found.map(|mut row| row.maybe_text()).transpose()
    }

    /// Writes down that workers called, where that is due and they are the caller's own.
    pub(super) async fn heard(&self, session: &mut dyn Session, heartbeats: &[Heartbeat]) -> Attempted<()> {
        let mut own = Vec::new();
        for heartbeat in heartbeats {
            if self.owner(session, &heartbeat.worker_id).await?.is_some_and(|owner| owner == heartbeat.owner) {
                own.push(heartbeat.worker_id.clone());
            }
        }
        self.seen(session, &own).await
    }

    /// Writes down that workers called, where that is due.
    pub(super) async fn seen(&self, session: &mut dyn Session, worker_ids: &[String]) -> Attempted<()> {
        let now = session.now();
        let stale: Vec<_> = worker_ids.iter().filter(|id| !self.was_just_written(id, now)).cloned().collect();
        if stale.is_empty() {
            return Ok(());
        }
        session.seen(&stale).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &stale {
            if let Some(known) = known.get_mut(id) {
                known.written_at = now;
            }
        }
        Ok(())
    }

    /// Forgets what was remembered of workers whose rows are gone.
    pub(super) fn forget(&self, worker_ids: &[String]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in worker_ids {
            known.remove(id);
        }
    }

    /// Forgets when calls were written: a transaction that wrote some was rolled back.
    pub(super) fn forget_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn is_fresh(&self, request: &ClaimRequest, said: u64, now: Time) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&request.worker_id);
        known.is_some_and(|known| known.said == said && known.owner == request.owner && known.is_fresh(now))
    }

    fn was_just_written(&self, worker_id: &str, now: Time) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(worker_id).is_some_and(|known| known.is_fresh(now))
    }

    fn remember(&self, worker_id: &str, worker: Known) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, known| worker.written_at.ms_since(known.written_at) < REMEMBERED_MS);
        }
        if known.len() < REMEMBERED_MAX {
            known.insert(worker_id.to_owned(), worker);
        }
    }
}

/// What a worker says about itself, in short.
fn fingerprint(request: &ClaimRequest) -> u64 {
    let ClaimRequest { host, app, types, categories, heartbeat_ms, .. } = request;
    let mut hasher = DefaultHasher::new();
    (host, app, types, categories, heartbeat_ms).hash(&mut hasher);
    hasher.finish()
}

impl Known {
    fn is_fresh(&self, now: Time) -> bool {
        let every_ms = self.heartbeat_ms.map_or(SEEN_EVERY_MS, slack_ms);
        (0..every_ms).contains(&now.ms_since(self.written_at))
    }
}

/// How old the last written call of a worker may be without the next one being written.
pub(crate) fn slack_ms(heartbeat_ms: i64) -> i64 {
    heartbeat_ms / 10
}

impl Worker {
    /// Whether the worker counts as alive.
    #[must_use]
    pub fn is_alive(&self, now: Time) -> bool {
        now < self.gone_at()
    }

    /// When the worker counts as gone, if it does not call until then.
    pub(super) fn gone_at(&self) -> Time {
        let alive_ms = |ms: i64| ms.saturating_mul(limits::HEARTBEATS_MISSED_MAX) + slack_ms(ms);
        self.seen_at.plus_ms(self.heartbeat_ms.map_or(ALIVE_MS, alive_ms))
    }

    /// Whether the worker takes tasks of a type, or of that type's category.
    pub(super) fn takes(&self, task_type: &str, category: Option<&str>) -> bool {
        self.types.iter().any(|one| one == task_type)
            || category.is_some_and(|category| self.categories.iter().any(|one| one == category))
    }
}
