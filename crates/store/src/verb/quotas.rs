//! What tenants may have, as firings see it: a tenant at its limit of live tasks begins no run.
//!
//! It is remembered for a second: a tenant without a limit costs nothing, and one that is not near its limit is not counted for each firing.

use super::access;
use crate::session::{Attempted, Session};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const FRESH: Duration = Duration::from_secs(1);

/// The tenants that have a limit.
#[derive(Default)]
pub(super) struct Quotas(Mutex<Known>);

#[derive(Default)]
struct Known {
    read_at: Option<Instant>,
    of: HashMap<String, Limit>,
}

struct Limit {
    live_max: u64,
    /// Live tasks, as counted, with those that began since.
    live: Option<(Instant, u64)>,
}

/// What tenants may still begin, where that is limited.
pub(super) struct Room(HashMap<String, Left>);

struct Left {
    tasks: u64,
    taken: u64,
}

impl Quotas {
    /// What these tenants, that want to begin so many tasks, may still begin.
    pub(super) async fn room(&self, session: &mut dyn Session, wanted: &BTreeMap<&str, usize>) -> Attempted<Room> {
        let mut room = Room(HashMap::new());
        if !wanted.is_empty() && !self.lock().read_at.is_some_and(is_fresh) {
            self.read(session).await?;
        }
        for (tenant, wanted) in wanted {
            let Some((most, known)) = self.limit(tenant) else { continue };
            // What is remembered is rather too much: tasks end. Nothing is left out because of that.
            let live = match known {
                Some(live) if live + *wanted as u64 <= most => live,
                _ => self.counted(tenant, access::live_tasks(session, tenant).await?),
            };
            room.0.insert((*tenant).to_owned(), Left { tasks: most.saturating_sub(live), taken: 0 });
        }
        Ok(room)
    }

    /// Remembers what began.
    pub(super) fn took(&self, room: Room) {
        let mut known = self.lock();
        for (tenant, left) in room.0 {
            if let Some((_, live)) = known.of.get_mut(&tenant).and_then(|limit| limit.live.as_mut()) {
                *live += left.taken;
            }
        }
    }

    /// To be called after a change.
    pub(super) fn forget(&self) {
        self.lock().read_at = None;
    }

    async fn read(&self, session: &mut dyn Session) -> Attempted<()> {
        let read_at = Some(Instant::now());
        let quotas = access::quotas(session).await?;
        let mut known = self.lock();
        let mut before = std::mem::take(&mut known.of);
        for (tenant, quota) in quotas {
            let Some(live_max) = quota.live_max.map(i64::unsigned_abs) else { continue };
            let live = before.remove(&tenant).and_then(|limit| limit.live);
            known.of.insert(tenant, Limit { live_max, live });
        }
        known.read_at = read_at;
        Ok(())
    }

    /// How many live tasks a tenant may have, and how many it has where that is known.
    fn limit(&self, tenant: &str) -> Option<(u64, Option<u64>)> {
        let known = self.lock();
        let Limit { live_max, live } = known.of.get(tenant)?;
        Some((*live_max, live.filter(|(at, _)| is_fresh(*at)).map(|(_, live)| live)))
    }

    fn counted(&self, tenant: &str, live: u64) -> u64 {
        if let Some(limit) = self.lock().of.get_mut(tenant) {
            limit.live = Some((Instant::now(), live));
        }
        live
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh(at: Instant) -> bool {
    at.elapsed() < FRESH
}

impl Room {
    /// Whether a tenant may begin so many tasks. They are counted only where that is limited.
    pub(super) fn has(&self, tenant: &str, tasks: impl FnOnce() -> usize) -> bool {
        self.0.get(tenant).is_none_or(|left| left.taken + tasks() as u64 <= left.tasks)
    }

    /// A tenant begins so many.
    pub(super) fn take(&mut self, tenant: &str, tasks: impl FnOnce() -> usize) {
        if let Some(left) = self.0.get_mut(tenant) {
            left.taken += tasks() as u64;
        }
    }
}
