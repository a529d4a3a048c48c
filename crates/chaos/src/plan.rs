//! The plan: which faults come when. It follows from the seed alone, so that the same seed repeats it.

use crate::proxy::Weather;
use crate::worker::LEASE_MS;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use taskwheel_store::Dialect;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9 of a server.
    KillServer,
    /// SIGSTOP of a server, beyond leases.
    StopServer,
    /// A server ends at a named point in the code.
    KillAt(&'static str),
    /// kill -9 of a worker.
    KillWorker,
    /// SIGSTOP of a worker, beyond its lease.
    StopWorker,
    /// kill -9 of the database, which is away for a while.
    KillDatabase,
    /// The database is told to stop, and started again.
    RestartDatabase,
    /// The link between a server and the database.
    DatabaseLink(Weather),
    /// The link between workers and a server.
    WorkerLink(Weather),
    /// A server's clock is off by an hour, or was.
    Clock(i64),
    /// The database finds no room on its disk.
    DiskFull,
    /// Others take all connections of the database.
    DatabaseCrowd,
    /// Others take all connections of a server.
    ServerCrowd,
}

impl Fault {
    pub(crate) fn name(self) -> String {
        match self {
            Fault::KillServer => "kill -9 of a server".into(),
            Fault::StopServer => "stop of a server".into(),
            Fault::KillAt(point) => format!("end of a server at {point}"),
            Fault::KillWorker => "kill -9 of a worker".into(),
            Fault::StopWorker => "stop of a worker".into(),
            Fault::KillDatabase => "kill -9 of the database".into(),
            Fault::RestartDatabase => "restart of the database".into(),
            Fault::DatabaseLink(weather) => format!("database link: {weather:?}"),
            Fault::WorkerLink(weather) => format!("worker link: {weather:?}"),
            Fault::Clock(ms) => format!("clock off by {} h", ms / HOUR_MS),
            Fault::DiskFull => "disk full".into(),
            Fault::DatabaseCrowd => "connections of the database taken".into(),
            Fault::ServerCrowd => "connections of a server taken".into(),
        }
    }
}

/// A fault, its time from the start, which of several it hits, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
    pub(crate) victim: u64,
    pub(crate) lasts_ms: u64,
}

const HOUR_MS: i64 = 3_600_000;
pub(crate) const POINTS: [&str; 4] = ["BeforeCommit", "AfterCommit", "AfterClaim", "BeforeAnswer"];
/// What a lying worker does.
pub(crate) const LIES: [&str; 5] = [TWICE, DIFFERENTLY, LATE, FOR_OTHERS, SILENT];
pub(crate) const TWICE: &str = "lie: a report twice";
pub(crate) const DIFFERENTLY: &str = "lie: a report twice, differently";
pub(crate) const LATE: &str = "lie: a report beyond the lease";
pub(crate) const FOR_OTHERS: &str = "lie: a report for others";
pub(crate) const SILENT: &str = "lie: no sign of life for as long as a lease";
const LINKS: [Weather; 7] =
    [Weather::Cut, Weather::Reset, Weather::Delay, Weather::Mute, Weather::Deaf, Weather::Drip, Weather::SwallowAnswer];
/// The first fault comes when there is something to break.
const START_MS: u64 = 2_000;
/// Between two faults as a rule, however long the run.
const GAP_MS_MAX: u64 = 2_000;
const LASTS_MS: Range<u64> = 500..6_000;
/// Weathers of a link come one after the other, and shall leave something to be done: in a short run they are short, and shorter where
/// there is one link.
const LINK_MS_MAX: Range<u64> = 1_000..6_000;
const LINK_SHARE: u64 = 10;
const ONLY_LINK_SHARE: u64 = 16;
/// Beyond the leases of what it had in hand.
const STOP_MS: Range<u64> = LEASE_MS as u64 + 500..LEASE_MS as u64 + 3_000;
/// So long nobody looks that due times are missed: five seconds they may be late, and each policy has one within two. A database also takes
/// its time to start.
const ONLY_SERVER_STOP_MS: Range<u64> = 7_000..8_000;
const DATABASE_AWAY_MS: Range<u64> = 6_500..7_500;
/// Not each answer is one to a change that would do harm if it were made twice: of those there shall be some.
const SWALLOW_MS: Range<u64> = 1_500..3_000;

