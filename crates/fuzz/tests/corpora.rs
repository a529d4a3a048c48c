//! The inputs that are kept, run as plain tests: a fault that fuzzing found once stays found.

use std::fs;
use std::path::Path;
use taskwheel_fuzz::{TARGETS, run};

fn replay(target: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("the folder is readable").path()).collect();
    paths.sort_unstable();
    assert!(!paths.is_empty(), "{target} has no inputs");
    for path in paths {
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
