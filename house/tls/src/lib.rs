//! TLS: the certificates that our HTTP clients trust, and those that our servers show.
#![forbid(unsafe_code)]

mod authority;
mod client_stream;
mod server;
mod server_stream;

pub use authority::{Authority, AuthorityError, Date};
pub use client_stream::{ClientStream, TrustedServers};
pub use rustls::ServerConfig;
pub use server::{
    CertificateFileError, NamedCertificate, server_config, server_config_by_name, with_client_roots,
};
pub use server_stream::ServerStream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// The files in which Linux distributions keep the certificates that they trust.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why a file gives no certificates.
#[derive(Debug)]
pub struct CertificateError {
    /// The file.
    pub path: PathBuf,
    /// Why it cannot be read; none: it holds no certificate.
    pub why: Option<io::Error>,
}

/// The configuration of a client that trusts the certificates in `ca_file`, in PEM; none: those of the system.
pub fn client_config(ca_file: Option<&Path>) -> Result<TlsConfig, CertificateError> {
    let system = || SYSTEM_CERTIFICATES.map(PathBuf::from).into_iter().find(|path| path.exists());
    let path = ca_file.map(Path::to_owned).or_else(system);
    let path = path.unwrap_or_else(|| PathBuf::from(SYSTEM_CERTIFICATES[0]));
    let pem = match std::fs::read(&path) {
        Ok(pem) => pem,
        Err(why) => return Err(CertificateError { path, why: Some(why) }),
    };
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(CertificateError { path, why: None });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}
