//! The networks whose clients may use a share, from the configuration.
//!
//! ```toml
//! networks = "10.0.0.0/24"
//! networks = ["192.168.1.7", "fd00::/8"]   # an address alone is one host
//! networks = "*"                           # every client
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    /// This machine alone.
    pub(crate) fn loopback() -> Self {
        let hosts: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        Self(hosts.map(IpNet::from).to_vec())
    }

    /// Every client.
    pub(crate) fn all() -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Self(any.map(every_address).to_vec())
    }

    /// The networks.
    pub(crate) fn as_slice(&self) -> &[IpNet] {
        &self.0
    }
}

/// The network of all addresses of a family.
fn every_address(any: IpAddr) -> IpNet {
    IpNet::new_assert(any, 0)
}

/// Parses `ADDRESS`, `ADDRESS/LENGTH` or `*`.
pub(crate) fn parse_networks(text: &str) -> Result<Vec<IpNet>, String> {
    if text == "*" {
        return Ok(Networks::all().0);
    }
    let host = text.parse::<IpAddr>().map(IpNet::from);
    let network = host.or_else(|_| text.parse::<IpNet>());
    network.map(|network| vec![network.trunc()]).map_err(|_| {
        format!(
            "\"{text}\" is not a network, such as \"10.0.0.0/24\" or \"fd00::/8\", not an address, \
             and not \"*\" for every client"
        )
    })
}

struct NetworksVisitor;

impl<'de> Visitor<'de> for NetworksVisitor {
    type Value = Networks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network such as \"10.0.0.0/24\", or a list of networks")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Networks, E> {
        let parts = text.split(',').map(|part| parse_networks(part.trim()));
        let all = parts.collect::<Result<Vec<_>, _>>().map_err(E::custom)?;
        Ok(Networks(all.concat()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Networks, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            all.extend(parse_networks(&text).map_err(Error::custom)?);
        }
        Ok(Networks(all))
    }
}

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworksVisitor)
    }
}

/// A list of words: one text with commas, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Words, E> {
        Ok(Words(text.split(',').map(|word| word.trim().to_owned()).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
        let mut all = Vec::new();
        while let Some(word) = list.next_element()? {
            all.push(word);
        }
        Ok(Words(all))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor)
    }
}
