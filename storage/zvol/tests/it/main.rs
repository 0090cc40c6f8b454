//! Volumes of pools that real OpenZFS made, read to their end.

use std::sync::Arc;

use device::{Device, File};
use dmu::Objset;
use fixtures::Fixture;
use ondisk::dsl::{Dataset, Dir};
use serde_json::Value;
use sha2::{Digest, Sha256};
use spa::Pool;
use units::{ObjectId, ObjsetId};
use zap::Zap;
use zil::Records;
use zvol::{Error, Volume};

fn pool(fixture: &Fixture) -> Pool {
    let open = |path| Arc::new(File::open(path).expect("an image")) as Arc<dyn Device>;
    let devices: Vec<_> = fixture.images().iter().map(|path| open(path)).collect();
    let (found, _) = spa::scan(&devices);
    let newest = found.iter().find(|pool| pool.name() == fixture.pool()).expect("the pool");
    newest.open(&spa::Options::default()).expect("the pool opens")
}

fn named(mos: &Objset, table: ObjectId, name: &str) -> Option<ObjectId> {
    let zap = Zap::open(mos.object(table).expect("a table")).expect("a table");
    zap.lookup_u64(name.as_bytes()).expect("a number").map(ObjectId::new)
}

fn dataset(mos: &Objset, id: ObjectId) -> Dataset {
    let object = mos.object(id).expect("a dataset");
    Dataset::parse(object.bonus(), object.bonus_order()).expect("a dataset")
}

/// The object set of a dataset or snapshot.
fn find(pool: &Pool, name: &str) -> Objset {
    let mos = pool.mos();
    let dir = |id| {
        let object = mos.object(id).expect("a directory");
        Dir::parse(object.bonus(), object.bonus_order()).expect("a directory")
    };
    let (path, snapshot) = match name.split_once('@') {
        Some((path, snapshot)) => (path, Some(snapshot)),
        None => (name, None),
    };
    let root = pool.directory().number("root_dataset").expect("directory").expect("root");
    let mut here = dir(ObjectId::new(root));
    for name in path.split('/').skip(1) {
        here = dir(named(mos, here.children, name).expect("a child"));
    }
    let mut id = here.head;
    if let Some(snapshot) = snapshot {
        let table = dataset(mos, id).snapshot_names;
        id = named(mos, table, snapshot).expect("a snapshot");
    }
    let id_of_set = ObjsetId::new(id.get());
    Objset::open(pool.source(), id_of_set, &dataset(mos, id).root, None).expect("an object set")
}

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
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The ranges of data and the holes between them are the whole volume, and holes are zeros.
fn ranges_are_whole(volume: &Volume) {
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

fn check(name: &str) -> usize {
    if !fixtures::has(name) {
        return 0;
    }
    let fixture = fixtures::load(name);
    let pool = pool(&fixture);
    let mut count = 0;
    for listed in fixture.manifest["datasets"].as_array().expect("datasets") {
        let is_plain = matches!(&listed["properties"]["encryption"], Value::Null)
            || listed["properties"]["encryption"] == "off";
        let name = listed["name"].as_str().expect("a name");
        if listed["volume"].is_null() || !is_plain {
            continue;
        }
        let objset = find(&pool, name);
        let header = objset.header().log.clone();
        let source = Arc::clone(objset.source());
        let mut log = Records::new(source, objset.id(), &header, None, pool.txg());
        let (volume, replayed) = Volume::open(&objset, Some(&mut log)).expect("a volume");
        assert_eq!(replayed.strange, None, "{name}");
        assert_eq!(listed["volume"]["size"].as_u64(), Some(volume.size()), "{name}");
        assert_eq!(listed["volume"]["sha256"].as_str(), Some(&*digest(&volume)), "{name}");
        ranges_are_whole(&volume);
        count += 1;
    }
    count
}

#[test]
fn volumes_are_as_openzfs_shows_them() {
    let total: usize = fixtures::names().iter().map(|name| check(name)).sum();
    assert!(total > 0, "no fixture has a volume");
}

#[test]
fn a_file_system_is_no_volume() {
    let fixture = fixtures::load("mirror-2");
    let objset = find(&pool(&fixture), "tank");
    let why = Volume::open(&objset, None).map(drop);
    assert_eq!(why, Err(Error::NotVolume { objset: objset.id() }));
}
