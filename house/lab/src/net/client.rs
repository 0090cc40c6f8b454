//! The client: one stream, several, both directions at once, fixed buffers, and the latency under
//! load.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::human_bytes;

use super::protocol::{
    self, BIN_MILLISECONDS, Command, HostInfo, PROTOCOL_VERSION, ReceiveCounts, Request,
};
use super::{Options, transfer};
use crate::bench_result::Unit;
use crate::histogram::Histogram;
use crate::machine::CpuTimes;
use crate::progress::Progress;
use crate::tally::{MeasureName, Tally};
use crate::timed_run::RunResult;
use crate::{Error, System};

/// How long is waited for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The other end.
#[derive(Debug)]
pub(super) struct Peer {
    name: String,
    address: SocketAddr,
    /// The time after which a silent peer counts as gone.
    io_timeout: Duration,
}

/// The path to the other end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PathInfo {
    /// The largest packet that gets through, bytes.
    pub(super) mtu: Option<u32>,
    /// How streams share the way.
    pub(super) congestion: Option<String>,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Upload,
    Download,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Upload, Self::Download];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upload => "up",
            Self::Download => "down",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Upload => "to the other end",
            Self::Download => "from the other end",
        }
    }
}

impl Peer {
    /// The first of the addresses that accepts a connection.
    pub(super) fn connect(
        name: &str,
        addresses: Vec<SocketAddr>,
        time: Duration,
    ) -> Result<Self, Error> {
        let mut why = String::new();
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => {
                    return Ok(Self {
                        name: name.to_owned(),
                        address,
                        io_timeout: 2 * time + 2 * CONNECT_TIMEOUT,
                    });
                }
                Err(error) => why = format!("{address}: {error}"),
            }
        }
        Err(Error::Peer {
            peer: format!("'{name}'"),
            why: format!("{why}; start `poolhouse bench net --listen` there"),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn peer_error(&self, error: &io::Error) -> Error {
        Error::Peer { peer: format!("'{}'", self.name), why: error.to_string() }
    }

    fn send_request(&self, wanted: Command) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(self.io_timeout))?;
        stream.set_write_timeout(Some(self.io_timeout))?;
        protocol::write_line(&mut stream, &Request { poolhouse_net: PROTOCOL_VERSION, wanted })?;
        Ok(stream)
    }

    /// The server's identity.
    pub(super) fn host_info(&self) -> Result<HostInfo, Error> {
        let told = self
            .send_request(Command::About)
            .and_then(|stream| protocol::read_last_line::<HostInfo>(&stream));
        let about = told.map_err(|error| self.peer_error(&error))?;
        if about.poolhouse_net == PROTOCOL_VERSION {
            Ok(about)
        } else {
            let why = "another version of poolhouse listens there".to_owned();
            Err(Error::Peer { peer: format!("'{}'", self.name), why })
        }
    }

    /// The facts about the path, as far as they are known after a transfer.
    pub(super) fn path_info(&self) -> Result<PathInfo, Error> {
        let stream = self.send_request(Command::Echo).map_err(|error| self.peer_error(&error))?;
        let mtu = if self.address.is_ipv4() {
            rustix::net::sockopt::ip_mtu(&stream)
        } else {
            rustix::net::sockopt::ipv6_mtu(&stream)
        };
        let congestion = rustix::net::sockopt::tcp_congestion(&stream).ok();
        Ok(PathInfo { mtu: mtu.ok(), congestion })
    }
}

/// The state that all steps share.
pub(super) struct NetRunner<'a> {
    pub(super) peer: &'a Peer,
    pub(super) options: &'a Options,
    pub(super) progress: &'a Progress<'a>,
    pub(super) system: &'a System,
}

/// How long all of it takes.
pub(super) fn expected_duration(wish: &Options) -> Duration {
    let more = usize::from(wish.stream_count > 1);
    // latency alone and under load, one stream and several, both ways at once, buffers
    let steps = 1 + 2 + 2 * (1 + more) + 1 + 2 * wish.buffer_sizes.len();
    wish.time * u32::try_from(steps * wish.runs).unwrap_or(u32::MAX)
}

