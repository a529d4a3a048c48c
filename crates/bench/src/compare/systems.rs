//! The systems that are compared: what each is, what makes it fast, and what it cannot do.

use super::settings::Measure;
use crate::floor::Result;
use crate::peers::Program;
use crate::peers::service::Kind;

/// Where a system keeps its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Sqlite,
    Postgres,
    Mysql,
    Service(Kind),
}

/// How its driver is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// This program: embedded or http.
    Ours(&'static str),
    Node(&'static str),
    Rust(&'static str, &'static str),
    Python(&'static str),
}

/// A system.
pub(crate) struct System {
    /// On the command line and in the JSON.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) version: &'static str,
    pub(crate) storage: Storage,
    pub(crate) less_durable: Option<&'static str>,
    pub(crate) settings: &'static str,
    /// The settings of a drain: all are tried once, the fastest is measured.
    pub(crate) drains: &'static [&'static str],
    /// A slow one drains fewer jobs, so that a run ends.
    pub(crate) jobs_max: u64,
    /// What it cannot do, and why.
    pub(crate) lacks: &'static [(Measure, &'static str)],
    driver: Driver,
}

/// What a drain has unless a system is slow.
pub(crate) const JOBS: u64 = 100_000;

const OURS: System = System {
    name: "",
    title: "",
    version: env!("CARGO_PKG_VERSION"),
    storage: Storage::Sqlite,
    less_durable: None,
    settings: "",
    drains: &["sdk"],
    jobs_max: JOBS,
    lacks: &[],
    driver: Driver::Ours("embedded"),
};

const EMBEDDED: &str = "an engine in the process; submits by the SDK; workers of the SDK, 64 handlers at once, queue of 4,000; the history \
                        of what succeeded is kept";
const HTTP: &str = "`taskwheel serve` as it starts; submits by a plain HTTP/1.1 client on connections that stay open; workers of the SDK, \
                    64 handlers at once, queue of 4,000; the history of what succeeded is kept";
const NO_DEAD_ROWS: (Measure, &str) = (Measure::Horizon, "SQLite leaves no dead rows behind");
const NO_SNAPSHOT: (Measure, &str) = (Measure::Horizon, "no transaction that could hold anything back");
const REDIS: &str = "Redis as shipped answers before anything is on disk";

