//! One measurement of one system: what its driver is asked, and what of its answer counts.

use super::choice::Choice;
use super::place::Place;
use super::settings::{Flags, Measure};
use super::systems::{JOBS, System};
use crate::common::report::Unit;
use crate::common::statistics::percentile;
use crate::floor::Result;
use crate::peers::Program;
use serde_json::Value;

const SECONDS: f64 = 2.0;
const LATENCY_JOBS: u64 = 400;
/// As many a second as 10,000 over a minute, in a third of the time, so that there is time for several runs. A 99th percentile of so many
/// is that of 33 jobs.
const DELAYED_JOBS: u64 = 3_334;
const DELAYED_SECONDS: f64 = 20.0;
const FUTURE_ROWS: u64 = 1_000_000;
/// A percentile of fewer says nothing.
const TIMED_JOBS_MIN: u64 = 30;

/// A system whose driver is ready.
pub(super) struct Entrant {
    pub(super) system: &'static System,
    pub(super) program: Program,
    /// The settings that were the fastest when they were tried, by the measurement that they were tried with.
    pub(super) choices: Vec<(Measure, Choice)>,
    /// The setting that is just being tried.
    pub(super) trying: Option<&'static str>,
    /// Where it has a million rows to copy, while those are measured.
    pub(super) future: Option<Place>,
}

/// What a measurement puts into the table.
pub(super) struct Heading {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) unit: Unit,
}

impl Measure {
    /// The lines that it makes.
    pub(super) fn headings(self, flags: &Flags) -> Vec<Heading> {
        let line = |name, title: String, unit| Heading { name, title, unit };
        let rate = |name, title: String| vec![line(name, title, Unit::PerSecond)];
        let both = |p50, p99, title: String| {
            vec![
                line(p50, format!("{title}, p50"), Unit::Milliseconds),
                line(p99, format!("{title}, p99"), Unit::Milliseconds),
            ]
        };
        let scaled = |full| flags.common.scaled(full);
        let jobs = scaled(JOBS);
        match self {
            Measure::Submit1 => rate("submit1", "single submits, 1 client".into()),
            Measure::Submit16 => rate("submit16", "single submits, 16 clients".into()),
            Measure::Submit64 => rate("submit64", "single submits, 64 clients".into()),
            Measure::Submit64Own => {
                rate("submit64own", "single submits, 64 clients, a connection each, one job a call".into())
            }
            Measure::Bulk => rate("bulk", "bulk submits, 1,000 a call, 1 client".into()),
            Measure::Drain1 => vec![
                line("drain1", format!("drain of {jobs}, 1 worker process, vacuumed"), Unit::PerSecond),
                line("memory", format!("memory while draining {jobs}, 1 worker process, peak"), Unit::Megabytes),
            ],
            Measure::Drain2 => rate("drain2", format!("drain of {jobs}, 2 worker processes, vacuumed")),
            Measure::Latency => both("latency_p50", "latency_p99", "submit to start, idle".into()),
            Measure::Delayed => {
                let (jobs, seconds) = (scaled(DELAYED_JOBS), flags.common.seconds(DELAYED_SECONDS));
                both("delayed_p50", "delayed_p99", format!("lateness of {jobs} delayed over {seconds:.0} s"))
            }
            Measure::Future => {
                let rows = scaled(FUTURE_ROWS);
                rate("future", format!("drain of {jobs} beside {rows} future rows, 1 worker process, vacuumed"))
            }
            Measure::Horizon => {
                rate("horizon", format!("drain of {jobs} under a held horizon, 1 worker process, vacuumed before"))
            }
        }
    }

    fn processes(self) -> &'static str {
        if self == Measure::Drain2 { "2" } else { "1" }
    }
}

impl Entrant {
    /// The jobs of a drain.
    pub(super) fn jobs(&self, measure: Measure, flags: &Flags) -> u64 {
        let mut jobs = flags.common.scaled(JOBS).min(self.system.jobs_max);
        if measure == Measure::Future {
            jobs = jobs.min(self.system.beside_future_max);
        }
        jobs
    }

    /// Measures once. The answer has the values of each line.
    pub(super) async fn measure(&mut self, measure: Measure, flags: &Flags) -> Result<Vec<Vec<f64>>> {
        let place = match measure {
            Measure::Future => self.beside_future(flags).await?,
            _ => Place::new(self.system.storage, flags, self.system.name).await?,
        };
        let found = self.at(&place, measure, flags).await;
        place.remove().await?;
        found
    }

