//! Throttles logins: after some failures an address waits, longer each time.

use std::collections::HashMap;
use std::net::IpAddr;

/// The failures that cost no time.
const FREE_FAILURES: u32 = 5;
/// The first pause in seconds; it doubles with each failure.
const FIRST_PAUSE: u64 = 10;
/// The longest pause in seconds.
const MAX_PAUSE: u64 = 15 * 60;
/// The time in seconds after which failures are forgotten.
const MEMORY: u64 = 60 * 60;
/// The addresses that are remembered, at most; the oldest goes first.
const MAX_ADDRESSES: usize = 1024;

/// The failures of all addresses.
#[derive(Debug, Default)]
pub(crate) struct Throttle(HashMap<IpAddr, Failures>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: u64,
}

impl Throttle {
    /// Counts a try as failed before it is checked, so that many tries at once do not slip through. Returns
    /// the seconds that the address has to wait, if it is too early; the try does not count then.
    pub(crate) fn begin(&mut self, address: IpAddr, now: u64) -> Result<(), u64> {
        let address = network(address);
        self.0.retain(|_, failures| now < failures.last + MEMORY);
        if let Some(failures) = self.0.get_mut(&address) {
            let end = failures.last + pause(failures.count);
            if now < end {
                return Err(end - now);
            }
            *failures = Failures { count: failures.count.wrapping_add(1), last: now };
            return Ok(());
        }
        if self.0.len() >= MAX_ADDRESSES {
            let oldest = self.0.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(address, Failures { count: 1, last: now });
        Ok(())
    }

    /// Forgets the failures of an address: its try succeeded.
    pub(crate) fn succeed(&mut self, address: IpAddr) {
        self.0.remove(&network(address));
    }
}

fn pause(failures: u32) -> u64 {
    match failures.checked_sub(FREE_FAILURES) {
        None => 0,
        Some(exponent) => {
            FIRST_PAUSE.checked_shl(exponent.min(20)).unwrap_or(MAX_PAUSE).min(MAX_PAUSE)
        }
    }
}

/// The network that one client commands: of IPv6 its first 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{MAX_ADDRESSES, Throttle};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn failures_cost_more_and_more_time() {
        let (mut throttle, mallory) = (Throttle::default(), address("10.0.0.1"));
        for _ in 0..5 {
            assert_eq!(throttle.begin(mallory, 0), Ok(()));
        }
        assert_eq!(throttle.begin(mallory, 0), Err(10));
        assert_eq!(throttle.begin(mallory, 9), Err(1));
        assert_eq!(throttle.begin(address("10.0.0.2"), 9), Ok(()));
        assert_eq!(throttle.begin(mallory, 10), Ok(()));
        assert_eq!(throttle.begin(mallory, 10), Err(20));
        throttle.succeed(mallory);
        assert_eq!(throttle.begin(mallory, 10), Ok(()));
        for now in 0..100_000 {
            let _ = throttle.begin(mallory, now);
        }
        assert!(throttle.begin(mallory, 100_000).unwrap_err() <= 900);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut throttle = Throttle::default();
        for host in 0..5 {
            assert_eq!(throttle.begin(address(&format!("2001:db8::{host}")), 0), Ok(()));
        }
        assert!(throttle.begin(address("2001:db8::99"), 0).is_err());
        assert!(throttle.begin(address("2001:db8:0:1::99"), 0).is_ok());
        assert!(throttle.begin(address("::ffff:10.0.0.1"), 0).is_ok());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut throttle = Throttle::default();
        for number in 0..5000_u32 {
            assert_eq!(throttle.begin(IpAddr::V4(number.into()), u64::from(number / 100)), Ok(()));
        }
        assert_eq!(throttle.0.len(), MAX_ADDRESSES);
    }
}
