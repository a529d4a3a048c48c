//! What a comparison ran on: the machine, the servers, and the systems with their versions and settings.

use super::results::{Results, SystemInfo};
use super::settings::Flags;
use super::systems::{Storage, System};
use super::word;
use crate::common::database::Database;
use crate::common::machine;
use crate::common::settings::Part;
use crate::floor::Result;
use crate::peers::service::Kind;
use std::collections::BTreeMap;

/// The results before anything was measured.
pub(super) async fn describe(flags: &Flags, systems: &[&'static System]) -> Result<Results> {
    Ok(Results {
        date: machine::today(),
        command: command(flags),
        machine: machine::size()?,
        runs: flags.common.runs,
        scale: flags.common.scale,
        servers: servers(flags, systems).await?,
        systems: systems.iter().map(|system| info(system)).collect(),
        rows: Vec::new(),
    })
}

fn info(system: &System) -> SystemInfo {
    SystemInfo {
        name: system.name.to_owned(),
        title: system.title.to_owned(),
        ours: system.is_ours(),
        floor: system.is_floor(),
        part: system.part.map(|(_, why)| why.to_owned()),
        storage: system.storage.title().to_owned(),
        version: system.version.to_owned(),
        less_durable: system.less_durable.map(str::to_owned),
        settings: system.settings.to_owned(),
        commands: system.commands(),
    }
}

fn command(flags: &Flags) -> String {
    let mut command = format!("./bench compare --runs {}", flags.common.runs);
    if flags.common.scale != 1.0 {
        command.push_str(&format!(" --scale {}", flags.common.scale));
    }
    if flags.common.only.len() < super::Measure::ALL.len() {
        let only: Vec<_> = flags.common.only.iter().map(|measure| word(*measure)).collect();
        command.push_str(&format!(" --only {}", only.join(",")));
    }
    if !flags.systems.is_empty() {
        command.push_str(&format!(" --systems {}", flags.systems.join(",")));
    }
    command
}

async fn servers(flags: &Flags, systems: &[&'static System]) -> Result<BTreeMap<String, String>> {
    let mut servers: BTreeMap<_, _> = runtimes().collect();
    for system in systems {
        let title = system.storage.title().to_owned();
        if servers.contains_key(&title) {
            continue;
        }
        let version = match system.storage {
            Storage::Sqlite => format!("{}, WAL, synchronous=FULL", Database::version(&flags.common.url).await?),
            Storage::Postgres => {
                format!("{}, as shipped but for {POSTGRES}", database(flags.postgres.as_deref()).await)
            }
            Storage::Mysql => format!("{}, as shipped but for {MARIADB}", database(flags.mysql.as_deref()).await),
            Storage::Service(Kind::Redis) => format!("Redis {}, as shipped", service(Kind::Redis).await),
            Storage::Service(Kind::Beanstalkd) => format!("beanstalkd {}, -f0", service(Kind::Beanstalkd).await),
        };
        servers.insert(title, version);
    }
    Ok(servers)
}

/// The settings of scripts/start-postgres and scripts/start-mariadb.
const POSTGRES: &str = "shared_buffers=512MB, max_wal_size=4GB, max_connections=200, UTF-8 and the locale C.UTF-8";
const MARIADB: &str = "innodb-buffer-pool-size=1G, max-connections=200, no binary log, utf8mb4 and utf8mb4_general_ci";

/// What the drivers run on, and which Taskwheel it is.
fn runtimes() -> impl Iterator<Item = (String, String)> {
    let programs: [(&str, &str, &[&str]); 3] = [
        ("Node.js", "node", &["--version"]),
        ("Python", "python3", &["--version"]),
        ("Taskwheel", "git", &["describe", "--always", "--dirty"]),
    ];
    let said = |(title, program, arguments): (&str, &str, &[&str])| {
        Some((title.to_owned(), machine::said_by(program, arguments)?))
    };
    programs.into_iter().filter_map(said)
}

/// A server that is not there fails the systems that want it, not the run.
async fn database(server: Option<&str>) -> String {
    let Some(server) = server else { return "not given".into() };
    Database::version(server).await.unwrap_or_else(|error| error.to_string())
}

async fn service(kind: Kind) -> String {
    kind.version().await.unwrap_or_else(|_| "installed when it is first needed".into())
}
