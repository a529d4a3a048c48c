//! Certificate files, looked at before they are used, so that a mistake is named by its file.

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::path::Path;
use taskwheel_server::TlsAcceptor;

/// Reads the certificate that a server shows, and its key.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    check_certificate(certificate).context("--tls-cert")?;
    if let Err(Error::NoItemsFound) = PrivateKeyDer::from_pem_file(key) {
        bail!("--tls-key: {} holds no private key", key.display());
    }
    taskwheel_server::tls(certificate, key).context("the certificate and its key cannot be used")
}

/// Refuses a file that cannot be read, or without any certificate.
pub(crate) fn check_certificate(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    if CertificateDer::pem_reader_iter(file).next().is_none() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(())
}
