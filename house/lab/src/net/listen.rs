//! The end that listens: it does what it is asked on each connection, for a bounded time.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use super::flow;
use super::link::{self, Link};
use super::wire::{
    self, About, Counters, MOST_BUFFER, MOST_MILLISECONDS, Request, VERSION, Wanted,
};
use crate::{Error, Machine, System};

/// Connections at a time.
const MOST: usize = 256;
/// Who is silent for so long is let go.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Listens for those who measure.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    system: System,
}

impl Listener {
    /// Listens at an address; at any of this machine's if none is given.
    pub fn bind(address: Option<SocketAddr>, system: System) -> Result<Self, Error> {
        let any = [
            SocketAddr::from(([0_u16; 8], super::PORT)),
            SocketAddr::from(([0_u8; 4], super::PORT)),
        ];
        let wanted = address.as_slice();
        let wanted = if wanted.is_empty() { &any[..] } else { wanted };
        let peer = |error: io::Error| Error::Peer {
            peer: wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
            why: format!("nobody can listen there: {error}"),
        };
        let socket = TcpListener::bind(wanted).map_err(peer)?;
        socket.set_nonblocking(true).map_err(peer)?;
        Ok(Self { socket, system })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Serves until `stop` says so. `came` is told of everyone who asks who listens.
    pub fn serve(
        &self,
        stop: impl Fn() -> bool,
        came: impl Fn(SocketAddr) + Send + Sync + 'static,
    ) {
        let came: Arc<dyn Fn(SocketAddr) + Send + Sync> = Arc::new(came);
        let busy = Arc::new(AtomicUsize::new(0));
        while !stop() {
            // a connection that broke before it was taken is nobody's loss
            let Ok((stream, from)) = self.socket.accept() else {
                std::thread::sleep(LOOK);
                continue;
            };
            if busy.fetch_add(1, SeqCst) >= MOST {
                busy.fetch_sub(1, SeqCst);
                continue;
            }
            let (busy, system) = (Arc::clone(&busy), self.system.clone());
            let came = Arc::clone(&came);
            std::thread::spawn(move || {
                // who goes away in the middle has nobody to be told
                let _ = serve(stream, from, &system, &*came);
                busy.fetch_sub(1, SeqCst);
            });
        }
    }
}

fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    system: &System,
    came: &dyn Fn(SocketAddr),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request: Request = wire::hear_first(&mut stream)?;
    let bounded = |buffer: Option<usize>| buffer.map(|bytes| bytes.min(MOST_BUFFER));
    match request.wanted {
        // one that speaks other words learns so from the answer's version
        Wanted::About => {
            came(from);
            wire::say(&mut stream, &about(system, from))
        }
        _ if request.poolhouse_net != VERSION => Ok(()),
        Wanted::Echo => flow::echo(&mut stream),
        Wanted::Take { buffer } => {
            flow::set_buffers(&stream, bounded(buffer))?;
            let taken = flow::take(&mut stream, || false)?;
            wire::say(&mut stream, &taken)
        }
        Wanted::Send { milliseconds, buffer } => {
            flow::set_buffers(&stream, bounded(buffer))?;
            let time = Duration::from_millis(milliseconds.min(MOST_MILLISECONDS));
            flow::send(&mut stream, time, || false)
        }
    }
}

fn about(system: &System, from: SocketAddr) -> About {
    About {
        poolhouse_net: VERSION,
        machine: Machine::of(system),
        link: Link::to(system, from),
        counters: Counters::now(system),
        most_window: link::most_window(system),
    }
}
