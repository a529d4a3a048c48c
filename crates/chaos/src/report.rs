//! What a run ends with: for people who wait, and as a page.

use crate::check::{LAWS, Violation};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use taskwheel_store::Dialect;

/// So many violations of a law are shown.
const SHOWN_MAX: usize = 5;

pub(crate) struct Report {
    pub(crate) dialect: Dialect,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    /// Whether all faults were to be made.
    pub(crate) is_whole: bool,
    pub(crate) facts: usize,
    pub(crate) tasks: usize,
    /// Runs of schedules.
    pub(crate) runs: usize,
    pub(crate) drained: Option<Duration>,
    pub(crate) drain_max: Duration,
    pub(crate) faults: BTreeMap<String, usize>,
    pub(crate) guards: BTreeMap<&'static str, usize>,
    pub(crate) violations: Vec<Violation>,
}

impl Report {
    fn database(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "SQLite",
            Dialect::Postgres => "PostgreSQL",
            Dialect::Mysql => "MariaDB",
        }
    }

    /// Whether every law held.
    pub(crate) fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// Faults and guards that never came.
    fn unproven(&self) -> Vec<&str> {
        if !self.is_whole {
            return Vec::new();
        }
        let faults = self.faults.iter().map(|(name, count)| (name.as_str(), count));
        let guards = self.guards.iter().map(|(name, count)| (*name, count));
        faults.chain(guards).filter(|(_, count)| **count == 0).map(|(name, _)| name).collect()
    }

    fn text(&self) -> String {
        let mut text = format!("## {}\n\n", self.database());
        let bound = self.drain_max.as_secs();
        let drained = self.drained.map_or_else(
            || format!("not within {bound} s"),
            |drained| format!("{:.1} s after the load ended (bound {bound} s)", drained.as_secs_f64()),
        );
        let _ = writeln!(
            text,
            "Seed {}, {} s of faults. {} tasks, {} runs of schedules, {} facts in the history. Drained: {drained}.\n",
            self.seed, self.seconds, self.tasks, self.runs, self.facts
        );
        let _ = writeln!(text, "| law | |\n|---|---|");
        for law in LAWS {
            let broken: Vec<_> = self.violations.iter().filter(|violation| violation.law == law).collect();
            let outcome = if broken.is_empty() { "held".to_owned() } else { format!("BROKEN {} times", broken.len()) };
            let _ = writeln!(text, "| {} | {outcome} |", law.text());
        }
        for (title, counts) in [("fault", self.fault_counts()), ("guard", self.guard_counts())] {
            let _ = writeln!(text, "\n| {title} | times |\n|---|---|");
            for (name, count) in counts {
                let _ = writeln!(text, "| {name} | {count} |");
            }
        }
        for law in LAWS {
            for violation in self.violations.iter().filter(|violation| violation.law == law).take(SHOWN_MAX) {
                let _ = writeln!(text, "\n{law:?}: {}", violation.what);
            }
        }
        let unproven = self.unproven();
        if !unproven.is_empty() {
            let _ = writeln!(text, "\nIt proved less than it should: these never happened: {}.", unproven.join("; "));
        }
        text
    }

    fn fault_counts(&self) -> Vec<(&str, usize)> {
        self.faults.iter().map(|(name, count)| (name.as_str(), *count)).collect()
    }

    fn guard_counts(&self) -> Vec<(&str, usize)> {
        self.guards.iter().map(|(name, count)| (*name, *count)).collect()
    }

    #[expect(clippy::print_stdout, reason = "the report is the output")]
    pub(crate) fn print(&self) {
        println!("{}", self.text());
        let word = if self.holds() { "every law held" } else { "BROKEN" };
        println!("{}: {word}; seed {}\n", self.database(), self.seed);
    }
}

/// The reports of several databases as a page.
pub(crate) fn page(reports: &[Report]) -> String {
    let mut page =
        "# A run of the fault harness\n\nWritten by `./chaos`; what it does is in [chaos.md](chaos.md).\n".to_owned();
    for report in reports {
        let _ = write!(page, "\n{}", report.text());
    }
    page
}
