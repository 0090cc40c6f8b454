//! Damage that is done here, to copies of fixtures.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use check::CheckReport;
use dmu::{BlockVisit, WalkControl, WalkOptions};
use dsl::PoolInfo;
use ondisk::{Blkptr, Dva, ObjectType};
use units::ObjectId;

use crate::check::{check_dir, open_pool};

/// Bytes of labels and boot area in front of the allocatable space.
const LABEL_START_SIZE: u64 = 4 << 20;

fn copy_fixture(name: &str, test: &str) -> PathBuf {
    let below = fixtures::scratch_dir(test);
    fixtures::unpack(name, &below).unwrap().dir
}

/// The data blocks of files of the root dataset: object, block, and where they lie.
fn file_blocks(dir: &Path) -> BTreeMap<(ObjectId, u64), Dva> {
    let pool = open_pool(dir);
    let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let tree = dsl::DatasetTree::open(pool.mos().clone(), facts).unwrap();
    let mut found = BTreeMap::new();
    for head in tree.heads() {
        let objset = head.unwrap().objset(None).unwrap();
        objset.walk(&WalkOptions::default(), &mut |zbookmark, what| {
            if let BlockVisit::Pointer(Blkptr::Regular(block)) = what
                && block.kind == ObjectType::PLAIN_FILE
                && zbookmark.level.get() == 0
                && block.psize > 4096
                && let Some(dva) = block.dvas[0]
            {
                found.insert((zbookmark.object, zbookmark.block.get()), dva);
            }
            WalkControl::Descend
        });
    }
    assert!(!found.is_empty());
    found
}

fn corrupt_bytes(image: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, offset).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x5a;
    }
    file.write_all_at(&bytes, offset).unwrap();
}

fn checksum_error_counts(report: &CheckReport) -> Vec<u64> {
    report.leaves.iter().map(|leaf| leaf.checksum_errors).collect()
}

#[test]
fn one_wrong_mirror_child_loses_no_file() {
    let dir = copy_fixture("mirror-2", "check-one-side");
    let ((object, _), dva) = file_blocks(&dir).into_iter().next_back().unwrap();
    corrupt_bytes(&dir.join("d1.img"), LABEL_START_SIZE + dva.offset + 100);
    let report = check_dir(&dir, 2);
    assert_eq!((report.repairable, report.lost), (1, 0));
    assert_eq!(checksum_error_counts(&report), [0, 1]);
    assert!(!report.is_clean());
    let [file] = &report.damaged[..] else { panic!("{:?}", report.damaged) };
    assert_eq!(file.object, object);
    assert!(file.path.is_some() && !file.is_lost());
}

#[test]
fn block_lost_on_all_children_is_named() {
    let dir = copy_fixture("mirror-2", "check-both-sides");
    let ((object, block), dva) = file_blocks(&dir).into_iter().next_back().unwrap();
    for image in ["d0.img", "d1.img"] {
        corrupt_bytes(&dir.join(image), LABEL_START_SIZE + dva.offset + 100);
    }
    let report = check_dir(&dir, 2);
    assert_eq!((report.repairable, report.lost), (0, 1));
    assert_eq!(checksum_error_counts(&report), [1, 1]);
    let [file] = &report.damaged[..] else { panic!("{:?}", report.damaged) };
    assert!(file.is_lost() && file.path.is_some());
    assert_eq!(file.object, object);
    let [range] = &file.ranges[..] else { panic!("{:?}", file.ranges) };
    let size = range.range.end - range.range.start;
    assert_eq!(range.range.start, block * size);
    // nothing else is the worse for it
    assert_eq!((report.leaked_bytes(), report.unallocated_bytes()), (0, 0));
}

#[test]
fn lost_root_block_leaves_leaks_only() {
    let dir = copy_fixture("mirror-2", "check-lost-root");
    let pool = open_pool(&dir);
    let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let tree = dsl::DatasetTree::open(pool.mos().clone(), facts).unwrap();
    let head = tree.heads().map(Result::unwrap).last().unwrap();
    let Blkptr::Regular(root) = &head.phys().unwrap().root else { panic!("a root is a block") };
    for dva in root.copies() {
        for image in ["d0.img", "d1.img"] {
            corrupt_bytes(&dir.join(image), LABEL_START_SIZE + dva.offset + 10);
        }
    }
    let report = check_dir(&dir, 2);
    assert_eq!(report.lost, 1);
    assert!(report.leaked_bytes() > 0 && report.unallocated_bytes() == 0);
    let [object] = &report.damaged[..] else { panic!("{:?}", report.damaged) };
    assert_eq!(object.dataset, head.name());
}
