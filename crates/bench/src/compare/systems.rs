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
    /// This program: embedded, not-kept or http.
    Ours(&'static str),
    /// This program with bare SQL.
    Floor,
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
    /// The same for submits by several clients that may share; none where there is nothing to choose, and each has a connection.
    pub(crate) submits: &'static [&'static str],
    /// How often it looks for what falls due, where that is not its driver's choice.
    pub(crate) polls_ms: Option<&'static str>,
    /// A slow one drains fewer jobs, so that a run ends.
    pub(crate) jobs_max: u64,
    /// The same beside future rows, where each claim walks over them.
    pub(crate) beside_future_max: u64,
    /// What it cannot do, and why.
    pub(crate) lacks: &'static [(Measure, &'static str)],
    /// The only measurements that it is here for, and why.
    pub(crate) part: Option<(&'static [Measure], &'static str)>,
    driver: Driver,
}

/// The setting of submits where each client has a connection of its own.
pub(crate) const OWN: &str = "own";
/// The settings of a pool: a connection for each client, or eight that they share.
const POOL: &[&str] = &[OWN, "eight"];

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
    submits: &[],
    polls_ms: None,
    jobs_max: JOBS,
    beside_future_max: JOBS,
    lacks: &[],
    part: None,
    driver: Driver::Ours("embedded"),
};

const FLOOR: System = System {
    version: "–",
    settings: "the floor, which is no queue and no peer: claims by one guarded UPDATE, finishes by DELETE and INSERT into a history, 100 or \
               500 a statement by 1 or 4 clients of one process, on tables of its own; its jobs carry what all carry here, a number",
    drains: &["500x4", "500x1", "100x4", "100x1"],
    part: Some((&[Measure::Drain1], "only the plain drain is held against it")),
    driver: Driver::Floor,
    ..OURS
};

const EMBEDDED: &str = "an engine in the process; submits by the SDK; workers of the SDK, 64 handlers at once, queue of 4,000; the history \
                        of what succeeded is kept";
const HTTP: &str = "`taskwheel serve` as it starts; submits by plain HTTP/1.1 clients on connections of their own that stay open, one \
                    task a call (`own`), or sharing a client of the SDK, whose calls carry all that is submitted meanwhile (`one`); \
                    workers of the SDK, 64 handlers at once, queue of 4,000; the history of what succeeded is kept";
const NOT_KEPT: &str = "an engine in the process; workers of the SDK, 64 handlers at once, queue of 4,000; what succeeded is not kept, as \
                        the graphile workers delete it too; only drains: nothing else depends on what is kept";
const NO_CONNECTIONS: (Measure, &str) =
    (Measure::Submit64Own, "the engine is in the process: there are no connections");
const NO_DEAD_ROWS: (Measure, &str) = (Measure::Horizon, "SQLite leaves no dead rows behind");
const NO_SNAPSHOT: (Measure, &str) = (Measure::Horizon, "no transaction that could hold anything back");
const REDIS: &str = "Redis as shipped answers before anything is on disk";

