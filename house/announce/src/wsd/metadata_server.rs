//! The HTTP server from which Windows gets the name of the computer.
//!
//! A request is a POST with a SOAP message. Each connection has one request, of bounded size, time and number.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tcp::{ConnectionTable, Incoming, Listener, ListenerError};

use super::message::{MAX_REQUEST, MessageWriter, parse};
use crate::{Device, Error, Result};

/// The time of a request and its answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Connections at once.
const MAX_CONNECTIONS: usize = 16;
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 4 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The listeners, one an address. They end when this is dropped.
pub(super) struct MetadataServer {
    listeners: Vec<Listener>,
}

impl MetadataServer {
    pub(super) fn start(
        device: &Device,
        addresses: &[Ipv4Addr],
        port: u16,
        writer: &Arc<Mutex<MessageWriter>>,
    ) -> Result<Self> {
        let table = Arc::new(ConnectionTable::new(MAX_CONNECTIONS));
        let mut listeners = Vec::new();
        for address in addresses {
            let address = SocketAddr::V4(SocketAddrV4::new(*address, port));
            let (device, writer, table) = (device.clone(), Arc::clone(writer), Arc::clone(&table));
            let on_connect = move |_, stream: TcpStream| {
                let stream = Arc::new(stream);
                let Some(member) = table.add(Arc::clone(&stream)) else { return };
                let (device, writer) = (device.clone(), Arc::clone(&writer));
                let thread = std::thread::Builder::new().name("ws-metadata".to_owned());
                // a client whose connection ends tries again later
                let _ = thread.spawn(move || {
                    let _member = member;
                    let _ = serve(&stream, &device, &writer);
                });
            };
            let listener = Listener::start(address, "ws-metadata-listen", on_connect);
            listeners.push(listener.map_err(|why| match why {
                ListenerError::Listen(why) => Error::WsDiscovery { address, why },
                ListenerError::Thread(why) => Error::Thread { why },
            })?);
        }
        Ok(Self { listeners })
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(Listener::address).collect()
    }
}

fn serve(
    stream: &Arc<TcpStream>,
    device: &Device,
    writer: &Mutex<MessageWriter>,
) -> io::Result<()> {
    tcp::configure(stream, TIME_LIMIT)?;
    let body = read_request(&mut Incoming::new(Arc::clone(stream)))?;
    let answer = parse(&body, device).and_then(|request| writer.lock().metadata(&request));
    let text = match answer {
        Some(answer) => format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/soap+xml\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{answer}",
            answer.len()
        ),
        None => {
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        }
    };
    tcp::send(stream, &mut [IoSlice::new(text.as_bytes())], TIME_LIMIT)
}

/// Reads a request, and returns its body.
fn read_request(from: &mut Incoming) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + TIME_LIMIT;
    let mut head = Vec::new();
    while !head.ends_with(HEAD_END) {
        if head.len() == MAX_HEAD {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut byte = [0];
        from.read_exact_until(&mut byte, deadline)?;
        head.extend(byte);
    }
    let length = content_length(&head).filter(|length| *length <= MAX_REQUEST);
    let mut body = vec![0; length.ok_or(ErrorKind::InvalidData)?];
    from.read_exact_until(&mut body, deadline)?;
    Ok(body)
}

/// The length of the body according to its header; 0 without one.
fn content_length(head: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(head).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let field = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    field.map_or(Some(0), |(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn lengths_of_bodies_are_read_from_heads() {
        let length = |head: &str| content_length(head.as_bytes());
        assert_eq!(
            length("POST / HTTP/1.1\r\nHost: a:5357\r\ncontent-length: 12\r\n\r\n"),
            Some(12)
        );
        assert_eq!(length("GET / HTTP/1.1\r\n\r\n"), Some(0));
        assert_eq!(length("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), None);
        assert_eq!(length("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"), None);
    }
}
