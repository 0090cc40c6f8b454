//! The client's side of an encrypted connection, to a server that one file of certificates makes trusted.
//!
//! The servers of a house rarely have a certificate of a public CA. So the file may hold roots, and the certificate of the
//! server itself, which then holds for any name: nobody else has its key.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    StreamOwned,
};

use crate::server::{CertificateFileError, certificates};

/// The servers that a client trusts.
#[derive(Clone, Debug)]
pub struct TrustedServers(Arc<ClientConfig>);

impl TrustedServers {
    /// Those with a certificate of this text in PEM, or with one of a root in it for their name.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateFileError> {
        let known = certificates(pem)?;
        let mut roots = RootCertStore::empty();
        for certificate in &known {
            roots.add(certificate.clone())?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let by_roots =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let by_roots =
            by_roots.build().map_err(|why| CertificateFileError::Roots(why.to_string()))?;
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let verifier = Arc::new(KnownServers { known, by_roots });
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Self(Arc::new(config.with_no_client_auth())))
    }
}

/// Accepts the certificates of a file, and those of its roots.
#[derive(Debug)]
struct KnownServers {
    known: Vec<CertificateDer<'static>>,
    by_roots: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for KnownServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // the server proves by its signature of the handshake that it has the key
        if self.known.iter().any(|known| known.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.by_roots.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_roots.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_roots.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_roots.supported_verify_schemes()
    }
}

/// The client's side of an encrypted connection.
#[derive(Debug)]
pub struct ClientStream(StreamOwned<ClientConnection, TcpStream>);

impl ClientStream {
    /// Does the handshake with a server. The time limits of the socket end each wait.
    ///
    /// # Errors
    /// If the server is not trusted, breaks the protocol, or is too slow.
    pub fn connect(servers: &TrustedServers, host: &str, socket: TcpStream) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&servers.0), name);
        let mut stream = StreamOwned::new(connection.map_err(io::Error::other)?, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self(stream))
    }
}

impl Read for ClientStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;

    use super::{ClientStream, TrustedServers};
    use crate::{
        Authority, Date, NamedCertificate, ServerConfig, ServerStream, server_config,
        server_config_by_name,
    };

    /// The words that a client hears which trusts `trusted`, from a server with the certificate of `chain`.
    fn hear(chain: &str, key: &str, trusted: &str, host: &str) -> std::io::Result<String> {
        let config = server_config(chain.as_bytes(), key.as_bytes()).unwrap();
        hear_of(config, trusted, host)
    }

    fn hear_of(config: Arc<ServerConfig>, trusted: &str, host: &str) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let socket = Arc::new(listener.accept().unwrap().0);
            let Ok(stream) = ServerStream::accept(Arc::clone(&socket), config, || false) else {
                return;
            };
            let mut asked = [0; 5];
            assert_eq!(stream.read(&mut asked).unwrap(), 5);
            let count = stream.write_vectored(&[std::io::IoSlice::new(&asked)]).unwrap();
            assert_eq!(count, 5);
        });
        let servers = TrustedServers::from_pem(trusted.as_bytes()).unwrap();
        let heard = ClientStream::connect(&servers, host, TcpStream::connect(address).unwrap())
            .and_then(|mut stream| {
                stream.write_all(b"hello")?;
                stream.flush()?;
                let mut text = [0; 5];
                stream.read_exact(&mut text)?;
                Ok(String::from_utf8_lossy(&text).into_owned())
            });
        server.join().unwrap();
        heard
    }

    #[test]
    fn names_choose_the_certificate() {
        let today = Date { year: 2026, month: 1, day: 1 };
        let until = Date { year: 2099, ..today };
        let (own_names, names) = (["nas.lan".to_owned()], ["nas.example.org".to_owned()]);
        let own = Authority::new("nas", &own_names, today).unwrap();
        let public = Authority::new("ca", &names, today).unwrap();
        let (chain, key) = own.issue(&own_names, today, until).unwrap();
        let (named, named_key) = public.issue(&names, today, until).unwrap();
        let (named, named_key) = (named.as_bytes(), named_key.as_bytes());
        let named = NamedCertificate { names: &names, chain: named, key: named_key };
        let config = server_config_by_name(chain.as_bytes(), key.as_bytes(), named).unwrap();
        let hear = |authority: &Authority, host| {
            hear_of(Arc::clone(&config), authority.certificate(), host).is_ok()
        };
        assert!(hear(&public, "nas.example.org") && hear(&public, "NAS.example.org"));
        assert!(hear(&own, "nas.lan") && !hear(&own, "nas.example.org"));
        assert!(!hear(&public, "nas.lan"));
        // a key of another certificate
        let wrong = NamedCertificate { key: key.as_bytes(), ..named };
        assert!(server_config_by_name(chain.as_bytes(), key.as_bytes(), wrong).is_err());
    }

    #[test]
    fn servers_are_trusted_by_root_or_certificate() {
        let today = Date { year: 2026, month: 1, day: 1 };
        let until = Date { year: 2099, ..today };
        let names = ["ups.local".to_owned()];
        let authority = Authority::new("ups", &names, today).unwrap();
        let (chain, key) = authority.issue(&names, today, until).unwrap();
        let other = Authority::new("ups", &names, today).unwrap();
        let root = authority.certificate();
        assert_eq!(hear(&chain, &key, root, "ups.local").unwrap(), "hello");
        // the root says for which names it holds
        assert!(hear(&chain, &key, root, "other.local").is_err());
        assert!(hear(&chain, &key, other.certificate(), "ups.local").is_err());
        // the certificate itself is trusted at any address, and no other one
        assert_eq!(hear(&chain, &key, &chain, "192.0.2.7").unwrap(), "hello");
        let (second, second_key) = authority.issue(&names, today, until).unwrap();
        assert!(hear(&second, &second_key, &chain, "ups.local").is_err());
        assert!(TrustedServers::from_pem(b"nothing").is_err());
    }
}
