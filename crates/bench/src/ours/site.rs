//! Where Taskwheel runs: an engine in this process, or a server beside it.

use crate::common::database::{Database, Sql};
use crate::floor::Result;
use crate::server::process::Server;
use std::sync::Arc;
use taskwheel_client::Client;
use taskwheel_engine::{Engine, EngineOptions};

/// A day, which nobody waits for.
pub(super) const FAR_MS: i64 = 24 * 3_600 * 1_000;

/// How Taskwheel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Embedded,
    /// The same, and what succeeded is not kept.
    NotKept,
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
            "not-kept" => Ok(Way::NotKept),
            "http" => Ok(Way::Http),
            other => Err(format!("no way {other}").into()),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Way::Embedded => "embedded",
            Way::NotKept => "not-kept",
            Way::Http => "http",
        }
    }

    /// Is what succeeded in the history afterwards?
    pub(super) fn keeps(self) -> bool {
        self != Way::NotKept
    }

    /// An engine in this process.
    pub(super) async fn embedded(self, url: &str) -> Result<Client> {
        if self.keeps() {
            return Ok(Client::embedded(url).await?);
        }
        let store = Database::at(url)?.open(false).await?;
        Ok(Client::on_engine(Arc::new(Engine::start(store, EngineOptions::default()))))
    }
}

impl Site {
    /// Starts it, and brings the schema up to date.
    pub(super) async fn open(way: Way, url: &str) -> Result<Site> {
        let (client, server) = match way {
            Way::Embedded | Way::NotKept => (way.embedded(url).await?, None),
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
