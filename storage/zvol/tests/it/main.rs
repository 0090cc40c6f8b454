//! Volumes of pools that real OpenZFS made, read to their end.

#[path = "../../../zpl/tests/it/open.rs"]
mod open;
mod writable;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use zil::LogReader;
use zvol::{Error, Volume};

use open::pool;

fn digest(volume: &Volume) -> String {
    let mut sha = Sha256::new();
    let mut buffer = vec![0xaa; 1_000_000];
    let mut at = 0;
    loop {
        let count = volume.read(at, &mut buffer).expect("content");
        if count == 0 {
            break;
        }
        sha.update(&buffer[..count]);
        at += count as u64;
    }
    assert_eq!(at, volume.size());
    fixtures::hex(&sha.finalize())
}

/// The ranges of data and the holes between them are the whole volume, and holes are zeros.
fn check_ranges(volume: &Volume) {
    let mut at = 0;
    while let Some(start) = volume.next_data(at).expect("data") {
        let end = volume.next_hole(start).expect("a hole");
        assert!(at <= start && start < end && end <= volume.size());
        let mut hole = vec![0xaa; usize::try_from(start - at).expect("small")];
        volume.read(at, &mut hole).expect("a hole");
        assert!(hole.iter().all(|byte| *byte == 0));
        at = end;
    }
    assert_eq!(volume.next_hole(volume.size()).expect("the end"), volume.size());
}

fn check_fixture(name: &str) -> usize {
    if !fixtures::exists(name) {
        return 0;
    }
    let fixture = fixtures::load(name);
    let (pool, tree) = pool(&fixture);
    let mut count = 0;
    for listed in fixture.manifest["datasets"].as_array().expect("datasets") {
        let name = listed["name"].as_str().expect("a name");
        if listed["volume"].is_null() {
            continue;
        }
        let objset = tree.find(name).expect("a dataset").open_objset().expect("an object set");
        let header = objset.header().log.clone();
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let mut log = LogReader::new(source, objset.id(), &header, key, pool.txg());
        let (volume, replayed) = Volume::open(&objset, Some(&mut log)).expect("a volume");
        assert_eq!(replayed.unexpected_record, None, "{name}");
        assert_eq!(listed["volume"]["size"].as_u64(), Some(volume.size()), "{name}");
        assert_eq!(listed["volume"]["sha256"].as_str(), Some(&*digest(&volume)), "{name}");
        check_ranges(&volume);
        count += 1;
    }
    count
}

#[test]
fn volumes_are_as_openzfs_shows_them() {
    let total: usize = fixtures::names().iter().map(|name| check_fixture(name)).sum();
    assert!(total > 0, "no fixture has a volume");
}

#[test]
fn file_system_is_refused_as_volume() {
    let fixture = fixtures::load("mirror-2");
    let (_, tree) = pool(&fixture);
    let objset = tree.find("tank").expect("a dataset").open_objset().expect("an object set");
    let error = Volume::open(&objset, None).map(drop);
    assert_eq!(error, Err(Error::NotVolume { objset: objset.id() }));
}
