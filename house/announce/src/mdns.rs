//! Services for clients that ask by mDNS and DNS-SD (RFC 6762, RFC 6763).
//!
//! ```text
//! NAME._smb._tcp.local.   SRV   NAME.local. PORT
//!                         TXT   facts
//! NAME.local.             A, AAAA   the addresses on which the service listens
//! ```

use std::net::IpAddr;
use std::time::Duration;

use mdns_sd::{IfKind, IfPredicate, ServiceDaemon, ServiceInfo};

use crate::{Error, MdnsService, Result};

/// The longest part of a name, in bytes.
const MAX_LABEL: usize = 63;
/// The time in which a responder takes its names back at the end.
const GOODBYE_TIME: Duration = Duration::from_secs(1);

/// A responder. It takes the names back when it is dropped.
pub struct MdnsResponder {
    daemon: ServiceDaemon,
    names: Vec<String>,
}

impl MdnsResponder {
    /// Announces services under a host name.
    pub fn start(host: &str, services: &[MdnsService]) -> Result<Self> {
        let daemon = ServiceDaemon::new()?;
        let mut responder = Self { daemon, names: Vec::new() };
        responder.daemon.disable_interface(IfKind::All)?;
        let mut all: Vec<IpAddr> = services.iter().flat_map(|it| it.listening.clone()).collect();
        all.sort_unstable();
        all.dedup();
        responder.daemon.enable_interface(interfaces(&all))?;
        for service in services {
            responder.add(host, service)?;
        }
        Ok(responder)
    }

    fn add(&mut self, host: &str, service: &MdnsService) -> Result<()> {
        let MdnsService { kind, instance, port, facts, listening } = service;
        let (kind, host) = (format!("{kind}.local."), format!("{host}.local."));
        let info = ServiceInfo::new(&kind, label(instance), &host, (), *port, facts.as_slice());
        let mut info = info?.enable_addr_auto();
        info.set_interfaces(interfaces(listening));
        self.names.push(info.get_fullname().to_owned());
        Ok(self.daemon.register(info)?)
    }
}

impl Drop for MdnsResponder {
    fn drop(&mut self) {
        // a client that misses this forgets the names after two minutes
        let gone: Vec<_> =
            self.names.iter().filter_map(|name| self.daemon.unregister(name).ok()).collect();
        for gone in gone {
            let _ = gone.recv_timeout(GOODBYE_TIME);
        }
        if let Ok(ended) = self.daemon.shutdown() {
            let _ = ended.recv_timeout(GOODBYE_TIME);
        }
    }
}

/// A name in the form of DNS: at most 63 bytes.
fn label(name: &str) -> &str {
    let end = name.floor_char_boundary(MAX_LABEL);
    name.split_at(end).0
}

impl From<mdns_sd::Error> for Error {
    fn from(why: mdns_sd::Error) -> Self {
        Self::Mdns { why: why.to_string() }
    }
}

/// The interfaces with these addresses, without loopback.
fn interfaces(listening: &[IpAddr]) -> Vec<IfKind> {
    let is_other = |address: &&IpAddr| !address.is_loopback();
    let interface = |address: &IpAddr| match address {
        IpAddr::V4(any) if any.is_unspecified() => {
            IfKind::Predicate(IfPredicate::new(|it| it.ip().is_ipv4() && !it.is_loopback()))
        }
        // such a socket accepts IPv4, too
        IpAddr::V6(any) if any.is_unspecified() => {
            IfKind::Predicate(IfPredicate::new(|it| !it.is_loopback()))
        }
        address => IfKind::Addr(*address),
    };
    listening.iter().filter(is_other).map(interface).collect()
}
