//! Where one run of one system takes place: a database or a server of its own, gone afterwards.

use super::settings::Flags;
use super::systems::Storage;
use crate::common::database::{Database, Sql};
use crate::floor::{Result, State};
use crate::peers::service::Service;
use taskwheel_store::Dialect;

/// Every table that there is, of whatever system.
const EVERY_TABLE: &str = "";

/// What a database is called for.
fn purpose(name: &str) -> String {
    format!("compare_{}", name.replace('-', "_"))
}

/// A place.
pub(super) enum Place {
    Database(Database),
    Service(Service),
}

impl Place {
    /// Makes one, with a name that no other has at the time.
    pub(super) async fn new(storage: Storage, flags: &Flags, name: &str) -> Result<Place> {
        let none = "no server was given";
        let name = purpose(name);
        Ok(match storage {
            Storage::Sqlite => Place::Database(Database::create(&flags.common.url, &name).await?),
            Storage::Postgres => {
                Place::Database(Database::create(flags.postgres.as_deref().ok_or(none)?, &name).await?)
            }
            Storage::Mysql => Place::Database(Database::create(flags.mysql.as_deref().ok_or(none)?, &name).await?),
            Storage::Service(kind) => Place::Service(Service::start(kind).await?),
        })
    }

    /// Another one with all that is here, where that is quicker than to load it again.
    pub(super) async fn copy(&self, name: &str) -> Result<Option<Place>> {
        match self {
            Place::Database(database) if database.dialect != Dialect::Mysql => {
                Ok(Some(Place::Database(database.copy(&purpose(name)).await?)))
            }
            Place::Database(_) | Place::Service(_) => Ok(None),
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Place::Database(database) => database.url.clone(),
            Place::Service(service) => service.url(),
        }
    }

    /// Vacuums the tables and writes what is dirty, whoever they belong to.
    pub(super) async fn vacuum(&self) -> Result<()> {
        match self {
            // The only tables on MariaDB are ours, and they must be named there.
            Place::Database(database) if database.dialect == Dialect::Mysql => {
                database.bring_into(State::Vacuumed).await
            }
            Place::Database(database) => database.sql().await?.bring_into(State::Vacuumed, EVERY_TABLE).await,
            Place::Service(_) => Ok(()),
        }
    }

    /// A transaction with a snapshot, which keeps the database from cleaning up until this is dropped.
    pub(super) async fn hold(&self) -> Result<Option<Sql>> {
        let Place::Database(database) = self else { return Ok(None) };
        let mut sql = database.sql().await?;
        match database.dialect {
            Dialect::Postgres => sql.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?,
            Dialect::Mysql => sql.run("START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT 1").await?,
            Dialect::Sqlite => return Ok(None),
        }
        Ok(Some(sql))
    }

    pub(super) async fn remove(self) -> Result<()> {
        match self {
            Place::Database(database) => database.remove().await,
            Place::Service(_) => Ok(()),
        }
    }
}
