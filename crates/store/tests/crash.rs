//! kill -9 in the middle of everything: of a process that uses the store, and of the database servers under load.
//! What was acknowledged is there, once.

#[expect(dead_code, unused_imports, reason = "the conformance suite uses all of it")]
mod support;

#[path = "support/own_server.rs"]
#[expect(dead_code, reason = "the fault harness uses all of it")]
mod own_server;

#[path = "crash/load.rs"]
mod load;
#[path = "crash/migration.rs"]
mod migration;
#[path = "crash/process.rs"]
mod process;
#[path = "crash/server.rs"]
mod server;

use support::{Dialect, wait};
