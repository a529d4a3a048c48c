//! Due: what falls due in the near future is known before, so that its worker is woken within a millisecond of its time.
//!
//! The authority is the store, by the database's clock. Here is only a calendar of the next seconds, for the types that
//! workers wait for: `look` fills it from the store again and again, submits add to it, and `ring` wakes whom it concerns when
//! a time has come. What is not in it, because it came by plain SQL or through another node, is found by the next look; what
//! is in it in vain wakes a claim that finds nothing. When the store does not answer, the next look makes up for it.

use crate::health::Loop;
use crate::{Inner, rest};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use taskwheel_model::Time;
use taskwheel_model::submit::RunAt;
use taskwheel_store::Ahead;
use taskwheel_store::clock::here;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How far ahead the calendar reaches.
const HORIZON: Duration = Duration::from_secs(5);
/// How often it is filled from the store: what falls due later is seen at least twice before it does.
const FILL_EVERY: Duration = Duration::from_secs(2);
/// Most entries that one look brings.
const ENTRIES_MAX: usize = 20_000;

/// After a look that was asked for, others that are asked for wait so long.
const ASKED_PAUSE: Duration = Duration::from_millis(20);

/// The calendar of the next seconds.
pub(crate) struct Due {
    pages: Mutex<Pages>,
    /// An entry came that is earlier than all others.
    earlier: Notify,
    look: Notify,
    /// By how many milliseconds the database's clock is ahead of ours.
    ahead_ms: AtomicI64,
    /// What the calendar's milliseconds count from.
    start: Instant,
}

/// For each millisecond, how many tasks of which types fall due.
type Page = BTreeMap<u64, HashMap<String, usize>>;

#[derive(Default)]
struct Pages {
    /// What the last look brought, replaced by the next.
    seen: Page,
    /// What was submitted since, which a look under way may have missed.
    submitted: Page,
}

impl Default for Due {
    fn default() -> Due {
        Due {
            pages: Mutex::default(),
            earlier: Notify::new(),
            look: Notify::new(),
            ahead_ms: AtomicI64::new(0),
            start: Instant::now(),
        }
    }
}

impl Due {
    /// In how many milliseconds a task that was just submitted is due; 0 is now.
    pub(crate) fn in_ms(&self, run_at: RunAt) -> i64 {
        match run_at {
            RunAt::Now => 0,
            RunAt::After(ms) => ms,
            RunAt::At(time) => time.ms_since(self.now()).max(0),
        }
    }

    /// The database's time, as far as we know.
    fn now(&self) -> Time {
        here().plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// The calendar's millisecond of a time; the next one, because a millisecond must have passed to be due.
    fn millisecond(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.start).as_millis()).unwrap_or(u64::MAX) + 1
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that was just submitted falls due after a while.
    pub(crate) fn add(&self, task_type: &str, after: Duration) {
        if after > HORIZON {
            return;
        }
        let at = self.millisecond(Instant::now() + after);
        let mut pages = self.pages();
        let is_earliest = pages.next().is_none_or(|next| at < next);
        *pages.submitted.entry(at).or_default().entry(task_type.to_owned()).or_default() += 1;
        drop(pages);
        if is_earliest {
            self.earlier.notify_one();
        }
    }

    /// Something changed that a look may find.
    pub(crate) fn look_now(&self) {
        self.look.notify_one();
    }

