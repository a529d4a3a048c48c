//! Watermarks: where a claim's scan starts, so that it does not walk over the dead.
//!
//! When a long transaction holds the vacuum horizon (PostgreSQL) or the purge (InnoDB), claimed tasks stay in the claim
//! index as dead entries at its head, and each claim would walk over all of them. So a claim remembers, for each lane
//! and rank, the task it has come to, and starts behind it the next time.
//!
//! A mark is a hint, never the truth: a task whose transaction commits late, or that another node made due earlier, can
//! lie below it. Therefore every scan is from the start as long as that is cheap. Otherwise one from the start follows whenever
//! the hinted one comes up short, and at least twice a second; only when such a full scan is very expensive are full scans
//! spaced out, to a twentieth of the time.
//!
//! For the same reason scans of a lane that take long take turns: two at once would both go over what the other one locks, and the
//! second finds by the mark what the first has left. That is a hint too. Nobody waits long for a turn.

use crate::session::{FROM_THE_START, PickLane, Picked};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Time};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

const FULL_EVERY: Duration = Duration::from_millis(500);
const FULL_SHARE: u32 = 20;
/// A full scan that took no longer than this is done again rather than spared.
const FULL_CHEAP: Duration = Duration::from_millis(2);
const LANES_MAX: usize = 100_000;

/// So long a scan waits for its turn at most: its transaction is open.
const TURN_MAX: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Watermarks(Mutex<HashMap<Key, Mark>>);

/// Held by the scan whose turn it is.
pub(super) type Turn = Option<OwnedMutexGuard<()>>;

/// A lane as a claim sees it: of one tenant, or of all.
type Key = (Option<String>, String);

#[derive(Clone, Debug)]
struct Mark {
    /// By rank: the due time and the id of the last task.
    last: [(i64, i64); 9],
    full_at: Instant,
    full_took: Duration,
    turn: Arc<AsyncMutex<()>>,
}

/// How a scan shall be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    Hinted,
    Full,
}

impl Watermarks {
    /// Fills the marks of a claim's lanes, and says whether they are all from the start.
    pub(super) fn start(&self, tenant: Option<&str>, lanes: &mut [PickLane]) -> Scan {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |lane: &PickLane| marks.get(&key(tenant, &lane.lane));
        let rested = |mark: &Mark| mark.full_at.elapsed() < FULL_EVERY.max(mark.full_took * FULL_SHARE);
        let spared = |mark: &Mark| mark.full_took > FULL_CHEAP && rested(mark);
        if !lanes.iter().all(|lane| known(lane).is_some_and(spared)) {
            return Scan::Full;
        }
        for lane in &mut *lanes {
            lane.marks = known(lane).map_or(FROM_THE_START, |mark| mark.last);
        }
        if lanes.iter().all(|lane| lane.marks == FROM_THE_START) { Scan::Full } else { Scan::Hinted }
    }

    /// Waits for the turn of a scan of these lanes, if it is known to take long. Where there is one writer it is free.
    pub(super) async fn turn(&self, tenant: Option<&str>, lanes: &[PickLane]) -> Turn {
        let turn = {
            let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mark = lanes.first().and_then(|lane| marks.get(&key(tenant, &lane.lane)));
            mark.filter(|mark| mark.full_took > FULL_CHEAP)?.turn.clone()
        };
        match turn.clone().try_lock_owned() {
            Ok(turn) => Some(turn),
            Err(_) => tokio::time::timeout(TURN_MAX, turn.lock_owned()).await.ok(),
        }
    }

    /// Whether a full scan may follow a hinted one that came up short.
    pub(super) fn may_rescan(&self, tenant: Option<&str>, lanes: &[PickLane]) -> bool {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().all(|lane| {
            marks.get(&key(tenant, &lane.lane)).is_none_or(|mark| mark.full_at.elapsed() >= mark.full_took * FULL_SHARE)
        })
    }

    /// Whether scans of these lanes from the start are known to take no time.
    pub(super) fn are_cheap(&self, tenant: Option<&str>, lanes: &[PickLane]) -> bool {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().all(|lane| marks.get(&key(tenant, &lane.lane)).is_some_and(|mark| mark.full_took <= FULL_CHEAP))
    }

