//! What the pages say, tried: the tour of the README, the workers of docs/workers.md, the SQL of docs/schema.md, the service
//! and the alerts of docs/operations.md, the commands of all others.

mod operations;
mod page;
mod shell;
mod sql;
#[path = "../blackbox/support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the black-box tests use all of it")]
mod support;
mod tour;
mod worker;
