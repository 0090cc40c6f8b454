//! The possible and the impossible effects of power cuts and faults.

use device::{Device, MemoryDevice};
use proptest::prelude::*;
use sim::{DiskArray, EventKind, Fault, Random};

const DISK_SIZE: u64 = 1 << 16;

fn read(memory: &MemoryDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn flushed_writes_survive_power_cut_others_may() {
    let storm = DiskArray::new(&[DISK_SIZE, DISK_SIZE]);
    let devices = storm.devices();
    devices[0].write_at(0, &[1; 512]).unwrap();
    devices[0].flush().unwrap();
    devices[1].write_at(0, &[2; 512]).unwrap();
    devices[0].write_at(512, &[3; 1024]).unwrap();
    let end = storm.journal().len();
    assert_eq!(end, 4);
    let (mut with, mut without, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let found = storm.journal().cut_power(end, seed);
        assert_eq!(read(&found[0], 0, 512), [1; 512]);
        match (read(&found[0], 512, 1)[0], read(&found[0], 1024, 1)[0]) {
            (3, 3) => with += 1,
            (0, 0) => without += 1,
            (3, 0) | (0, 3) => torn += 1,
            other => panic!("{other:?}"),
        }
        // nothing is ever half a sector
        let sector = read(&found[0], 512, 512);
        assert!(sector.iter().all(|byte| *byte == sector[0]));
    }
    assert!(with > 20 && without > 20 && torn > 5, "{with} {without} {torn}");
    let none = storm.journal().cut_power(end, 0);
    assert_eq!((read(&none[0], 512, 1), read(&none[1], 0, 1)), (vec![0], vec![0]));
    let all = storm.journal().cut_power(end, 1);
    assert_eq!((read(&all[0], 512, 1), read(&all[1], 0, 1)), (vec![3], vec![2]));
}

#[test]
fn flush_covers_only_its_own_disk() {
    let storm = DiskArray::new(&[DISK_SIZE, DISK_SIZE]);
    let devices = storm.devices();
    devices[0].write_at(0, &[1; 512]).unwrap();
    devices[1].flush().unwrap();
    assert_eq!(read(&storm.journal().cut_power(2, 0)[0], 0, 1), [0]);
    devices[0].flush().unwrap();
    assert_eq!(read(&storm.journal().cut_power(3, 0)[0], 0, 1), [1]);
    assert_eq!(read(&storm.journal().cut_power(2, 0)[0], 0, 1), [0], "back in time");
}

#[test]
fn next_flush_does_not_repair_failed_flush() {
    let mut lost = 0;
    for round in 0..40 {
        let storm = DiskArray::new(&[DISK_SIZE]);
        let (disk, device) = (&storm.disks()[0], &storm.devices()[0]);
        (0..round).for_each(|_| device.flush().unwrap());
        device.write_at(0, &[1; 512]).unwrap();
        disk.add_fault(Fault::Flush);
        device.flush().unwrap_err();
        disk.clear_faults();
        device.write_at(512, &[2; 512]).unwrap();
        device.flush().unwrap();
        let found = storm.journal().cut_power(usize::MAX, 0);
        lost += usize::from(read(&found[0], 0, 1) == [0]);
        assert_eq!(read(&found[0], 512, 1), [2]);
    }
    assert!((1..40).contains(&lost), "{lost}");
}

#[test]
fn each_fault_has_its_documented_effect() {
    let storm = DiskArray::new(&[DISK_SIZE]);
    let (disk, device) = (&storm.disks()[0], &storm.devices()[0]);
    device.write_at(0, &[7; 8192]).unwrap();
    disk.add_fault(Fault::Read(1024..2048));
    let mut bytes = [0; 512];
    assert!(device.read_at(1000, &mut bytes).is_err());
    device.read_at(2048, &mut bytes).unwrap();
    disk.clear_faults();
    disk.add_fault(Fault::Write(0..4096));
    device.write_at(2048, &[8; 4096]).unwrap_err();
    let half = read(&disk.memory(), 2048, 4096);
    assert!(half.contains(&7) && half.contains(&8));
    device.write_at(4096, &[9; 512]).unwrap();
    disk.clear_faults();
    disk.add_fault(Fault::LostWrite(0..512));
    device.write_at(0, &[5; 1024]).unwrap();
    assert_eq!(read(&disk.memory(), 600, 1), [7]);
    disk.clear_faults();
    disk.add_fault(Fault::MisdirectedWrite(0..512, 16_384));
    device.write_at(0, &[6; 512]).unwrap();
    assert_eq!((read(&disk.memory(), 0, 1), read(&disk.memory(), 16_384, 1)), (vec![7], vec![6]));
    disk.clear_faults();
    disk.add_fault(Fault::Truncated(8192));
    assert!(device.read_at(8000, &mut bytes).is_err());
    assert!(device.write_at(DISK_SIZE, &[1]).is_err());
    disk.clear_faults();
    disk.add_fault(Fault::Removed);
    assert!(device.read_at(0, &mut bytes).is_err() && device.flush().is_err());
    disk.clear_faults();
    let before = disk.memory().bytes();
    disk.flip_bits(0..8192, 3, &mut Random::new(5));
    let after = disk.memory().bytes();
    let changed: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert!((1..=3).contains(&changed), "{changed}");
}

proptest! {
    /// The sweep from cut to cut gives the same as a new one.
    #[test]
    fn cuts_follow_from_the_journal_alone(
        requests in prop::collection::vec((0_usize..3, 0_u64..100, 1_usize..3000, any::<bool>()), 1..40),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..50), 1..12),
    ) {
        let run = || {
            let storm = DiskArray::new(&[DISK_SIZE; 3]);
            for (disk, at, length, flush) in &requests {
                let device = &storm.devices()[*disk];
                device.write_at(at * 512, &vec![at.to_le_bytes()[0] | 1; *length]).unwrap();
                if *flush {
                    device.flush().unwrap();
                }
            }
            storm
        };
        let storm = run();
        for (at, seed) in cuts {
            let at = at.index(storm.journal().len() + 1);
            let found = storm.journal().cut_power(at, seed);
            let fresh = run().journal().cut_power(at, seed);
            for (a, b) in found.iter().zip(&fresh) {
                prop_assert!(a.bytes() == b.bytes());
            }
        }
        let written = storm.journal().events(0).into_iter();
        let writes = written.filter(|event| matches!(event.kind, EventKind::Write { .. })).count();
        prop_assert_eq!(writes, requests.len());
        // a run continues on the drives after a cut
        let left = storm.journal().cut_power(usize::MAX, 1);
        let next = DiskArray::from_memory(left.clone());
        prop_assert!(next.disks()[0].memory().bytes() == left[0].bytes());
    }
}
