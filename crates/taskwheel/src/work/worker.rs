//! The worker's loop. All state is here; what takes time is spawned and comes back as an event.
//!
//! A task takes one of the worker's places from its claim until its report is answered. So the worker never has more than
//! it can run, nor owes more than that to a server that is away.

use super::WorkArgs;
use super::capture::Printed;
use super::command::{self, Ended};
use super::journal::Journal;
use super::link::Link;
use super::places::Places;
use super::protocol::{ClaimRequest, Outcome, RenewRequest, Report, ReportedItem, Task};
use crate::api::{Api, ApiError};
use crate::duration::in_milliseconds;
use crate::output;
use anyhow::{Result, anyhow, bail};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::limits::RESULT_BYTES_MAX;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// How long killed commands and their reports may still take when the worker stops.
const LAST_REPORTS_TIME_MAX: Duration = Duration::from_secs(5);
/// What is said of a task that was taken away while it ran.
const NOT_OURS: &str = "killed, it is no longer ours";
/// A report with more is sent in several.
const REPORT_BYTES_MAX: usize = 1024 * 1024;

/// A worker at work.
pub(super) struct Worker {
    args: WorkArgs,
    host: String,
    worker_id: String,
    command: Arc<[OsString]>,
    link: Arc<Link>,
    journal: Journal,
    places: Places,
    /// Reports that wait for the one under way.
    unsent: Vec<Report>,
    events: JoinSet<Event>,
    claiming: Option<AbortHandle>,
    is_renewing: bool,
    is_reporting: bool,
    /// The last claim brought nothing, and nothing has happened since that could have brought new tasks.
    is_dry: bool,
    phase: Phase,
    /// Why the worker stops by itself.
    failure: Option<anyhow::Error>,
}

enum Event {
    Claimed(Result<Vec<Task>, ApiError>),
    Ended(String, Ended),
    /// The executions that are no longer ours.
    Renewed(Result<Vec<String>, ApiError>),
    Reported(Vec<(Report, Result<ReportedItem, ApiError>)>),
}

#[derive(Clone, Copy)]
enum Phase {
    Working,
    /// Claims nothing; commands run on until then.
    Stopping(Instant),
    /// Commands are killed; their reports are sent until then.
    Killing(Instant),
}

impl Worker {
    pub(super) fn new(api: Api, is_json: bool, mut args: WorkArgs, host: String, worker_id: String) -> Worker {
        Worker {
            command: std::mem::take(&mut args.command).into(),
            journal: Journal { is_json, is_quiet: args.quiet },
            args,
            host,
            worker_id,
            link: Arc::new(Link::new(api)),
            places: Places::default(),
            unsent: Vec::new(),
            events: JoinSet::new(),
            claiming: None,
            is_renewing: false,
            is_reporting: false,
            is_dry: false,
            phase: Phase::Working,
            failure: None,
        }
    }

