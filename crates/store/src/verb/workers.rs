//! Workers: who called when, written at most twenty times per heartbeat.
//!
//! Many calls of one worker may be under way at once. If each wrote that it was seen, they would queue up behind one row, and hold each
//! other up until their transactions end. So a call must write only when the last write may be older than a tenth of the heartbeat, and a
//! worker counts as silent only a tenth of a heartbeat after its lease: nobody is given up too early. Half-way there one call writes,
//! and the others are spared. The rows in the database are the authority; this memory only says when they need no writing. It learns
//! of a write once that is committed, or a call could rely on one that is rolled back, and be promised a lease of which no row knows.

use crate::StoreError;
use crate::connections::LAG_MAX;
use crate::plain::{Kind, plain};
use crate::session::{Attempted, Session};
use crate::worker::{ClaimRequest, Heartbeat, Worker};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use taskwheel_model::{Definition, FieldError, Time, limits};

/// A worker without a heartbeat counts as alive for so long after its last call.
const ALIVE_MS: i64 = 90_000;
/// How often the calls of a worker without a heartbeat are written.
const SEEN_EVERY_MS: i64 = 1_000;
/// By so much a time may lag that is counted on from a reading.
const LAG_MS_MAX: i64 = LAG_MAX.as_millis() as i64;
/// Workers that have not called for so long are dropped from memory.
const REMEMBERED_MS: i64 = 10 * 60 * 1_000;
const REMEMBERED_MAX: usize = 10_000;

const OWNER: &str = "SELECT tenant FROM task_worker WHERE worker_id = ?";
const HEARTBEAT: &str = "SELECT heartbeat_ms FROM task_worker WHERE worker_id = ?";

const EXECUTING: &str = "SELECT r.worker_id, COUNT(*) FROM task_running r GROUP BY r.worker_id";

/// How many executions each worker has under way.
pub(super) async fn executing(session: &mut dyn Session) -> Attempted<HashMap<String, u64>> {
    let rows = session.rows(&plain(EXECUTING), &[Kind::Text, Kind::Number]).await?;
    rows.into_iter().map(|mut row| Ok((row.text()?, row.number()?.unsigned_abs()))).collect()
}

/// Locks workers, in the order of their ids, and says when each last called, at the latest. Who is gone is left out.
pub(super) async fn lock<'w>(
    session: &mut dyn Session,
    worker_ids: impl Iterator<Item = &'w String>,
) -> Attempted<HashMap<String, Time>> {
    let mut seen_at = HashMap::new();
    for id in worker_ids.collect::<BTreeSet<_>>() {
        let find = plain(SEEN_AT).bind(id.as_str()).lock("w");
        if let Some(mut row) = session.rows(&find, &[Kind::Number, Kind::Number]).await?.into_iter().next() {
            let (seen, heartbeat_ms) = (Time(row.number()?), row.maybe_number()?);
            seen_at.insert(id.clone(), seen.plus_ms(heartbeat_ms.map_or(0, slack_ms)));
        }
    }
    Ok(seen_at)
}

const SEEN_AT: &str = "SELECT w.seen_at, w.heartbeat_ms FROM task_worker w WHERE w.worker_id = ?";

#[derive(Default)]
pub(super) struct WorkerCache(Mutex<HashMap<String, Known>>);

/// What a transaction wrote of workers' calls.
#[derive(Default)]
pub(super) struct Calls {
    registered: HashMap<String, Known>,
    seen: HashMap<String, Time>,
}

struct Known {
    owner: Option<String>,
    /// A hash of what the worker said about itself.
    said: u64,
    heartbeat_ms: Option<i64>,
    written_at: Time,
    /// Whether a call has set out to write anew. Where it fails, the next one writes when it must.
    is_written_anew: bool,
}

