//! The portmapper: clients of NFSv3 ask it on port 111 for the ports of the programs that they need.
//!
//! Where the system has its own (rpcbind), the server registers there. Otherwise it answers by itself, if it may listen
//! on that port.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::Error;
use crate::dispatch::Origin;
use crate::options::Portmapper;
use crate::rpc_client::{self, Outcome};
use crate::server::{self, Shared};
use crate::status::PortmapperStatus;
use crate::udp::Datagrams;
use crate::wire::portmap::{self, Mapping, Procedure, Query, Transport};
use crate::wire::rpc::{CallError, PROGRAM_MOUNT, PROGRAM_NFS};
use crate::wire::xdr::{Reader, Writer};
use crate::wire::{mount, nlm, nsm, v3, v4};

/// The services of the server: program, version, and whether it is there over UDP.
const SERVICES: [(u32, u32, bool); 5] = [
    (PROGRAM_NFS, v3::VERSION, false),
    (PROGRAM_NFS, v4::VERSION, false),
    (PROGRAM_MOUNT, mount::VERSION, true),
    (nlm::PROGRAM, nlm::VERSION, true),
    (nsm::PROGRAM, nsm::VERSION, true),
];

/// The portmapper of a server, or its registrations in that of the system.
pub(crate) struct PortmapperService {
    pub(crate) listeners: Vec<tcp::Listener>,
    pub(crate) datagrams: Vec<Datagrams>,
    registered: Vec<Mapping>,
    pub(crate) status: PortmapperStatus,
}

/// The services at the addresses of a server.
fn mappings(addresses: &[SocketAddr]) -> Vec<Mapping> {
    let of_address = |address: &SocketAddr| {
        let address = *address;
        SERVICES.into_iter().flat_map(move |(program, version, has_udp)| {
            let transports = [Some(Transport::Tcp), has_udp.then_some(Transport::Udp)];
            let mapping = move |transport| Mapping { program, version, transport, address };
            transports.into_iter().flatten().map(mapping)
        })
    };
    addresses.iter().flat_map(of_address).collect()
}

/// The portmapper itself, which tools ask for first.
fn own_mappings(addresses: &[SocketAddr]) -> Vec<Mapping> {
    let of_address = |address: &SocketAddr| {
        let address = *address;
        let (low, high) = portmap::VERSIONS;
        (low..=high).flat_map(move |version| {
            let mapping =
                move |transport| Mapping { program: portmap::PROGRAM, version, transport, address };
            [Transport::Tcp, Transport::Udp].map(mapping)
        })
    };
    addresses.iter().flat_map(of_address).collect()
}

impl PortmapperService {
    fn none(status: PortmapperStatus) -> Self {
        Self { listeners: Vec::new(), datagrams: Vec::new(), registered: Vec::new(), status }
    }

    /// Starts what the options say for a server that listens on these addresses.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        options: &Portmapper,
        addresses: &[SocketAddr],
    ) -> crate::Result<Self> {
        let standard: Vec<SocketAddr>;
        let wanted = match options {
            Portmapper::Off => return Ok(Self::none(PortmapperStatus::Off)),
            Portmapper::Listen(addresses) => addresses,
            Portmapper::Automatic => {
                let address = |it: &SocketAddr| SocketAddr::new(it.ip(), portmap::PORT);
                standard = addresses.iter().map(address).collect();
                &standard
            }
        };
        let mut service = Self::none(PortmapperStatus::Answers(wanted.clone()));
        for address in wanted {
            match service.listen(shared, *address) {
                Ok(()) => {}
                Err(Error::Listen { why, .. }) if *options == Portmapper::Automatic => {
                    if why.kind() == ErrorKind::AddrInUse {
                        return Ok(Self::register(mappings(addresses)));
                    }
                    let why = format!("cannot listen on {address}: {why}");
                    return Ok(Self::none(PortmapperStatus::Missing { why }));
                }
                Err(why) => return Err(why),
            }
        }
        Ok(service)
    }

    fn listen(&mut self, shared: &Arc<Shared>, address: SocketAddr) -> crate::Result<()> {
        let listener = server::start_listener(shared, address)?;
        let bound = listener.address();
        self.listeners.push(listener);
        let datagrams = Datagrams::start(shared, bound);
        self.datagrams.push(datagrams.map_err(|why| Error::Listen { address, why })?);
        shared.portmappers.write().push(bound);
        if let PortmapperStatus::Answers(all) = &mut self.status {
            all.iter_mut().filter(|it| **it == address).for_each(|it| *it = bound);
        }
        Ok(())
    }

    /// Registers the services in the portmapper of the system, in place of what an earlier server has left there.
    fn register(mappings: Vec<Mapping>) -> Self {
        let mut service = Self::none(PortmapperStatus::Registered);
        let mut refused = Vec::new();
        for mapping in mappings {
            if change(&mapping, portmap::SET) {
                service.registered.push(mapping);
            } else {
                refused.push(mapping.program);
            }
        }
        refused.dedup();
        if !refused.is_empty() {
            let programs: Vec<String> = refused.iter().map(u32::to_string).collect();
            let why = format!(
                "rpcbind refuses the programs {}: another service of this machine has registered them (`rpcinfo -p`)",
                programs.join(", ")
            );
            service.status = PortmapperStatus::Missing { why };
        }
        service
    }

    /// Ends listeners and registrations.
    pub(crate) fn stop(&self) {
        self.listeners.iter().for_each(tcp::Listener::stop);
        self.datagrams.iter().for_each(Datagrams::stop);
        for mapping in &self.registered {
            change(mapping, portmap::UNSET);
        }
    }
}

