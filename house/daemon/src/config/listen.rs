//! The addresses on which a service listens, from the configuration.
//!
//! ```toml
//! listen = "192.168.1.5:8080"
//! listen = ["127.0.0.1:8080", "[::1]:8080"]
//! listen = 8080                       # on 127.0.0.1, as is ":8080"
//! ```

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The addresses on which a service listens; none: it is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listen(Vec<SocketAddr>);

impl Listen {
    /// The addresses.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.0
    }
}

/// An element of a list of addresses.
struct Address(SocketAddr);

struct AddressVisitor;

struct ListenVisitor;

fn parse_address<E: Error>(text: &str) -> Result<SocketAddr, E> {
    let on_loopback = || text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok().map(loopback);
    text.parse().ok().or_else(on_loopback).ok_or_else(|| {
        E::custom(format!(
            "\"{text}\" is not an address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\""
        ))
    })
}

fn parse_port<E: Error>(port: i64) -> Result<SocketAddr, E> {
    let parsed = u16::try_from(port).map(loopback);
    parsed.map_err(|_| E::custom(format!("{port} is not a port: ports are 0 to 65535")))
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl Visitor<'_> for AddressVisitor {
    type Value = Address;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"ADDRESS:PORT\" or a port")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
        parse_address(text).map(Address)
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<Address, E> {
        parse_port(port).map(Address)
    }
}

impl<'de> Visitor<'de> for ListenVisitor {
    type Value = Listen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"ADDRESS:PORT\", a port, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Listen, E> {
        Ok(Listen(vec![parse_address(text)?]))
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<Listen, E> {
        Ok(Listen(vec![parse_port(port)?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listen, A::Error> {
        let mut all = Vec::new();
        while let Some(Address(address)) = list.next_element()? {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        Ok(Listen(all))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListenVisitor)
    }
}
