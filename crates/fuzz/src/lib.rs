//! What the fuzz targets do with their bytes: one function each, which panics when something is wrong.
//!
//! They are here and not in `fuzz/`, so that the kept inputs run as plain tests too, with the stable compiler. See
//! `CONTRIBUTING.md`.

mod cron;
mod http;
mod schedule;
mod server;
mod timer;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 6] = [
    ("cron", cron::cron),
    ("timer", timer::timer),
    ("schedule", schedule::schedule),
    ("listing", http::listing),
    ("call", http::call),
    ("checkpoint", http::checkpoint),
];

/// Runs a target on an input.
///
/// # Panics
/// When the input shows a fault, or there is no such target.
pub fn run(target: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(name, _)| *name == target).expect("the target is in the list");
    server::refresh();
    target(bytes);
}
