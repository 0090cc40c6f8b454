//! Identify: what controllers and namespaces are and can do.
//!
//! ```text
//! CNS    page
//! 0x00   namespace                       0x05   namespace, of the NVM command set
//! 0x01   controller                      0x06   controller, of the NVM command set
//! 0x02   active namespaces               0x07   active namespaces of a command set
//! 0x03   names of a namespace            0x08   namespace, of any command set
//!                                        0x1c   command sets
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 5.17; NVM Command Set Specification 1.0, section 4.1.5; NVM
//! Express over Fabrics 1.1, section 4.1. The offsets stand beside each field.

use super::AdminContext;
use crate::connection::MAX_CAPSULE_DATA;
use crate::controller::{KEEP_ALIVE_GRACE, MAX_EVENT_REQUESTS};
use crate::fabrics::NVME_VERSION;
use crate::io::{MAX_COPY_BLOCKS, MAX_COPY_RANGES, MAX_TRANSFER_BYTES};
use crate::namespace::Namespace;
use crate::subsystem::MAX_NAMESPACE;
use crate::wire::Page;
use crate::wire::command::{Command, SIZE as COMMAND_SIZE};
use crate::wire::completion::Status;
use crate::wire::connect::DISCOVERY_NQN;

/// Bytes of a page.
const PAGE_SIZE: usize = 4096;
/// The number of the NVM command set.
const NVM_COMMANDS: u32 = 0;
/// The group of all namespaces (ANA): each controller reaches all of them in the best way.
pub(super) const ACCESS_GROUP: u32 = 1;
/// The firmware revision, which has no meaning here.
pub(super) const FIRMWARE: &str = "1";

pub(super) fn identify(context: &AdminContext<'_>, command: &Command) -> Result<Vec<u8>, Status> {
    let [page, ..] = command.dword(10).to_le_bytes();
    let command_set = command.dword(11) >> 24;
    if page == 0x01 {
        return Ok(controller(context));
    }
    if context.controller.subsystem.is_none() {
        return Err(Status::INVALID_FIELD);
    }
    let is_nvm = command_set == NVM_COMMANDS;
    let namespaces = context.controller.namespaces();
    let namespace = || namespaces.get(&command.namespace()).ok_or(Status::INVALID_NAMESPACE);
    let page = match page {
        // a namespace that is not there has a page of zeros
        0x00 if command.namespace() == u32::MAX => return Err(Status::INVALID_NAMESPACE),
        0x00 => namespace().map_or_else(|_| Page::new(PAGE_SIZE), |found| namespace_page(found)),
        0x02 => list(namespaces.keys(), command.namespace())?,
        0x07 if is_nvm => list(namespaces.keys(), command.namespace())?,
        0x03 => names(namespace()?),
        0x05 if is_nvm => namespace().map(|_| Page::new(PAGE_SIZE))?,
        0x06 if is_nvm => Page::new(PAGE_SIZE),
        0x08 => independent_page(namespace()?),
        0x1c => {
            let mut page = Page::new(PAGE_SIZE);
            page.put64(0, 1 << NVM_COMMANDS);
            page
        }
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(page.into_bytes())
}

/// Numbers of namespaces above one.
fn list<'a>(numbers: impl Iterator<Item = &'a u32>, above: u32) -> Result<Page, Status> {
    if above >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let mut page = Page::new(PAGE_SIZE);
    // a subsystem has as many namespaces as a page at most
    for (at, number) in numbers.filter(|number| **number > above).enumerate() {
        page.put32(at * 4, *number);
    }
    Ok(page)
}

fn controller(context: &AdminContext<'_>) -> Vec<u8> {
    let mut page = Page::new(PAGE_SIZE);
    let (controller, is_discovery) = (context.controller, context.controller.subsystem.is_none());
    let subsystem = controller.subsystem.as_ref();
    let serial = subsystem.map_or_else(|| "discovery".to_owned(), |found| found.serial());
    let name = subsystem.map_or(DISCOVERY_NQN, |found| &found.name);
    let transfer_power = (MAX_TRANSFER_BYTES >> 12).ilog2();
    let granularity = KEEP_ALIVE_GRACE.as_millis() / 100;
    let entries = context.shared.options.queue_entries;
    let (namespace_notices, discovery_notices) = (1 << 8, 1 << 31);
    page.put_text(4, 20, &serial, b' ') // SN
        .put_text(24, 40, "Poolhouse", b' ') // MN
        .put_text(64, 8, FIRMWARE, b' ') // FR
        .put8(77, u8::try_from(transfer_power).expect("32 bits")) // MDTS
        .put16(78, controller.id) // CNTLID
        .put32(80, NVME_VERSION) // VER
        .put32(92, if is_discovery { discovery_notices } else { namespace_notices }) // OAES
        // CTRATT: host identifiers of 128 bits, any command counts as keep-alive
        .put32(96, 1 | 1 << 6)
        .put8(111, if is_discovery { 2 } else { 1 }) // CNTRLTYPE
        .put8(259, u8::try_from(MAX_EVENT_REQUESTS - 1).expect("few")) // AERL
        .put8(261, 1 << 2) // LPA: offsets into log pages
        .put16(320, u16::try_from(granularity).expect("short")) // KAS
        .put16(514, entries) // MAXCMD
        // SGLS: SGLs, and offsets into capsules
        .put32(536, 1 | 1 << 20)
        .put_text(768, 256, name, 0) // SUBNQN
        .put32(1792, u32::try_from((COMMAND_SIZE + MAX_CAPSULE_DATA) / 16).expect("32 bits")) // IOCCSZ
        .put32(1796, 1) // IORCSZ
        .put8(1803, 1); // MSDBD
    if !is_discovery {
        describe_io(&mut page);
    }
    page.into_bytes()
}

