//! The client of NUT over TLS: nothing is sent before the connection is encrypted, and only to a trusted server.

use std::io::{BufRead as _, BufReader, IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tls::{Authority, Date, ServerConfig, ServerStream, TrustedServers, server_config};
use ups::{Login, NutClient, UpsError};

/// The lines that the server heard in clear text, and encrypted.
type Heard = (Vec<String>, Vec<String>);

/// A server for one client. It answers STARTTLS with `answer`, and encrypts after an OK.
fn serve(answer: &'static str, config: Arc<ServerConfig>) -> (u16, JoinHandle<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let socket = Arc::new(listener.accept().unwrap().0);
        let (clear, said) = hear_clear(&socket, answer);
        if !said.starts_with("OK STARTTLS") {
            return (clear, Vec::new());
        }
        let Ok(stream) = ServerStream::accept(socket, config, || false) else {
            return (clear, Vec::new());
        };
        (clear, answer_encrypted(&stream))
    });
    (port, server)
}

/// Reads lines until the client ends, or asks for encryption.
fn hear_clear(socket: &TcpStream, answer: &'static str) -> (Vec<String>, String) {
    let mut lines = Vec::new();
    for line in BufReader::with_capacity(1, socket).lines().map_while(Result::ok) {
        lines.push(line);
        let mut socket = socket;
        socket.write_all(answer.as_bytes()).unwrap();
        if answer.starts_with("OK STARTTLS") {
            return (lines, answer.to_owned());
        }
    }
    (lines, String::new())
}

fn answer_encrypted(stream: &ServerStream) -> Vec<String> {
    let (mut lines, mut text, mut buffer) = (Vec::new(), Vec::new(), [0; 100]);
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8(text.drain(..=end).collect()).unwrap();
            let line = line.trim_end().to_owned();
            let answer = if line.starts_with("LIST VAR") {
                "BEGIN LIST VAR cellar\nVAR cellar ups.status \"OL\"\nEND LIST VAR cellar\n"
            } else {
                "OK\n"
            };
            stream.write_vectored(&[IoSlice::new(answer.as_bytes())]).unwrap();
            lines.push(line);
        }
    }
    lines
}

/// The certificate and key of a server, in PEM, and the root.
fn certificate() -> (Arc<ServerConfig>, String) {
    let (today, names) = (Date { year: 2026, month: 1, day: 1 }, ["localhost".to_owned()]);
    let authority = Authority::new("ups", &names, today).unwrap();
    let (chain, key) = authority.issue(&names, today, Date { year: 2099, ..today }).unwrap();
    let config = server_config(chain.as_bytes(), key.as_bytes()).unwrap();
    (config, authority.certificate().to_owned())
}

fn connect(port: u16, root: &str) -> Result<NutClient, UpsError> {
    let login = Login { user: "nas".to_owned(), password: "two words".to_owned() };
    let servers = TrustedServers::from_pem(root.as_bytes()).unwrap();
    NutClient::connect("localhost", port, "cellar", Some(&login), Some(&servers))
}

#[test]
fn passwords_are_sent_encrypted() {
    let (config, root) = certificate();
    let (port, server) = serve("OK STARTTLS\n", config);
    let mut client = connect(port, &root).unwrap();
    assert_eq!(client.read().unwrap().status, "OL");
    drop(client);
    let (clear, encrypted) = server.join().unwrap();
    assert_eq!(clear, ["STARTTLS"]);
    let wanted = ["USERNAME \"nas\"", "PASSWORD \"two words\"", "LOGIN cellar", "LIST VAR cellar"];
    assert_eq!(encrypted, wanted);
}

#[test]
fn servers_without_encryption_get_no_password() {
    let (config, root) = certificate();
    let (port, server) = serve("ERR FEATURE-NOT-CONFIGURED\n", config);
    let why = connect(port, &root).unwrap_err().to_string();
    assert!(why.contains("does not encrypt") && why.contains("ups.ca_file"), "{why}");
    assert_eq!(server.join().unwrap().0, ["STARTTLS"]);
}

#[test]
fn untrusted_servers_get_no_password() {
    let (config, _) = certificate();
    let (_, other_root) = certificate();
    let (port, server) = serve("OK STARTTLS\n", config);
    let why = connect(port, &other_root).unwrap_err();
    assert!(matches!(why, UpsError::NotEncrypted { .. }), "{why}");
    assert_eq!(server.join().unwrap(), (vec!["STARTTLS".to_owned()], Vec::new()));
}

#[test]
fn words_before_the_encryption_are_refused() {
    let (config, root) = certificate();
    let injected = "OK STARTTLS\nBEGIN LIST VAR cellar\n";
    let (port, server) = serve(injected, config);
    let why = connect(port, &root).unwrap_err().to_string();
    assert!(why.contains("before the connection was encrypted"), "{why}");
    assert!(server.join().unwrap().1.is_empty());
}
