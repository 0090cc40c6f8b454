//! Announces the shares on the local network, so that computers find them.
//!
//! ```text
//! client            protocol               the names that it queries
//! macOS, Linux      mDNS and DNS-SD        _smb._tcp, _adisk._tcp (Time Machine), _device-info._tcp, _nfs._tcp
//! Windows           WS-Discovery           the computer's name and workgroup, and then SMB at its address
//! ```
//!
//! `mdns` is a responder of the crate mdns-sd, with one thread. `wsd` has a thread for datagrams and one for each
//! address on which Windows asks for the computer's name. Nothing is announced on loopback addresses.
#![forbid(unsafe_code)]

mod error;
mod mdns;
mod wsd;

use std::net::{IpAddr, Ipv4Addr};

pub use error::{Error, Result};
pub use mdns::MdnsResponder;
pub use wsd::{WsDiscovery, WsdPorts};

/// The computer in announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name without a domain, as the network folder of clients shows it.
    pub name: String,
    /// An identifier that it keeps.
    pub id: [u8; 16],
    /// The workgroup that Windows shows.
    pub workgroup: String,
}

/// A service that clients find by mDNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdnsService {
    /// The type, such as `_smb._tcp`.
    pub kind: &'static str,
    /// The name of this one.
    pub instance: String,
    /// The port.
    pub port: u16,
    /// More facts: names with values.
    pub facts: Vec<(String, String)>,
    /// The addresses on which it listens; an unspecified address stands for all of its family.
    pub listening: Vec<IpAddr>,
}

/// The addresses of `listening` that other computers can reach, of IPv4 and one by one.
pub fn reachable_ipv4(listening: &[IpAddr]) -> Vec<Ipv4Addr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own = interfaces.iter().filter_map(|interface| match interface.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    });
    let is_listening = |address: &Ipv4Addr| {
        listening.iter().any(|it| it.is_unspecified() || *it == IpAddr::V4(*address))
    };
    let mut found: Vec<_> = own.filter(is_listening).collect();
    found.sort_unstable();
    found.dedup();
    found
}