/// Every fault that can be made on a database.
pub(crate) fn faults(dialect: Dialect) -> Vec<Fault> {
    let mut faults = vec![Fault::KillServer, Fault::StopServer, Fault::KillWorker, Fault::StopWorker];
    faults.extend(POINTS.map(Fault::KillAt));
    faults.extend(LINKS.map(Fault::WorkerLink));
    faults.extend([Fault::WorkerLink(Weather::Repeat), Fault::ServerCrowd, Fault::DiskFull]);
    if dialect != Dialect::Sqlite {
        faults.extend([Fault::KillDatabase, Fault::RestartDatabase, Fault::DatabaseCrowd]);
        faults.extend(LINKS.map(Fault::DatabaseLink));
        // SQLite's clock is the machine's: there a node that is off by an hour is a database that is.
        faults.extend([Fault::Clock(HOUR_MS), Fault::Clock(-HOUR_MS)]);
    }
    faults
}

impl Fault {
    /// How long it may last in a run of that length with so many servers.
    fn lasts_ms(self, length_ms: u64, servers: usize) -> Range<u64> {
        match self {
            Fault::StopServer if servers == 1 => ONLY_SERVER_STOP_MS,
            Fault::StopServer | Fault::StopWorker => STOP_MS,
            Fault::KillDatabase => DATABASE_AWAY_MS,
            Fault::DatabaseLink(Weather::SwallowAnswer) => SWALLOW_MS,
            Fault::DatabaseLink(_) | Fault::WorkerLink(_) => {
                let share = length_ms / if servers == 1 { ONLY_LINK_SHARE } else { LINK_SHARE };
                LASTS_MS.start..share.clamp(LINK_MS_MAX.start, LINK_MS_MAX.end)
            }
            _ => LASTS_MS,
        }
    }
}

/// Faults in any order, again and again until the time is over; each once at least, however short the time.
pub(crate) fn plan(seed: u64, all: &[Fault], length_ms: u64, servers: usize) -> Vec<Planned> {
    let mut random = StdRng::seed_from_u64(seed);
    let gap_ms = (length_ms.saturating_sub(START_MS) / (all.len() as u64 + 1)).clamp(1, GAP_MS_MAX);
    let (mut planned, mut at_ms) = (Vec::new(), START_MS);
    while !all.is_empty() && (planned.len() < all.len() || at_ms < length_ms) {
        let mut order = all.to_vec();
        order.shuffle(&mut random);
        for fault in order {
            let is_enough = planned.len() >= all.len() && at_ms >= length_ms;
            if !is_enough {
                let lasts_ms = random.random_range(fault.lasts_ms(length_ms, servers));
                planned.push(Planned { at_ms, fault, victim: random.random(), lasts_ms });
                at_ms += random.random_range(gap_ms / 2..=gap_ms * 3 / 2);
            }
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let faults = faults(Dialect::Postgres);
        assert_eq!(plan(7, &faults, 60_000, 3), plan(7, &faults, 60_000, 3));
        assert_ne!(plan(7, &faults, 60_000, 3), plan(8, &faults, 60_000, 3));
    }

    #[test]
    fn what_is_stopped_is_stopped_beyond_its_lease() {
        let stops: Vec<_> = plan(1, &[Fault::StopServer, Fault::StopWorker], 600_000, 1);
        assert!(stops.len() > 200 && stops.iter().all(|stop| stop.lasts_ms > LEASE_MS as u64), "{stops:?}");
    }

    #[test]
    fn every_fault_has_its_turn_however_short_the_run() {
        for (dialect, length_ms) in [(Dialect::Sqlite, 1), (Dialect::Postgres, 20_000), (Dialect::Mysql, 600_000)] {
            let planned = plan(1, &faults(dialect), length_ms, 3);
            let missing = |fault: &Fault| !planned.iter().any(|one| one.fault == *fault);
            assert_eq!(faults(dialect).into_iter().find(missing), None);
            assert!(planned.is_sorted_by_key(|one| one.at_ms));
        }
    }
}