    /// Learns from a scan what it came to. One that came short left nothing, and what comes next may be due at the same time.
    pub(super) fn learn(
        &self,
        tenant: Option<&str>,
        lanes: &[PickLane],
        scan: Scan,
        took: Duration,
        (picked, is_short): (&[Picked], bool),
    ) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() > LANES_MAX {
            marks.clear();
        }
        for lane in lanes {
            let mark = marks.entry(key(tenant, &lane.lane)).or_insert(Mark {
                last: FROM_THE_START,
                full_at: Instant::now(),
                full_took: took,
                turn: Arc::default(),
            });
            if scan == Scan::Full {
                (mark.last, mark.full_at, mark.full_took) = (FROM_THE_START, Instant::now(), took);
            }
            for task in picked.iter().filter(|task| task.lane == lane.lane) {
                if let Some(last) = usize::try_from(task.rank).ok().and_then(|rank| mark.last.get_mut(rank)) {
                    *last = (*last).max((task.due.0, task.id.0));
                }
            }
            if is_short {
                mark.last.iter_mut().for_each(|(_, id)| *id = i64::MIN);
            }
        }
    }

    /// A claim that learned was rolled back, so that what it came to is there again.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Tasks became due through this very store, perhaps below a mark: claims shall see them at once. To be called after the
    /// commit, or a claim in between would raise the mark again.
    pub(super) fn lower(&self, dues: &[LaneDue]) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.is_empty() {
            return;
        }
        for LaneDue { tenant, lane, rank, due, .. } in dues {
            for tenant in [None, Some(tenant.as_str())] {
                let Some(mark) = marks.get_mut(&key(tenant, lane)) else { continue };
                for (number, last) in mark.last.iter_mut().enumerate() {
                    if rank.is_none_or(|rank| usize::try_from(rank) == Ok(number)) {
                        *last = (*last).min((due.0, i64::MIN));
                    }
                }
            }
        }
    }
}

/// A time at which something is due in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneDue {
    pub(super) tenant: String,
    pub(super) lane: String,
    /// `None` where the type settles the priority: rather too low a mark than a task that waits.
    pub(super) rank: Option<i16>,
    pub(super) due: Time,
    /// How many tasks of it a run began.
    pub(super) launched: usize,
}

impl LaneDue {
    /// The type of the tasks in the lane; none has an `@` in its name.
    pub(super) fn task_type(&self) -> &str {
        self.lane.split('@').next().unwrap_or(&self.lane)
    }

    /// The earliest due time of each lane and rank among tasks to be submitted.
    pub(super) fn of(tasks: &[Arc<NewTask>], now: Time) -> Vec<LaneDue> {
        let mut earliest = HashMap::new();
        for task in tasks {
            let due = super::submit::due(task, now);
            let lane = (task.tenant.as_str(), task.task_type.as_str(), task.priority);
            earliest.entry(lane).and_modify(|known: &mut Time| *known = due.min(*known)).or_insert(due);
        }
        let lane_due = |((tenant, lane, priority), due): ((&str, &str, Option<u8>), Time)| LaneDue {
            launched: 0,
            tenant: tenant.to_owned(),
            lane: lane.to_owned(),
            rank: priority.map(|priority| 9 - i16::from(priority)),
            due,
        };
        earliest.into_iter().map(lane_due).collect()
    }
}

fn key(tenant: Option<&str>, lane: &str) -> Key {
    (tenant.map(str::to_owned), lane.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Insert;
    use taskwheel_model::TaskId;

    fn picked(id: i64) -> Picked {
        let task = Arc::new(NewTask::new("mail"));
        let insert = Insert { task, priority: 1, run_at: Time(7), slot: None, created_at: Time(7), origin: None };
        insert.picked(TaskId(id), "mail")
    }

    #[test]
    fn a_scan_goes_on_behind_the_last_task_and_where_nothing_was_left_at_its_time() {
        let (marks, mut lanes) = (Watermarks::default(), [lane()]);
        assert_eq!(marks.start(None, &mut lanes), Scan::Full);
        let took = FULL_CHEAP * 2;
        marks.learn(None, &lanes, Scan::Full, took, (&[picked(1), picked(2)], false));
        assert_eq!(marks.start(None, &mut lanes), Scan::Hinted);
        assert_eq!(lanes[0].marks[8], (7, 2));
        marks.learn(None, &lanes, Scan::Hinted, took, (&[picked(3)], true));
        assert_eq!(marks.start(None, &mut lanes), Scan::Hinted);
        assert_eq!(lanes[0].marks[8], (7, i64::MIN));
    }

    fn lane() -> PickLane {
        PickLane { lane: "mail".into(), plain_only: false, marks: FROM_THE_START }
    }

    #[tokio::test]
    async fn long_scans_of_a_lane_take_turns() {
        let (marks, lanes) = (Watermarks::default(), [lane()]);
        marks.learn(None, &lanes, Scan::Full, FULL_CHEAP * 2, (&[], true));
        let first = marks.turn(None, &lanes).await;
        assert!(first.is_some());
        assert!(marks.turn(None, &lanes).await.is_none(), "it goes on without its turn after a while");
        drop(first);
        assert!(marks.turn(None, &lanes).await.is_some());
    }
}
