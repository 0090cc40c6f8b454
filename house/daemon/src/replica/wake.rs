//! Wake-on-LAN: wakes the other host of a replica before a transfer.
//!
//! The packet goes by UDP to a broadcast address; the network card looks for the pattern anywhere in a frame.
//!
//! ```text
//! offset size
//! 0      6     ff ff ff ff ff ff
//! 6      96    the hardware address, 16 times
//! ```

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::SshHost;
use super::transfer::TransferControl;
use crate::{Error, Result};

/// Bytes of a packet.
const PACKET_SIZE: usize = 102;
/// The port that Wake-on-LAN uses by custom: discard.
const PORT: u16 = 9;
/// The time in which a host must reply after the first packet.
const MAX_BOOT: Duration = Duration::from_mins(4);
/// The time between two packets.
const INTERVAL: Duration = Duration::from_secs(5);

/// A hardware address, as `00:11:22:33:44:55`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct MacAddress([u8; 6]);

impl TryFrom<String> for MacAddress {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let parts = text.split([':', '-']);
        let is_byte = |part: &&str| part.len() == 2;
        let bytes = parts.map(|part| {
            Some(part).filter(is_byte).and_then(|part| u8::from_str_radix(part, 16).ok())
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        let address = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        address.map(Self).ok_or_else(|| {
            format!("\"{text}\" is not a hardware address; give six bytes: 00:11:22:33:44:55")
        })
    }
}

impl MacAddress {
    fn packet(self) -> [u8; PACKET_SIZE] {
        let mut packet = [0xff; PACKET_SIZE];
        let (_, addresses) = packet.split_at_mut(6);
        for place in addresses.chunks_exact_mut(6) {
            place.copy_from_slice(&self.0);
        }
        packet
    }
}

/// Every host of this host's network.
pub(super) const fn broadcast() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::BROADCAST), PORT)
}

/// Sends packets until the host replies. Returns whether it was woken: a host that replies at once gets none.
pub(crate) fn wake_host(
    host: &SshHost,
    (address, to): (MacAddress, SocketAddr),
    control: &TransferControl,
) -> Result<bool> {
    let (begun, mut was_asleep) = (Instant::now(), false);
    while !host.is_awake() {
        if control.is_cancelled() {
            return Err(Error::refused_error("the job was cancelled"));
        }
        if begun.elapsed() > MAX_BOOT {
            return Err(Error::refused_error(format!(
                "{} does not reply, and Wake-on-LAN to {to} did not wake it",
                host.host
            )));
        }
        send_packet(address, to)?;
        was_asleep = true;
        std::thread::sleep(INTERVAL);
    }
    Ok(was_asleep)
}

fn send_packet(address: MacAddress, to: SocketAddr) -> Result<()> {
    let sent = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_broadcast(true)?;
        socket.send_to(&address.packet(), to)
    };
    let failed = |why| Error::refused_error(format!("cannot send Wake-on-LAN to {to}: {why}"));
    sent().map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::{MacAddress, send_packet};

    #[test]
    fn wake_packet_repeats_the_address() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let address = MacAddress::try_from("00:11:22:aA:44:55".to_owned()).unwrap();
        send_packet(address, socket.local_addr().unwrap()).unwrap();
        let mut packet = [0; 200];
        let length = socket.recv(&mut packet).unwrap();
        assert_eq!(length, 102);
        assert_eq!(packet[..6], [0xff; 6]);
        assert_eq!(packet[6..length], [0, 0x11, 0x22, 0xaa, 0x44, 0x55].repeat(16));
    }

    #[test]
    fn mistakes_in_hardware_addresses_are_named() {
        for bad in ["", "00:11:22:33:44", "00:11:22:33:44:5g", "0:1:2:3:4:5", "001122334455"] {
            let why = MacAddress::try_from(bad.to_owned()).unwrap_err();
            assert!(why.contains("six bytes"), "{bad}: {why}");
        }
    }
}
