//! One measurement of one system: what its driver is asked, and what of its answer counts.

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
const DELAYED_JOBS: u64 = 10_000;
const DELAYED_SECONDS: f64 = 60.0;
/// A minute of delayed jobs is measured once; its spread is that of its parts.
const DELAYED_PARTS: usize = 3;
/// A trial of a setting has a fifth of the jobs.
const TRIAL_SHARE: u64 = 5;
const FUTURE_ROWS: u64 = 1_000_000;
/// A percentile of fewer says nothing.
const TIMED_JOBS_MIN: u64 = 30;

/// A system whose driver is ready.
pub(super) struct Entrant {
    pub(super) system: &'static System,
    pub(super) program: Program,
    /// The setting of drains that was the fastest when it was tried.
    pub(super) setting: &'static str,
    /// Does it only try a setting? Then fewer jobs will do.
    pub(super) trying: bool,
    /// Where it has a million rows, while those are measured.
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

    /// How often it is done when so many runs are asked for.
    pub(super) fn runs(self, asked: usize) -> usize {
        if self == Measure::Delayed { 1 } else { asked }
    }

    fn processes(self) -> &'static str {
        if self == Measure::Drain2 { "2" } else { "1" }
    }
}

impl Entrant {
    /// The jobs of its drains.
    pub(super) fn jobs(&self, flags: &Flags) -> u64 {
        let jobs = flags.common.scaled(JOBS).min(self.system.jobs_max);
        if self.trying { jobs.div_ceil(TRIAL_SHARE) } else { jobs }
    }

    /// Measures once. The answer has the values of each line.
    pub(super) async fn measure(&mut self, measure: Measure, flags: &Flags) -> Result<Vec<Vec<f64>>> {
        if measure == Measure::Future {
            return self.drain_beside_future(flags).await;
        }
        let place = Place::new(self.system.storage, flags, self.system.name).await?;
        let found = self.at(&place, measure, flags).await;
        place.remove().await?;
        found
    }

    async fn at(&self, place: &Place, measure: Measure, flags: &Flags) -> Result<Vec<Vec<f64>>> {
        let (url, seconds) = (place.url(), flags.common.seconds(SECONDS).to_string());
        let rate = |figures: Value| Ok(vec![vec![number(&figures, "rate")?]]);
        match measure {
            Measure::Submit1 => rate(self.program.figures(&["submit", &url, "1", &seconds]).await?),
            Measure::Submit16 => rate(self.program.figures(&["submit", &url, "16", &seconds]).await?),
            Measure::Submit64 => rate(self.program.figures(&["submit", &url, "64", &seconds]).await?),
            Measure::Bulk => rate(self.program.figures(&["bulk", &url, &seconds]).await?),
            Measure::Drain1 => {
                let figures = self.drain(place, measure, flags).await?;
                Ok(vec![vec![number(&figures, "rate")?], vec![number(&figures, "memory_mb")?]])
            }
            Measure::Drain2 | Measure::Future | Measure::Horizon => rate(self.drain(place, measure, flags).await?),
            Measure::Latency => {
                let jobs = flags.common.scaled(LATENCY_JOBS).max(TIMED_JOBS_MIN);
                let times = times(&self.program.figures(&["latency", &url, &jobs.to_string()]).await?, jobs)?;
                Ok(percentiles(&[times]))
            }
            Measure::Delayed => {
                let jobs = flags.common.scaled(DELAYED_JOBS).max(TIMED_JOBS_MIN);
                let (all, seconds) = (jobs.to_string(), flags.common.seconds(DELAYED_SECONDS).to_string());
                let times = times(&self.program.figures(&["delayed", &url, &all, &seconds]).await?, jobs)?;
                let part = times.len().div_ceil(DELAYED_PARTS);
                Ok(percentiles(&times.chunks(part).map(<[f64]>::to_vec).collect::<Vec<_>>()))
            }
        }
    }

    /// Loads, vacuums and drains, and insists that all of it was done.
    async fn drain(&self, place: &Place, measure: Measure, flags: &Flags) -> Result<Value> {
        let (url, jobs) = (place.url(), self.jobs(flags));
        self.program.run(&["load", &url, &jobs.to_string()]).await?;
        place.vacuum().await?;
        let held = if measure == Measure::Horizon { place.hold().await? } else { None };
        let drain = ["drain", &url, &jobs.to_string(), measure.processes(), self.setting];
        let figures = self.program.figures(&drain).await?;
        drop(held);
        let done = figures["done"].as_u64();
        if done != Some(jobs) {
            return Err(format!("of {jobs} jobs {} were done", done.unwrap_or_default()).into());
        }
        Ok(figures)
    }

    /// The rows stay from run to run: loading a million takes longer than a drain.
    async fn drain_beside_future(&mut self, flags: &Flags) -> Result<Vec<Vec<f64>>> {
        let place = match self.future.take() {
            Some(place) => place,
            None => {
                let place = Place::new(self.system.storage, flags, self.system.name).await?;
                let rows = flags.common.scaled(FUTURE_ROWS).to_string();
                self.program.run(&["future", &place.url(), &rows]).await?;
                place
            }
        };
        let figures = self.drain(&place, Measure::Future, flags).await;
        self.future = Some(place);
        Ok(vec![vec![number(&figures?, "rate")?]])
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

/// The median of each part, and the 99th percentile of each.
fn percentiles(parts: &[Vec<f64>]) -> Vec<Vec<f64>> {
    [0.5, 0.99].map(|share| parts.iter().map(|part| percentile(part, share)).collect()).to_vec()
}