/// All of them.
pub(crate) const ALL: &[System] = &[
    System {
        name: "taskwheel-sqlite",
        title: "Taskwheel, SQLite, embedded",
        settings: EMBEDDED,
        lacks: &[NO_CONNECTIONS, (Measure::Drain2, "an SQLite file belongs to one process"), NO_DEAD_ROWS],
        ..OURS
    },
    System {
        name: "taskwheel-sqlite-http",
        title: "Taskwheel, SQLite, HTTP",
        settings: HTTP,
        lacks: &[NO_DEAD_ROWS],
        submits: &[OWN, "one"],
        driver: Driver::Ours("http"),
        ..OURS
    },
    System {
        name: "taskwheel-postgres",
        title: "Taskwheel, PostgreSQL, embedded",
        storage: Storage::Postgres,
        settings: EMBEDDED,
        lacks: &[NO_CONNECTIONS],
        ..OURS
    },
    System {
        name: "taskwheel-postgres-not-kept",
        title: "Taskwheel, PostgreSQL, not kept",
        storage: Storage::Postgres,
        settings: NOT_KEPT,
        part: Some((&[Measure::Drain1, Measure::Drain2], "measured where history is kept")),
        driver: Driver::Ours("not-kept"),
        ..OURS
    },
    System {
        name: "taskwheel-postgres-http",
        title: "Taskwheel, PostgreSQL, HTTP",
        storage: Storage::Postgres,
        settings: HTTP,
        submits: &[OWN, "one"],
        driver: Driver::Ours("http"),
        ..OURS
    },
    System {
        name: "taskwheel-mariadb",
        title: "Taskwheel, MariaDB, embedded",
        storage: Storage::Mysql,
        settings: EMBEDDED,
        lacks: &[NO_CONNECTIONS],
        ..OURS
    },
    System {
        name: "taskwheel-mariadb-http",
        title: "Taskwheel, MariaDB, HTTP",
        storage: Storage::Mysql,
        settings: HTTP,
        submits: &[OWN, "one"],
        driver: Driver::Ours("http"),
        ..OURS
    },
    System { name: "floor-sqlite", title: "bare SQL, SQLite", drains: &["500x1", "100x1"], ..FLOOR },
    System { name: "floor-postgres", title: "bare SQL, PostgreSQL", storage: Storage::Postgres, ..FLOOR },
    System { name: "floor-mariadb", title: "bare SQL, MariaDB", storage: Storage::Mysql, ..FLOOR },
    System {
        name: "graphile-worker-npm",
        title: "graphile-worker (npm)",
        version: "0.18.0",
        storage: Storage::Postgres,
        settings: "submits: a pool of a connection for each client, or of eight; drain: 24 jobs at once, pool of 25, local queue of 500 \
                   with or without refetchDelay 10 ms, batched completion; latency: 4 at once, no local queue; delayed: the same, \
                   polling each 10 ms; finished jobs are deleted",
        drains: &["refetch", "plain"],
        submits: POOL,
        driver: Driver::Node("graphile_worker_js"),
        ..OURS
    },
    System {
        name: "graphile-worker-npm-100ms",
        title: "graphile-worker (npm), each 100 ms",
        version: "0.18.0",
        storage: Storage::Postgres,
        settings: "as above, polling each 100 ms; only lateness: nothing else depends on it",
        polls_ms: Some("100"),
        part: Some((&[Measure::Delayed], "measured above")),
        driver: Driver::Node("graphile_worker_js"),
        ..OURS
    },
    System {
        name: "graphile-worker-crate",
        title: "graphile_worker (crates.io)",
        version: "0.14.1",
        storage: Storage::Postgres,
        settings: "submits: a pool of a connection for each client, or of eight; drain: 500 jobs at once and a local queue of 5,000, or \
                   24 and 500, completion batched for 5 ms; latency: 4 at once, no local queue; delayed: the same, polling each \
                   10 ms; finished jobs are deleted",
        drains: &["large", "small"],
        submits: POOL,
        driver: Driver::Rust("graphile_worker_rs", "graphile-worker-driver"),
        ..OURS
    },
    System {
        name: "pg-boss",
        title: "pg-boss",
        version: "12.35.0",
        storage: Storage::Postgres,
        settings: "submits: a pool of a connection for each client, or of eight; drain: batches of 1,000, burstWhenBatchFull, 2 at \
                   once; latency: LISTEN/NOTIFY; polling each 500 ms, the least it allows; finished jobs are kept",
        drains: &["batch"],
        submits: POOL,
        driver: Driver::Node("pg_boss_js"),
        ..OURS
    },
    System {
        name: "apalis-postgres",
        title: "apalis, PostgreSQL",
        version: "1.0.0",
        storage: Storage::Postgres,
        settings: "submits: a pool of a connection for each client, or of eight; drain: batches of 1,000, lock_tasks off, one after \
                   the other or 100 in parallel; latency: LISTEN/NOTIFY; delayed: polling each 10 ms, a heartbeat each 300 ms, \
                   times in whole seconds; finished jobs are kept",
        drains: &["serial", "parallel"],
        submits: POOL,
        driver: Driver::Rust("apalis_rs", "apalis-driver"),
        ..OURS
    },
    System {
        name: "apalis-sqlite",
        title: "apalis, SQLite",
        version: "1.0.0",
        settings: "WAL and synchronous=FULL as ours, where its setup says OFF; submits: a pool of a connection for each client, 16 at \
                   most; drain: batches of 1,000, lock_tasks off, one after the other or 100 in parallel, pool of ten connections \
                   or of one; latency and delayed: polling each 10 ms, a heartbeat each 300 ms, times in whole seconds; finished jobs are kept",
        drains: &["serial", "parallel", "serial-one", "parallel-one"],
        jobs_max: 10_000,
        lacks: &[(Measure::Submit64Own, "one writes at a time, and its pool has 16 connections at most"), NO_DEAD_ROWS],
        driver: Driver::Rust("apalis_rs", "apalis-driver"),
        ..OURS
    },
    System {
        name: "procrastinate",
        title: "Procrastinate",
        version: "3.10.0",
        storage: Storage::Postgres,
        settings: "asyncio connector; submits: a pool of a connection for each client, or of eight; else a pool of 25; drain: 50 jobs at \
                   once, finished jobs kept or deleted; latency: LISTEN/NOTIFY; delayed: polling each 10 ms",
        drains: &["delete", "keep"],
        submits: POOL,
        jobs_max: 3_000,
        beside_future_max: 200,
        driver: Driver::Python("procrastinate_py"),
        ..OURS
    },
    System {
        name: "bullmq",
        title: "BullMQ",
        version: "6.7.0",
        storage: Storage::Service(Kind::Redis),
        less_durable: Some(REDIS),
        settings: "100 or 300 jobs at once; removeOnComplete and removeOnFail; clients with a connection of their own, or sharing eight \
                   or one",
        drains: &["100", "300"],
        submits: &[OWN, "eight", "one"],
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
                   prefetch multiplier 64; clients are threads of up to two processes, with a connection each",
        drains: &["prefork", "solo"],
        jobs_max: 5_000,
        lacks: &[
            (Measure::Bulk, "no call that submits many"),
            (Measure::Future, "delayed tasks are held in the memory of a worker"),
            NO_SNAPSHOT,
        ],
        driver: Driver::Python("celery_py"),
        ..OURS
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
            (Measure::Future, "a million delayed jobs, each with its fsync, take two minutes to load for each run"),
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

    pub(crate) fn is_floor(&self) -> bool {
        self.driver == Driver::Floor
    }

    /// Installs or builds its driver.
    pub(crate) async fn program(&self) -> Result<Program> {
        match self.driver {
            Driver::Ours(way) => Program::ours(self.title, way),
            Driver::Floor => Program::ours(self.title, "floor"),
            Driver::Node(folder) => Program::node(self.title, folder).await,
            Driver::Rust(folder, binary) => Program::rust(self.title, folder, binary).await,
            Driver::Python(folder) => Program::python(self.title, folder).await,
        }
    }

    /// Why it cannot do something, or need not.
    pub(crate) fn lacks(&self, measure: Measure) -> Option<&'static str> {
        if let Some((measures, why)) = self.part {
            return (!measures.contains(&measure)).then_some(why);
        }
        self.lacks.iter().find(|(lacking, _)| *lacking == measure).map(|(_, why)| *why)
    }

    /// How its driver is called, for the record.
    pub(crate) fn commands(&self) -> String {
        match self.driver {
            Driver::Ours(way) => format!("taskwheel-bench driver {way} COMMAND"),
            Driver::Floor => "taskwheel-bench driver floor COMMAND".into(),
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
