//! Measures the network between two machines: a server and a client.
//!
//! ```text
//! protocol  the messages of the two ends
//! server    the end that handles requests
//! client    the end that measures: one stream, several, both directions, fixed buffers, latency
//! transfer  sends and receives at full speed
//! link      the interface that leads to an address, and its speed
//! findings  the used part of the link, and worthwhile changes
//! ```

mod client;
mod findings;
mod link;
mod protocol;
mod server;
mod transfer;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::bench_result::{BenchKind, BenchResult, FORMAT_VERSION};
use crate::path::Heading;
use crate::progress::Progress;
use crate::tally::Tally;
use crate::{Error, Machine, System, machine, run_quality};

pub use server::Listener;

/// The default port.
pub const DEFAULT_PORT: u16 = 7476;

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The other end: a name or an address, with a port if it is not the usual one.
    pub host: String,
    /// How often each thing is measured.
    pub runs: usize,
    /// How long a run takes.
    pub time: Duration,
    /// Streams at a time, as many as are to be compared with a single one.
    pub stream_count: usize,
    /// Socket buffers to be tried, bytes.
    pub buffer_sizes: Vec<usize>,
}

impl Options {
    /// The plan, in sentences (dry run).
    pub fn describe_plan(&self) -> Vec<String> {
        vec![format!(
            "TCP streams to and from '{}': one, {}, both ways at once, {} sizes of socket buffers, \
             and the latency meanwhile; {} runs of {:.1} s each, about {:.0} minutes. Nothing is \
             written to any drive.",
            self.host,
            self.stream_count,
            self.buffer_sizes.len(),
            self.runs,
            self.time.as_secs_f64(),
            (client::expected_duration(self).as_secs_f64() / 60.0).ceil()
        )]
    }
}

/// The addresses of a host.
fn resolve(host: &str) -> Result<Vec<SocketAddr>, Error> {
    let unknown = |why: String| Error::Peer { peer: format!("'{host}'"), why };
    let with_port = host.to_socket_addrs();
    let found = with_port.or_else(|_| {
        // a name, an address, an IPv6 address without brackets
        (host.trim_matches(['[', ']']), DEFAULT_PORT).to_socket_addrs()
    });
    let all: Vec<SocketAddr> = found.map_err(|error| unknown(error.to_string()))?.collect();
    if all.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(all) }
}

/// Measures the network to a host on which a [`Listener`] runs.
pub fn measure(
    wish: &Options,
    heading: Heading,
    course: &Progress<'_>,
    system: &System,
) -> Result<BenchResult, Error> {
    let began = Instant::now();
    let peer = client::Peer::connect(&wish.host, resolve(&wish.host)?, wish.time)?;
    let before = peer.host_info()?;
    course.set_remaining(client::expected_duration(wish));
    let mut tally = Tally::default();
    let ours = link::Link::route_to(system, peer.address());
    let counters = protocol::TcpCounters::read(system);
    let complete = client::NetRunner { peer: &peer, options: wish, progress: course, system }
        .run(&mut tally)?;
    let after = peer.host_info()?;
    let sent_again =
        protocol::TcpCounters::read(system).and_then(|now| now.retransmitted_since(counters?));
    let peer_sent_again = after.counters.and_then(|now| now.retransmitted_since(before.counters?));
    let path = peer.path_info()?;
    let measures = tally.into_measures();
    let scene = findings::FindingInputs {
        local_link: &ours,
        peer_link: &before.link,
        path: &path,
        retransmitted: [sent_again, peer_sent_again],
        max_receive_window: link::max_receive_window(system),
        stream_count: wish.stream_count,
    };
    let mut findings = if complete { findings::findings(&scene, &measures) } else { Vec::new() };
    findings.extend(run_quality::spread_finding(&measures));
    let facts = json!({
        "address": peer.address().to_string(),
        "link": ours,
        "peer": before,
        "path": path,
        "sent_again": sent_again,
        "peer_sent_again": peer_sent_again,
    });
    Ok(BenchResult {
        poolhouse_bench: FORMAT_VERSION,
        kind: BenchKind::Net,
        label: heading.label,
        subject: wish.host.clone(),
        started: heading.started,
        seconds: began.elapsed().as_secs_f64(),
        complete,
        machine: Machine::read(system),
        drives: Vec::new(),
        versions: machine::software_versions(system),
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

fn settings(wish: &Options) -> Map<String, Value> {
    let value = json!({
        "runs": wish.runs,
        "seconds": wish.time.as_secs_f64(),
        "streams": wish.stream_count,
        "buffers": wish.buffer_sizes,
        "data": "incompressible",
    });
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_PORT, resolve};

    #[test]
    fn host_without_port_gets_default_port() {
        let first = |host: &str| resolve(host).unwrap()[0];
        assert_eq!(first("127.0.0.1"), ([127, 0, 0, 1], DEFAULT_PORT).into());
        assert_eq!(first("127.0.0.1:99"), ([127, 0, 0, 1], 99).into());
        assert_eq!(first("::1").port(), DEFAULT_PORT);
        assert_eq!(first("[::1]:99").port(), 99);
        assert!(resolve("").is_err());
    }
}