    /// Takes what is due, and says when the next is.
    fn take(&self) -> (HashMap<String, usize>, Option<Instant>) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut pages = self.pages();
        let Pages { seen, submitted } = &mut *pages;
        let mut taken = HashMap::new();
        for page in [seen, submitted] {
            while let Some(entry) = page.first_entry().filter(|entry| *entry.key() <= now) {
                for (task_type, tasks) in entry.remove() {
                    *taken.entry(task_type).or_default() += tasks;
                }
            }
        }
        (taken, pages.next().map(|ms| self.start + Duration::from_millis(ms)))
    }

    /// Sets the clock and the calendar by a look, counted from when it read the clock: by its end that may be long ago.
    fn learn(&self, ahead: Ahead) {
        let read_at = Instant::from_std(ahead.read_at);
        let since_ms = i64::try_from(read_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.ahead_ms.store(ahead.now.plus_ms(since_ms).ms_since(here()), Ordering::Relaxed);
        let dues = ahead.dues.into_iter().map(|upcoming| {
            let ms = u64::try_from(upcoming.due.ms_since(ahead.now)).unwrap_or(0);
            (upcoming.task_type, Duration::from_millis(ms))
        });
        self.fill(read_at, dues);
    }

    /// Replaces what was seen before by what falls due, counted from a time.
    fn fill(&self, from: Instant, dues: impl Iterator<Item = (String, Duration)>) {
        let mut seen = Page::new();
        for (task_type, after) in dues {
            *seen.entry(self.millisecond(from + after)).or_default().entry(task_type).or_default() += 1;
        }
        self.pages().seen = seen;
        self.earlier.notify_one();
    }
}

impl Pages {
    fn next(&self) -> Option<u64> {
        [&self.seen, &self.submitted].into_iter().filter_map(|page| page.keys().next()).min().copied()
    }
}

/// Wakes claims when the times of the calendar come.
pub(crate) async fn ring(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    loop {
        let (due, next) = inner.due.take();
        for (task_type, tasks) in due {
            inner.dispatch.wake(&task_type, tasks);
        }
        let next = next.unwrap_or_else(|| Instant::now() + HORIZON);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = inner.due.earlier.notified() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
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
        inner.dispatch.wake_one_of_each();
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
    use taskwheel_store::Upcoming;

    fn types(taken: &HashMap<String, usize>) -> Vec<(&str, usize)> {
        let mut types: Vec<_> = taken.iter().map(|(task_type, tasks)| (task_type.as_str(), *tasks)).collect();
        types.sort_unstable();
        types
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_is_taken_once_and_never_early() {
        let due = Due::default();
        due.add("mail", Duration::from_millis(10));
        due.add("mail", Duration::from_millis(10));
        due.add("sms", Duration::from_millis(30));
        due.add("report", HORIZON * 2);
        tokio::time::advance(Duration::from_millis(10)).await;
        let (taken, next) = due.take();
        assert!(taken.is_empty(), "the tenth millisecond has not passed");
        tokio::time::advance(next.unwrap() - Instant::now()).await;
        assert_eq!(types(&due.take().0), [("mail", 2)]);
        tokio::time::advance(HORIZON).await;
        assert_eq!(types(&due.take().0), [("sms", 1)]);
        tokio::time::advance(HORIZON * 2).await;
        assert_eq!(due.take(), (HashMap::new(), None), "what lies beyond the horizon is the store's");
    }

    #[tokio::test]
    async fn a_look_that_takes_long_makes_nothing_late() {
        let due = Due::default();
        let upcoming = |due: Time| Upcoming { task_type: "mail".into(), due };
        let read_at = std::time::Instant::now();
        let now = here().plus_ms(3_600_000);
        tokio::time::sleep(Duration::from_millis(300)).await;
        due.learn(Ahead { now, read_at, dues: vec![upcoming(now.plus_ms(100)), upcoming(now.plus_ms(60_000))] });
        assert_eq!(types(&due.take().0), [("mail", 1)], "it fell due during the look");
        let in_ms = due.in_ms(RunAt::At(now.plus_ms(60_000)));
        assert!((59_000..=59_701).contains(&in_ms), "{in_ms}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_replaces_what_was_seen_and_keeps_what_was_submitted() {
        let due = Due::default();
        due.add("mail", Duration::from_millis(5));
        due.fill(Instant::now(), [("sms".to_owned(), Duration::from_millis(5))].into_iter());
        due.fill(Instant::now(), [("fax".to_owned(), Duration::from_millis(5))].into_iter());
        tokio::time::advance(Duration::from_millis(6)).await;
        assert_eq!(types(&due.take().0), [("fax", 1), ("mail", 1)]);
    }
}
