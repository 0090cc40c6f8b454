//! What a flush says of blocks that another flush took along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{Device, Error as DeviceError, Memory};
use ondisk::zil::Verifier;
use units::{Ashift, ObjsetId, Place, Txg};
use zio::LogRoom;
use zio::memory::Drives;

/// A drive that fails to keep what it took, if told to.
#[derive(Debug)]
struct Drive(Memory, AtomicBool);

impl Device for Drive {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.1.swap(false, Ordering::Relaxed) {
            return Err(DeviceError::Flush { device: String::new(), reason: String::new() });
        }
        Ok(())
    }
}

/// A block of a log is had with the one before it, and written later: its txg may be on the drives.
#[test]
fn a_log_block_of_an_older_txg_that_another_flush_lost_is_not_promised() {
    let memory = Memory::blank("drive", Drives::whole(16 << 20));
    let drive = Arc::new(Drive(memory, AtomicBool::new(false)));
    let drives = [Arc::clone(&drive) as Arc<dyn Device>];
    let writer = Drives::over(drives, Ashift::new(12).unwrap()).writer();
    let (had, synced) = (Txg::new(50), Txg::new(53));
    let verifier = Verifier { guid: [1, 2], objset: ObjsetId::new(54), seq: 1 };
    let place = Place::default();
    let room = LogRoom { size: 4096, txg: had, verifier, key: None, place, spares_devices: false };
    let block = writer.reserve_log(&room).unwrap();
    let mut bytes = vec![0; 4096];
    bytes[136..144].copy_from_slice(&4096_u64.to_le_bytes());
    writer.write_log(&block, bytes, None, place).unwrap();
    drive.1.store(true, Ordering::Relaxed);
    assert!(writer.tree().flush(&mut Vec::new()).is_err(), "that of somebody else");
    assert!(writer.flush(block.birth.min(synced)).is_err());
    assert!(writer.flush(synced).is_ok(), "of later ones nothing is lost");
}
