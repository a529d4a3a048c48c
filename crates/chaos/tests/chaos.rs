//! The harness itself: short runs that break no law, each with the faults of a fixed seed; and servers that break a rule on purpose,
//! each of which the checker notices. A harness that has never caught anything proves nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the harness, with a server built for it.
fn chaos(arguments: &[&str]) -> Output {
    let harness = Path::new(env!("CARGO_BIN_EXE_taskwheel-chaos"));
    let target = harness.ancestors().nth(2).expect("a program lies in a target directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "taskwheel", "--bin", "taskwheel-faulty", "--features", "faults"]);
    build.arg("--target-dir").arg(target);
    assert!(build.status().expect("cargo starts").success(), "the server with faults is built");
    Command::new(harness).args(arguments).output().expect("the harness starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn every_law_holds(database: &str) {
    let output = chaos(&["--database", database, "--seconds", "30", "--seed", "20260101"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("every law held"), "{text}");
    let unproven =
        text.lines().find_map(|line| line.strip_prefix("It proved less than it should: these never happened: "));
    let unproven: Vec<_> = unproven.into_iter().flat_map(|names| names.trim_end_matches('.').split("; ")).collect();
    // Who may not mount a disk cannot fill one.
    let may_fill = database == "sqlite" || Path::new("/proc/self").metadata().expect("Linux").uid() == 0;
    // What is swallowed in half a minute can all be something that is done again.
    let is_excused = |name: &&str| name.starts_with("a commit was not answered") || *name == "disk full" && !may_fill;
    assert!(unproven.iter().all(is_excused), "{unproven:?} never happened\n{text}");
}

/// How often something happened, by the tables of a report.
#[track_caller]
fn times(text: &str, name: &str) -> usize {
    let row = text.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")));
    let times = row.and_then(|row| row.strip_suffix(" |")).and_then(|times| times.parse().ok());
    times.unwrap_or_else(|| panic!("{name} is not in the report\n{text}"))
}

#[test]
fn every_law_holds_on_sqlite() {
    every_law_holds("sqlite");
}

#[test]
fn every_law_holds_on_postgres() {
    every_law_holds("postgres");
}

#[test]
fn every_law_holds_on_mysql() {
    every_law_holds("mysql");
}

#[test]
fn clocks_an_hour_apart_change_nothing() {
    for database in ["postgres", "mysql"] {
        let output = chaos(&["--database", database, "--seconds", "12", "--only", "clock", "--seed", "3"]);
        let text = text(&output);
        assert!(output.status.success() && text.contains("every law held"), "{text}");
        assert!(times(&text, "clock off by 1 h") > 0 && times(&text, "clock off by -1 h") > 0, "{text}");
    }
}

/// So long a rule is broken, in seconds.
const BROKEN: &str = "6";
/// The same for what takes longer to show.
const BROKEN_LONG: &str = "10";
/// The same for what happens a few times in ten seconds.
const BROKEN_RARE: &str = "20";

/// Servers that break a rule are found to break a law.
#[track_caller]
fn is_noticed(rule: &str, laws: &[&str]) {
    is_noticed_on("sqlite", BROKEN, rule, laws);
}

/// The same; answers what was noticed.
#[track_caller]
fn is_noticed_on(database: &str, seconds: &str, rule: &str, laws: &[&str]) -> String {
    let output = chaos(&["--database", database, "--seconds", seconds, "--calm", "--drain", "20", "--break", rule]);
    let text = text(&output);
    assert!(!output.status.success(), "nothing was noticed\n{text}");
    for law in laws {
        assert!(text.contains(&format!("\n{law}: ")), "{law} was not noticed\n{text}");
    }
    text
}

#[test]
fn acknowledging_without_a_commit_is_noticed() {
    is_noticed("Commit", &["SubmitKept"]);
}

/// There a submit is a statement without a transaction around it, which cannot be rolled back.
#[test]
fn acknowledging_without_a_commit_is_noticed_on_postgres() {
    is_noticed_on("postgres", BROKEN, "Commit", &["SubmitKept"]);
}

#[test]
fn a_result_that_is_accepted_and_not_kept_is_noticed() {
    is_noticed("Result", &["ResultKept"]);
}

#[test]
fn a_report_without_its_guard_is_noticed() {
    is_noticed("Fence", &["FencedOff"]);
}

#[test]
fn a_lease_that_ends_early_is_noticed() {
    is_noticed("Lease", &["OneExecution"]);
}

#[test]
fn a_lease_that_never_ends_is_noticed() {
    is_noticed("Rescue", &["NoneStuck", "Drains"]);
}

#[test]
fn attempts_without_a_maximum_are_noticed() {
    is_noticed("Attempts", &["AttemptsBounded"]);
}

#[test]
fn a_unique_key_that_is_not_looked_at_is_noticed() {
    is_noticed("Unique", &["UniqueOnce"]);
}

#[test]
fn a_due_time_that_fires_twice_is_noticed() {
    let text = is_noticed_on("sqlite", BROKEN, "Once", &["FiresOnce"]);
    let says_so = |line: &str| line.starts_with("FiresOnce: ") && line.ends_with(" fired twice");
    assert!(text.lines().any(says_so), "{text}");
}

#[test]
fn a_due_time_that_never_fires_is_noticed() {
    is_noticed("Firing", &["FiresOnce"]);
}

/// Its first due time is a second after it was made, and it may be five seconds late.
#[test]
fn a_timer_that_stands_still_is_noticed() {
    is_noticed_on("sqlite", BROKEN_LONG, "Timer", &["FiresOnce"]);
}

/// Cancels are rare, and half of them are followed by a retry.
#[test]
fn a_cancel_that_is_acknowledged_and_not_done_is_noticed() {
    is_noticed_on("sqlite", BROKEN_LONG, "Action", &["ActionKept"]);
}

/// It takes a cancel before it, which is done.
#[test]
fn a_retry_that_is_acknowledged_and_not_done_is_noticed() {
    let text = is_noticed_on("sqlite", BROKEN_RARE, "Commit", &["ActionKept"]);
    assert!(text.contains("\nActionKept: the retry of task "), "{text}");
}

#[test]
fn a_claim_of_another_tenants_tasks_is_noticed() {
    is_noticed("Tenant", &["TenantsApart"]);
}

#[test]
fn a_task_that_is_mislaid_is_noticed() {
    is_noticed("Place", &["InOnePlace"]);
}

#[test]
fn what_another_run_has_left_is_not_read() {
    let keep = tempfile::tempdir().expect("a directory");
    let left = keep.path().join("sqlite");
    std::fs::create_dir(&left).expect("a directory");
    std::fs::write(left.join("red-0.history"), "").expect("a file");
    let keep = keep.path().to_str().expect("a plain name");
    let output = chaos(&["--database", "sqlite", "--seconds", "1", "--calm", "--keep", keep]);
    assert!(!output.status.success() && text(&output).contains("sqlite is not empty"), "{}", text(&output));
}
