//! Quotas: what a tenant may have. They are limits against mishaps, not accounts: each node counts its own submits, and the
//! number of live tasks is a second old. What timers fire is held to them by the store.

use crate::App;
use crate::fresh::Age;
use crate::problem::{Answer, Problem};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_store::Store;
use taskwheel_store::access::Quota;

/// How long the number of live tasks is believed.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Quotas(Mutex<State>);

#[derive(Default)]
struct State {
    age: Age,
    of: HashMap<String, Tenant>,
}

#[derive(Default)]
struct Tenant {
    quota: Quota,
    submits: Allowance,
    /// Live tasks, as counted, with those that were let in since.
    live: Option<(Instant, u64)>,
}

impl Quotas {
    /// Lets a tenant submit so many tasks, or says what it has too much of. More than it may in a second is the fault of a field.
    pub(crate) async fn admit(&self, app: &Arc<App>, tenant: &str, field: &str, tasks: usize) -> Answer<()> {
        let need = self.lock().age.need();
        need.meet(app, |app| async move { app.quotas.read(app.engine.store()).await }).await?;
        let must_count = match self.lock().of.get(tenant) {
            None => return Ok(()),
            Some(one) => one.quota.live_max.is_some() && one.live.is_none_or(|(at, _)| at.elapsed() >= FRESH),
        };
        let counted = if must_count { Some(app.engine.store().live_tasks(tenant.to_owned()).await?) } else { None };
        let mut state = self.lock();
        let Some(one) = state.of.get_mut(tenant) else { return Ok(()) };
        if let Some(live) = counted {
            one.live = Some((Instant::now(), live));
        }
        if let (Some(most), Some((_, live))) = (one.quota.live_max, &one.live)
            && *live + tasks as u64 > most.unsigned_abs()
        {
            let detail = format!("the tenant {tenant} may have {most} live tasks, and has {live}");
            return Err(Problem::too_often(detail));
        }
        if let Some(per_s) = one.quota.submits_per_s {
            let detail = format!("the tenant {tenant} may submit {per_s} tasks a second");
            if tasks as u64 > per_s.unsigned_abs() {
                return Err(Problem::field(field, detail));
            }
            if !one.submits.take(per_s, tasks) {
                return Err(Problem::too_often(detail));
            }
        }
        if let Some((_, live)) = &mut one.live {
            *live += tasks as u64;
        }
        Ok(())
    }

    async fn read(&self, store: &dyn Store) -> Answer<()> {
        let read_at = Instant::now();
        let quotas = store.quotas().await?;
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.of);
        for (tenant, quota) in quotas {
            let one = before.remove(&tenant).unwrap_or_default();
            state.of.insert(tenant, Tenant { quota, ..one });
        }
        state.age.read(read_at);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many a second, saved up for a second at most.
#[derive(Default)]
pub(crate) struct Allowance {
    left: f64,
    filled_at: Option<Instant>,
}

impl Allowance {
    /// Takes some, if as many are left.
    pub(crate) fn take(&mut self, per_s: i64, wanted: usize) -> bool {
        let (now, most) = (Instant::now(), per_s as f64);
        let passed = self.filled_at.map_or(1.0, |at| now.duration_since(at).as_secs_f64());
        self.left = (self.left + passed * most).min(most);
        self.filled_at = Some(now);
        let enough = self.left >= wanted as f64;
        if enough {
            self.left -= wanted as f64;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_fills_again() {
        let mut allowance = Allowance::default();
        assert!((0..5).all(|_| allowance.take(5, 1)));
        assert!(!allowance.take(5, 1), "a second's worth is gone");
        allowance.filled_at = Instant::now().checked_sub(Duration::from_millis(500));
        assert!(allowance.take(5, 2) && !allowance.take(5, 2), "half a second fills half of it");
    }
}
