//! The real binary, over HTTP, with real signals, on each database.

mod absence;
mod access;
mod affinity;
mod centre;
mod cluster;
mod commands;
mod crashes;
mod crowds;
mod document;
mod faults;
mod firing;
mod listening;
mod outage;
mod planning;
mod refusals;
mod retention;
mod runs;
mod schedules;
mod search;
mod sharing;
mod support;
mod tasks;
mod watching;
mod workers;
