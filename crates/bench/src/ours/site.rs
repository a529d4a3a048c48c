//! Where Taskwheel runs: an engine in this process, or a server beside it.

use crate::common::database::{Database, Sql};
use crate::floor::Result;
use crate::server::process::Server;
use taskwheel_client::Client;

/// A day, which nobody waits for.
pub(super) const FAR_MS: i64 = 24 * 3_600 * 1_000;

/// How Taskwheel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Embedded,
    Http,
}

/// A running Taskwheel on a database.
pub(super) struct Site {
    pub(super) client: Client,
    /// Where it is used over HTTP.
    pub(super) server: Option<Server>,
    url: String,
}

impl Way {
    pub(super) fn of(word: &str) -> Result<Way> {
        match word {
            "embedded" => Ok(Way::Embedded),
            "http" => Ok(Way::Http),
            other => Err(format!("no way {other}").into()),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Way::Embedded => "embedded",
            Way::Http => "http",
        }
    }
}

impl Site {
    /// Starts it, and brings the schema up to date.
    pub(super) async fn open(way: Way, url: &str) -> Result<Site> {
        let (client, server) = match way {
            Way::Embedded => (Client::embedded(url).await?, None),
            Way::Http => {
                let server = Server::start_at(url).await?;
                (Client::connect(format!("http://{}", server.address))?, Some(server))
            }
        };
        Ok(Site { client, server, url: url.to_owned() })
    }

    /// A plain connection to its database.
    pub(super) async fn sql(&self) -> Result<Sql> {
        Database::at(&self.url)?.sql().await
    }

    /// Insists that a table has so many rows.
    pub(super) async fn expect(&self, table: &str, rows: u64) -> Result<()> {
        let there = self.sql().await?.number(&format!("SELECT COUNT(*) FROM {table}")).await?;
        if u64::try_from(there)? == rows {
            return Ok(());
        }
        Err(format!("{rows} rows should be in {table}; {there} are").into())
    }
}