/// Calls SET or UNSET of the system's portmapper. Returns whether it was done.
fn change(mapping: &Mapping, procedure: u32) -> bool {
    let system = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), portmap::PORT);
    let mut arguments = Writer::default();
    mapping.write_binding(&mut arguments);
    let call = (portmap::PROGRAM, portmap::VERSIONS.1, procedure);
    match rpc_client::call(system, Transport::Tcp, call, (arguments.as_bytes(), true)) {
        Outcome::Reply(results) => Reader::new(&results).bool() == Ok(true),
        Outcome::NotSent | Outcome::NoReply => false,
    }
}

/// Carries out a call to the portmapper, and writes its result.
pub(crate) fn execute(
    shared: &Shared,
    origin: &Origin<'_>,
    (version, procedure): (u32, Procedure),
    writer: &mut Writer,
) -> Result<(), CallError> {
    let mut all = mappings(&shared.listening.read());
    all.extend(own_mappings(&shared.portmappers.read()));
    match procedure {
        Procedure::Null => {}
        // the server registers only its own programs
        Procedure::Change => writer.bool(false),
        Procedure::Find(query) => {
            let found = find(&all, origin.local, &query);
            let host = origin.local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            Mapping::write_found(found.as_ref(), version, host, writer);
        }
        // a long reply to a short datagram would serve attacks on others
        Procedure::Dump if origin.is_datagram() => return Err(CallError::NoProcedure),
        Procedure::Dump => {
            for mapping in all {
                mapping.write_item(version, writer);
            }
            writer.bool(false);
        }
    }
    Ok(())
}

/// The service of a query, at the address by which the client has reached this machine. A client that wants another
/// version learns from the service itself which ones there are.
fn find(all: &[Mapping], local: Option<IpAddr>, query: &Query) -> Option<Mapping> {
    let is_here = |mapping: &&Mapping| {
        let ip = mapping.address.ip();
        ip.is_unspecified() || Some(ip) == local
    };
    let is_wanted = |mapping: &&Mapping| {
        mapping.program == query.program && Some(mapping.transport) == query.transport
    };
    let wanted: Vec<&Mapping> = all.iter().filter(is_wanted).collect();
    let here = wanted.iter().copied().filter(is_here);
    let candidates: Vec<&Mapping> = here.chain(wanted.iter().copied()).collect();
    let exact = candidates.iter().find(|mapping| mapping.version == query.version);
    exact.or(candidates.first()).map(|mapping| **mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_find_port_of_local_address() {
        let addresses = ["10.0.0.1:2049", "10.0.1.1:2050"].map(|it| it.parse().unwrap());
        let port = |local: &str, program, version, transport| {
            let query = Query { program, version, transport: Some(transport) };
            let found = find(&mappings(&addresses), local.parse().ok(), &query);
            found.map(|mapping| (mapping.address.port(), mapping.version))
        };
        assert_eq!(port("10.0.0.1", PROGRAM_NFS, 4, Transport::Tcp), Some((2049, 4)));
        assert_eq!(port("10.0.1.1", PROGRAM_NFS, 3, Transport::Tcp), Some((2050, 3)));
        assert_eq!(port("10.0.9.9", nlm::PROGRAM, 4, Transport::Udp), Some((2049, 4)));
        // another version than those that there are
        assert_eq!(port("10.0.1.1", nlm::PROGRAM, 3, Transport::Tcp), Some((2050, 4)));
        assert_eq!(port("10.0.1.1", PROGRAM_NFS, 3, Transport::Udp), None);
        assert_eq!(port("10.0.1.1", 100_011, 1, Transport::Udp), None);
    }
}
