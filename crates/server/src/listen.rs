//! The server around the router: connections, their limits, and a graceful end.
//!
//! Connections and headers have limits, so that nobody can hold the server up by being slow. When it is told to stop it takes
//! no more connections, the engine answers the claims that wait, and calls under way get their answers.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

const CONNECTIONS_MAX: usize = 10_000;
/// How long the head of a request may take to arrive; also how long a connection may be idle between two.
const HEADER_TIME_MAX: Duration = Duration::from_secs(75);
/// How long a client may take to agree on how to encrypt.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long calls under way get when the server stops.
const GRACE: Duration = Duration::from_secs(30);
/// After an accept that failed, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An address that is listened on.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

/// Tells the server to stop.
pub type Stop = watch::Receiver<bool>;

/// Listens on an address, with TLS where there is a certificate.
pub async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Listener> {
    Ok(Listener { socket: TcpListener::bind(address).await?, tls })
}

impl Listener {
    /// The address, with the port that was given where none was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How a URL of this server begins.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until it is told to stop, and then until the last call is answered.
    pub async fn serve(self, router: Router, mut stop: Stop) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let connections = GracefulShutdown::new();
        loop {
            let accept = async {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok::<_, io::Error>((self.socket.accept().await?, place))
            };
            let accepted = tokio::select! {
                accepted = accept => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let (stream, place) = match accepted {
                Ok(((stream, _), place)) => (stream, place),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (tls, router, watcher) = (self.tls.clone(), router.clone(), connections.watcher());
            tokio::spawn(async move {
                // A small answer shall not wait for company.
                let _ = stream.set_nodelay(true);
                match tls {
                    None => answer(stream, router, watcher).await,
                    Some(tls) => match tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await {
                        Ok(Ok(stream)) => answer(stream, router, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                        Err(_) => tracing::debug!("a TLS handshake took too long"),
                    },
                }
                drop(place);
            });
        }
        drop(self.socket);
        if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
            tracing::warn!("some calls were still under way when their grace period ended");
        }
    }
}

/// The answers on one connection.
async fn answer<S>(stream: S, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Clients break connections for reasons of their own.
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
}
