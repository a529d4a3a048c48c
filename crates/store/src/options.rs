//! How a store is opened.

use crate::{Result, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use taskwheel_model::{DatabaseNumber, Time};

/// Where a store is and how it behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// `sqlite://path`, `postgres://…` or `mysql://…`.
    pub url: String,
    /// The database's number, fixed at its first migration; later values must agree.
    pub number: DatabaseNumber,
    /// Most connections for work on tasks. SQLite has one writer, whatever this says.
    pub connections_max: u32,
    /// Which clock decides. Always the database's, except in tests.
    pub clock: Clock,
    /// Whether successful tasks are kept in history until they are purged, or removed as they finish.
    pub keep_success: bool,
    /// Whether opening makes the schema, or brings it up to date. Where it may not, a schema that is not there or is old is an error.
    pub makes_schema: bool,
}

impl Options {
    /// Most connections where nothing else is said.
    pub const CONNECTIONS_MAX_DEFAULT: u32 = 8;

    /// A store at a URL, all else by default.
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            number: DatabaseNumber::default(),
            connections_max: Options::CONNECTIONS_MAX_DEFAULT,
            clock: Clock::Database,
            keep_success: true,
            makes_schema: true,
        }
    }
}

/// The clock that decisions go by.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The database's own, so that skewed clocks of nodes cannot break a lease.
    #[default]
    Database,
    /// A time that a test sets.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still until it is moved.
    #[must_use]
    pub fn manual(start: Time) -> Clock {
        Clock::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    /// Moves a manual clock. The database's own cannot be moved.
    pub fn advance_ms(&self, ms: i64) {
        if let Clock::Manual(now) = self {
            now.fetch_add(ms, Ordering::SeqCst);
        }
    }

    /// The time of a manual clock; `None` stands for "ask the database", and is what statements are given.
    #[must_use]
    pub fn fixed(&self) -> Option<i64> {
        match self {
            Clock::Database => None,
            Clock::Manual(now) => Some(now.load(Ordering::SeqCst)),
        }
    }
}

/// Which database a URL means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite, a file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL 8 or MariaDB 10.6 and later.
    Mysql,
}

impl Dialect {
    /// The dialect of a URL.
    pub fn of(url: &str) -> Result<Dialect> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Dialect::Sqlite),
            Some("postgres" | "postgresql") => Ok(Dialect::Postgres),
            Some("mysql" | "mariadb") => Ok(Dialect::Mysql),
            // A password may be in whatever has an @.
            None if !url.is_empty() && !url.contains('@') => Err(StoreError::Configuration(format!(
                "the database must be given as sqlite://FILE, postgres://… or mysql://…: is sqlite://{url} meant?"
            ))),
            _ => Err(StoreError::Configuration(
                "the database must be given as sqlite://FILE, postgres://… or mysql://…".into(),
            )),
        }
    }
}
