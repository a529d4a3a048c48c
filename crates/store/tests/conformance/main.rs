//! The conformance suite: the facts that hold on every database, each tested on all of them.

#[path = "../support/own_server.rs"]
#[expect(dead_code, reason = "the fault harness uses all of it")]
mod own_server;
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
mod faults;
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
mod waits;
mod watch;
mod workers;

use support::{Dialect, wait};
