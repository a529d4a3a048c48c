//! The inputs that are kept, run as plain tests: a fault that fuzzing found once stays found.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use taskwheel_fuzz::{TARGETS, run};

/// The inputs of a target.
fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("the folder is readable").path()).collect();
    paths.sort_unstable();
    assert!(!paths.is_empty(), "{target} has no inputs");
    paths
}

fn replay(target: &str) {
    for path in inputs(target) {
        let bytes = fs::read(&path).expect("an input is readable");
        // The name of the input is told only when it fails.
        if std::panic::catch_unwind(|| run(target, &bytes)).is_err() {
            panic!("{} shows a fault", path.display());
        }
    }
}

macro_rules! kept_inputs_show_no_fault {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*

        #[test]
        fn every_target_is_replayed() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($target)),*]);
        }
    };
}

mod kept_inputs_show_no_fault {
    use super::*;
    kept_inputs_show_no_fault! { cron timer schedule listing call checkpoint }
}

/// Whether a path is one of a pattern, such as `/v1/tasks/{id}`.
fn is_of(path: &str, pattern: &str) -> bool {
    let (path, pattern): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
    let is_part = |(said, wanted): (&&str, &&str)| wanted.starts_with('{') && !said.is_empty() || said == wanted;
    path.len() == pattern.len() && path.iter().zip(&pattern).all(is_part)
}

/// Fuzzing changes what it is given, and hardly ever finds a path by itself.
#[test]
fn every_operation_of_the_document_has_an_input() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document: Value = serde_json::from_slice(&fs::read(document).expect("the document is there")).expect("JSON");
    let heads = inputs("call").into_iter().filter_map(|path| {
        let bytes = fs::read(path).expect("an input is readable");
        let head = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next()?).into_owned();
        let (method, target) = head.split_once(' ')?;
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        Some((method.to_owned(), path.to_owned()))
    });
    let heads: Vec<_> = heads.collect();
    let has_input =
        |method: &str, pattern: &str| heads.iter().any(|(said, path)| said == method && is_of(path, pattern));
    let mut missing = Vec::new();
    for (pattern, operations) in document["paths"].as_object().expect("paths") {
        let methods = operations.as_object().expect("operations").keys().map(|method| method.to_uppercase());
        missing
            .extend(methods.filter(|method| !has_input(method, pattern)).map(|method| format!("{method} {pattern}")));
    }
    assert!(missing.is_empty(), "without an input in fuzz/corpus/call:\n  {}", missing.join("\n  "));
}
