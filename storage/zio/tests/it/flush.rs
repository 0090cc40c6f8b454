//! The result of a flush after another flush failed for its blocks.

use ondisk::zil::Verifier;
use sim::{DiskArray, Fault};
use units::{Ashift, ObjsetId, Txg, Zbookmark};
use zio::LogAllocation;
use zio::memory::MemoryVdevs;

/// A block of a log is had with the one before it, and written later: its txg may be on the drives.
#[test]
fn log_block_lost_by_another_flush_fails() {
    let storm = DiskArray::new(&[MemoryVdevs::device_size(16 << 20)]);
    let writer = MemoryVdevs::from_devices(storm.devices(), Ashift::new(12).unwrap()).writer();
    let (had, synced) = (Txg::new(50), Txg::new(53));
    let verifier = Verifier { guid: [1, 2], objset: ObjsetId::new(54), seq: 1 };
    let place = Zbookmark::default();
    let room = LogAllocation {
        size: 4096,
        txg: had,
        verifier,
        key: None,
        zbookmark: place,
        avoid_log_devices: false,
    };
    let block = writer.allocate_log_block(&room).unwrap();
    let mut bytes = vec![0; 4096];
    bytes[136..144].copy_from_slice(&4096_u64.to_le_bytes());
    let log_block = zio::LogBlock { block, bytes, zbookmark: place };
    writer.write_log_blocks(vec![log_block], None).unwrap();
    storm.disks()[0].add_fault(Fault::Flush);
    assert!(writer.tree().flush(&mut Vec::new()).is_err(), "another thread's flush");
    storm.disks()[0].clear_faults();
    assert!(writer.flush(block.birth.min(synced)).is_err());
    assert!(writer.flush(synced).is_ok(), "of later ones nothing is lost");
}
