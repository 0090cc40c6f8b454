//! The end that asks: one stream, several, both ways at once, fixed buffers, and the latency
//! meanwhile.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::human_bytes;

use super::wire::{self, About, BIN_MILLISECONDS, Request, Taken, VERSION, Wanted};
use super::{Wish, flow};
use crate::course::Course;
use crate::histogram::Histogram;
use crate::machine::Busy;
use crate::record::Unit;
use crate::tally::{Name, Tally};
use crate::timed::Ran;
use crate::{Error, System};

/// How long is waited for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The other end.
#[derive(Debug)]
pub(super) struct Peer {
    name: String,
    address: SocketAddr,
    /// Who is silent for so long has gone.
    patience: Duration,
}

/// What the way to the other end is like.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Path {
    /// The largest packet that gets through, bytes.
    pub(super) mtu: Option<u32>,
    /// How streams share the way.
    pub(super) congestion: Option<String>,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::Up, Self::Down];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Up => "to the other end",
            Self::Down => "from the other end",
        }
    }
}

impl Peer {
    /// The first of the addresses at which somebody listens.
    pub(super) fn find(
        name: &str,
        addresses: Vec<SocketAddr>,
        time: Duration,
    ) -> Result<Self, Error> {
        let mut why = String::new();
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => {
                    return Ok(Self {
                        name: name.to_owned(),
                        address,
                        patience: 2 * time + 2 * PATIENCE,
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

    fn error(&self, error: &io::Error) -> Error {
        Error::Peer { peer: format!("'{}'", self.name), why: error.to_string() }
    }

    fn ask(&self, wanted: Wanted) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        wire::say(&mut stream, &Request { poolhouse_net: VERSION, wanted })?;
        Ok(stream)
    }

    /// Who listens.
    pub(super) fn about(&self) -> Result<About, Error> {
        let told = self.ask(Wanted::About).and_then(|stream| wire::hear_last::<About>(&stream));
        let about = told.map_err(|error| self.error(&error))?;
        if about.poolhouse_net == VERSION {
            Ok(about)
        } else {
            let why = "another version of poolhouse listens there".to_owned();
            Err(Error::Peer { peer: format!("'{}'", self.name), why })
        }
    }

    /// What the way there is like, as far as is known after data went along it.
    pub(super) fn path(&self) -> Result<Path, Error> {
        let stream = self.ask(Wanted::Echo).map_err(|error| self.error(&error))?;
        let mtu = if self.address.is_ipv4() {
            rustix::net::sockopt::ip_mtu(&stream)
        } else {
            rustix::net::sockopt::ipv6_mtu(&stream)
        };
        let congestion = rustix::net::sockopt::tcp_congestion(&stream).ok();
        Ok(Path { mtu: mtu.ok(), congestion })
    }
}

/// What all steps share.
pub(super) struct Talk<'a> {
    pub(super) peer: &'a Peer,
    pub(super) wish: &'a Wish,
    pub(super) course: &'a Course<'a>,
    pub(super) system: &'a System,
}

/// How long all of it takes.
pub(super) fn expected(wish: &Wish) -> Duration {
    let more = usize::from(wish.streams > 1);
    // latency alone and under load, one stream and several, both ways at once, buffers
    let steps = 1 + 2 + 2 * (1 + more) + 1 + 2 * wish.buffers.len();
    wish.time * u32::try_from(steps * wish.runs).unwrap_or(u32::MAX)
}

/// What one run of streams gave.
struct Flowed {
    /// Bits a second by way, without the begin.
    rates: Vec<(Way, f64)>,
    busy: Option<f64>,
    latency: Option<Histogram>,
}

impl Talk<'_> {
    /// Does all of it; whether it came to its end.
    pub(super) fn run(&self, tally: &mut Tally) -> Result<bool, Error> {
        for run in 0..self.wish.runs {
            if !self.round(run, tally)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn round(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        let counts: &[usize] = if self.wish.streams > 1 { &[1, self.wish.streams] } else { &[1] };
        if !self.idle(run, tally)? {
            return Ok(false);
        }
        for way in Way::BOTH {
            for count in counts {
                let what = match count {
                    1 => format!("one stream {}", way.words()),
                    count => format!("{count} streams {}", way.words()),
                };
                let ids = [(way, format!("{}-{count}", way.name()), what.clone())];
                if !self.flow(&[(way, *count)], None, &ids, false, run, tally)? {
                    return Ok(false);
                }
            }
            let ids = [];
            if !self.flow(&[(way, self.wish.streams)], None, &ids, true, run, tally)? {
                return Ok(false);
            }
        }
        let both = Way::BOTH.map(|way| {
            let what = format!("both ways at once: {}", way.words());
            (way, format!("both-{}", way.name()), what)
        });
        let ways = Way::BOTH.map(|way| (way, self.wish.streams));
        Ok(self.flow(&ways, None, &both, false, run, tally)? && self.buffers(run, tally)?)
    }

    fn buffers(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        for way in Way::BOTH {
            for buffer in &self.wish.buffers {
                let size = human_bytes(*buffer as u64);
                let id = format!("{}-1-buffer-{}", way.name(), size.to_lowercase());
                let what = format!("one stream {}, buffers of {size}", way.words());
                if !self.flow(&[(way, 1)], Some(*buffer), &[(way, id, what)], false, run, tally)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The latency while nothing else goes on.
    fn idle(&self, run: usize, tally: &mut Tally) -> Result<bool, Error> {
        self.begin("latency", run);
        let asked = self.peer.ask(Wanted::Echo).and_then(|mut stream| {
            flow::ask(&mut stream, self.wish.time, || self.course.stopped())
        });
        let histogram = asked.map_err(|error| self.peer.error(&error))?;
        if self.course.stopped() {
            return Ok(false);
        }
        let name = latency_name("latency-idle", "latency, nothing else going on");
        tally.add(name, &latency(histogram, None), None);
        Ok(true)
    }

    fn begin(&self, what: &str, run: usize) {
        let what = format!("{what}, run {} of {}", run + 1, self.wish.runs);
        self.course.begin(&what, self.wish.time);
    }

    /// One run of streams: `ids` names what of it is kept, and `asks` whether the latency is
    /// measured meanwhile. Whether it came to its end.
    fn flow(
        &self,
        ways: &[(Way, usize)],
        buffer: Option<usize>,
        ids: &[(Way, String, String)],
        asks: bool,
        run: usize,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let Some((first, _)) = ways.first() else { return Ok(true) };
        let title = ids.first().map_or_else(
            || format!("latency with streams {}", first.words()),
            |(_, _, what)| what.clone(),
        );
        self.begin(&title, run);
        let flowed = self.streams(ways, buffer, asks).map_err(|error| self.peer.error(&error))?;
        if self.course.stopped() {
            return Ok(false);
        }
        for (way, id, what) in ids {
            let rate = flowed.rates.iter().filter(|(of, _)| of == way).map(|(_, rate)| rate).sum();
            let group = if buffer.is_some() { "socket buffers" } else { "throughput" };
            let name = Name {
                id: id.clone(),
                what: what.clone(),
                group: group.to_owned(),
                unit: Unit::Bits,
            };
            tally.add_figure(name, rate, self.wish.time, flowed.busy);
        }
        if let Some(histogram) = flowed.latency {
            let id = format!("latency-{}", first.name());
            let what = format!("latency with streams {}", first.words());
            tally.add(latency_name(&id, &what), &latency(histogram, flowed.busy), None);
        }
        Ok(true)
    }

    fn streams(
        &self,
        ways: &[(Way, usize)],
        buffer: Option<usize>,
        asks: bool,
    ) -> io::Result<Flowed> {
        let all: Vec<Way> =
            ways.iter().flat_map(|(way, count)| std::iter::repeat_n(*way, *count)).collect();
        let start = Barrier::new(all.len() + usize::from(asks));
        let before = Busy::now(self.system);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (all.iter())
                .map(|way| (*way, scope.spawn(|| self.stream(*way, buffer, &start))))
                .collect();
            let latency = asks.then(|| self.latency_meanwhile(&start)).transpose();
            let mut rates = Vec::new();
            for (way, thread) in threads {
                let taken = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
                rates.push((way, self.rate(&taken)));
            }
            let busy = before.and_then(|before| before.until(Busy::now(self.system)?));
            Ok(Flowed { rates, busy, latency: latency? })
        })
    }

    /// Asks how long answers take while streams are under way, their begin left out.
    fn latency_meanwhile(&self, start: &Barrier) -> io::Result<Histogram> {
        let stream = self.peer.ask(Wanted::Echo);
        start.wait();
        let begin = self.warm();
        std::thread::sleep(begin);
        let time = self.wish.time.saturating_sub(begin);
        flow::ask(&mut stream?, time, || self.course.stopped())
    }

    fn stream(&self, way: Way, buffer: Option<usize>, start: &Barrier) -> io::Result<Taken> {
        let milliseconds = u64::try_from(self.wish.time.as_millis()).unwrap_or(u64::MAX);
        let wanted = match way {
            Way::Up => Wanted::Take { buffer },
            Way::Down => Wanted::Send { milliseconds, buffer },
        };
        // nobody is kept waiting by one that cannot connect
        start.wait();
        let mut stream = self.peer.ask(wanted)?;
        flow::set_buffers(&stream, buffer)?;
        match way {
            Way::Up => {
                flow::send(&mut stream, self.wish.time, || self.course.stopped())?;
                stream.shutdown(std::net::Shutdown::Write)?;
                wire::hear_last(&stream)
            }
            Way::Down => flow::take(&mut stream, || self.course.stopped()),
        }
    }

    /// What is left out of each stream: while it finds its speed.
    fn warm(&self) -> Duration {
        (self.wish.time / 4).min(Duration::from_secs(1))
    }

    /// Bits a second, without the begin.
    fn rate(&self, taken: &Taken) -> f64 {
        let bins = |time: Duration| {
            let all = time.as_millis() / u128::from(BIN_MILLISECONDS);
            usize::try_from(all).unwrap_or(usize::MAX)
        };
        let (from, to) = (bins(self.warm()), bins(self.wish.time).min(taken.bins.len()));
        let counted = taken.bins.get(from..to).unwrap_or_default();
        let time = Duration::from_millis(BIN_MILLISECONDS * counted.len() as u64);
        8.0 * crate::number::per_second(counted.iter().sum(), time)
    }
}

fn latency_name(id: &str, what: &str) -> Name {
    Name {
        id: id.to_owned(),
        what: what.to_owned(),
        group: "latency".to_owned(),
        unit: Unit::Milliseconds,
    }
}

/// A run whose figure is the median of its answers.
fn latency(histogram: Histogram, busy: Option<f64>) -> Ran {
    let median = histogram.latency().map_or(0.0, |latency| latency.median_ms);
    let time = crate::number::seconds(median / 1000.0);
    Ran { operations: 1, bytes: 0, time, histogram, busy }
}
