//! The TLS configuration of a server from its certificate and key in PEM.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
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
    /// No client can be verified with these roots.
    #[error("clients cannot be verified: {0}")]
    Roots(String),
    /// The key is not that of the certificate, or of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The configuration of a server that shows `chain`, its certificate first, and offers HTTP/1.1.
pub fn server_config(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateFileError> {
    let chain = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateFileError::NoKey)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A certificate that is shown to clients that ask for its names.
#[derive(Clone, Copy, Debug)]
pub struct NamedCertificate<'a> {
    /// The names.
    pub names: &'a [String],
    /// The certificate and those between it and its root, in PEM.
    pub chain: &'a [u8],
    /// The private key in PEM.
    pub key: &'a [u8],
}

/// As [`server_config`], with another certificate for clients that ask for its names.
pub fn server_config_by_name(
    chain: &[u8],
    key: &[u8],
    named: NamedCertificate<'_>,
) -> Result<Arc<ServerConfig>, CertificateFileError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certified = |chain: &[u8], key: &[u8]| {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateFileError::NoKey)?;
        let certified = CertifiedKey::from_der(certificates(chain)?, key, &provider)?;
        Ok::<_, CertificateFileError>(Arc::new(certified))
    };
    let resolver = ByName {
        names: named.names.to_vec(),
        named: certified(named.chain, named.key)?,
        other: certified(chain, key)?,
    };
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Two certificates, of which the client's wish for a name chooses one.
#[derive(Debug)]
struct ByName {
    names: Vec<String>,
    named: Arc<CertifiedKey>,
    other: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().unwrap_or_default();
        let is_named = self.names.iter().any(|name| name.eq_ignore_ascii_case(asked));
        Some(Arc::clone(if is_named { &self.named } else { &self.other }))
    }
}

/// The same configuration, for clients that show a certificate of one of these roots, in PEM.
pub fn with_client_roots(
    config: &ServerConfig,
    roots: &[u8],
) -> Result<Arc<ServerConfig>, CertificateFileError> {
    let mut store = RootCertStore::empty();
    for root in certificates(roots)? {
        store.add(root)?;
    }
    let provider = Arc::clone(config.crypto_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|why| CertificateFileError::Roots(why.to_string()))?;
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let resolver = Arc::clone(&config.cert_resolver);
    Ok(Arc::new(builder.with_client_cert_verifier(verifier).with_cert_resolver(resolver)))
}

/// The certificates of a text in PEM, one at least.
pub(crate) fn certificates(
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| CertificateFileError::NoCertificate)?;
    if all.is_empty() { Err(CertificateFileError::NoCertificate) } else { Ok(all) }
}
