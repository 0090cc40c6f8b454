//! The discovery log page: the subsystems that a host may use.
//!
//! ```text
//! offset  size  field                       an entry
//!      0     8  GENCTR                           0     1  TRTYPE: 3 TCP
//!      8     8  NUMREC                           1     1  ADRFAM: 1 IPv4, 2 IPv6
//!     16     2  RECFMT: 0                        2     1  SUBTYPE: 2 subsystem, 3 this one
//!   1024        entries of 1024 bytes            3     1  TREQ: 4 flow control can be off
//!                                                4     2  PORTID
//!                                                6     2  CNTLID: 0xffff new ones
//!                                                8     2  ASQSZ
//!                                               32    32  TRSVCID: the port, as text
//!                                              256   256  SUBNQN
//!                                              512   256  TRADDR: the address, as text
//! ```
//! Learnt from: NVM Express over Fabrics 1.1, section 5.3.

use std::sync::atomic::Ordering::SeqCst;

use super::AdminContext;
use crate::wire::Page;
use crate::wire::connect::{DISCOVERY_NQN, NEW_CONTROLLER};

/// Bytes of the header, and of an entry.
const ENTRY_SIZE: usize = 1024;
/// Entries of the largest admin queue.
const ADMIN_QUEUE_ENTRIES: u16 = 32;

pub(super) fn page(context: &AdminContext<'_>) -> Vec<u8> {
    let controller = context.controller;
    let names = {
        let table = context.shared.subsystems.read();
        table.visible(&controller.host, controller.address())
    };
    let mut header = Page::new(ENTRY_SIZE);
    header
        .put64(0, context.shared.discovery_generation.load(SeqCst))
        .put64(8, u64::try_from(names.len() + 1).expect("64 bits"));
    let mut page = header.into_bytes();
    page.extend(entry(context, 3, DISCOVERY_NQN));
    for name in &names {
        page.extend(entry(context, 2, name));
    }
    page
}

/// An entry with the address by which the host reached the server.
fn entry(context: &AdminContext<'_>, kind: u8, name: &str) -> Vec<u8> {
    let mut page = Page::new(ENTRY_SIZE);
    page.put8(0, 3)
        .put8(2, kind)
        .put8(3, 4)
        .put16(4, 1)
        .put16(6, NEW_CONTROLLER)
        .put16(8, ADMIN_QUEUE_ENTRIES)
        .put_text(256, 256, name, 0);
    // a socket that is closed has no address, and its host gets no answer
    if let Ok(local) = context.client.stream.local_addr() {
        let address = local.ip().to_canonical();
        page.put8(1, if address.is_ipv4() { 1 } else { 2 })
            .put_text(32, 32, &local.port().to_string(), 0)
            .put_text(512, 256, &address.to_string(), 0);
    }
    page.into_bytes()
}
