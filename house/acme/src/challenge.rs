//! HTTP-01: answers the CA that reads `/.well-known/acme-challenge/TOKEN` by port 80. It listens only while an order runs.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// The path in front of a token.
const PREFIX: &str = "/.well-known/acme-challenge/";
/// The time for each step of a connection.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The bytes of a request that are read.
const MAX_REQUEST: u64 = 8 << 10;

type Proofs = Mutex<HashMap<String, String>>;

/// The listener. It ends when it is dropped.
pub(crate) struct ChallengeServer {
    address: SocketAddr,
    proofs: Arc<Proofs>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ChallengeServer {
    /// Listens on an address.
    pub(crate) fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (proofs, is_ending) = (Arc::new(Proofs::default()), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("acme challenge".to_owned());
        let thread = {
            let (proofs, is_ending) = (Arc::clone(&proofs), Arc::clone(&is_ending));
            thread.spawn(move || {
                for client in listener.incoming() {
                    if is_ending.load(Ordering::Acquire) {
                        break;
                    }
                    // a client that fails asks again
                    let _ = client.and_then(|client| answer(&client, &proofs));
                }
            })?
        };
        Ok(Self { address, proofs, is_ending, thread: Some(thread) })
    }

    /// Answers a token by its proof from now on.
    pub(crate) fn answer(&self, token: &str, proof: &str) {
        self.proofs.lock().insert(token.to_owned(), proof.to_owned());
    }
}

impl Drop for ChallengeServer {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // a connection wakes the thread
        let woken = TcpStream::connect_timeout(&address, TIME_LIMIT).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(client: &TcpStream, proofs: &Proofs) -> io::Result<()> {
    client.set_read_timeout(Some(TIME_LIMIT))?;
    client.set_write_timeout(Some(TIME_LIMIT))?;
    let mut lines = BufReader::new(client.take(MAX_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // the rest is read, so that closing the connection does not cut the answer off
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let token = path.and_then(|path| path.strip_prefix(PREFIX));
    let proof = token.and_then(|token| proofs.lock().get(token).cloned());
    let (status, body) = match &proof {
        Some(proof) => ("200 OK", proof.as_str()),
        None => ("404 Not Found", ""),
    };
    let mut client = client;
    write!(
        client,
        "HTTP/1.1 {status}\r\ncontent-type: application/octet-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n\
         {body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::ChallengeServer;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_known_tokens_are_answered() {
        let server = ChallengeServer::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address;
        server.answer("abc", "abc.thumb");
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nhost: nas\r\n\r\n"));
        assert!(get("/.well-known/acme-challenge/abc").ends_with("\r\n\r\nabc.thumb"));
        for path in
            ["/", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/../abc", "/abc"]
        {
            assert!(get(path).starts_with("HTTP/1.1 404"), "{path}");
        }
        assert!(
            ask(address, "POST /.well-known/acme-challenge/abc HTTP/1.1\r\n\r\n").contains("404")
        );
        drop(server);
        assert!(TcpStream::connect(address).is_err(), "it listens while an order runs only");
    }
}
