//! What is done on the database itself: opening it, and `taskwheel migrate`.

use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use taskwheel_store::{Dialect, Options, Store, StoreError};

/// Where the tasks are.
#[derive(Args)]
pub(crate) struct DatabaseArgs {
    /// The database: sqlite://FILE, postgres://… or mysql://….
    #[arg(long, env = "TASKWHEEL_DATABASE", default_value = "sqlite://taskwheel.db", hide_env_values = true)]
    pub(crate) database: String,
}

/// Opens the store, and brings its schema up to date.
pub(crate) async fn open(args: &DatabaseArgs, keep_success: bool) -> Result<Arc<dyn Store>> {
    open_with(args, Options { keep_success, ..Options::new(&args.database) }).await
}

async fn open_with(args: &DatabaseArgs, options: Options) -> Result<Arc<dyn Store>> {
    check_url(&args.database)?;
    taskwheel_store::open(options).await.map_err(|error| {
        let context = match error {
            StoreError::Configuration(_) => "--database cannot be used".to_owned(),
            StoreError::Schema(_) => format!("cannot use {}", shown(&args.database)),
            _ => format!("cannot open {}: is the database there, and does it let us in?", shown(&args.database)),
        };
        anyhow!(error).context(context)
    })
}

/// Opens a store that must be there: what was mistyped is not made.
pub(crate) async fn open_existing(args: &DatabaseArgs) -> Result<Arc<dyn Store>> {
    if let Some(file) = missing_file(args) {
        bail!(
            "there is no database {file}: name another with --database, or make it with `taskwheel migrate \
             --database {}`",
            args.database
        );
    }
    open_with(args, Options { makes_schema: false, ..Options::new(&args.database) }).await
}

/// Refuses what is no URL of a database, and says what may be meant. It is not repeated where a password may be in it.
fn check_url(url: &str) -> Result<()> {
    if Dialect::of(url).is_ok() {
        return Ok(());
    }
    let hint = match url.split_once(':') {
        _ if url.is_empty() => ", and is empty".to_owned(),
        Some((scheme, rest)) if rest.starts_with("//") => format!(", not {scheme}://…"),
        _ if url.contains('@') => String::new(),
        Some((scheme @ ("sqlite" | "postgres" | "mysql"), rest)) => format!(": is {scheme}://{rest} meant?"),
        _ => format!(": is sqlite://{url} meant?"),
    };
    bail!("--database must be like sqlite://FILE, postgres://USER@HOST/NAME or mysql://USER@HOST/NAME{hint}")
}

/// What the store refused, by the names of the flags.
pub(crate) fn by_flag(error: StoreError) -> anyhow::Error {
    let StoreError::Invalid { errors, .. } = error else { return error.into() };
    let flags = errors.iter().map(|error| format!("--{} {}", error.field.replace('_', "-"), error.message));
    anyhow!(flags.collect::<Vec<_>>().join("; "))
}

/// A database's URL without user and password.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Whatever it is, a password may be in it.
        return url.rsplit_once('@').map_or(url, |(_, address)| address).to_owned();
    };
    let rest = rest.split('?').next().unwrap_or(rest);
    let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
    format!("{scheme}://{address}")
}

/// The lock of the only server on an SQLite file. It goes with the process, however that ends.
pub(crate) fn only_server(url: &str) -> Result<Option<File>> {
    check_url(url)?;
    let Some(path) = file(url) else { return Ok(None) };
    let directory = Path::new(path).parent().filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        bail!(
            "the directory {} does not exist: make it, or name another database with --database",
            directory.display()
        );
    }
    let path = format!("{path}.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot make {path}: may we write in its directory?"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => bail!(
            "another taskwheel serves {}: talk to that one, or give this one a database of its own with --database. \
             Several servers can share a PostgreSQL or MySQL database",
            shown(url)
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {path}")),
    }
}

/// Brings the schema up to date.
pub(crate) async fn migrate(args: DatabaseArgs, json: bool) -> Result<()> {
    let inspection = open(&args, true).await?.inspect().await?;
    if json {
        let answer = serde_json::json!({"database": inspection.database, "schema_version": inspection.schema_version});
        return output::print(&answer.to_string());
    }
    output::print(&format!("{}: the schema is at version {}", inspection.database, inspection.schema_version))
}

/// The file of an SQLite database that is not there yet.
pub(crate) fn missing_file(args: &DatabaseArgs) -> Option<&str> {
    file(&args.database).filter(|file| !Path::new(file).exists())
}

/// The file of an SQLite database.
fn file(url: &str) -> Option<&str> {
    let path = url.strip_prefix("sqlite://")?;
    Some(path.split('?').next().unwrap_or(path)).filter(|file| !file.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_database_is_refused_with_what_may_be_meant() {
        let refused = |url: &str| check_url(url).err().map(|error| error.to_string()).unwrap_or_default();
        for (url, hint) in [
            ("", "is empty"),
            ("sqlite:/x.db", "is sqlite:///x.db meant?"),
            ("sqlite:x.db", "is sqlite://x.db meant?"),
            ("x.db", "is sqlite://x.db meant?"),
            ("sqlit://x", "not sqlit://…"),
        ] {
            let refused = refused(url);
            assert!(refused.contains("--database") && refused.contains(hint), "{url}: {refused}");
        }
        for secret in ["postgre://me:secret@host/tasks", "me:secret@host/tasks", "postgres:me:secret@host"] {
            assert!(!refused(secret).is_empty() && !refused(secret).contains("secret"), "{secret}");
        }
        assert_eq!(refused("sqlite:///x.db"), "");
    }

    #[test]
    fn what_is_shown_of_a_database_is_no_secret() {
        assert_eq!(shown("postgres://me:p%40ss@host:5432/tasks?sslmode=require"), "postgres://host:5432/tasks");
        assert_eq!(shown("mysql://me:a@b@host/tasks"), "mysql://host/tasks");
        assert_eq!(shown("sqlite://taskwheel.db"), "sqlite://taskwheel.db");
        assert_eq!(shown("me:secret@host/tasks"), "host/tasks");
    }
}
