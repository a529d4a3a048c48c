//! Connections to a server, kept open between transactions.
//!
//! The driver's own pool asks each connection whether it still lives when it is given back: a round trip for every
//! transaction. Here nobody asks. A connection that died is found when its next transaction begins, and only one that was
//! left in a known state is kept.

use crate::clock::wall_clock;
use crate::session::Inserted;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use taskwheel_model::Time;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a caller waits for a connection when all are in use.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A connection that nobody needed for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// No connection gets older: a server's process grows with what it has seen.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// How long a reading of the database's clock can be counted on from.
const READING_AGE_MAX: Duration = Duration::from_secs(1);
/// How far the time that is counted on may lag behind the database: so long a reading may have been on its way, or this process stopped.
pub(crate) const LAG_MAX: Duration = Duration::from_millis(20);
/// How far two clocks of this machine may move apart meanwhile; more means that it slept, or that its clock was set.
const APART_MAX: Duration = Duration::from_millis(50);

/// Opens a connection and makes its settings.
pub(crate) type Connect<C> = Box<dyn Fn() -> Connecting<C> + Send + Sync>;
pub(crate) type Connecting<C> = Pin<Box<dyn Future<Output = sqlx::Result<C>> + Send>>;

/// A few connections of one kind.
pub(crate) struct Connections<C> {
    connect: Connect<C>,
    /// Those that nobody uses, the last used on top.
    idle: Arc<Mutex<Vec<Open<C>>>>,
    places: Arc<Semaphore>,
    pub(crate) most: usize,
}

impl<C: Send + 'static> Connections<C> {
    pub(crate) fn new(most: u32, connect: Connect<C>) -> Arc<Connections<C>> {
        let most = most.max(1) as usize;
        let places = Arc::new(Semaphore::new(most));
        Arc::new(Connections { connect, idle: Arc::default(), places, most })
    }

    /// How many are in use.
    pub(crate) fn in_use(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A connection for one transaction: the one used last, or a new one.
    pub(crate) async fn lend(&self) -> sqlx::Result<Lent<C>> {
        let wait = async {
            let place = self.places.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let open = match kept {
                Some(open) => open,
                None => Open::new((self.connect)().await?),
            };
            Ok(Lent { open: Some(open), idle: self.idle.clone(), _place: place })
        };
        tokio::time::timeout(WAIT_MAX, wait).await.map_err(|_| sqlx::Error::PoolTimedOut)?
    }
}

/// An open connection.
struct Open<C> {
    connection: C,
    opened: Instant,
    used: Instant,
    /// When it forgot its plans, or had none.
    planned: Instant,
    reading: Option<Reading>,
}

impl<C> Open<C> {
    fn new(connection: C) -> Open<C> {
        let now = Instant::now();
        Open { connection, opened: now, used: now, planned: now, reading: None }
    }
}

/// What the database said on a connection, and when.
#[derive(Clone, Copy)]
struct Reading {
    time: Time,
    at: Instant,
    at_wall: SystemTime,
    at_once_max: Inserted,
}

/// A connection in use. It is closed when this is dropped, and kept for the next with [`Lent::give_back`].
pub(crate) struct Lent<C> {
    open: Option<Open<C>>,
    idle: Arc<Mutex<Vec<Open<C>>>>,
    _place: OwnedSemaphorePermit,
}

impl<C> Lent<C> {
    pub(crate) fn connection(&mut self) -> &mut C {
        &mut self.open.as_mut().expect("it is there until it is given back").connection
    }

    /// Whether its plans are so old that they shall be made anew. Who asks sees to that: it counts from now again.
    pub(crate) fn outlived_plans(&mut self, age_max: Duration) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.planned.elapsed() > age_max) else { return false };
        open.planned = Instant::now();
        true
    }

    /// Notes what the database's clock said, which was asked then, and what it inserts at once. An answer that took long is too old to be
    /// counted on from: it would say too early when a worker called.
    pub(crate) fn note_reading(&mut self, asked_at: Instant, time: Time, at_once_max: Inserted) {
        if let Some(open) = &mut self.open {
            let reading = Reading { time, at: Instant::now(), at_wall: wall_clock(), at_once_max };
            open.reading = (asked_at.elapsed() < LAG_MAX).then_some(reading);
        }
    }

    /// The database's time, counted on from a reading on this connection a moment ago, and what it inserts at once. The time is
    /// never ahead of the database: a reading counts from when it arrived, not from when it was made.
    pub(crate) fn reading(&self) -> Option<(Time, Inserted)> {
        let Reading { time, at, at_wall, at_once_max } = self.open.as_ref()?.reading?;
        let passed = at.elapsed();
        let passed_on_wall = wall_clock().duration_since(at_wall).ok()?;
        let trusted = passed < READING_AGE_MAX && passed.abs_diff(passed_on_wall) < APART_MAX;
        trusted.then(|| (time.plus_ms(passed.as_millis() as i64), at_once_max))
    }

    /// Keeps the connection, on which no transaction is open any more, for the next.
    pub(crate) fn give_back(mut self) {
        let Some(mut open) = self.open.take() else { return };
        let now = Instant::now();
        open.used = now;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(open.opened) < AGE_MAX {
            idle.push(open);
        }
        let unused = idle.iter().take_while(|open| now.duration_since(open.used) > IDLE_MAX).count();
        idle.drain(..unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reading_that_took_long_is_not_counted_on_from() {
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("a place");
        let mut lent = Lent { open: Some(Open::new(())), idle: Arc::default(), _place: place };
        let mut is_trusted = |asked_at| {
            lent.note_reading(asked_at, Time(1), Inserted::ANY);
            lent.reading().is_some()
        };
        assert!(is_trusted(Instant::now() + LAG_MAX));
        assert!(!is_trusted(Instant::now().checked_sub(LAG_MAX).expect("there was such a time")));
    }
}
