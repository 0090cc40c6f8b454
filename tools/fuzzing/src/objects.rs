//! Targets: block pointers, objects, and what files keep in them.

use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetHeader;
use ondisk::sa::{self as attributes, Attribute, Attributes, Registry};
use ondisk::znode::{Znode, read_time};
use ondisk::{Blkptr, acl as entries};

use crate::{BYTE_ORDERS, read_structures};

/// Block pointers, one after the other, and all their methods.
pub fn blkptr(data: &[u8]) {
    for order in BYTE_ORDERS {
        for bytes in data.chunks(128) {
            let Ok(pointer) = Blkptr::parse(bytes, order) else { continue };
            let _ = (pointer.birth(), pointer.lsize(), pointer.level(), pointer.kind());
            if let Blkptr::Regular(regular) = &pointer {
                let _ = (regular.copies().count(), regular.is_gang());
            }
        }
    }
}

/// A block of dnodes, stepped through as a reader of objects does.
pub fn dnode(data: &[u8]) {
    for order in BYTE_ORDERS {
        let mut rest = data;
        while !rest.is_empty() {
            let slots = Dnode::peek_slots(rest).map_or(1, usize::from).max(1);
            let (bytes, after) = rest.split_at((slots * 512).min(rest.len()));
            if let Ok(Some(dnode)) = Dnode::parse(bytes, order) {
                let _ = (dnode.size(), dnode.fan_out_shift(), dnode.indirect_size());
            }
            rest = after;
        }
    }
}

/// The head of a set of objects.
pub fn objset(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = ObjsetHeader::parse(data, order);
    }
}

/// A buffer of system attributes, by the layout that new datasets use and by one made of its bytes.
pub fn sa(data: &[u8]) {
    let registry = Registry::standard();
    let made: Vec<u16> = data.iter().take(32).map(|byte| u16::from(*byte % 24)).collect();
    let usual: Vec<u16> = (0..20).collect();
    for layout in [&made, &usual].into_iter().filter_map(|numbers| registry.layout(numbers).ok()) {
        let Ok(header) = attributes::Header::parse(data) else { continue };
        let all = Attributes::new(data, header, &layout);
        for attribute in Attribute::ALL {
            let _ = (all.bytes(*attribute), all.word(*attribute));
        }
    }
}

/// A legacy znode and its times.
pub fn znode(data: &[u8]) {
    for order in BYTE_ORDERS {
        read_structures(data, order, Znode::read);
        read_structures(data, order, |reader| {
            read_time(reader).map(|time| (time.seconds, time.nanoseconds))
        });
    }
}

/// Access control lists: of NFSv4 old and new, in the znode and outside, and of POSIX.
pub fn acl(data: &[u8]) {
    let count = data.first().map_or(0, |byte| u64::from(*byte));
    let rest = data.get(1..).unwrap_or_default();
    for order in BYTE_ORDERS {
        for count in [count, u64::MAX] {
            let _ = entries::parse_old(rest, count, order);
            for entry in entries::parse(rest, count, order).unwrap_or_default() {
                let _ = entry.to_string();
            }
        }
        read_structures(data, order, |reader| {
            let list = entries::ZnodeAcl::read(reader)?;
            let _ = (list.bytes(), list.parse(None, order), list.parse(Some(data), order));
            Ok(())
        });
    }
    let _ = entries::parse_posix(data);
}
