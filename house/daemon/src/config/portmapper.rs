//! How clients of NFSv3 learn the ports of the server's programs, from the configuration.
//!
//! ```toml
//! portmapper = "auto"               # port 111 of the addresses of NFS, if NFS has its usual port 2049
//! portmapper = "off"
//! portmapper = "192.168.1.5:111"    # or a list, as for `listen`
//! ```
//!
//! With "auto", the server registers with rpcbind where that has port 111 already.

use std::fmt;
use std::net::SocketAddr;

use nfs::Portmapper;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Listen;

/// The usual port of NFS.
const NFS_PORT: u16 = 2049;

/// The field `portmapper`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PortmapperSetting {
    /// As the port of NFS is.
    #[default]
    Automatic,
    /// There is none.
    Off,
    /// At these addresses.
    Listen(Listen),
}

impl PortmapperSetting {
    /// The option of a server that listens on these addresses.
    pub(crate) fn resolve(&self, listen: &[SocketAddr]) -> Portmapper {
        match self {
            Self::Automatic if listen.iter().any(|address| address.port() == NFS_PORT) => {
                Portmapper::Automatic
            }
            Self::Automatic | Self::Off => Portmapper::Off,
            Self::Listen(listen) => Portmapper::Listen(listen.addresses().to_vec()),
        }
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = PortmapperSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", \"off\", \"ADDRESS:PORT\", a port, or a list of addresses")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PortmapperSetting, E> {
        match text {
            "auto" => Ok(PortmapperSetting::Automatic),
            "off" => Ok(PortmapperSetting::Off),
            text => Listen::deserialize(text.into_deserializer()).map(PortmapperSetting::Listen),
        }
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<PortmapperSetting, E> {
        Listen::deserialize(port.into_deserializer()).map(PortmapperSetting::Listen)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<PortmapperSetting, A::Error> {
        let listen = Listen::deserialize(SeqAccessDeserializer::new(list));
        listen.map(PortmapperSetting::Listen)
    }
}

impl<'de> Deserialize<'de> for PortmapperSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PortmapperSetting, String> {
        let value: toml_edit::Value = text.parse().unwrap();
        let parsed = PortmapperSetting::deserialize(value.into_deserializer());
        parsed.map_err(|why: toml_edit::de::Error| why.message().to_owned())
    }

    #[test]
    fn portmapper_follows_port_of_nfs() {
        let standard: [SocketAddr; 1] = [([10, 0, 0, 1], 2049).into()];
        let other: [SocketAddr; 1] = [([10, 0, 0, 1], 20490).into()];
        let setting = parse("\"auto\"").unwrap();
        assert_eq!(setting.resolve(&standard), Portmapper::Automatic);
        assert_eq!(setting.resolve(&other), Portmapper::Off);
        assert_eq!(parse("\"off\"").unwrap().resolve(&standard), Portmapper::Off);
        let address = SocketAddr::from(([127, 0, 0, 1], 111));
        for text in ["111", "\"127.0.0.1:111\"", "[111]"] {
            assert_eq!(parse(text).unwrap().resolve(&other), Portmapper::Listen(vec![address]));
        }
        assert!(parse("\"on\"").unwrap_err().contains("is not an address and a port"));
    }
}
