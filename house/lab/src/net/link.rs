//! The interface that leads to an address, and its speed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::System;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    /// Its name, if it is known.
    pub(super) name: Option<String>,
    /// Bits a second.
    pub(super) bits_per_second: Option<u64>,
    /// `full` or `half`.
    pub(super) duplex: Option<String>,
    /// Bytes of a packet.
    pub(super) mtu: Option<u64>,
    /// Its driver.
    pub(super) driver: Option<String>,
}

impl Link {
    /// The one that leads to an address.
    pub(super) fn route_to(system: &System, address: SocketAddr) -> Self {
        let name = match address.ip().to_canonical() {
            ip if ip.is_loopback() => Some("lo".to_owned()),
            IpAddr::V4(ip) => route_v4(system, ip),
            IpAddr::V6(ip) => route_v6(system, ip),
        };
        name.map(|name| Self::read(system, name)).unwrap_or_default()
    }

    fn read(system: &System, name: String) -> Self {
        let folder = format!("sys/class/net/{name}");
        let text = |file: &str| system.read_text(format!("{folder}/{file}"));
        let driver = system.resolve_link(format!("{folder}/device/driver"));
        let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        // the kernel returns -1 if it is unknown
        let megabits = text("speed").and_then(|text| text.parse::<u64>().ok());
        Self {
            bits_per_second: megabits.map(|speed| speed.saturating_mul(1_000_000)),
            duplex: text("duplex").filter(|word| word != "unknown"),
            mtu: text("mtu").and_then(|text| text.parse().ok()),
            driver,
            name: Some(name),
        }
    }

    /// Whether it is the machine itself.
    pub(super) fn is_loopback(&self) -> bool {
        self.name.as_deref() == Some("lo")
    }
}

/// The route with the longest prefix that holds the address.
fn route_v4(system: &System, address: Ipv4Addr) -> Option<String> {
    let table = system.read_text("proc/net/route")?;
    let address = u32::from(address);
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // the table has bytes in the order of the wire, printed as this machine's number
        let number =
            |index: usize| u32::from_str_radix(words.get(index)?, 16).ok().map(u32::from_be);
        let (destination, mask) = (number(1)?, number(7)?);
        let name = (*words.first()?).to_owned();
        (address & mask == destination).then_some((mask.count_ones(), name))
    });
    routes.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

fn route_v6(system: &System, address: Ipv6Addr) -> Option<String> {
    let table = system.read_text("proc/net/ipv6_route")?;
    let address = u128::from(address);
    let routes = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let destination = u128::from_str_radix(words.first()?, 16).ok()?;
        let bits = u32::from_str_radix(words.get(1)?, 16).ok().filter(|bits| *bits <= 128)?;
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let name = (*words.last()?).to_owned();
        (address & mask == destination & mask).then_some((bits, name))
    });
    // a machine's own addresses lead to itself, and an unreachable default too
    routes.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

/// The largest window that the system gives a stream, bytes.
pub(super) fn max_receive_window(system: &System) -> Option<u64> {
    let text = system.read_text("proc/sys/net/ipv4/tcp_rmem")?;
    text.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Link, max_receive_window};
    use crate::System;

    #[test]
    fn longest_prefix_route_wins() {
        let root = fixtures::scratch_dir("lab-link");
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
             eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n\
             eth1\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n",
        );
        put(
            "proc/net/ipv6_route",
            "fd000000000000000000000000000000 40 0 00 0 00000100 00000001 00000000 00000001 eth1\n\
             00000000000000000000000000000000 00 0 00 0 00000400 00000002 00000000 00000003 eth0\n",
        );
        put("sys/class/net/eth1/speed", "2500\n");
        put("sys/class/net/eth1/duplex", "full\n");
        put("sys/class/net/eth1/mtu", "9000\n");
        put("sys/class/net/eth0/speed", "-1\n");
        put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        let system = System::with_root(&root);
        let to = |address: &str| Link::route_to(&system, address.parse().unwrap());
        let near = to("192.168.2.7:1");
        assert_eq!((near.name.as_deref(), near.mtu), (Some("eth1"), Some(9000)));
        assert_eq!(near.bits_per_second, Some(2_500_000_000));
        let far = to("10.1.1.1:1");
        assert_eq!((far.name.as_deref(), far.bits_per_second), (Some("eth0"), None));
        assert_eq!(to("[fd00::7]:1").name.as_deref(), Some("eth1"));
        assert_eq!(to("[2001:db8::1]:1").name.as_deref(), Some("eth0"));
        assert!(to("127.0.0.1:1").is_loopback() && to("[::ffff:127.0.0.1]:1").is_loopback());
        assert_eq!(max_receive_window(&system), Some(6_291_456));
    }
}