/// The fields of controllers with I/O queues.
fn describe_io(page: &mut Page) {
    let compare = 1;
    let (deallocate, write_zeroes, select, reservations) = (1 << 2, 1 << 3, 1 << 4, 1 << 5);
    let (verify, copy) = (1 << 7, 1 << 8);
    // CMIC: several controllers, with asymmetric access
    page.put8(76, 1 << 1 | 1 << 3)
        .put8(258, 3) // ACL
        .put8(260, 1 << 1 | 1) // FRMW: one slot, read-only
        .put8(261, 1 << 2 | 1 << 1) // LPA: offsets, the effects of commands
        .put8(342, 10) // ANATT, seconds
        .put8(343, 1) // ANACAP: optimized
        .put32(344, ACCESS_GROUP) // ANAGRPMAX
        .put32(348, 1) // NANAGRPID
        .put8(512, 0x66) // SQES
        .put8(513, 0x44) // CQES
        .put32(516, MAX_NAMESPACE) // NN
        .put16(520, compare | deallocate | write_zeroes | select | reservations | verify | copy) // ONCS
        .put16(522, 1) // FUSES: Compare and Write
        .put8(525, 0b111) // VWC: there is one; Flush of all namespaces is done
        .put16(534, 1) // OCFS: format 0
        .put32(540, MAX_NAMESPACE); // MNAN
}

/// Bits of the reservation types, and of the key that need not be known.
fn reservation_capabilities(namespace: &Namespace) -> u8 {
    0xfe | u8::from(namespace.unit.reservations().can_persist())
}

fn namespace_page(namespace: &Namespace) -> Page {
    let shape = namespace.unit.geometry();
    let block_size = shape.block_size;
    let mut page = Page::new(PAGE_SIZE);
    // less one, in blocks
    let in_blocks = |bytes: u32| u16::try_from(bytes / block_size - 1).unwrap_or(u16::MAX);
    let preferred = in_blocks(shape.physical_block_size);
    let space = namespace.unit.space().ok();
    let used =
        space.map_or(shape.blocks, |space| (space.used / u64::from(block_size)).min(shape.blocks));
    page.put64(0, shape.blocks) // NSZE
        .put64(8, shape.blocks) // NCAP
        .put64(16, used) // NUSE
        // NSFEAT: thin, names are not used again, preferred sizes
        .put8(24, 1 | 1 << 3 | 1 << 4)
        .put8(30, 1) // NMIC: shared by controllers
        .put8(31, reservation_capabilities(namespace)) // RESCAP
        // DLFEAT: freed blocks read as zeros, Write Zeroes may free
        .put8(33, 1 | 1 << 3)
        .put16(64, preferred) // NPWG
        .put16(66, preferred) // NPWA
        .put16(68, in_blocks(shape.unmap_granularity)) // NPDG
        .put16(70, in_blocks(shape.unmap_granularity)) // NPDA
        .put16(72, in_blocks(shape.optimal_transfer.1)) // NOWS
        .put16(74, MAX_COPY_BLOCKS) // MSSRL
        .put32(76, u32::from(MAX_COPY_BLOCKS) * u32::from(MAX_COPY_RANGES)) // MCL
        .put8(80, MAX_COPY_RANGES - 1) // MSRC
        .put32(92, ACCESS_GROUP) // ANAGRPID
        .put8(99, u8::from(shape.is_read_only)) // NSATTR
        .put(104, &namespace.id.nguid()) // NGUID
        .put(120, &namespace.id.eui64()) // EUI64
        .put8(130, u8::try_from(block_size.ilog2()).expect("32 bits")); // LBAF0: LBADS
    page
}

fn independent_page(namespace: &Namespace) -> Page {
    let mut page = Page::new(PAGE_SIZE);
    page.put8(0, 1 << 3) // NSFEAT: names are not used again
        .put8(1, 1) // NMIC
        .put8(2, reservation_capabilities(namespace)) // RESCAP
        .put32(4, ACCESS_GROUP) // ANAGRPID
        .put8(8, u8::from(namespace.unit.geometry().is_read_only)) // NSATTR
        .put8(14, 1); // NSTAT: ready
    page
}

/// Names: type, length, 2 bytes reserved, the name.
fn names(namespace: &Namespace) -> Page {
    let mut page = Page::new(PAGE_SIZE);
    let mut at = 0;
    let mut put = |kind: u8, name: &[u8]| {
        let size = u8::try_from(name.len()).expect("names are short");
        page.put(at, &[kind, size, 0, 0]).put(at + 4, name);
        at += 4 + name.len();
    };
    put(1, &namespace.id.eui64());
    put(2, &namespace.id.nguid());
    put(3, &namespace.id.uuid());
    // the NVM command set
    put(4, &[0]);
    page
}
