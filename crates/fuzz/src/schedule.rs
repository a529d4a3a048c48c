//! Schedules: a definition as JSON, and its tree walked to the end.

use taskwheel_model::schedule::{Definition, Progress, Step, progress};
use taskwheel_model::{RetryPolicy, Status, TypeSettings};

pub(crate) fn schedule(bytes: &[u8]) {
    if let Ok(settings) = serde_json::from_slice::<TypeSettings>(bytes) {
        let _ = settings.validate();
    }
    if let Ok(policy) = serde_json::from_slice::<RetryPolicy>(bytes)
        && policy.validate("retry").is_ok()
    {
        assert!((1..50).all(|errors| policy.delay_ms(errors) >= 0), "{policy:?}");
    }
    let Ok(definition) = serde_json::from_slice::<Definition>(bytes) else { return };
    if definition.validate().is_err() {
        return;
    }
    let again = serde_json::to_string(&definition).expect("a good definition can be written");
    assert_eq!(serde_json::from_str::<Definition>(&again).expect("and read"), definition, "{again}");
    walk(&definition);
}

/// A run whose tasks all end well starts every node once and ends well.
fn walk(definition: &Definition) {
    let mut steps = vec![Step { path: Vec::new(), status: Status::Success }];
    loop {
        match progress(definition, &steps) {
            Progress::GoesOn { start } => {
                assert!(!start.is_empty(), "nothing lives, and it goes on");
                for path in start {
                    assert!(steps.iter().all(|step| step.path != path), "{path:?} starts twice");
                    steps.push(Step { path, status: Status::Success });
                }
            }
            Progress::Ended { is_done } => return assert!(is_done, "all ended well, and it did not"),
        }
    }
}
