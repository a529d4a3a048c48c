//! The real binary, over HTTP, with real signals, on each database.

mod access;
mod affinity;
mod cluster;
mod commands;
mod crashes;
mod crowds;
mod document;
mod faults;
mod firing;
mod listening;
mod outage;
mod refusals;
mod retention;
mod search;
mod sharing;
mod support;
mod tasks;
mod watching;
mod workers;