    async fn at(&self, place: &Place, measure: Measure, flags: &Flags) -> Result<Vec<Vec<f64>>> {
        let (url, seconds) = (place.url(), flags.common.seconds(SECONDS).to_string());
        let rate = |figures: Value| Ok(vec![vec![number(&figures, "rate")?]]);
        match measure {
            Measure::Submit1 => rate(self.submit(&url, "1", &seconds, measure).await?),
            Measure::Submit16 => rate(self.submit(&url, "16", &seconds, measure).await?),
            Measure::Submit64 | Measure::Submit64Own => rate(self.submit(&url, "64", &seconds, measure).await?),
            Measure::Bulk => rate(self.program.figures(&["bulk", &url, &seconds]).await?),
            Measure::Drain1 => {
                let figures = self.drain(place, measure, flags).await?;
                Ok(vec![vec![number(&figures, "rate")?], vec![number(&figures, "memory_mb")?]])
            }
            Measure::Drain2 | Measure::Future | Measure::Horizon => rate(self.drain(place, measure, flags).await?),
            Measure::Latency => {
                let jobs = flags.common.scaled(LATENCY_JOBS).max(TIMED_JOBS_MIN);
                let times = times(&self.program.figures(&["latency", &url, &jobs.to_string()]).await?, jobs)?;
                Ok(percentiles(&times))
            }
            Measure::Delayed => {
                let jobs = flags.common.scaled(DELAYED_JOBS).max(TIMED_JOBS_MIN);
                let (all, seconds) = (jobs.to_string(), flags.common.seconds(DELAYED_SECONDS).to_string());
                let mut command = vec!["delayed", &url, &all, &seconds];
                command.extend(self.system.polls_ms);
                Ok(percentiles(&times(&self.program.figures(&command).await?, jobs)?))
            }
        }
    }

    async fn submit(&self, url: &str, clients: &str, seconds: &str, measure: Measure) -> Result<Value> {
        let mut command = vec!["submit", url, clients, seconds];
        command.extend(self.setting(measure));
        self.program.figures(&command).await
    }

    /// Loads, vacuums and drains, and insists that all of it was done.
    async fn drain(&self, place: &Place, measure: Measure, flags: &Flags) -> Result<Value> {
        let (url, jobs) = (place.url(), self.jobs(measure, flags));
        // The floor has tables of its own, in the same state.
        if !self.system.is_floor() {
            self.program.run(&["load", &url, &jobs.to_string()]).await?;
            place.vacuum().await?;
        }
        let held = if measure == Measure::Horizon { place.hold().await? } else { None };
        let setting = self.setting(measure).unwrap_or_default();
        let drain = ["drain", &url, &jobs.to_string(), measure.processes(), setting];
        let figures = self.program.figures(&drain).await?;
        drop(held);
        let done = figures["done"].as_u64();
        if done != Some(jobs) {
            return Err(format!("of {jobs} jobs {} were done", done.unwrap_or_default()).into());
        }
        Ok(figures)
    }

    /// A place with a million rows for one run. They are loaded once and copied where that can be done, as loading them takes longer than
    /// a drain; every run begins with the same tables.
    async fn beside_future(&mut self, flags: &Flags) -> Result<Place> {
        let name = self.system.name;
        if let Some(rows) = &self.future {
            return rows.copy(name).await?.ok_or_else(|| "what was copied once cannot be copied again".into());
        }
        let loaded = Place::new(self.system.storage, flags, &format!("{name}-future")).await?;
        let rows = flags.common.scaled(FUTURE_ROWS).to_string();
        self.program.run(&["future", &loaded.url(), &rows]).await?;
        loaded.vacuum().await?;
        let Some(copy) = loaded.copy(name).await? else { return Ok(loaded) };
        self.future = Some(loaded);
        Ok(copy)
    }

    /// Removes what is kept from run to run.
    pub(super) async fn clean_up(&mut self) -> Result<()> {
        match self.future.take() {
            Some(place) => place.remove().await,
            None => Ok(()),
        }
    }
}

fn number(figures: &Value, name: &str) -> Result<f64> {
    figures[name].as_f64().filter(|value| value.is_finite()).ok_or_else(|| format!("it did not say its {name}").into())
}

/// How long each job took, which must be as many as there were.
fn times(figures: &Value, jobs: u64) -> Result<Vec<f64>> {
    let times: Vec<f64> = serde_json::from_value(figures["ms"].clone())?;
    if times.len() as u64 == jobs { Ok(times) } else { Err(format!("of {jobs} jobs {} ran", times.len()).into()) }
}

/// The median and the 99th percentile.
fn percentiles(times: &[f64]) -> Vec<Vec<f64>> {
    [0.5, 0.99].map(|share| vec![percentile(times, share)]).to_vec()
}
