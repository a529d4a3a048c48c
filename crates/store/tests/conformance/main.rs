//! The conformance suite: the facts that hold on every database, each tested on all of them.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod act;
mod affinity;
mod bad_input;
mod bulk;
mod cancel;
mod claim;
mod concurrency;
mod crosswise;
mod dropping;
mod edit;
mod expiry;
mod fencing;
mod finish;
mod handover;
mod history;
mod ids;
mod leases;
mod list;
mod migrate;
mod once;
mod plain_sql;
mod plans;
mod renew;
mod schedules;
mod statistics;
mod strangers;
mod submit;
mod together;
mod transactions;
mod types;
mod unique;
mod watch;
mod workers;
