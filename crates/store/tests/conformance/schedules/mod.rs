//! Schedules: what fires, when, and what becomes of it. Here are the verbs that let the facts read like prose.

mod changes;
mod firing;
mod handover;
mod overlap;
mod records;
mod shards;
mod tree;

use crate::support::{Platform, worker};
use serde_json::{Value, json};
use taskwheel_model::{Definition, Outcome, RunStatus, ScheduleStatus, Status, TaskId, Timer, TimerSpec};
use taskwheel_store::access::Actor;
use taskwheel_store::schedule::{NewSchedule, Run, RunNow, RunQuery, Schedule, ScheduleEdit};
use taskwheel_store::worker::{ClaimedTask, Report};

/// What fires tasks of the type `job`, with fields of its definition.
pub(super) fn definition(fields: Value) -> Definition {
    let mut value = json!({"name": "nightly", "type": "job"});
    value.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    serde_json::from_value(value).expect("a definition")
}

/// A timer on a grid that begins at once.
pub(super) fn every(period_ms: i64) -> Timer {
    Timer::new(TimerSpec::FixedRate { period_ms, initial_delay_ms: period_ms })
}

/// A timer that fires so long after its run ended.
pub(super) fn after(period_ms: i64) -> Timer {
    Timer::new(TimerSpec::FixedDelay { period_ms, initial_delay_ms: period_ms })
}

impl Platform {
    /// Makes a schedule that is online.
    pub(super) async fn schedule(&self, fields: Value, timers: Vec<Timer>) -> Schedule {
        let status = ScheduleStatus::Online;
        let new = NewSchedule { tenant: "default".into(), definition: definition(fields), timers, status };
        self.store.create_schedule(Actor::application(), new).await.expect("the schedule is made")
    }

    pub(super) async fn edit_schedule(&self, id: i64, edit: ScheduleEdit) -> Schedule {
        let edited = self.store.edit_schedule(Actor::application(), None, id, edit).await;
        edited.expect("the edit goes through").expect("the schedule is there")
    }

    pub(super) async fn set_schedule(&self, id: i64, status: ScheduleStatus) -> Schedule {
        self.edit_schedule(id, ScheduleEdit { status: Some(status), ..ScheduleEdit::default() }).await
    }

    /// Fires what is due, and says how many runs that made.
    pub(super) async fn fire(&self) -> usize {
        let mut runs = 0;
        loop {
            let fired = self.store.fire(100).await.expect("the firing goes through");
            runs += fired.runs;
            if !fired.more {
                return runs;
            }
        }
    }

    /// Lets time pass and fires what is due by then.
    pub(super) async fn fire_after(&self, ms: i64) -> usize {
        self.advance_ms(ms);
        self.fire().await
    }

    /// The runs of a schedule, oldest first.
    pub(super) async fn runs(&self, schedule: &Schedule) -> Vec<Run> {
        let query = RunQuery { schedule_id: Some(schedule.id), limit: 500, ..RunQuery::default() };
        let mut runs = self.store.runs(query).await.expect("the list answers");
        runs.reverse();
        runs
    }

    pub(super) async fn run(&self, id: i64) -> Run {
        self.store.run(None, id).await.expect("the read goes through").expect("the run is there")
    }

    /// The statuses of a schedule's runs, oldest first, with their reasons.
    pub(super) async fn run_statuses(&self, schedule: &Schedule) -> Vec<(RunStatus, Option<String>)> {
        self.runs(schedule).await.into_iter().map(|run| (run.status, run.reason)).collect()
    }

    pub(super) async fn run_now(&self, schedule: &Schedule) -> RunNow {
        let answer = self.store.run_schedule(Actor::application(), None, schedule.id).await;
        answer.expect("the call goes through").expect("the schedule is there")
    }

    pub(super) async fn cancel_run(&self, id: i64) -> Run {
        let answer = self.store.cancel_run(Actor::application(), None, id).await;
        answer.expect("the call goes through").expect("the run is there")
    }

    /// A worker does the only due task of a type well, with a result.
    pub(super) async fn do_one(&self, task_type: &str, result: Value) -> ClaimedTask {
        let claimed = self.claim_one_for(worker(&[task_type])).await;
        let report = Report::new(claimed.id, claimed.exec_id, Outcome::Success);
        self.report(Report { result: Some(result.to_string()), ..report }).await;
        claimed
    }
}

/// The nodes of a run by name, with the statuses of their tasks.
pub(super) fn tree(run: &Run) -> Vec<(String, Option<Status>)> {
    let name =
        |name: &Option<String>, task_type: &Option<String>| name.clone().or(task_type.clone()).unwrap_or_default();
    run.tasks.iter().map(|task| (name(&task.name, &task.task_type), task.status)).collect()
}

/// The tasks of a run.
pub(super) fn task_ids(run: &Run) -> Vec<TaskId> {
    run.tasks.iter().filter_map(|task| task.id).collect()
}
