//! The real binary, over HTTP, with real signals, on each database.

mod cluster;
mod commands;
mod document;
mod faults;
mod outage;
mod refusals;
mod retention;
mod search;
mod support;
mod tasks;
mod workers;
