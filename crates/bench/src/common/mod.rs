//! What the benchmarks have in common: their flags, the databases they make, their statistics and the table at the end.

pub(crate) mod clock;
pub(crate) mod database;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod plot;
pub(crate) mod report;
pub(crate) mod settings;
pub(crate) mod statistics;