/// The result of one run of streams.
struct StreamsResult {
    /// Bits a second by way, without the begin.
    rates: Vec<(Direction, f64)>,
    cpu_busy: Option<f64>,
    latency: Option<Histogram>,
}

impl NetRunner<'_> {
    /// Does all of it; whether it came to its end.
    pub(super) fn run(&self, tally: &mut Tally) -> Result<bool, Error> {
        for run in 0..self.options.runs {
            if !self.run_round(run, tally)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn run_round(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        let counts: &[usize] =
            if self.options.stream_count > 1 { &[1, self.options.stream_count] } else { &[1] };
        if !self.measure_idle_latency(run, tally)? {
            return Ok(false);
        }
        for way in Direction::BOTH {
            for count in counts {
                let what = match count {
                    1 => format!("one stream {}", way.description()),
                    count => format!("{count} streams {}", way.description()),
                };
                let ids = [(way, format!("{}-{count}", way.name()), what.clone())];
                if !self.measure_streams(&[(way, *count)], None, &ids, false, run, tally)? {
                    return Ok(false);
                }
            }
            let ids = [];
            if !self.measure_streams(
                &[(way, self.options.stream_count)],
                None,
                &ids,
                true,
                run,
                tally,
            )? {
                return Ok(false);
            }
        }
        let both = Direction::BOTH.map(|way| {
            let what = format!("both ways at once: {}", way.description());
            (way, format!("both-{}", way.name()), what)
        });
        let ways = Direction::BOTH.map(|way| (way, self.options.stream_count));
        Ok(self.measure_streams(&ways, None, &both, false, run, tally)?
            && self.measure_buffers(run, tally)?)
    }

    fn measure_buffers(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        for way in Direction::BOTH {
            for buffer in &self.options.buffer_sizes {
                let size = human_bytes(*buffer as u64);
                let id = format!("{}-1-buffer-{}", way.name(), size.to_lowercase());
                let what = format!("one stream {}, buffers of {size}", way.description());
                if !self.measure_streams(
                    &[(way, 1)],
                    Some(*buffer),
                    &[(way, id, what)],
                    false,
                    run,
                    tally,
                )? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The latency without load.
    fn measure_idle_latency(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        self.start_step("latency", run);
        let asked = self.peer.send_request(Command::Echo).and_then(|mut stream| {
            transfer::ping(&mut stream, self.options.time, || self.progress.is_cancelled())
        });
        let histogram = asked.map_err(|error| self.peer.peer_error(&error))?;
        if self.progress.is_cancelled() {
            return Ok(false);
        }
        let name = latency_measure("latency-idle", "latency, nothing else going on");
        tally.add_run(name, &latency_run(histogram, None), None);
        Ok(true)
    }

    fn start_step(&self, what: &str, run: usize) {
        let what = format!("{what}, run {} of {}", run + 1, self.options.runs);
        self.progress.start_step(&what, self.options.time);
    }

    /// One run of streams: `ids` names the measures to keep, and `asks` tells whether the latency
    /// is measured meanwhile. Returns whether it was finished.
    fn measure_streams(
        &self,
        ways: &[(Direction, usize)],
        buffer: Option<usize>,
        ids: &[(Direction, String, String)],
        asks: bool,
        run: usize,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let Some((first, _)) = ways.first() else { return Ok(true) };
        let title = ids.first().map_or_else(
            || format!("latency with streams {}", first.description()),
            |(_, _, what)| what.clone(),
        );
        self.start_step(&title, run);
        let flowed =
            self.run_streams(ways, buffer, asks).map_err(|error| self.peer.peer_error(&error))?;
        if self.progress.is_cancelled() {
            return Ok(false);
        }
        for (way, id, what) in ids {
            let rate = flowed.rates.iter().filter(|(of, _)| of == way).map(|(_, rate)| rate).sum();
            let group = if buffer.is_some() { "socket buffers" } else { "throughput" };
            let name = MeasureName {
                id: id.clone(),
                title: what.clone(),
                group: group.to_owned(),
                unit: Unit::BitsPerSecond,
            };
            tally.add_value(name, rate, self.options.time, flowed.cpu_busy);
        }
        if let Some(histogram) = flowed.latency {
            let id = format!("latency-{}", first.name());
            let what = format!("latency with streams {}", first.description());
            tally.add_run(
                latency_measure(&id, &what),
                &latency_run(histogram, flowed.cpu_busy),
                None,
            );
        }
        Ok(true)
    }

    fn run_streams(
        &self,
        ways: &[(Direction, usize)],
        buffer: Option<usize>,
        asks: bool,
    ) -> io::Result<StreamsResult> {
        let all: Vec<Direction> =
            ways.iter().flat_map(|(way, count)| std::iter::repeat_n(*way, *count)).collect();
        let start = Barrier::new(all.len() + usize::from(asks));
        let before = CpuTimes::read(self.system);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (all.iter())
                .map(|way| (*way, scope.spawn(|| self.run_stream(*way, buffer, &start))))
                .collect();
            let latency = asks.then(|| self.measure_loaded_latency(&start)).transpose();
            let mut rates = Vec::new();
            for (way, thread) in threads {
                let taken = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
                rates.push((way, self.bits_per_second(&taken)));
            }
            let busy =
                before.and_then(|before| before.busy_fraction_until(CpuTimes::read(self.system)?));
            Ok(StreamsResult { rates, cpu_busy: busy, latency: latency? })
        })
    }

    /// Measures the latency while streams run, without their start.
    fn measure_loaded_latency(&self, start: &Barrier) -> io::Result<Histogram> {
        let stream = self.peer.send_request(Command::Echo);
        start.wait();
        let begin = self.warm_up_time();
        std::thread::sleep(begin);
        let time = self.options.time.saturating_sub(begin);
        transfer::ping(&mut stream?, time, || self.progress.is_cancelled())
    }

    fn run_stream(
        &self,
        way: Direction,
        buffer: Option<usize>,
        start: &Barrier,
    ) -> io::Result<ReceiveCounts> {
        let milliseconds = u64::try_from(self.options.time.as_millis()).unwrap_or(u64::MAX);
        let wanted = match way {
            Direction::Upload => Command::Take { buffer },
            Direction::Download => Command::Send { milliseconds, buffer },
        };
        // one that cannot connect must not block the others
        start.wait();
        let mut stream = self.peer.send_request(wanted)?;
        transfer::set_socket_buffers(&stream, buffer)?;
        match way {
            Direction::Upload => {
                transfer::send(&mut stream, self.options.time, || self.progress.is_cancelled())?;
                stream.shutdown(std::net::Shutdown::Write)?;
                protocol::read_last_line(&stream)
            }
            Direction::Download => transfer::receive(&mut stream, || self.progress.is_cancelled()),
        }
    }

    /// The ignored start of each stream, while it finds its speed.
    fn warm_up_time(&self) -> Duration {
        (self.options.time / 4).min(Duration::from_secs(1))
    }

    /// Bits a second, without the begin.
    fn bits_per_second(&self, taken: &ReceiveCounts) -> f64 {
        let bins = |time: Duration| {
            let all = time.as_millis() / u128::from(BIN_MILLISECONDS);
            usize::try_from(all).unwrap_or(usize::MAX)
        };
        let (from, to) = (bins(self.warm_up_time()), bins(self.options.time).min(taken.bins.len()));
        let counted = taken.bins.get(from..to).unwrap_or_default();
        let time = Duration::from_millis(BIN_MILLISECONDS * counted.len() as u64);
        8.0 * crate::number::per_second(counted.iter().sum(), time)
    }
}

fn latency_measure(id: &str, what: &str) -> MeasureName {
    MeasureName {
        id: id.to_owned(),
        title: what.to_owned(),
        group: "latency".to_owned(),
        unit: Unit::Milliseconds,
    }
}

/// A run whose figure is the median of its latencies.
fn latency_run(histogram: Histogram, busy: Option<f64>) -> RunResult {
    let median = histogram.latency().map_or(0.0, |latency| latency.median_ms);
    let time = crate::number::to_duration(median / 1000.0);
    RunResult { operations: 1, bytes: 0, duration: time, histogram, cpu_busy: busy }
}
