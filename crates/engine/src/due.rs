//! Due: what falls due in the near future is known before, so that its worker is woken as soon as its time has come.
//!
//! The authority is the store, by the database's clock. Here is only a calendar of the next seconds, for the types that
//! workers wait for: `look` fills it from the store again and again, submits add to it, and `ring` wakes whom it concerns when
//! a time has come. What is not in it, because it came by plain SQL or through another node, is found by the next look; what
//! is in it in vain wakes a claim that finds nothing. When the store does not answer, the next look makes up for it.
//!
//! Nobody is woken early: a claim that comes before the time finds nothing, and sleeps until the next look.

use crate::dispatch::Dispatch;
use crate::health::Loop;
use crate::{Inner, rest};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use taskwheel_model::submit::RunAt;
use taskwheel_store::Ahead;
use taskwheel_store::clock::here;
use tokio::sync::{Notify, oneshot, watch};

/// How far ahead the calendar reaches.
const HORIZON: Duration = Duration::from_secs(5);
/// How often it is filled from the store: what falls due later is seen at least twice before it does.
const FILL_EVERY: Duration = Duration::from_secs(2);
/// Most entries that one look brings.
const ENTRIES_MAX: usize = 20_000;
/// How fine the calendar is: however many tasks come, it has no more entries than this allows.
const TICK: Duration = Duration::from_micros(100);

/// After a look that was asked for, others that are asked for wait so long.
const ASKED_PAUSE: Duration = Duration::from_millis(20);

/// The calendar of the next seconds.
pub(crate) struct Due {
    pages: Mutex<Pages>,
    /// An entry came that is earlier than all others, or it is over.
    changed: Condvar,
    look: Notify,
    /// What the calendar's ticks count from.
    start: Instant,
}

/// For each tick, how many tasks of which types fall due.
type Page = BTreeMap<u64, HashMap<String, usize>>;

#[derive(Default)]
struct Pages {
    /// What the last look brought, replaced by the next.
    seen: Page,
    /// What was submitted since, which a look under way may have missed.
    submitted: Page,
    /// What the database's clock showed, in microseconds, and when.
    clock: Option<(i64, Instant)>,
    is_over: bool,
}

impl Default for Due {
    fn default() -> Due {
        Due { pages: Mutex::default(), changed: Condvar::new(), look: Notify::new(), start: Instant::now() }
    }
}

impl Due {
    /// How long until a task that was just submitted is due; nothing where it is due now.
    pub(crate) fn after(&self, run_at: RunAt) -> Duration {
        let us = match run_at {
            RunAt::Now => 0,
            RunAt::After(ms) => ms.saturating_mul(1_000),
            RunAt::At(time) => time.0.saturating_mul(1_000).saturating_sub(self.clock_us()),
        };
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    /// The database's time in microseconds, as far as we know.
    fn clock_us(&self) -> i64 {
        match self.pages().clock {
            Some((us, at)) => us.saturating_add(i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX)),
            None => here().0.saturating_mul(1_000),
        }
    }

