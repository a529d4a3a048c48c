//! The rules of this repository that a test can check.

use std::collections::BTreeSet;
use std::fs;

use taskwheel_tidy::{File, files, root};

/// Beyond this a file hides something that wants a name of its own.
const FILE_LINES_MAX: usize = 500;

const DIALECTS: [&str; 3] = ["sqlite", "postgres", "mysql"];

/// This crate names what it forbids.
const TIDY: &str = "crates/tidy/";

fn assert_none(violations: &[String], rule: &str) {
    assert!(violations.is_empty(), "{rule}\n  {}", violations.join("\n  "));
}

/// Every code line of `files` that contains one of `words`.
fn lines_with(files: &[File], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (number, line) in file.code_lines() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    found
}

fn rust_files(wanted: impl Fn(&str) -> bool) -> Vec<File> {
    let mut files = files();
    files.retain(|file| file.is_rust() && wanted(&file.path));
    files
}

#[test]
fn sql_is_only_in_the_store() {
    // Plain SQL is a way to submit, so tests use it; an example of the SDK has rows of its own beside its tasks; and the fault harness
    // knows statements by their bytes.
    let folders = ["crates/store/", "crates/bench/", "crates/client/examples/", "crates/chaos/src/answer.rs", TIDY];
    let may = |path: &str| path.contains("/tests/") || folders.iter().any(|folder| path.starts_with(folder));
    let statements = [
        "SELECT ",
        "INSERT INTO",
        "INSERT IGNORE",
        "UPDATE ",
        "DELETE FROM",
        "CREATE TABLE",
        "CREATE INDEX",
        "ALTER TABLE",
        "DROP TABLE",
    ];
    let mut violations = lines_with(&rust_files(|path| !may(path)), &statements);
    let is_stray_sql = |path: &String| path.ends_with(".sql") && !may(path);
    violations.extend(files().into_iter().map(|file| file.path).filter(is_stray_sql));
    assert_none(&violations, "SQL belongs into crates/store:");
}

#[test]
fn the_model_has_no_clock() {
    let clocks = ["SystemTime", "Instant", "::now(", ".now()", "now_v7", "now_utc", "UNIX_EPOCH"];
    let violations = lines_with(&rust_files(|path| path.starts_with("crates/model/")), &clocks);
    assert_none(&violations, "time comes into the model as an argument:");
}

#[test]
fn servers_read_the_clock_of_their_machine_in_one_place() {
    // The fault harness lets it be wrong there, and nowhere else could it be.
    let folders = ["crates/store/src/", "crates/engine/src/", "crates/server/src/"];
    let may_not = |path: &str| folders.iter().any(|folder| path.starts_with(folder)) && !path.ends_with("/faults.rs");
    let clocks = ["SystemTime::now", "Timestamp::now", "Zoned::now", "now_utc", "now_v7"];
    let violations = lines_with(&rust_files(may_not), &clocks);
    assert_none(&violations, "the machine's clock is read in crates/store/src/clock.rs:");
}

#[test]
fn routes_are_added_with_their_scope_alone() {
    // What adds one without, by axum or by utoipa.
    let ways = [".route(", ".route_service(", ".routes(", ".merge(", ".nest(", ".nest_service(", ".fallback_service("];
    // The one place that adds routes, and one where tallies are merged.
    let may = ["crates/server/src/scopes.rs", "crates/server/src/statistics.rs"];
    let of_server = rust_files(|path| path.starts_with("crates/server/src/") && !may.contains(&path));
    assert!(!of_server.is_empty(), "the server has moved");
    assert_none(&lines_with(&of_server, &ways), "a route is added by Routes::add, which asks for its scope:");
}

#[test]
fn the_model_has_no_io_and_no_async() {
    let effects = [
        "async fn",
        "async move",
        "async {",
        ".await",
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "tokio",
        "sqlx",
        "rusqlite",
        "reqwest",
    ];
    let mut files = files();
    let is_model = |path: &str| path.starts_with("crates/model/src/") || path == "crates/model/Cargo.toml";
    files.retain(|file| is_model(&file.path));
    assert_none(&lines_with(&files, &effects), "the model only decides:");
}

#[test]
fn the_engine_has_no_http() {
    let mut files = files();
    files.retain(|file| file.path.starts_with("crates/engine/"));
    assert!(!files.is_empty(), "the engine has moved");
    assert_none(&lines_with(&files, &["axum", "hyper", "reqwest"]), "HTTP belongs into crates/server:");
}

#[test]
fn dialects_have_the_same_file_names() {
    let files = files();
    let names = |dialect: &str| -> BTreeSet<&str> {
        let folder = format!("crates/store/src/{dialect}/");
        files.iter().filter_map(|file| file.path.strip_prefix(&folder)).collect()
    };
    let all: BTreeSet<&str> = DIALECTS.into_iter().flat_map(names).collect();
    assert!(!all.is_empty(), "no dialect has a folder in crates/store/src");
    for dialect in DIALECTS {
        let missing: Vec<String> = all.difference(&names(dialect)).map(ToString::to_string).collect();
        assert_none(
            &missing,
            &format!("{dialect} lacks files that another dialect has, so they cannot be read side by side:"),
        );
    }
}

