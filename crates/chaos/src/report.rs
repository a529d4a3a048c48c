//! What a run ends with: for people who wait, and as a page.

use crate::check::{LAWS, Law, Violation};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
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
    /// Whether the tasks could be read: without, only what needs none is checked.
    pub(crate) is_readable: bool,
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

fn name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "SQLite",
        Dialect::Postgres => "PostgreSQL",
        Dialect::Mysql => "MariaDB",
    }
}

/// Says what begins: a run that does not come to its end can be repeated by its seed too.
#[expect(clippy::print_stderr, reason = "the output is for the report")]
pub(crate) fn announce(dialect: Dialect, seed: u64) {
    eprintln!("{}: seed {seed}", name(dialect));
}

impl Report {
    fn database(&self) -> &'static str {
        name(self.dialect)
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

    /// What became of a law.
    fn outcome(&self, law: Law) -> String {
        let is_checked = self.is_readable || matches!(law, Law::Drains | Law::InOnePlace);
        match self.violations.iter().filter(|violation| violation.law == law).count() {
            0 if is_checked => "held".to_owned(),
            0 => "not checked".to_owned(),
            times => format!("BROKEN {times} times"),
        }
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
            let _ = writeln!(text, "| {} | {} |", law.text(), self.outcome(law));
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

/// The commit of the checkout that the harness is started in, with a mark where files differ from it; none where there is no checkout.
pub(crate) fn commit() -> Option<String> {
    let said = Command::new("git").args(["describe", "--always", "--dirty"]).output().ok()?;
    let text = String::from_utf8(said.stdout).ok().filter(|_| said.status.success())?;
    Some(text.trim().to_owned())
}

/// The reports of several databases as a page, which is all that is said of a run.
pub(crate) fn page(reports: &[Report], commit: Option<&str>) -> String {
    let mut page = "# A run of the fault harness\n\n".to_owned();
    if let Some(Report { seconds, seed, .. }) = reports.first() {
        let length =
            if seconds % 60 == 0 { format!("--minutes {}", seconds / 60) } else { format!("--seconds {seconds}") };
        let databases: Vec<_> = reports.iter().map(Report::database).collect();
        let of = commit.map_or(String::new(), |commit| format!(", of the code at {commit}"));
        let _ = writeln!(
            page,
            "Written by `./chaos {length} --seed {seed} --report FILE`{of}, on {}, one after the other. What it does, what it checks and what it
has found so far is in [chaos.md](chaos.md).",
            databases.join(", ")
        );
    }
    for report in reports {
        let _ = write!(page, "\n{}", report.text());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            dialect: Dialect::Sqlite,
            seed: 7,
            seconds: 600,
            is_whole: true,
            is_readable: true,
            facts: 1,
            tasks: 1,
            runs: 1,
            drained: Some(Duration::from_secs(1)),
            drain_max: Duration::from_secs(60),
            faults: BTreeMap::from([("kill -9 of a server".to_owned(), 1), ("disk full".to_owned(), 0)]),
            guards: BTreeMap::from([("a lease ran out", 0), ("a time limit ran out", 2)]),
            violations: Vec::new(),
        }
    }

    #[test]
    fn a_fault_or_a_guard_that_never_came_is_named() {
        assert_eq!(report().unproven(), ["disk full", "a lease ran out"]);
        let says = "It proved less than it should: these never happened: disk full; a lease ran out.";
        assert!(report().text().contains(says));
        let only_some = Report { is_whole: false, ..report() };
        assert!(only_some.unproven().is_empty() && !only_some.text().contains("proved less"));
        let mut all = report();
        all.faults.insert("disk full".to_owned(), 1);
        all.guards.insert("a lease ran out", 1);
        assert!(all.unproven().is_empty() && !all.text().contains("proved less"));
    }

    #[test]
    fn a_law_that_was_not_checked_is_not_said_to_have_held() {
        let torn = Violation { law: Law::InOnePlace, what: "1 tasks are not in one place".into() };
        let report = Report { is_readable: false, violations: vec![torn], ..report() };
        assert_eq!(report.outcome(Law::InOnePlace), "BROKEN 1 times");
        assert_eq!(report.outcome(Law::Drains), "held");
        for law in LAWS.into_iter().filter(|law| !matches!(law, Law::Drains | Law::InOnePlace)) {
            assert_eq!(report.outcome(law), "not checked");
        }
    }

    #[test]
    fn a_page_says_how_it_is_made_again() {
        let page = page(&[report()], Some("1874bcf"));
        assert!(page.starts_with("# A run of the fault harness\n"), "{page}");
        let made = "`./chaos --minutes 10 --seed 7 --report FILE`, of the code at 1874bcf, on SQLite";
        assert!(page.contains(made), "{page}");
    }

    #[test]
    fn a_page_that_was_made_in_no_checkout_names_no_commit() {
        assert!(page(&[report()], None).contains("--report FILE`, on SQLite"));
    }
}