impl WorkerCache {
    /// Writes down a worker that claims, where that is due. An id that is another's is refused: a worker is known by it, and who
    /// could speak for others could take their tasks away, or keep them.
    pub(super) async fn register(
        &self,
        session: &mut dyn Session,
        request: &ClaimRequest,
        calls: &mut Calls,
    ) -> Attempted<()> {
        let now = session.now();
        let said = fingerprint(request);
        let spares = |known: &mut Known| known.said == said && known.owner == request.owner && known.spares_call(now);
        if calls.registered.get_mut(&request.worker_id).is_some_and(spares) || self.is(&request.worker_id, spares) {
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
        let owner = request.owner.clone();
        // It keeps to the longest that it has promised: no execution that it has lives by a longer one.
        let found = session.rows(&plain(HEARTBEAT).bind(&*request.worker_id), &[Kind::Number]).await?;
        let heartbeat_ms = found.into_iter().next().map_or(Ok(None), |mut row| row.maybe_number())?;
        let known = Known { owner, said, heartbeat_ms, written_at: now, is_written_anew: false };
        calls.registered.insert(request.worker_id.clone(), known);
        Ok(())
    }

    /// Whether a worker claims as it did, and its call need not be written down.
    pub(super) fn knows(&self, request: &ClaimRequest, now: Time) -> bool {
        let said = fingerprint(request);
        self.is(&request.worker_id, |known| known.said == said && known.owner == request.owner && known.is_fresh(now))
    }

    /// Whose worker an id is; `None` where it is nobody's yet.
    async fn owner(&self, session: &mut dyn Session, worker_id: &str) -> Attempted<Option<Option<String>>> {
        let known = self.known().get(worker_id).map(|one| one.owner.clone());
        if known.is_some() {
            return Ok(known);
        }
        let found = session.rows(&plain(OWNER).bind(worker_id), &[Kind::Text]).await?.into_iter().next();
        found.map(|mut row| row.maybe_text()).transpose()
    }

    /// Writes down that workers called, where that is due and they are the caller's own.
    pub(super) async fn heard(&self, session: &mut dyn Session, heartbeats: &[Heartbeat]) -> Attempted<Calls> {
        let mut own = BTreeSet::new();
        for heartbeat in heartbeats {
            if self.owner(session, &heartbeat.worker_id).await?.is_some_and(|owner| owner == heartbeat.owner) {
                own.insert(heartbeat.worker_id.clone());
            }
        }
        self.seen(session, own).await
    }

    /// Writes down that workers called, where that is due.
    pub(super) async fn seen(&self, session: &mut dyn Session, worker_ids: BTreeSet<String>) -> Attempted<Calls> {
        let stale = self.stale(worker_ids, session.now());
        if stale.is_empty() { Ok(Calls::default()) } else { write_seen(session, stale).await }
    }

    /// The workers whose calls are to be written down.
    pub(super) fn stale(&self, worker_ids: BTreeSet<String>, now: Time) -> Vec<String> {
        worker_ids.into_iter().filter(|id| !self.is(id, |known| known.spares_call(now))).collect()
    }

    /// Remembers what a transaction wrote, now that it is committed.
    pub(super) fn remember(&self, calls: Calls) {
        let mut known = self.known();
        for (id, written_at) in calls.seen {
            // Who was given up in the meantime has to register again.
            if let Some(known) = known.get_mut(&id) {
                known.written_at = known.written_at.max(written_at);
                known.is_written_anew = false;
            }
        }
        for (id, worker) in calls.registered {
            if known.len() >= REMEMBERED_MAX {
                known.retain(|_, known| worker.written_at.ms_since(known.written_at) < REMEMBERED_MS);
            }
            if known.len() < REMEMBERED_MAX {
                known.insert(id, worker);
            }
        }
    }

    /// Forgets what was remembered of workers whose rows are gone.
    pub(super) fn forget(&self, worker_ids: &[String]) {
        let mut known = self.known();
        for id in worker_ids {
            known.remove(id);
        }
    }

    fn is(&self, worker_id: &str, what: impl FnOnce(&mut Known) -> bool) -> bool {
        self.known().get_mut(worker_id).is_some_and(what)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes down that workers called.
pub(super) async fn write_seen(session: &mut dyn Session, worker_ids: Vec<String>) -> Attempted<Calls> {
    let now = session.now();
    let all_there = session.seen(&worker_ids).await? == worker_ids.len();
    let seen = if all_there { worker_ids.into_iter().map(|id| (id, now)).collect() } else { HashMap::new() };
    Ok(Calls { seen, ..Calls::default() })
}

/// What a worker says about itself, in short.
fn fingerprint(request: &ClaimRequest) -> u64 {
    let ClaimRequest { host, app, types, categories, heartbeat_ms, .. } = request;
    let mut hasher = DefaultHasher::new();
    (host, app, types, categories, heartbeat_ms).hash(&mut hasher);
    hasher.finish()
}

impl Known {
    /// Whether a call need not be written. Where it is the one that shall write, the others know.
    fn spares_call(&mut self, now: Time) -> bool {
        let is_recent = now.ms_since(self.written_at) < self.age_max_ms() / 2;
        self.is_fresh(now) && (is_recent || std::mem::replace(&mut self.is_written_anew, true))
    }

    /// Whether the last written call is not too old, even if the time, counted on from a reading, lags.
    fn is_fresh(&self, now: Time) -> bool {
        (-LAG_MS_MAX..self.age_max_ms() - LAG_MS_MAX).contains(&now.ms_since(self.written_at))
    }

    fn age_max_ms(&self) -> i64 {
        self.heartbeat_ms.map_or(SEEN_EVERY_MS, slack_ms)
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

    /// Whether a shard of a tenant's schedule may be for the worker. `of_type` is the category of the schedule's type.
    #[must_use]
    pub fn serves(&self, definition: &Definition, of_type: Option<&str>, tenant: &str, now: Time) -> bool {
        self.is_alive(now)
            && self.tenant.as_deref().is_none_or(|owner| owner == tenant)
            && self.takes(&definition.task_type, definition.category.as_deref().or(of_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_writes_half_way_and_all_write_what_is_stale() {
        let mut known =
            Known { owner: None, said: 0, heartbeat_ms: Some(1_000), written_at: Time(0), is_written_anew: false };
        assert!(known.spares_call(Time(49)), "it is fresh");
        assert!(!known.spares_call(Time(50)), "the first one half-way writes");
        assert!(known.spares_call(Time(50)) && known.spares_call(Time(79)), "the others are spared meanwhile");
        assert!(
            !known.spares_call(Time(80)) && !known.spares_call(Time(80)),
            "it may be 100 by now, and have failed: each must write"
        );
        assert!(known.spares_call(Time(-1)), "a time that lags is no other clock");
        assert!(!known.spares_call(Time(-LAG_MS_MAX - 1)), "a clock that went back says nothing");
    }
}