/// All of them.
pub(crate) const ALL: &[System] = &[
    System {
        name: "taskwheel-sqlite",
        title: "Taskwheel, SQLite, embedded",
        settings: EMBEDDED,
        lacks: &[(Measure::Drain2, "an SQLite file belongs to one process"), NO_DEAD_ROWS],
        ..OURS
    },
    System {
        name: "taskwheel-sqlite-http",
        title: "Taskwheel, SQLite, HTTP",
        settings: HTTP,
        lacks: &[NO_DEAD_ROWS],
        driver: Driver::Ours("http"),
        ..OURS
    },
    System {
        name: "taskwheel-postgres",
        title: "Taskwheel, PostgreSQL, embedded",
        storage: Storage::Postgres,
        settings: EMBEDDED,
        ..OURS
    },
    System {
        name: "taskwheel-postgres-http",
        title: "Taskwheel, PostgreSQL, HTTP",
        storage: Storage::Postgres,
        settings: HTTP,
        driver: Driver::Ours("http"),
        ..OURS
    },
    System {
        name: "taskwheel-mariadb",
        title: "Taskwheel, MariaDB, embedded",
        storage: Storage::Mysql,
        settings: EMBEDDED,
        ..OURS
    },
    System {
        name: "taskwheel-mariadb-http",
        title: "Taskwheel, MariaDB, HTTP",
        storage: Storage::Mysql,
        settings: HTTP,
        driver: Driver::Ours("http"),
        ..OURS
    },
    System {
        name: "graphile-worker-npm",
        title: "graphile-worker (npm)",
        version: "0.18.0",
        storage: Storage::Postgres,
        settings: "drain: 24 jobs at once, pool of 25, local queue of 500 with or without refetchDelay 10 ms, batched completion; \
                   latency: 4 at once, no local queue; delayed: the same, polling each 10 ms; finished jobs are deleted",
        drains: &["refetch", "plain"],
        driver: Driver::Node("graphile_worker_js"),
        ..OURS
    },
    System {
        name: "graphile-worker-crate",
        title: "graphile_worker (crates.io)",
        version: "0.14.1",
        storage: Storage::Postgres,
        settings: "drain: 500 jobs at once and a local queue of 5,000, or 24 and 500, completion batched for 5 ms; latency: 4 at once, no \
                   local queue; delayed: the same, polling each 10 ms; finished jobs are deleted",
        drains: &["large", "small"],
        driver: Driver::Rust("graphile_worker_rs", "graphile-worker-driver"),
        ..OURS
    },
    System {
        name: "pg-boss",
        title: "pg-boss",
        version: "12.35.0",
        storage: Storage::Postgres,
        settings: "drain: batches of 1,000, burstWhenBatchFull, 2 at once; latency: LISTEN/NOTIFY; polling each 500 ms, the least it \
                   allows; finished jobs are kept",
        drains: &["batch"],
        driver: Driver::Node("pg_boss_js"),
        ..OURS
    },
    System {
        name: "apalis-postgres",
        title: "apalis, PostgreSQL",
        version: "1.0.0",
        storage: Storage::Postgres,
        settings: "drain: batches of 1,000, lock_tasks off, one after the other or 100 in parallel; latency: LISTEN/NOTIFY; delayed: \
                   polling each 10 ms, a heartbeat each 300 ms, times in whole seconds; finished jobs are kept",
        drains: &["serial", "parallel"],
        driver: Driver::Rust("apalis_rs", "apalis-driver"),
        ..OURS
    },
    System {
        name: "apalis-sqlite",
        title: "apalis, SQLite",
        version: "1.0.0",
        settings: "WAL and synchronous=FULL as ours, where its setup says OFF; drain: batches of 1,000, lock_tasks off, one after the other or 100 in parallel; \
                   latency and delayed: polling each 10 ms, a heartbeat each 300 ms, times in whole seconds; finished jobs are kept",
        drains: &["serial", "parallel"],
        jobs_max: 10_000,
        lacks: &[NO_DEAD_ROWS],
        driver: Driver::Rust("apalis_rs", "apalis-driver"),
        ..OURS
    },
    System {
        name: "procrastinate",
        title: "Procrastinate",
        version: "3.10.0",
        storage: Storage::Postgres,
        settings: "asyncio connector, pool of 25; drain: 50 jobs at once, finished jobs kept or deleted; latency: LISTEN/NOTIFY; delayed: \
                   polling each 10 ms",
        drains: &["delete", "keep"],
        jobs_max: 3_000,
        driver: Driver::Python("procrastinate_py"),
        ..OURS
    },
    System {
        name: "bullmq",
        title: "BullMQ",
        version: "6.7.0",
        storage: Storage::Service(Kind::Redis),
        less_durable: Some(REDIS),
        settings: "100 or 300 jobs at once; removeOnComplete and removeOnFail; one connection for each client",
        drains: &["100", "300"],
        lacks: &[NO_SNAPSHOT],
        driver: Driver::Node("bullmq_js"),
        ..OURS
    },
    System {
        name: "celery",
        title: "Celery on Redis",
        version: "5.7.0",
        storage: Storage::Service(Kind::Redis),
        less_durable: Some(REDIS),
        settings: "prefork with 2 children or the solo pool, -O fair, without gossip, mingle and heartbeat, results ignored, \
                   prefetch multiplier 64; clients are threads of up to two processes",
        drains: &["prefork", "solo"],
        jobs_max: 10_000,
        lacks: &[
            (Measure::Bulk, "no call that submits many"),
            (Measure::Future, "delayed tasks are held in the memory of a worker"),
            NO_SNAPSHOT,
        ],
        driver: Driver::Python("celery_py"),
    },
    System {
        name: "beanstalkd",
        title: "beanstalkd, fsync",
        version: "1.12",
        storage: Storage::Service(Kind::Beanstalkd),
        settings: "`beanstalkd -f0 -b DIR`; bulk: 1,000 puts pipelined; drain: 4 or 16 connections in a process; delays in whole seconds",
        drains: &["4", "16"],
        jobs_max: 20_000,
        lacks: &[
            (Measure::Future, "no way to load a million delayed jobs in less than minutes: each is an fsync"),
            NO_SNAPSHOT,
        ],
        driver: Driver::Rust("beanstalkd_rs", "beanstalkd-driver"),
        ..OURS
    },
];

impl System {
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.driver, Driver::Ours(_))
    }

    /// Installs or builds its driver.
    pub(crate) async fn program(&self) -> Result<Program> {
        match self.driver {
            Driver::Ours(way) => Program::ours(self.title, way),
            Driver::Node(folder) => Program::node(self.title, folder).await,
            Driver::Rust(folder, binary) => Program::rust(self.title, folder, binary).await,
            Driver::Python(folder) => Program::python(self.title, folder).await,
        }
    }

    /// Why it cannot do something.
    pub(crate) fn lacks(&self, measure: Measure) -> Option<&'static str> {
        self.lacks.iter().find(|(lacking, _)| *lacking == measure).map(|(_, why)| *why)
    }

    /// How its driver is called, for the record.
    pub(crate) fn commands(&self) -> String {
        match self.driver {
            Driver::Ours(way) => format!("taskwheel-bench driver {way} COMMAND"),
            Driver::Node(folder) => format!("node crates/bench/peers/{folder}/driver.mjs COMMAND"),
            Driver::Rust(folder, _) => {
                format!("cargo run --release --manifest-path crates/bench/peers/{folder}/Cargo.toml -- COMMAND")
            }
            Driver::Python(folder) => format!("python crates/bench/peers/{folder}/driver.py COMMAND"),
        }
    }
}

impl Storage {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Storage::Sqlite => "SQLite",
            Storage::Postgres => "PostgreSQL",
            Storage::Mysql => "MariaDB",
            Storage::Service(Kind::Redis) => "Redis",
            Storage::Service(Kind::Beanstalkd) => "its own log",
        }
    }
}
