//! Files that programs write through mappings while their blocks are rewritten: no byte is lost.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use engine::pool::RewriteFilter;
use units::ObjectId;

use crate::mapping::Mapping;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::MountedPool;

const SIZE: usize = 1 << 20;

/// Rewrites a file once, as it is now.
fn rewrite(place: &MountedPool, file: ObjectId) {
    let files = place.pool.datasets().filesystem("tank").unwrap();
    let mut next = Some(0);
    while let Some(start) = next {
        next = files.rewrite_range(file, start..u64::MAX, &RewriteFilter::default()).unwrap().next;
    }
}

#[test]
fn mapped_writes_survive_a_rewrite() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("rewriting");
    let path = place.mountpoint().join("file");
    fs::write(&path, vec![0; SIZE]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut mapping = Mapping::new(&file, SIZE).unwrap();
    place.pool.sync().unwrap();
    let files = place.pool.datasets().filesystem("tank").unwrap();
    let object = ObjectId::new(files.reader().find(b"file").unwrap().unwrap().ino());
    drop(files);
    let mut model = vec![0; SIZE];
    for round in 1..=40_u8 {
        let (mapped, written) = (usize::from(round) * 4099, usize::from(round) * 12_289 + 500_000);
        mapping.write(mapped, &[round; 1000]);
        model[mapped..mapped + 1000].fill(round);
        rewrite(&place, object);
        file.write_all_at(&[round; 700], written as u64).unwrap();
        model[written..written + 700].fill(round);
        if round % 4 == 0 {
            mapping.sync().unwrap();
            place.pool.sync().unwrap();
        }
    }
    drop((mapping, file));
    assert!(fs::read(&path).unwrap() == model);
    place.export_and_verify();
}