    /// Works until it is told to stop or, when draining, nothing is waiting.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut heartbeat = interval_at(Instant::now() + self.args.heartbeat, self.args.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !self.args.drain && !self.args.quiet {
            output::say("waiting for tasks; Ctrl-C stops");
        }
        while !self.is_done() {
            self.claim();
            self.report();
            let deadline = self.deadline();
            tokio::select! {
                Some(event) = self.events.join_next() => match event {
                    Ok(event) => self.on_event(event),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => return Err(error.into()),
                },
                _ = heartbeat.tick() => self.renew(),
                _ = terminate.recv() => self.stop()?,
                _ = interrupt.recv() => self.stop()?,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => self.stop()?,
            }
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn is_done(&self) -> bool {
        let is_drained = self.args.drain && self.is_dry;
        self.places.taken() == 0 && (is_drained || !matches!(self.phase, Phase::Working))
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Working => None,
            Phase::Stopping(deadline) | Phase::Killing(deadline) => Some(deadline),
        }
    }

    /// Goes one step further towards the end: at a signal, and when the time of a step is over.
    fn stop(&mut self) -> Result<()> {
        match self.phase {
            Phase::Working => {
                // A claim that is answered all the same is given back by the server, since nobody names its tasks.
                if let Some(claiming) = self.claiming.take() {
                    claiming.abort();
                }
                self.phase = Phase::Stopping(Instant::now() + self.args.grace);
                if self.places.taken() > 0 {
                    let (count, grace) = (self.places.taken(), self.args.grace);
                    output::say(&format_args!(
                        "stopping: {count} tasks may run on for {grace:?}; a second signal kills them"
                    ));
                }
            }
            Phase::Stopping(_) => {
                self.phase = Phase::Killing(Instant::now() + LAST_REPORTS_TIME_MAX);
                self.places.kill_all();
            }
            Phase::Killing(_) => {
                bail!("{} tasks could not be reported; the server runs them again", self.places.taken())
            }
        }
        Ok(())
    }

    /// Stops by itself.
    fn fail(&mut self, error: anyhow::Error) {
        if matches!(self.phase, Phase::Working) {
            self.failure = Some(error);
            // From the first step there is no error.
            let _ = self.stop();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Claimed(answer) => self.on_claimed(answer),
            Event::Ended(exec_id, ended) => self.on_ended(exec_id, ended),
            Event::Renewed(answer) => self.on_renewed(answer),
            Event::Reported(answers) => self.on_reported(answers),
        }
    }

    /// Asks for as many tasks as there are free places.
    fn claim(&mut self) {
        let free = usize::from(self.args.concurrency) - self.places.taken();
        let is_wanted = free > 0 && !(self.args.drain && self.is_dry) && matches!(self.phase, Phase::Working);
        if !is_wanted || self.claiming.is_some() {
            return;
        }
        let request = ClaimRequest {
            worker_id: self.worker_id.clone(),
            host: self.host.clone(),
            app: self.args.app.clone(),
            types: self.args.types.clone(),
            categories: self.args.categories.clone(),
            heartbeat_ms: in_milliseconds(self.args.heartbeat),
            max: free,
            wait_ms: if self.args.drain { 0 } else { in_milliseconds(self.args.wait) },
        };
        let link = self.link.clone();
        self.claiming = Some(self.events.spawn(async move { Event::Claimed(link.claim(&request).await) }));
    }

    fn on_claimed(&mut self, answer: Result<Vec<Task>, ApiError>) {
        self.claiming = None;
        match answer {
            Ok(tasks) => {
                self.is_dry = tasks.is_empty();
                tasks.into_iter().for_each(|task| self.start(task));
            }
            Err(error) => self.fail(error.into()),
        }
    }

    fn start(&mut self, task: Task) {
        // An earlier execution of the same task has lost it: its time was over.
        if let Some(exec_id) = self.places.held_of(task.id) {
            self.abandon(&exec_id, NOT_OURS);
        }
        let killed = self.places.take(&task);
        if !matches!(self.phase, Phase::Working) {
            return self.on_ended(task.exec_id, Ended::Killed);
        }
        let command = self.command.clone();
        self.events.spawn(async move {
            let ended = command::run(&command, &task, killed).await;
            Event::Ended(task.exec_id, ended)
        });
    }

    fn on_ended(&mut self, exec_id: String, ended: Ended) {
        if let Ended::OutOfTime = ended {
            self.abandon(&exec_id, "killed, its time was over");
        }
        let Some(id) = self.places.end(&exec_id) else { return };
        let nothing = Printed { result: None, is_cut: false };
        let (outcome, printed, error) = match ended {
            Ended::Success(printed) => (Outcome::Success, printed, None),
            Ended::Error(error) => (Outcome::Error, nothing, Some(error)),
            Ended::Killed | Ended::OutOfTime => (Outcome::Release, nothing, None),
            Ended::CannotStart(error) => {
                let program = self.command.first().map(|program| program.display().to_string()).unwrap_or_default();
                self.fail(anyhow!("cannot run {program}: {error}"));
                (Outcome::Release, nothing, None)
            }
        };
        let Printed { result, is_cut } = printed;
        if is_cut {
            output::say(&format_args!(
                "warning: the result of task {id} is longer than {RESULT_BYTES_MAX} bytes, and only its start is kept"
            ));
        }
        self.unsent.push(Report { id, exec_id, outcome, result, is_cut, error });
    }

    /// Tells the server that the worker lives and what it works on.
    fn renew(&mut self) {
        // While draining, tasks may have come by now.
        self.is_dry = false;
        if self.is_renewing || self.places.taken() == 0 {
            return;
        }
        let request = RenewRequest { worker_id: self.worker_id.clone(), items: self.places.renewals() };
        let (link, heartbeat) = (self.link.clone(), self.args.heartbeat);
        self.is_renewing = true;
        self.events.spawn(async move { Event::Renewed(link.renew(request, heartbeat).await) });
    }

    fn on_renewed(&mut self, answer: Result<Vec<String>, ApiError>) {
        self.is_renewing = false;
        match answer {
            Ok(lost) => lost.iter().for_each(|exec_id| self.abandon(exec_id, NOT_OURS)),
            // The next heartbeat tries again.
            Err(error) if error.is_passing() => {}
            Err(error) => self.fail(error.into()),
        }
    }

    /// Kills the command of an execution that is no longer ours, and says why.
    fn abandon(&mut self, exec_id: &str, why: &str) {
        if let Some(execution) = self.places.abandon(exec_id) {
            self.journal.say(execution, why);
        }
    }

    /// Sends what has ended by now, unless a report is under way.
    fn report(&mut self) {
        if self.is_reporting || self.unsent.is_empty() {
            return;
        }
        let mut bytes = 0;
        let is_within = |report: &&Report| {
            bytes += report.bytes();
            bytes <= REPORT_BYTES_MAX
        };
        let count = self.unsent.iter().take_while(is_within).count().max(1);
        let reports = self.unsent.drain(..count).collect();
        let link = self.link.clone();
        self.is_reporting = true;
        self.events.spawn(async move { Event::Reported(link.report(reports).await) });
    }

    fn on_reported(&mut self, answers: Vec<(Report, Result<ReportedItem, ApiError>)>) {
        self.is_reporting = false;
        self.is_dry = false;
        for (report, answer) in answers {
            let Some(execution) = self.places.leave(&report.exec_id) else { continue };
            match answer {
                Ok(item) => self.journal.reported(&execution, &report, item),
                // While this worker lives the task would stay its own, and never be run again.
                Err(error) => self.fail(anyhow!(error).context(format!("the report of task {}", report.id))),
            }
        }
    }
}
