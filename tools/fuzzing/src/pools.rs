//! Targets: what describes a pool: labels, uberblocks, lists, space maps, history.

use ondisk::gang::GangHeader;
use ondisk::history::{HistoryHeader, Records};
use ondisk::indirect::{Birth, Condensing, Mapping, MappingHeader, Removing};
use ondisk::l2arc::{Header, LogBlock};
use ondisk::label::{BootEnv, Label, LabelConfig, PoolConfig};
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::scan::{ErrorScrubPhys, ScanPhys};
use ondisk::spacemap::{Entries, SpaceMapHeader, parse_unflushed_txgs};
use ondisk::uberblock::Uberblock;

use crate::{BYTE_ORDERS, read_structures};

/// Name/value lists of both encodings; what could be read is written and read again.
///
/// # Panics
/// If a list that was written cannot be read.
pub fn nvlist(data: &[u8]) {
    let Ok(list) = Nvlist::decode(data) else { return };
    let _ = list.to_string();
    let _ = PoolConfig::parse(&list);
    let native = BYTE_ORDERS.map(Encoding::Native);
    for encoding in native.into_iter().chain([Encoding::Xdr]) {
        let again = Nvlist::decode(&list.encode(encoding));
        assert!(again.is_ok(), "a list that was written can be read: {again:?}");
    }
}

/// A whole label (256 KiB), and its parts by themselves.
pub fn label(data: &[u8]) {
    let _ = BootEnv::parse(data);
    if let Ok(list) = ondisk::label::parse_config(data) {
        let _ = LabelConfig::parse(list).map(|config| config.ashift());
    }
    let mut whole = vec![0; 256 << 10];
    let length = data.len().min(112 << 10);
    if let (Some(config), Some(bytes)) =
        (whole.get_mut((16 << 10)..(16 << 10) + length), data.get(..length))
    {
        config.copy_from_slice(bytes);
    }
    for bytes in [data, &whole] {
        let Ok(label) = Label::new(bytes) else { continue };
        let _ = (label.boot_env(), label.nvlist());
        for ashift in [0, 9, 12, 13, 17, 63, u64::MAX] {
            label.slots(ashift).for_each(|(_, slot)| uberblock(slot));
        }
    }
}

/// An uberblock.
pub fn uberblock(data: &[u8]) {
    let _ = (Uberblock::parse(data), Uberblock::parse_required(data));
}

/// The header and log of an L2ARC device.
pub fn l2arc(data: &[u8]) {
    let _ = Header::parse(data).map(|header| header.encode());
    for count in [0, 63, u64::MAX] {
        let _ = LogBlock::parse(data, count).map(|block| block.encode());
    }
}

/// A gang header.
pub fn gang(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = GangHeader::parse(data, order).map(|header| header.present_pieces().count());
    }
}

/// A space map: its head, its entries, and in which txgs changes were not flushed.
pub fn spacemap(data: &[u8]) {
    for order in BYTE_ORDERS {
        read_structures(data, order, SpaceMapHeader::read);
        for entry in Entries::new(data, order).flatten() {
            for shift in [9, 12, 63, 64, u32::MAX] {
                let _ = entry.bytes(shift, u64::MAX / 2);
            }
        }
        let _ = parse_unflushed_txgs(data, order);
    }
}

/// The mapping of a removed vdev.
pub fn indirect(data: &[u8]) {
    for order in BYTE_ORDERS {
        read_structures(data, order, MappingHeader::read);
        read_structures(data, order, Condensing::read);
        read_structures(data, order, Removing::read);
        let _ = (Birth::count(data, order), Birth::parse_all(data, order));
        let Ok(mapping) = Mapping::parse(data, order) else { continue };
        for offset in [0, 4096, 1 << 40, u64::MAX] {
            let _ = mapping.find(offset);
        }
    }
}

/// The pool's command history, its error log, and the records of scans.
pub fn history(data: &[u8]) {
    for order in BYTE_ORDERS {
        read_structures(data, order, |reader| {
            HistoryHeader::read(reader).map(|head| head.ranges())
        });
    }
    for record in Records::new(data).flatten() {
        let _ = (record.time(), record.txg(), record.command(), record.user(), record.host());
        let _ = (record.event(), record.detail(), record.dataset(), record.ioctl());
    }
    let name = String::from_utf8_lossy(data);
    let _ = ondisk::history::parse_error(&name);
    let words = data.chunks_exact(8).filter_map(|word| word.try_into().ok());
    let words: Vec<u64> = words.map(u64::from_be_bytes).take(ScanPhys::WORDS).collect();
    let _ = ScanPhys::from_words(&words);
    let _ = words.get(..ErrorScrubPhys::WORDS).map(ErrorScrubPhys::from_words);
}
