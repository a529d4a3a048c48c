//! TLS by certificate files.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Reads a certificate with its chain, and its key, both as PEM.
pub fn tls(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| bad(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| bad(certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