    /// The first tick that is not before a time.
    fn tick(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that was just submitted falls due after a while.
    pub(crate) fn add(&self, task_type: &str, after: Duration) {
        if after > HORIZON {
            return;
        }
        let at = self.tick(Instant::now() + after);
        let mut pages = self.pages();
        let is_earliest = pages.next().is_none_or(|next| at < next);
        *pages.submitted.entry(at).or_default().entry(task_type.to_owned()).or_default() += 1;
        drop(pages);
        if is_earliest {
            self.changed.notify_one();
        }
    }

    /// Something changed that a look may find.
    pub(crate) fn look_now(&self) {
        self.look.notify_one();
    }

    /// Sets the clock and the calendar by a look.
    fn learn(&self, ahead: Ahead) {
        let Ahead { dues, clock_us, read_at } = ahead;
        let mut seen = Page::new();
        for upcoming in dues {
            let us = u64::try_from(upcoming.due.0.saturating_mul(1_000).saturating_sub(clock_us)).unwrap_or(0);
            let tick = self.tick(read_at + Duration::from_micros(us));
            *seen.entry(tick).or_default().entry(upcoming.task_type).or_default() += 1;
        }
        let mut pages = self.pages();
        pages.seen = seen;
        pages.clock = Some((clock_us, read_at));
        drop(pages);
        self.changed.notify_one();
    }

    /// Wakes claims when the times of the calendar come, until it is over.
    fn ring(&self, dispatch: &Dispatch) {
        while let Some(due) = self.wait() {
            for (task_type, tasks) in due {
                dispatch.wake(&task_type, tasks);
            }
        }
    }

    /// Waits until something is due, and takes it; `None` when it is over.
    fn wait(&self) -> Option<HashMap<String, usize>> {
        let mut pages = self.pages();
        while !pages.is_over {
            let since = self.start.elapsed();
            let due = pages.take(u64::try_from(since.as_nanos() / TICK.as_nanos()).unwrap_or(u64::MAX));
            if !due.is_empty() {
                return Some(due);
            }
            let next = pages.next().map(|tick| Duration::from_nanos(tick.saturating_mul(TICK.as_nanos() as u64)));
            let rest = next.map_or(HORIZON, |next| next.saturating_sub(since));
            pages = self.changed.wait_timeout(pages, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

impl Pages {
    fn next(&self) -> Option<u64> {
        [&self.seen, &self.submitted].into_iter().filter_map(|page| page.keys().next()).min().copied()
    }

    /// Takes what is due at a tick.
    fn take(&mut self, now: u64) -> HashMap<String, usize> {
        let mut taken = HashMap::new();
        for page in [&mut self.seen, &mut self.submitted] {
            while let Some(entry) = page.first_entry().filter(|entry| *entry.key() <= now) {
                for (task_type, tasks) in entry.remove() {
                    *taken.entry(task_type).or_default() += tasks;
                }
            }
        }
        taken
    }
}

/// A calendar that rings; no more when this is dropped.
struct Ringing(Arc<Inner>);

impl Drop for Ringing {
    fn drop(&mut self) {
        self.0.due.pages().is_over = true;
        self.0.due.changed.notify_one();
    }
}

/// Wakes claims when the times of the calendar come, on a thread of its own: that sleeps to within a tenth of a millisecond, where the
/// runtime's timers take up to two.
pub(crate) async fn ring(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let (ended, end) = oneshot::channel::<()>();
    let ringing = Ringing(inner.clone());
    let thread = thread::Builder::new().name("taskwheel-due".into()).spawn(move || {
        inner.due.ring(&inner.dispatch);
        drop(inner);
        drop(ended);
    });
    if let Err(error) = thread {
        tracing::error!(%error, "no thread can be started: tasks that fall due are found by the next look only");
    }
    // An error is the engine's end too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    drop(ringing);
    let _ = end.await;
}

/// Looks for what nobody told us of, and fills the calendar.
pub(crate) async fn look(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let mut filled = None::<Instant>;
    let mut types_filled = Vec::new();
    loop {
        let asked = tokio::select! {
            going_on = rest(inner.options.look_every, &mut stopped) => {
                if !going_on {
                    return;
                }
                false
            }
            () = inner.due.look.notified() => true,
        };
        if inner.dispatch.is_idle() {
            filled = None;
            inner.health.rests(Loop::Due);
            continue;
        }
        inner.dispatch.look_one_of_each();
        let mut types = inner.dispatch.types();
        types.sort();
        let is_stale = filled.is_none_or(|filled| filled.elapsed() >= FILL_EVERY) || types != types_filled || asked;
        if types.is_empty() {
            inner.health.rests(Loop::Due);
        } else if is_stale {
            filled = Some(Instant::now());
            fill(&inner, types.clone()).await;
            types_filled = types;
        }
        if asked && !rest(ASKED_PAUSE, &mut stopped).await {
            return;
        }
    }
}

async fn fill(inner: &Inner, types: Vec<String>) {
    let horizon = i64::try_from(HORIZON.as_millis()).unwrap_or(i64::MAX);
    let look = inner.health.look(Loop::Due, inner.store.upcoming(types, horizon, ENTRIES_MAX));
    if let Ok(ahead) = look.await {
        inner.due.learn(ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskwheel_model::Time;
    use taskwheel_store::Upcoming;

    const MS: Duration = Duration::from_millis(1);

    /// What is due a while after the calendar began.
    fn taken(due: &Due, after: Duration) -> Vec<(String, usize)> {
        let ticks = u64::try_from(after.as_nanos() / TICK.as_nanos()).unwrap();
        let mut taken: Vec<_> = due.pages().take(ticks).into_iter().collect();
        taken.sort_unstable();
        taken
    }

    /// A look when the database's clock showed an hour, at the calendar's beginning.
    fn look(due: &Due, dues: &[(&str, i64)]) {
        let upcoming =
            |(task_type, ms): &(&str, i64)| Upcoming { task_type: (*task_type).to_owned(), due: Time(3_600_000 + ms) };
        due.learn(Ahead { dues: dues.iter().map(upcoming).collect(), clock_us: 3_600_000_000, read_at: due.start });
    }

    #[test]
    fn what_is_due_is_taken_once_and_never_early() {
        let due = Due::default();
        look(&due, &[("mail", 10), ("mail", 10), ("sms", 30), ("fax", -5)]);
        assert_eq!(taken(&due, Duration::ZERO), [("fax".to_owned(), 1)], "it fell due before the look");
        assert_eq!(taken(&due, MS * 10 - TICK), []);
        assert_eq!(due.pages().next(), Some(100));
        assert_eq!(taken(&due, MS * 10), [("mail".to_owned(), 2)]);
        assert_eq!(taken(&due, MS * 1_000), [("sms".to_owned(), 1)]);
        assert_eq!(due.pages().next(), None);
    }

    #[test]
    fn what_lies_beyond_the_horizon_is_the_stores() {
        let due = Due::default();
        due.add("report", HORIZON * 2);
        assert_eq!(due.pages().next(), None);
    }

    #[test]
    fn times_count_by_the_databases_clock_from_when_it_was_read() {
        let due = Due::default();
        thread::sleep(MS * 50);
        look(&due, &[]);
        let after = due.after(RunAt::At(Time(3_660_000)));
        assert!(after <= MS * 59_950 && after > MS * 50_000, "{after:?}");
        assert_eq!(due.after(RunAt::At(Time(3_600_000))), Duration::ZERO);
        assert_eq!(due.after(RunAt::After(7)), MS * 7);
    }

    #[test]
    fn a_look_replaces_what_was_seen_and_keeps_what_was_submitted() {
        let due = Due::default();
        due.add("mail", MS * 5);
        look(&due, &[("sms", 5)]);
        look(&due, &[("fax", 5)]);
        assert_eq!(taken(&due, HORIZON), [("fax".to_owned(), 1), ("mail".to_owned(), 1)]);
    }

    #[test]
    fn what_comes_while_the_bell_sleeps_rings_in_time() {
        let due = Due::default();
        thread::scope(|scope| {
            let rung = scope.spawn(|| (due.wait(), Instant::now()));
            thread::sleep(MS * 20);
            let added = Instant::now();
            due.add("mail", MS * 30);
            let (taken, at) = rung.join().unwrap();
            assert_eq!(taken.unwrap(), HashMap::from([("mail".to_owned(), 1)]));
            assert!(at - added >= MS * 30, "{:?}", at - added);
            assert!(at - added < HORIZON / 2, "{:?}: it was not woken", at - added);
        });
    }
}
