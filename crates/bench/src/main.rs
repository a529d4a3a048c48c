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
