//! Scans read in the order of the drives, however files are scattered.

use std::sync::{Arc, Mutex};

use device::{Device, MemoryDevice};
use engine::pool::{
    Drive, Environment, NewDataset, NewPool, NewVdev, Pool, ScanProgress, VdevLayout, VdevRole,
};
use posix::WriteOffset;
use units::ObjectId;

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{credentials, environment};

const FILES: usize = 48;
const RECORDS: u64 = 32;
const RECORD_SIZE: u32 = 16 << 10;

/// How far the heads of a drive moved between reads of file records. Metadata has copies elsewhere, which are
/// read with it.
#[derive(Clone, Copy, Debug, Default)]
struct Moves {
    /// Where the last read ended.
    end: u64,
    /// Reads that began more than a mebibyte away.
    seeks: u64,
    /// Bytes between the reads.
    distance: u64,
}

/// A drive that counts the moves of its heads.
#[derive(Debug)]
struct SeekingDrive {
    drive: MemoryDevice,
    moves: Arc<Mutex<Moves>>,
}

impl Device for SeekingDrive {
    fn size(&self) -> u64 {
        self.drive.size()
    }

    fn name(&self) -> &str {
        self.drive.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), device::Error> {
        if into.len() == RECORD_SIZE as usize {
            let mut moves = self.moves.lock().unwrap();
            let distance = offset.abs_diff(moves.end);
            moves.distance += distance;
            moves.seeks += u64::from(distance > 1 << 20);
            moves.end = offset + into.len() as u64;
        }
        self.drive.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), device::Error> {
        self.drive.write_at(offset, from)
    }
}

/// A pool with files whose records alternate on the drive, in two file systems.
fn create_scattered(environment: &Environment) -> (Pool, Arc<Mutex<Moves>>) {
    let moves = Arc::new(Mutex::new(Moves::default()));
    let drive = MemoryDevice::zeroed("drive", 96 << 20);
    let drive: Drive = Arc::new(SeekingDrive { drive, moves: Arc::clone(&moves) });
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let new = NewPool {
        name: "tank".to_owned(),
        vdevs: vec![NewVdev {
            layout: VdevLayout::Single,
            drives: vec!["drive".into()],
            role: VdevRole::Data,
        }],
        ashift: Some(12),
        properties: vec![property("compression", "off"), property("recordsize", "16384")],
        force: false,
    };
    let pool = engine::pool::create_on_devices(&new, &[drive], environment).unwrap();
    let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&child).unwrap();
    let datasets = ["tank", "tank/child"].map(|name| pool.datasets().filesystem(name).unwrap());
    let mut files = Vec::new();
    for number in 0..FILES {
        let files_of = &datasets[number % 2];
        let root = ObjectId::new(files_of.reader().root().unwrap().ino());
        let (name, new) = (format!("file{number}"), posix::NewInode::default());
        let made = files_of.create(&credentials(), root, name.as_bytes(), &new).unwrap();
        files.push((files_of, ObjectId::new(made.ino())));
    }
    for record in 0..RECORDS {
        let at = WriteOffset::At(record * u64::from(RECORD_SIZE));
        for (number, (files_of, file)) in (0..).zip(&files) {
            let bytes = noise_bytes(number, RECORD_SIZE);
            files_of.write(&credentials(), *file, at, &bytes).unwrap();
        }
        pool.sync().unwrap();
    }
    drop(files);
    drop(datasets);
    (pool, moves)
}

#[test]
fn scrub_reads_in_the_order_of_the_drive() {
    let environment = Environment { workers: 1, ..environment() };
    let (pool, moves) = create_scattered(&environment);
    let scrub = |memory: u64| {
        pool.scans().set_memory(memory);
        *moves.lock().unwrap() = Moves::default();
        let done = pool.scans().scrub(&ScanProgress::new()).unwrap();
        assert!(done.complete && done.errors == 0 && done.read > 20 << 20, "{done:?}");
        *moves.lock().unwrap()
    };
    // too little for more than 128 blocks
    let (unsorted, sorted) = (scrub(0), scrub(64 << 20));
    println!("sorted in parts: {unsorted:?}\nsorted across the pool: {sorted:?}");
    assert!(sorted.distance * 10 < unsorted.distance, "{sorted:?} {unsorted:?}");
    assert!(sorted.seeks * 10 < unsorted.seeks, "{sorted:?} {unsorted:?}");
    pool.export().unwrap();
}
