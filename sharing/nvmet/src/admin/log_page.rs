//! Get Log Page.
//!
//! ```text
//! page   content                        size
//! 0x01   errors                         64 an entry, all zeros: failures are in completions
//! 0x02   health                         512
//! 0x03   firmware slots                 512
//! 0x04   changed namespaces             4096: numbers; 0xffffffff: too many
//! 0x05   commands and their effects     4096: 32 bits for each admin and each I/O opcode
//! 0x0c   asymmetric access (ANA)        16, then 32 and the namespaces of the one group
//! 0x70   discovery                      see `discovery`
//! 0x80   reservation notifications      64
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 5.16.1.

use super::AdminContext;
use super::discovery;
use super::identify::{ACCESS_GROUP, FIRMWARE};
use crate::controller::{CHANGED_NAMESPACES_PAGE, DISCOVERY_PAGE, RESERVATION_PAGE};
use crate::wire::Page;
use crate::wire::command::Command;
use crate::wire::completion::Status;

/// Bytes of the longest part of a log page that is read at once.
const MAX_LENGTH: usize = 1 << 20;
/// Numbers in the page of changed namespaces.
const MAX_CHANGED: usize = 1024;
/// The state of a group that is reached in the best way.
const OPTIMIZED: u8 = 1;

pub(super) fn read(context: &AdminContext<'_>, command: &Command) -> Result<Vec<u8>, Status> {
    let first = command.dword(10);
    let [page, options, ..] = first.to_le_bytes();
    let retains_event = options & 0x80 != 0;
    let specific = options & 0x7f;
    let dwords = u64::from(first >> 16) | u64::from(command.dword(11) & 0xffff) << 16;
    let length = usize::try_from((dwords + 1) * 4).map_err(|_| Status::INVALID_FIELD)?;
    let offset = usize::try_from(command.dwords(12)).map_err(|_| Status::INVALID_FIELD)?;
    if length > MAX_LENGTH || offset % 4 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let content = match (page, context.controller.subsystem.is_some()) {
        (DISCOVERY_PAGE, false) => {
            if !retains_event {
                context.controller.clear_discovery_change();
            }
            discovery::page(context)
        }
        (0x01, _) => vec![0; 64],
        (0x02, true) => health(context, command.namespace())?,
        (0x03, true) => firmware(),
        (CHANGED_NAMESPACES_PAGE, true) => changed_namespaces(context, !retains_event),
        (0x05, true) => effects(),
        (0x0c, true) => access(context, specific & 1 != 0),
        (RESERVATION_PAGE, true) => notification(context, !retains_event),
        _ => return Err(Status::INVALID_LOG_PAGE),
    };
    // hosts read pages to the longest length that they can have
    let mut part = content.get(offset..).unwrap_or_default().to_vec();
    part.resize(length, 0);
    Ok(part)
}

fn health(context: &AdminContext<'_>, namespace: u32) -> Result<Vec<u8>, Status> {
    let all = namespace == 0 || namespace == u32::MAX;
    if !all && !context.controller.namespaces().contains_key(&namespace) {
        return Err(Status::INVALID_NAMESPACE);
    }
    let counters = context.controller.counters.load();
    // units of 1000 times 512 bytes
    let units = |bytes: u64| bytes.div_ceil(512_000);
    let mut page = Page::new(512);
    // available spare and its threshold in percent: a pool has none, and monitors must not take 0 for a worn drive
    page.put8(3, 100).put8(4, 1);
    page.put64(32, units(counters.read_bytes)).put64(48, units(counters.written_bytes));
    Ok(page.into_bytes())
}

fn firmware() -> Vec<u8> {
    let mut page = Page::new(512);
    page.put8(0, 1).put_text(8, 8, FIRMWARE, b' ');
    page.into_bytes()
}

fn changed_namespaces(context: &AdminContext<'_>, clears: bool) -> Vec<u8> {
    let numbers = context.controller.changed_namespaces(clears);
    let mut page = Page::new(4096);
    if numbers.len() > MAX_CHANGED {
        page.put32(0, u32::MAX);
    } else {
        for (at, number) in numbers.iter().enumerate() {
            page.put32(at * 4, *number);
        }
    }
    page.into_bytes()
}

fn effects() -> Vec<u8> {
    let (supported, changes_content) = (1, 1 << 1);
    let mut page = Page::new(4096);
    for opcode in [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18] {
        page.put32(opcode * 4, supported);
    }
    for opcode in [0x00, 0x02, 0x05, 0x0c, 0x0d, 0x0e, 0x11, 0x15] {
        page.put32(1024 + opcode * 4, supported);
    }
    for opcode in [0x01, 0x08, 0x09, 0x19] {
        page.put32(1024 + opcode * 4, supported | changes_content);
    }
    page.into_bytes()
}

/// All namespaces are in one group. `is_short`: the host does not want their numbers.
fn access(context: &AdminContext<'_>, is_short: bool) -> Vec<u8> {
    let namespaces = context.controller.namespaces();
    let numbers: Vec<u32> =
        if is_short { Vec::new() } else { namespaces.keys().copied().collect() };
    let mut page = Page::new(16 + 32 + 4 * numbers.len());
    page.put16(8, 1)
        .put32(16, ACCESS_GROUP)
        .put32(20, u32::try_from(numbers.len()).expect("at most 1024"))
        .put8(32, OPTIMIZED);
    for (at, number) in numbers.iter().enumerate() {
        page.put32(48 + at * 4, *number);
    }
    page.into_bytes()
}

fn notification(context: &AdminContext<'_>, clears: bool) -> Vec<u8> {
    let mut page = Page::new(64);
    if let Some(found) = context.controller.notification(clears) {
        page.put64(0, found.number)
            .put8(8, found.kind as u8)
            .put8(9, found.remaining)
            .put32(12, found.namespace);
    }
    page.into_bytes()
}
