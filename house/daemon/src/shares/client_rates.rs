//! Bytes a second of clients, from the sums that their connections count.
//!
//! A rate is that between two looks at the shares, which are a second apart at least. A client that is seen for the
//! first time has the rate since it connected.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::{Protocol, ShareClient, ShareState};

/// The least time of a rate.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The sums of a client at some time: bytes read and written.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    bytes: [u64; 2],
}

/// The sums of a client at the begin of its rate, and at the latest look that may be the next one's begin.
#[derive(Clone, Copy, Debug)]
struct Samples {
    begin: Option<Sample>,
    latest: Sample,
}

/// The samples of all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientRates(HashMap<(Protocol, String, String), Samples>);

impl ClientRates {
    /// Sets the rates of clients. Those that are not there any more are forgotten.
    pub(crate) fn update(&mut self, shares: &mut [ShareState], now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        for share in shares {
            for client in &mut share.clients {
                let (Some(read), Some(written)) = (client.read_bytes, client.written_bytes) else {
                    continue;
                };
                let sample = Sample { at: now, bytes: [read, written] };
                let key = (share.protocol, share.dataset.clone(), client.address.clone());
                let samples = before.remove(&key).filter(|known| known.latest.is_before(&sample));
                let samples = Samples::next(samples, sample);
                [client.read_rate, client.write_rate] = samples.rates(client, sample);
                self.0.insert(key, samples);
            }
        }
    }
}

impl Sample {
    /// Whether another may be a later one of the same connection: sums do not decrease.
    fn is_before(&self, other: &Self) -> bool {
        self.bytes.iter().zip(&other.bytes).all(|(one, later)| one <= later)
    }
}

impl Samples {
    fn next(before: Option<Self>, sample: Sample) -> Self {
        match before {
            None => Self { begin: None, latest: sample },
            // the rate begins at the latest look if that is old enough
            Some(known) if sample.at.duration_since(known.latest.at) >= LEAST_TIME => {
                Self { begin: Some(known.latest), latest: sample }
            }
            Some(known) => known,
        }
    }

    /// Bytes a second up to now.
    fn rates(&self, client: &ShareClient, now: Sample) -> [Option<u64>; 2] {
        let (begin, time) = match self.begin {
            Some(begin) => (begin.bytes, now.at.duration_since(begin.at).as_millis()),
            None => ([0, 0], u128::from(client.connected.unwrap_or(0)) * 1000),
        };
        [0, 1].map(|index: usize| {
            let bytes = u128::from(now.bytes[index] - begin[index]);
            (bytes * 1000).checked_div(time).and_then(|rate| u64::try_from(rate).ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(read: u64, written: u64) -> ShareState {
        let client = ShareClient {
            address: "10.0.0.7:999".to_owned(),
            connected: Some(10),
            read_bytes: Some(read),
            written_bytes: Some(written),
            ..ShareClient::default()
        };
        ShareState {
            protocol: Protocol::Nbd,
            dataset: "tank/disk".to_owned(),
            target: None,
            path: None,
            address: None,
            port: None,
            read_only: false,
            source: String::new(),
            problem: None,
            clients: vec![client],
            log_waits: None,
        }
    }

    #[test]
    fn rates_are_between_two_looks() {
        let (mut rates, begun) = (ClientRates::default(), Instant::now());
        let mut look = |milliseconds: u64, read: u64, written: u64| {
            let mut shares = [share(read, written)];
            rates.update(&mut shares, begun + Duration::from_millis(milliseconds));
            let client = &shares[0].clients[0];
            (client.read_rate.unwrap(), client.write_rate.unwrap())
        };
        assert_eq!(look(0, 1000, 50), (100, 5), "since it connected 10 s ago");
        assert_eq!(look(2000, 5000, 50), (2000, 0));
        // a look that comes soon does not shorten the time
        assert_eq!(look(2500, 5500, 50), (1800, 0));
        assert_eq!(look(4000, 5500, 2050), (250, 1000));
        // the sums begin again: another connection from the same port
        assert_eq!(look(6000, 100, 0), (10, 0));
    }

    #[test]
    fn clients_without_sums_have_no_rates() {
        let mut shares = [share(1, 1)];
        shares[0].clients[0].written_bytes = None;
        ClientRates::default().update(&mut shares, Instant::now());
        assert_eq!(shares[0].clients[0].read_rate, None);
        shares[0].clients[0].written_bytes = Some(1);
        shares[0].clients[0].connected = None;
        ClientRates::default().update(&mut shares, Instant::now());
        assert_eq!(shares[0].clients[0].read_rate, None, "nobody knows the time");
    }
}
