//! Settings that could be the fastest: each is tried once, and the fastest is measured.
//!
//! A trial has all the jobs and all the time of a run: fast systems would be done with fewer before drivers, which look now and then, could
//! tell one setting from another, and a setting that is not a peer's fastest would flatter ours.

use super::failed;
use super::measure::Entrant;
use super::settings::{Flags, Measure};
use super::systems::{JOBS, OWN};
use crate::common::report::progress;
use crate::floor::Result;

/// What the trials of a system's settings came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    setting: &'static str,
    /// Those that failed, with the reason.
    failures: Vec<String>,
}

impl Measure {
    /// The measurement that its settings are tried with: what is the fastest depends on how many there are at work.
    fn trial(self) -> Option<Measure> {
        match self {
            Measure::Drain1 | Measure::Future | Measure::Horizon => Some(Measure::Drain1),
            Measure::Drain2 => Some(Measure::Drain2),
            Measure::Submit16 | Measure::Submit64 => Some(self),
            Measure::Submit1 | Measure::Submit64Own | Measure::Bulk | Measure::Latency | Measure::Delayed => None,
        }
    }

    /// Does it work off jobs as fast as it can?
    fn drains(self) -> bool {
        matches!(self.trial(), Some(Measure::Drain1 | Measure::Drain2))
    }
}

impl Entrant {
    /// Tries the settings of a measurement, unless that was done.
    pub(super) async fn choose(&mut self, measure: Measure, flags: &Flags) -> Result<()> {
        let Some(trial) = measure.trial().filter(|trial| self.choice(*trial).is_none()) else { return Ok(()) };
        let settings = self.settings(trial);
        if settings.len() < 2 {
            return Ok(());
        }
        let mut tried = Vec::new();
        for &setting in settings {
            self.trying = Some(setting);
            let rate = self.measure(trial, flags).await.map(|values| values[0][0]);
            self.trying = None;
            let said = rate.as_ref().map_or_else(ToString::to_string, |rate| format!("{rate:.0}/s"));
            progress(&format!("trying {} with {setting}: {said}", self.system.name));
            tried.push((setting, rate));
        }
        self.choices.push((trial, fastest(tried)?));
        Ok(())
    }

    /// The setting that a measurement is made with, if it has any.
    pub(super) fn setting(&self, measure: Measure) -> Option<&'static str> {
        let chosen = measure.trial().and_then(|trial| self.choice(trial)).map(|choice| choice.setting);
        self.trying.or(chosen).or_else(|| self.settings(measure).first().copied())
    }

    /// How its figure differs from the others of the row.
    pub(super) fn note(&self, measure: Measure, flags: &Flags) -> String {
        let (jobs, mut notes) = (self.jobs(measure, flags), Vec::new());
        if measure.drains() && jobs < flags.common.scaled(JOBS) {
            notes.push(format!("{jobs} jobs"));
        }
        if let Some(choice) = measure.trial().and_then(|trial| self.choice(trial)) {
            notes.push(format!("setting: {}", choice.setting));
            notes.extend(choice.failures.iter().cloned());
        }
        notes.join(", ")
    }

    fn choice(&self, trial: Measure) -> Option<&Choice> {
        self.choices.iter().find(|(tried, _)| *tried == trial).map(|(_, choice)| choice)
    }

    fn settings(&self, measure: Measure) -> &'static [&'static str] {
        match measure.trial() {
            Some(Measure::Submit16 | Measure::Submit64) => self.system.submits,
            Some(_) => self.system.drains,
            // There is no choice, but a driver that has one must be told.
            None if measure == Measure::Submit64Own && self.system.submits.contains(&OWN) => &[OWN],
            None => &[],
        }
    }
}

/// The fastest of those that did not fail. Only where all did, there is none.
fn fastest(tried: Vec<(&'static str, Result<f64>)>) -> Result<Choice> {
    let (mut best, mut failures, mut last) = (None, Vec::new(), None);
    for (setting, rate) in tried {
        match rate {
            Ok(rate) if best.is_none_or(|(known, _)| rate > known) => best = Some((rate, setting)),
            Ok(_) => {}
            Err(error) => {
                failures.push(format!("{setting} {}", failed(&*error)));
                last = Some(error);
            }
        }
    }
    match (best, last) {
        (Some((_, setting)), _) => Ok(Choice { setting, failures }),
        (None, error) => Err(error.unwrap_or_else(|| "nothing was tried".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_fails_is_noted_and_the_others_are_tried() {
        let tried = vec![("first", Err("it hangs".into())), ("second", Ok(10.0)), ("third", Ok(20.0))];
        let choice = fastest(tried).unwrap();
        assert_eq!(choice, Choice { setting: "third", failures: vec!["first failed: it hangs".into()] });
    }

    #[test]
    fn a_system_whose_settings_all_fail_has_none() {
        let tried = vec![("first", Err("it hangs".into())), ("second", Err("it ends".into()))];
        assert_eq!(fastest(tried).unwrap_err().to_string(), "it ends");
    }

    #[test]
    fn drains_with_one_process_share_a_choice_that_two_have_no_part_in() {
        assert_eq!([Measure::Future, Measure::Horizon].map(Measure::trial), [Some(Measure::Drain1); 2]);
        assert_eq!(Measure::Drain2.trial(), Some(Measure::Drain2));
    }
}
