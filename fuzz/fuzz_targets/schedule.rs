#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwheel_fuzz::run("schedule", bytes));
