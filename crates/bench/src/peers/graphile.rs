//! The two graphile workers: how fast they drain no-op jobs on a PostgreSQL, with their fastest settings.
//!
//! They delete finished jobs, so that our drain without history is their like, and one with history does more.

use super::Program;
use crate::common::database::Database;
use crate::common::report::Row;
use crate::floor::{Result, State};
use std::rc::Rc;

pub(super) const JAVASCRIPT: (&str, &str) = ("graphile-worker (npm)", "graphile_worker_js");
pub(super) const RUST: (&str, &str, &str) =
    ("graphile_worker (crates.io)", "graphile_worker_rs", "graphile-worker-driver");
const PROCESSES: [usize; 2] = [1, 2];
const TABLES: &str =
    "graphile_worker._private_jobs, graphile_worker._private_tasks, graphile_worker._private_job_queues";

/// One of them with a setting.
pub(crate) struct Contestant {
    program: Rc<Program>,
    processes: usize,
    setting: &'static str,
}

impl std::fmt::Display for Contestant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, {} process(es)", self.program.name, self.setting, self.processes)
    }
}

/// Everything that can be the fastest. What could not be installed gets a row.
pub(crate) async fn contestants(rows: &mut Vec<Row>) -> Vec<Contestant> {
    let javascript = Program::node(JAVASCRIPT.0, JAVASCRIPT.1).await;
    let rust = Program::rust(RUST.0, RUST.1, RUST.2).await;
    let mut contestants = Vec::new();
    for (name, program, settings) in
        [(JAVASCRIPT.0, javascript, ["refetch", "plain"]), (RUST.0, rust, ["large", "small"])]
    {
        let program = match program {
            Ok(program) => Rc::new(program),
            Err(error) => {
                rows.push(Row::missing(name, format!("not run, could not be installed: {error}")));
                continue;
            }
        };
        for processes in PROCESSES {
            for setting in settings {
                contestants.push(Contestant { program: program.clone(), processes, setting });
            }
        }
    }
    contestants
}

impl Contestant {
    /// Jobs a second, on a database of their own on this server.
    pub(crate) async fn drain(&self, server: &str, jobs: u64, state: State) -> Result<f64> {
        let (database, jobs) = (Database::create(server, "peer").await?, jobs.to_string());
        self.program.run(&["load", &database.url, &jobs]).await?;
        database.sql().await?.bring_into(state, TABLES).await?;
        let drain = ["drain", &database.url, &jobs, &self.processes.to_string(), self.setting];
        let rate = self.program.rate(&drain).await?;
        database.remove().await?;
        Ok(rate)
    }
}
