//! Measuring the network between two machines: one listens, the other asks.
//!
//! ```text
//! wire    the words that the two ends exchange
//! listen  the end that does what it is asked
//! talk    the end that asks: one stream, several, both ways, fixed buffers, latency
//! flow    sending and receiving as fast as it goes
//! link    which interface leads to an address, and what it can do
//! says    what follows: the part of the link that is reached, and what is worth changing
//! ```

mod flow;
mod link;
mod listen;
mod says;
mod talk;
mod wire;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::course::Course;
use crate::path::Heading;
use crate::record::{FORMAT, Kind, Record};
use crate::tally::Tally;
use crate::{Error, Machine, System, machine, verdict};

pub use listen::Listener;

/// The port where nobody says another.
pub const PORT: u16 = 7476;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The other end: a name or an address, with a port if it is not the usual one.
    pub host: String,
    /// How often each thing is measured.
    pub runs: usize,
    /// How long a run takes.
    pub time: Duration,
    /// Streams at a time, as many as are to be compared with a single one.
    pub streams: usize,
    /// Socket buffers to be tried, bytes.
    pub buffers: Vec<usize>,
}

impl Wish {
    /// What would be done, in sentences.
    pub fn intent(&self) -> Vec<String> {
        vec![format!(
            "TCP streams to and from '{}': one, {}, both ways at once, {} sizes of socket buffers, \
             and the latency meanwhile; {} runs of {:.1} s each, about {:.0} minutes. Nothing is \
             written to any drive.",
            self.host,
            self.streams,
            self.buffers.len(),
            self.runs,
            self.time.as_secs_f64(),
            (talk::expected(self).as_secs_f64() / 60.0).ceil()
        )]
    }
}

/// The addresses of a host.
fn resolve(host: &str) -> Result<Vec<SocketAddr>, Error> {
    let unknown = |why: String| Error::Peer { peer: format!("'{host}'"), why };
    let with_port = host.to_socket_addrs();
    let found = with_port.or_else(|_| {
        // a name, an address, an IPv6 address without brackets
        (host.trim_matches(['[', ']']), PORT).to_socket_addrs()
    });
    let all: Vec<SocketAddr> = found.map_err(|error| unknown(error.to_string()))?.collect();
    if all.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(all) }
}

/// Measures the network to a host on which a [`Listener`] runs.
pub fn measure(
    wish: &Wish,
    heading: Heading,
    course: &Course<'_>,
    system: &System,
) -> Result<Record, Error> {
    let began = Instant::now();
    let peer = talk::Peer::find(&wish.host, resolve(&wish.host)?, wish.time)?;
    let before = peer.about()?;
    course.expect(talk::expected(wish));
    let mut tally = Tally::default();
    let ours = link::Link::to(system, peer.address());
    let counters = wire::Counters::now(system);
    let complete = talk::Talk { peer: &peer, wish, course, system }.run(&mut tally)?;
    let after = peer.about()?;
    let sent_again = wire::Counters::now(system).and_then(|now| now.since(counters?));
    let peer_sent_again = after.counters.and_then(|now| now.since(before.counters?));
    let path = peer.path()?;
    let measures = tally.measures();
    let scene = says::Scene {
        ours: &ours,
        theirs: &before.link,
        path: &path,
        sent_again: [sent_again, peer_sent_again],
        most_window: link::most_window(system),
        streams: wish.streams,
    };
    let mut findings = if complete { says::findings(&scene, &measures) } else { Vec::new() };
    findings.extend(verdict::spread(&measures));
    let facts = json!({
        "address": peer.address().to_string(),
        "link": ours,
        "peer": before,
        "path": path,
        "sent_again": sent_again,
        "peer_sent_again": peer_sent_again,
    });
    Ok(Record {
        poolhouse_bench: FORMAT,
        kind: Kind::Net,
        label: heading.label,
        subject: wish.host.clone(),
        started: heading.started,
        seconds: began.elapsed().as_secs_f64(),
        complete,
        machine: Machine::of(system),
        drives: Vec::new(),
        versions: machine::versions(system),
        settings: settings(wish),
        facts: facts.as_object().cloned().unwrap_or_default(),
        findings,
        measures,
        notes: vec![
            "The begin of every stream is left out, while it finds its speed; what the receiving \
             end counted is what counts."
                .to_owned(),
        ],
    })
}

fn settings(wish: &Wish) -> Map<String, Value> {
    let value = json!({
        "runs": wish.runs,
        "seconds": wish.time.as_secs_f64(),
        "streams": wish.streams,
        "buffers": wish.buffers,
        "data": "incompressible",
    });
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{PORT, resolve};

    #[test]
    fn hosts_have_a_port_or_the_usual_one() {
        let first = |host: &str| resolve(host).unwrap()[0];
        assert_eq!(first("127.0.0.1"), ([127, 0, 0, 1], PORT).into());
        assert_eq!(first("127.0.0.1:99"), ([127, 0, 0, 1], 99).into());
        assert_eq!(first("::1").port(), PORT);
        assert_eq!(first("[::1]:99").port(), 99);
        assert!(resolve("").is_err());
    }
}