#[test]
fn no_file_outgrows_its_purpose() {
    let mut violations = Vec::new();
    for file in rust_files(|_| true) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            violations.push(format!("{}: {lines} lines", file.path));
        }
    }
    assert_none(&violations, "more than 500 lines: what does it hide?");
}

#[test]
fn no_test_is_ignored_and_no_lint_is_allowed() {
    let mut violations = Vec::new();
    for file in rust_files(|_| true) {
        for (number, line) in file.code_lines() {
            let line = line.trim_start();
            if ["#[ignore", "#[allow(", "#![allow("].iter().any(|attribute| line.starts_with(attribute)) {
                violations.push(format!("{}:{number}: {line}", file.path));
            }
        }
    }
    assert_none(
        &violations,
        "a test runs or goes; a lint is expected with #[expect], so that it is noticed when it's no longer needed:",
    );
}

#[test]
fn no_file_names_the_machine_it_was_written_on() {
    let mut names = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/")).to_vec();
    // A host named by an ordinary word could be meant as that word.
    let host = fs::read_to_string("/etc/hostname").unwrap_or_default().trim().to_owned();
    if host.contains(|letter: char| letter.is_ascii_digit() || letter == '-') {
        names.push(host);
    }
    let mut violations = Vec::new();
    for file in files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(name) = names.iter().find(|name| starts_a_word(line, name)) {
                violations.push(format!("{}:{number}: {name}", file.path));
            }
        }
    }
    assert_none(&violations, "a path or host of one machine means nothing on another:");
}

/// Does `line` contain `name` other than as the continuation of a longer path or word?
fn starts_a_word(line: &str, name: &str) -> bool {
    let continues =
        |before: &str| before.ends_with(|letter: char| letter.is_alphanumeric() || "._-/}".contains(letter));
    line.match_indices(name).any(|(at, _)| !continues(&line[..at]))
}

#[test]
fn no_file_has_a_secret() {
    // In two parts, or it would find itself.
    let key = ["PRIVATE", "KEY-----"].join(" ");
    let mut violations = Vec::new();
    for file in files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.contains(&key) || has_token(line) {
                violations.push(format!("{}:{number}", file.path));
            }
        }
    }
    assert_none(&violations, "a token or a private key that was once in the repository is everybody's:");
}

/// Does a line contain a token as `docs/security.md` tells scanners to find it?
fn has_token(line: &str) -> bool {
    let is_token = |rest: &str| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let secret = rest[digits..].strip_prefix('_').unwrap_or_default();
        let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        digits > 0 && secret.bytes().take_while(is_hex).count() >= 64
    };
    line.split("taskwheel_").skip(1).any(is_token)
}

#[test]
fn a_token_is_found_wherever_it_is_in_a_line() {
    let token = format!("taskwheel_{}_{}", 7, "0a".repeat(32));
    assert!(has_token(&token) && has_token(&format!("export TASKWHEEL_TOKEN=\"{token}\"")));
    for other in [&token[..token.len() - 1], "taskwheel_x_y", "taskwheel_[0-9]+_[0-9a-f]{64}", "taskwheel_ready 0"] {
        assert!(!has_token(other), "{other}");
    }
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let files = files();
    let mut names: Vec<&str> = files.iter().filter_map(|file| file.path.strip_prefix("docs/decisions/")).collect();
    names.sort_unstable();
    let mut violations = Vec::new();
    for (number, name) in (1..).zip(names) {
        let title = name.strip_prefix(&format!("{number:04}-")).and_then(|rest| rest.strip_suffix(".md"));
        if title.is_none_or(str::is_empty) {
            violations.push(format!("{name}: should be {number:04}-title.md"));
        }
    }
    assert_none(&violations, "decisions are numbered from 0001 without gaps:");
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let guarantees = fs::read_to_string(root().join("docs/guarantees.md")).expect("docs/guarantees.md is there");
    let promised: BTreeSet<&str> = guarantees.lines().flat_map(tests_named_in).collect();
    assert!(!promised.is_empty(), "docs/guarantees.md names no test");
    let sources =
        rust_files(|path| path.starts_with("crates/") && (path.contains("/src/") || path.contains("/tests/")));
    let exists = |name: &str| sources.iter().any(|file| defines(&file.text, name));
    let missing: Vec<String> = promised.into_iter().filter(|name| !exists(name)).map(str::to_owned).collect();
    assert_none(&missing, "docs/guarantees.md names tests that do not exist:");
}

/// The `names_like_this` in backticks in the last column of a table's row.
fn tests_named_in(line: &str) -> impl Iterator<Item = &str> {
    let row = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|'));
    let last_column = row.and_then(|row| row.rsplit('|').next()).unwrap_or_default();
    // Every second piece is between backticks.
    last_column.split('`').skip(1).step_by(2).filter(|name| is_snake_case(name))
}

fn is_snake_case(name: &str) -> bool {
    name.contains('_')
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
}

fn defines(source: &str, name: &str) -> bool {
    let function = format!("fn {name}");
    source.match_indices(&function).any(|(at, _)| source[at + function.len()..].starts_with(['(', '<']))
}
