//! Directories listed by cookies, while names come and go.

use std::collections::BTreeMap;

use posix::NewInode;
use vfs::{DirEntry, FileSystem};

use super::{Bed, context};

/// Names that stay while the directory is listed.
const STAYING: u32 = 500;
const BATCH: usize = 37;

pub(super) fn check<F: FileSystem>(bed: &Bed<'_, F>) {
    let (fs, root) = (bed.fs, &context(&bed.root));
    let dir = bed.subdir("many");
    let create =
        |name: &str| fs.create(root, dir, name.as_bytes(), &NewInode::default()).expect(name).ino;
    let mut expected = BTreeMap::new();
    for number in 0..STAYING {
        let name = format!("stays-{number}");
        expected.insert(name.clone().into_bytes(), create(&name));
        create(&format!("goes-{number}"));
    }
    let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
    loop {
        // a protocol without state opens the directory for each batch
        let open = fs.open_dir(root, dir).expect("an open directory");
        let mut batch: Vec<DirEntry> = Vec::new();
        let mut take = |entry: &DirEntry| {
            let fits = batch.len() < BATCH;
            if fits {
                batch.push(entry.clone());
            }
            fits
        };
        fs.read_dir(root, &open, cookie, &mut take).expect("entries");
        let Some(last) = batch.last() else { break };
        cookie = last.next_cookie;
        seen.extend(batch);
        if round < STAYING {
            fs.unlink(root, dir, format!("goes-{round}").as_bytes()).expect("removed");
            create(&format!("comes-{round}"));
        }
        round += 1;
        assert!(round < 10_000, "the listing ends");
    }
    let parents = seen.iter().filter(|entry| matches!(&entry.name[..], b"." | b".."));
    assert_eq!(parents.map(|entry| entry.ino).collect::<Vec<_>>(), [dir, bed.dir]);
    let stays = seen.iter().filter(|entry| entry.name.starts_with(b"stays"));
    let count = stays.clone().count();
    let found: BTreeMap<_, _> = stays.map(|entry| (entry.name.clone(), entry.ino)).collect();
    assert_eq!(count, found.len(), "a name is shown twice");
    assert_eq!(found, expected);
}
