//! The TLS configuration of a server from its certificate and key in PEM.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum CertificateFileError {
    /// The text has no certificate.
    #[error("it has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The text has no private key.
    #[error("it has no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The key is not that of the certificate, or of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The configuration of a server that shows `chain`, its certificate first, and offers HTTP/1.1.
pub fn server_config(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateFileError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|_| CertificateFileError::NoCertificate)?;
    if chain.is_empty() {
        return Err(CertificateFileError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateFileError::NoKey)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
