//! Benchmarks: the store beside bare SQL and its peers, in one run on the same database.

mod floor;
mod store;

#[tokio::main]
async fn main() -> floor::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, flag, url] if command == "floor" && flag == "--database" => floor::run(url).await,
        [command, flags @ ..] if command == "store" => store::run(flags).await,
        _ => Err("usage: bench store [--database URL] [flags] | bench floor --database URL".into()),
    }
}
