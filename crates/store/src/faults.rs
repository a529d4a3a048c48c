//! Where the fault harness steps in. Without the feature `faults` nothing of this is left in the program.
//!
//! A program that was built with it reads what shall go wrong from the file that `TASKWHEEL_FAULTS` names, again and again, so that
//! faults come and go while it runs. Words in it, with spaces between:
//!
//! ```text
//!  kill:POINT   it ends at that point, as by kill -9, and notes the point in the file's sibling with the ending .killed
//!  clock:MS     its own clock is off by so much
//!  disk_full    SQLite finds no room for another page
//!  break:RULE   it breaks that rule, so that the harness's checker is seen to notice
//! ```
//!
//! What it has read it writes into the file's sibling with the ending .taken, so that the harness sees that it is so.

use std::time::SystemTime;

/// A place in the code at which a process may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A change was made, and is not committed.
    BeforeCommit,
    /// A change is committed, and nobody knows.
    AfterCommit,
    /// Tasks are claimed, and their worker does not know.
    AfterClaim,
    /// Results are stored, and their worker does not know.
    BeforeAnswer,
}

/// A rule that can be broken on purpose.
#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What is acknowledged is committed.
    Commit,
    /// A result that is accepted is stored.
    Result,
    /// Only the current execution may report.
    Fence,
    /// An execution goes on while its lease lasts.
    Lease,
    /// An execution whose lease ran out is ended.
    Rescue,
    /// There are no more attempts than the maximum.
    Attempts,
    /// A unique key is live once.
    Unique,
    /// A due time fires once.
    Once,
    /// A due time fires.
    Firing,
    /// A timer goes on.
    Timer,
    /// An action that is acknowledged is done.
    Action,
    /// A worker gets the tasks of its tenant.
    Tenant,
    /// A task is in one place.
    Place,
}

pub(crate) use control::{at, forgets, limit_pages, may_be_alone, wall_clock};
#[cfg(feature = "faults")]
pub(crate) use control::{is_broken, now_and_then};

#[cfg(not(feature = "faults"))]
mod control {
    use super::{Point, SystemTime};

    #[inline(always)]
    pub(crate) fn wall_clock() -> SystemTime {
        SystemTime::now()
    }

    #[inline(always)]
    pub(crate) const fn at(_: Point) {}

    #[inline(always)]
    pub(crate) const fn forgets() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn may_be_alone() -> bool {
        true
    }

    #[inline(always)]
    pub(crate) const fn limit_pages(_: &rusqlite::Connection) {}
}

#[cfg(feature = "faults")]
mod control {
    use super::{Point, Rule, SystemTime};
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, LazyLock, PoisonError, RwLock};
    use std::time::Duration;

    /// How often the file is read.
    const READ_EVERY: Duration = Duration::from_millis(10);
    const VARIABLE: &str = "TASKWHEEL_FAULTS";

    #[derive(Default)]
    struct Orders {
        kill: Option<String>,
        clock_ms: i64,
        disk_full: bool,
        broken: Vec<String>,
    }

    impl Orders {
        fn read(text: &str) -> Orders {
            let mut orders = Orders::default();
            for word in text.split_whitespace() {
                match word.split_once(':') {
                    Some(("kill", point)) => orders.kill = Some(point.to_owned()),
                    Some(("clock", ms)) => orders.clock_ms = ms.parse().unwrap_or(0),
                    Some(("break", rule)) => orders.broken.push(rule.to_owned()),
                    _ => orders.disk_full |= word == "disk_full",
                }
            }
            orders
        }
    }

    static FILE: LazyLock<Option<PathBuf>> = LazyLock::new(|| std::env::var_os(VARIABLE).map(PathBuf::from));

    static ORDERS: LazyLock<Arc<RwLock<Orders>>> = LazyLock::new(|| {
        let first = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let orders = Arc::new(RwLock::new(Orders::read(&first)));
        if let Some(file) = FILE.as_ref() {
            let orders = orders.clone();
            std::thread::spawn(move || {
                let mut taken = None;
                loop {
                    // A file that cannot be read, for want of file descriptors for example, takes no order back.
                    if let Ok(text) = std::fs::read_to_string(file)
                        && taken.as_ref() != Some(&text)
                    {
                        *orders.write().unwrap_or_else(PoisonError::into_inner) = Orders::read(&text);
                        let noted = std::fs::write(file.with_extension("taken"), &text);
                        taken = noted.is_ok().then_some(text);
                    }
                    std::thread::sleep(READ_EVERY);
                }
            });
        }
        orders
    });

    fn ask<T>(question: impl Fn(&Orders) -> T) -> T {
        question(&ORDERS.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn wall_clock() -> SystemTime {
        let off = ask(|orders| orders.clock_ms);
        let by = Duration::from_millis(off.unsigned_abs());
        if off < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
    }

    pub(crate) fn at(point: Point) {
        let name = format!("{point:?}");
        if ask(|orders| orders.kill.as_deref() == Some(name.as_str())) {
            if let Some(file) = FILE.as_ref() {
                let noted = std::fs::File::options().create(true).append(true).open(file.with_extension("killed"));
                let _ = noted.and_then(|mut noted| writeln!(noted, "{name}"));
            }
            std::process::abort();
        }
    }

    /// Lets SQLite find no room beyond what its file has, or as much as ever.
    pub(crate) fn limit_pages(connection: &rusqlite::Connection) {
        static WAS_FULL: AtomicBool = AtomicBool::new(false);
        let is_full = ask(|orders| orders.disk_full);
        if WAS_FULL.swap(is_full, Ordering::Relaxed) != is_full {
            // Fewer than there are means as many as there are.
            let _ = connection.pragma_update(None, "max_page_count", if is_full { 1_u32 } else { u32::MAX - 1 });
        }
    }

    /// Every fifth time: counted, not drawn, so that a short run is not spared by luck.
    pub(crate) fn now_and_then() -> bool {
        static TIMES: AtomicU64 = AtomicU64::new(1);
        TIMES.fetch_add(1, Ordering::Relaxed).is_multiple_of(5)
    }

    /// Whether a transaction shall be rolled back, and nobody be told.
    pub(crate) fn forgets() -> bool {
        is_broken(Rule::Commit) && now_and_then()
    }

    /// Whether a statement may be its own transaction: one that is can not be rolled back.
    pub(crate) fn may_be_alone() -> bool {
        !is_broken(Rule::Commit)
    }

    pub(crate) fn is_broken(rule: Rule) -> bool {
        let name = format!("{rule:?}");
        ask(|orders| orders.broken.contains(&name))
    }
}
