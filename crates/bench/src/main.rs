//! Benchmarks: the store beside bare SQL and its peers, the server over HTTP beside its peers, the SDK beside both, and schedules beside
//! bare SQL.

mod common;
mod compare;
mod floor;
mod growth;
mod ours;
mod peers;
mod schedules;
mod sdk;
mod server;
mod store;

use tokio::runtime::Builder;

fn main() -> floor::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut all_cores, mut one_thread) = (Builder::new_multi_thread(), Builder::new_current_thread());
    match arguments.as_slice() {
        [command, flag, url] if command == "floor" && flag == "--database" => {
            all_cores.enable_all().build()?.block_on(floor::run(url))
        }
        [command, flags @ ..] if command == "compare" => one_thread.enable_all().build()?.block_on(compare::run(flags)),
        [command, flags @ ..] if command == "store" => all_cores.enable_all().build()?.block_on(store::run(flags)),
        [command, flags @ ..] if command == "server" => one_thread.enable_all().build()?.block_on(server::run(flags)),
        [command, flag, server, name] if command == "sdk" && flag == server::run::CHILD => {
            one_thread.enable_all().build()?.block_on(sdk::child(server, name))
        }
        [command, way, flags @ ..] if command == "driver" => {
            // Over HTTP the machine's other cores are the server's and the database's.
            let mut runtime = if way == "http" { one_thread } else { all_cores };
            runtime.enable_all().build()?.block_on(ours::run(way, flags))
        }
        [command, flags @ ..] if command == "sdk" => all_cores.enable_all().build()?.block_on(sdk::run(flags)),
        [command, flags @ ..] if command == "growth" => all_cores.enable_all().build()?.block_on(growth::run(flags)),
        [command, flags @ ..] if command == "schedules" => {
            all_cores.enable_all().build()?.block_on(schedules::run(flags))
        }
        _ => Err("usage: bench store|server|sdk|schedules|compare|growth --database URL [flags] | bench floor --database URL".into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::common::settings::{Part, Settings};
    use crate::floor::Result;
    use crate::{compare, growth, schedules, sdk, server, store};
    use std::fs;
    use std::path::Path;

    fn parse<P: Part>(flags: &[String]) -> Result<()> {
        Settings::<P>::parse(flags).map(drop)
    }

    /// They are long runs; a test sees whether what they ask for is there.
    #[test]
    fn every_command_of_the_pages_is_understood() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let mut understood = 0;
        for page in ["README.md", "comparison.md", "growth.md"] {
            let text = fs::read_to_string(pages.join(page)).expect("the page is there");
            for line in text.lines().filter_map(|line| line.strip_prefix("./bench ")) {
                let said = line.split_once('#').map_or(line, |(command, _)| command);
                let mut words: Vec<_> = said.split_whitespace().map(str::to_owned).collect();
                if !words.iter().any(|word| word == "--database") {
                    words.extend(["--database", "sqlite://none"].map(str::to_owned));
                }
                let (command, flags) = words.split_first().expect("a command");
                let parsed = match command.as_str() {
                    "store" => parse::<store::settings::Measure>(flags),
                    "server" => parse::<server::settings::Measure>(flags),
                    "sdk" => parse::<sdk::settings::Measure>(flags),
                    "schedules" => parse::<schedules::settings::Measure>(flags),
                    "growth" => parse::<growth::settings::Measure>(flags),
                    "compare" => compare::settings::Flags::parse(flags).map(drop),
                    _ => Err("no such benchmark".into()),
                };
                parsed.unwrap_or_else(|error| panic!("{page}: ./bench {line}: {error}"));
                understood += 1;
            }
        }
        assert!(understood >= 12, "{understood} commands");
    }
}
