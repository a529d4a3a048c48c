//! The server around the router: connections, their limits, and a graceful end.
//!
//! Connections and headers have limits, so that nobody can hold the server up by being slow. When it is told to stop it takes
//! no more connections, the engine answers the claims that wait, and calls under way get their answers.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

const CONNECTIONS_MAX: usize = 10_000;
/// How long the head of a request may take to arrive; also how long a connection may be idle between two.
const HEADER_TIME_MAX: Duration = Duration::from_secs(75);
/// How long calls under way get when the server stops.
const GRACE: Duration = Duration::from_secs(30);
/// After an accept that failed, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An address that is listened on.
pub struct Listener(TcpListener);

/// Tells the server to stop.
pub type Stop = watch::Receiver<bool>;

/// Listens on an address.
pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
    TcpListener::bind(address).await.map(Listener)
}

impl Listener {
    /// The address, with the port that was given where none was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves until it is told to stop, and then until the last call is answered.
    pub async fn serve(self, router: Router, mut stop: Stop) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let connections = GracefulShutdown::new();
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = self.0.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = connections.watch(connection(stream, router.clone()));
            tokio::spawn(async move {
                // Clients break connections for reasons of their own.
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended");
                }
                drop(place);
            });
        }
        drop(self.0);
        if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
            tracing::warn!("some calls were still under way when their grace period ended");
        }
    }
}

/// The answers on one connection.
fn connection(stream: TcpStream, router: Router) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // A small answer shall not wait for company.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
