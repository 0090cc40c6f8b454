//! TLS, which a client starts during the handshake (STARTTLS).

use std::io::{self, IoSlice};
use std::sync::Arc;

use tcp::Transport;
use tls::{ServerConfig, ServerStream};

/// A function that gives the certificate of a new connection, or the reason why there is none.
pub type CertificateSource = Arc<dyn Fn() -> Result<Arc<ServerConfig>, String> + Send + Sync>;

/// The encryption that a server offers.
#[derive(Clone)]
pub struct Encryption {
    /// The certificate that the server shows.
    pub certificate: CertificateSource,
    /// Whether clients see no export without TLS.
    pub is_required: bool,
}

/// The encryption of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EncryptionState {
    /// The server has none.
    Unavailable,
    /// The client may start it.
    Offered,
    /// The client must start it.
    Required,
    /// The connection is encrypted.
    Active,
}

/// An encrypted connection.
pub(crate) struct EncryptedTransport(pub(crate) ServerStream);

impl Transport for EncryptedTransport {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(buffers)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
