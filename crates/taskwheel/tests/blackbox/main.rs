//! The real binary, over HTTP, with real signals, on each database.

mod access;
mod cluster;
mod commands;
mod document;
mod faults;
mod listening;
mod outage;
mod refusals;
mod search;
mod support;
mod tasks;
mod workers;
