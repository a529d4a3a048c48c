//! The floor: what bare statements reach on a plain table, with no queue around them.
//!
//! It is the yardstick the store is measured against, so it never changes with the store: a live table of 12 columns with one
//! claim index, a history table with a primary key and an index on type and time. A claim is one guarded UPDATE (on MariaDB
//! the lock and the UPDATE by primary key, in one transaction), a finish is DELETE plus INSERT into history in one transaction.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

/// Whatever goes wrong ends the benchmark, so one opaque error is enough.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The state of the table when the drain begins; it moves the rates up to twofold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// After VACUUM ANALYZE (PostgreSQL) or ANALYZE (the others).
    Vacuumed,
    /// As the load left it.
    JustLoaded,
}

/// What each task of a drain carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// A key and a small payload, as the tasks of the store's benchmark do.
    KeyAndPayload,
    /// A payload of a number, and no key, as the jobs of all systems of the comparison do.
    Number,
}

impl Carried {
    fn key(self, number: u64) -> Option<String> {
        (self == Carried::KeyAndPayload).then(|| format!("key{number}"))
    }

    /// JSON, in the first case of about sixty bytes.
    fn payload(self, number: u64) -> String {
        match self {
            Carried::KeyAndPayload => {
                format!("{{\"order\":{number},\"note\":\"a small payload of about sixty bytes\"}}")
            }
            Carried::Number => format!("{{\"id\":{number}}}"),
        }
    }
}

fn check(expected: u64, finished: u64) -> Result<()> {
    if expected == finished { Ok(()) } else { Err(format!("loaded {expected} tasks, finished {finished}").into()) }
}

/// What one drain reached.
struct Figure {
    state: State,
    batch: u64,
    clients: usize,
    rate: f64,
}

/// Runs the floor on `url` and prints each setting's median of three, and the best of each state.
pub(crate) async fn run(url: &str) -> Result<()> {
    const TASKS: u64 = 100_000;
    let clients: &[usize] = if url.starts_with("sqlite:") { &[1] } else { &[1, 4] };
    let mut figures = Vec::new();
    for state in [State::Vacuumed, State::JustLoaded] {
        for &clients in clients {
            for batch in [100, 500] {
                let mut rates = Vec::new();
                for _ in 0..3 {
                    rates.push(drain(url, TASKS, Carried::KeyAndPayload, batch, clients, state).await?);
                }
                rates.sort_by(f64::total_cmp);
                figures.push(Figure { state, batch, clients, rate: rates[1] });
            }
        }
    }
    print(&figures);
    Ok(())
}

/// One drain on whichever database `url` names.
pub(crate) async fn drain(
    url: &str,
    tasks: u64,
    carried: Carried,
    batch: u64,
    clients: usize,
    state: State,
) -> Result<f64> {
    if url.starts_with("postgres") {
        postgres::drain(url, tasks, carried, i64::try_from(batch)?, clients, state).await
    } else if let Some(path) = url.strip_prefix("sqlite:") {
        sqlite::drain(std::path::Path::new(path), tasks, carried, batch, state)
    } else {
        mysql::drain(url, tasks, carried, batch, clients, state).await
    }
}

#[expect(clippy::print_stdout, reason = "the figures are the output")]
fn print(figures: &[Figure]) {
    for figure in figures {
        let Figure { state, batch, clients, rate } = figure;
        println!("floor {state:?} batch {batch} clients {clients}: {rate:.0} tasks/s");
    }
    for state in [State::Vacuumed, State::JustLoaded] {
        let best = figures.iter().filter(|figure| figure.state == state).map(|figure| figure.rate).fold(0.0, f64::max);
        println!("floor {state:?} best: {best:.0} tasks/s");
    }
}
