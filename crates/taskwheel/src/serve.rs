//! `taskwheel serve`: the server.

use crate::collector::Collector;
use crate::database::{self, DatabaseArgs};
use crate::log::{self, LogFormat};
use crate::output;
use crate::retention::RetentionArgs;
use crate::tls;
use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use taskwheel_engine::Engine;
use taskwheel_model::zone;
use taskwheel_store::Store;
use tokio::net::{TcpSocket, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const ADDRESS_DEFAULT: &str = "127.0.0.1:9222";

/// How to serve.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on.
    #[arg(long, env = "TASKWHEEL_LISTEN", default_value = ADDRESS_DEFAULT)]
    listen: String,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// The certificate to serve HTTPS with, with its chain, as PEM.
    #[arg(long, env = "TASKWHEEL_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM.
    #[arg(long, env = "TASKWHEEL_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How the log is written: for people, or one JSON object a line.
    #[arg(long, env = "TASKWHEEL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// The time zone of schedules that name none.
    #[arg(long, env = "TASKWHEEL_TIMEZONE", default_value = "UTC", value_parser = timezone)]
    timezone: String,
    #[command(flatten)]
    retention: RetentionArgs,
}

fn timezone(name: &str) -> Result<String, String> {
    zone::find("timezone", name).map(|_| name.to_owned()).map_err(|error| error.message)
}

/// Serves until it is told to stop.
pub(crate) async fn serve(args: ServeArgs) -> Result<()> {
    log::start(args.log_format)?;
    // First of all, so that a signal that comes while we start is not lost.
    let stop = stop_signal()?;
    allow_connections();
    let address = address(&args.listen).await?;
    let (tls, collector) = (acceptor(&args)?, Collector::of_environment()?);
    // The only one on this file, for as long as it lives.
    let _only = database::only_server(&args.database.database)?;
    let in_use =
        || format!("cannot listen on {address}: end what listens there, or choose another address with --listen");
    check_free(address).with_context(in_use)?;
    let store = database::open(&args.database, args.retention.keeps_success()).await?;
    if let Some(refusal) = without_tokens(&*store, address).await? {
        bail!(refusal);
    }
    if let Some(warning) = without_tls(address, tls.is_some()) {
        log::warn_always(args.log_format, &warning);
    }
    let listener = taskwheel_server::bind(address, tls).await.with_context(in_use)?;
    let (address, scheme) = (listener.address()?, listener.scheme());
    let inspection = store.inspect().await?;
    let token = if store.has_tokens().await? { "export TASKWHEEL_TOKEN=…\n          " } else { "" };
    let engine = Arc::new(Engine::start(store, args.retention.options()));
    let (spans, sending) = collector.map(Collector::start).unzip();
    let durability = if inspection.weak_settings.is_empty() { "durable" } else { "NOT durable, see the log" };
    let client = client(scheme, address);
    // Whoever reads no further than where it listens must not end it.
    let _ = output::print(&format!(
        "taskwheel {} listens on {scheme}://{address}\n\
         database: {}, {} ({durability})\n\
         try:      {token}{client} submit hello --payload '{{\"name\": \"you\"}}'\n          \
                   {client} work --type hello -- cat\n          \
                   {client} tasks list",
        env!("CARGO_PKG_VERSION"),
        database::shown(&args.database.database),
        inspection.database,
    ));
    let mut stopping = stop.clone();
    let ending = engine.clone();
    let end = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
        tracing::info!("stopping: calls under way are answered first");
        ending.stop().await;
    };
    let router = taskwheel_server::router(engine, spans.unwrap_or_default(), args.timezone);
    tokio::join!(listener.serve(router, stop), end);
    if let Some(sending) = sending {
        sending.flush().await;
    }
    Ok(())
}

/// How the command line is called from where we are, to talk to this server.
fn client(scheme: &str, address: SocketAddr) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "taskwheel".into());
    let is_default = scheme == "http" && address.to_string() == ADDRESS_DEFAULT;
    // Nobody can be called at the address that stands for all of a machine's.
    let is_any = address.ip().is_unspecified();
    let address = if is_any { format!("YOUR-HOST:{}", address.port()) } else { address.to_string() };
    if is_default { program } else { format!("{program} --server {scheme}://{address}") }
}

/// Every connection is an open file, and the usual limit of 1024 is a soft one: we may have as many as the hard one says.
fn allow_connections() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files could not be raised, and so there may be fewer connections");
    }
}

/// The address to listen on.
async fn address(listen: &str) -> Result<SocketAddr> {
    let unreadable = || format!("--listen must be an address and a port, as in 127.0.0.1:9222, not {listen}");
    let mut addresses = lookup_host(listen).await.with_context(unreadable)?;
    let address = addresses.next().with_context(unreadable)?;
    Ok(address)
}

/// Refuses an address that is taken before a database is made in vain. Nobody can connect to it yet.
fn check_free(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As the listener will: an address that an ended process had is free.
    socket.set_reuseaddr(true)?;
    socket.bind(address)
}

/// The certificate, where there is one.
fn acceptor(args: &ServeArgs) -> Result<Option<taskwheel_server::TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    tls::acceptor(certificate, key).map(Some)
}

/// While there has never been a token nobody is asked who they are, so only this machine may call.
async fn without_tokens(store: &dyn Store, address: SocketAddr) -> Result<Option<String>> {
    let is_open = !address.ip().is_loopback() && !store.has_tokens().await?;
    Ok(is_open.then(|| {
        format!(
            "there are no tokens yet, so the server listens on this machine alone: make one with `taskwheel tokens \
             create --role admin` and the same --database, or use --listen 127.0.0.1:{}",
            address.port()
        )
    }))
}

fn without_tls(address: SocketAddr, is_encrypted: bool) -> Option<String> {
    (!address.ip().is_loopback() && !is_encrypted).then(|| {
        format!(
            "LISTENING ON {address} WITHOUT TLS: tokens and tasks can be read on the way; give --tls-cert and --tls-key, or \
             let only a proxy that has TLS reach this address"
        )
    })
}

/// What `serve` would refuse by itself, or warn about, each with how to mend it.
pub(crate) async fn problems(args: &ServeArgs) -> Vec<String> {
    let (address, tls) = (address(&args.listen).await, acceptor(args));
    let warning =
        address.as_ref().ok().and_then(|address| without_tls(*address, tls.as_ref().map_or(true, Option::is_some)));
    let refusals = [log::filter_of_environment().err(), address.err(), tls.err(), Collector::of_environment().err()];
    refusals.into_iter().flatten().map(|error| format!("{error:#}")).chain(warning).collect()
}

/// The same, of what it would find in its database.
pub(crate) async fn problems_with(args: &ServeArgs, store: &dyn Store) -> Result<Option<String>> {
    match address(&args.listen).await {
        Ok(address) => without_tokens(store, address).await,
        Err(_) => Ok(None),
    }
}

/// Becomes true at SIGTERM and Ctrl-C.
fn stop_signal() -> Result<watch::Receiver<bool>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
        // A receiver shall never see the sender go before the signal.
        stop.closed().await;
    });
    Ok(stopped)
}
