//! The witness of timers and runs: every due time once, every node once, no more runs at a time than the schedule allows.

use crate::draft::{Draft, Note};
use crate::store::{RunNumber, Store, TaskNumber, TimerNumber, TimerRow};
use crate::witness::{Broken, Promise, broken};
use std::collections::{BTreeMap, BTreeSet};
use taskwheel_model::schedule::Overlap;
use taskwheel_model::timer::Due;
use taskwheel_model::{Misfire, MisfirePolicy, Rhythm, RunStatus, Status, Time, limits};

#[derive(Default)]
pub(crate) struct Clockwork {
    /// The due time that comes next of each timer, or none until a run ends.
    cursors: BTreeMap<TimerNumber, Option<Time>>,
    fired: BTreeSet<(TimerNumber, Time)>,
    started: BTreeSet<(RunNumber, Vec<usize>, u32)>,
    /// Runs that had ended and live again, because a person wanted one of their tasks tried again. No schedule forbids that.
    revived: BTreeSet<RunNumber>,
}

impl Clockwork {
    pub(crate) fn note(&mut self, store: &Store, draft: &Draft, note: &Note) -> Result<(), Broken> {
        match note {
            Note::Set { timer, cursor } => {
                self.cursors.insert(*timer, *cursor);
                Ok(())
            }
            Note::Fired { timer, cursor, misfire, due, inserted } => {
                self.once(store, *timer, *cursor, inserted)?;
                let Some(row) = store.timers.get(timer) else { return Ok(()) };
                accounted(&row.rhythm, *cursor, draft.at, *misfire, due, inserted)?;
                self.cursors.insert(*timer, draft.timers[timer].as_ref().and_then(|row| row.cursor));
                Ok(())
            }
            Note::Started { task } => self.started(store, draft, *task),
            _ => Ok(()),
        }
    }

    /// No due time comes twice, and none is passed over.
    fn once(&mut self, store: &Store, timer: TimerNumber, cursor: Time, inserted: &[Time]) -> Result<(), Broken> {
        let expected = self.cursors.get(&timer).copied().flatten();
        let twice = inserted.iter().find(|due| !self.fired.insert((timer, **due)));
        if twice.is_some() || expected.is_none_or(|next| cursor < next) || !store.timers.contains_key(&timer) {
            let how = format!("timer {timer} fired from {cursor:?} again, and {expected:?} was next");
            return broken(Promise::DueTimeFiresOnce, how);
        }
        if expected.is_some_and(|next| cursor > next) {
            let how = format!("timer {timer} fired from {cursor:?}, and {expected:?} was next");
            return broken(Promise::DueTimeIsAccountedFor, how);
        }
        Ok(())
    }

    /// When everything that is due has fired: no timer that is online has stayed where it was.
    pub(crate) fn all_go_on(&self, store: &Store, now: Time) -> Result<(), Broken> {
        let cursor = |timer: &TimerNumber| self.cursors.get(timer).copied().flatten();
        let is_online = |row: &TimerRow| store.schedules[row.schedule].is_online;
        let is_behind = |timer: &TimerNumber| cursor(timer).is_some_and(|due| due <= now);
        match store.timers.iter().find(|(timer, row)| is_online(row) && is_behind(timer)) {
            Some((timer, _)) => {
                let how = format!("timer {timer} stands still: {:?} was next, and it is {now:?}", cursor(timer));
                broken(Promise::DueTimeIsAccountedFor, how)
            }
            None => Ok(()),
        }
    }

    /// A node starts once, and when all of its parent has ended well.
    fn started(&mut self, store: &Store, draft: &Draft, task: TaskNumber) -> Result<(), Broken> {
        let Some(place) = draft.tasks[&task].step.clone() else { return Ok(()) };
        let well = |status: Status| matches!(status, Status::Success | Status::ManuallyProcessed);
        let is_ready = place.path.split_last().is_none_or(|(_, above)| {
            let rows = draft.tasks_of(store, place.run).into_iter().filter_map(|task| draft.peek(store, task));
            let mut parents = rows.filter(|row| row.step.as_ref().is_some_and(|step| step.path == above)).peekable();
            parents.peek().is_some() && parents.all(|row| well(row.life.status()))
        });
        if !self.started.insert((place.run, place.path.clone(), place.shard)) || !is_ready {
            return broken(Promise::NodeStartsOnceAfterItsParent, format!("{place:?} was started by task {task}"));
        }
        Ok(())
    }

    /// Before a commit: which runs live again.
    pub(crate) fn revive(&mut self, store: &Store, draft: &Draft) {
        for (number, run) in &draft.runs {
            if run.status.lives() && store.runs.get(number).is_some_and(|before| !before.status.lives()) {
                self.revived.insert(*number);
            }
        }
    }

    /// After it: a run that began goes on alone, unless its schedule allows others beside it.
    pub(crate) fn committed(&self, store: &Store, draft: &Draft) -> Result<(), Broken> {
        for note in &draft.notes {
            let Note::Began { run } = note else { continue };
            let one = &store.runs[run];
            if one.status != RunStatus::Running || one.definition.overlap == Overlap::Allow {
                continue;
            }
            let of_schedule = store.running.range((one.schedule, 0)..(one.schedule + 1, 0));
            let is_running = |run: &RunNumber| store.runs[run].status == RunStatus::Running;
            let running = of_schedule.filter(|(_, run)| is_running(run) && !self.revived.contains(run)).count();
            if running > 1 {
                return broken(Promise::OverlapIsKept, format!("{running} runs go on when run {run} begins"));
            }
        }
        Ok(())
    }
}

/// Counts the due times one by one, and compares with what was decided about all of them at once.
fn accounted(
    rhythm: &Rhythm,
    cursor: Time,
    at: Time,
    misfire: Misfire,
    due: &Due,
    inserted: &[Time],
) -> Result<(), Broken> {
    let mut all: Vec<_> =
        std::iter::successors(Some(cursor), |due| rhythm.next_due(*due)).take_while(|due| *due <= at).collect();
    let next = all.last().and_then(|last| rhythm.next_due(*last));
    let late = all.partition_point(|due| *due < at.plus_ms(-limits::MISSED_AFTER_MS));
    let fires_late = match misfire.policy {
        MisfirePolicy::Skip => 0,
        MisfirePolicy::FireOnce => late.min(1),
        MisfirePolicy::CatchUp => late.min(misfire.max as usize),
    };
    let missed = due.missed.map_or((0, 0), |missed| (missed.count, missed.fired));
    all.drain(..late - fires_late);
    let is_right = due.fire == all
        && inserted == all
        && missed == (late as u64, fires_late as u64)
        && (due.next == next || rhythm.waits_for_run());
    if !is_right {
        let how = format!("from {cursor:?} at {at:?} {all:?} should fire, {inserted:?} did: {due:?}");
        return broken(Promise::DueTimeIsAccountedFor, how);
    }
    Ok(())
}
