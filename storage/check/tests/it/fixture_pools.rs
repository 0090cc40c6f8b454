//! Every fixture has exactly the damage that its manifest lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixtures::Fixture;
use job::Job;

use crate::check::{check_dir, check_pool, open_pool};

/// The counts of `zdb -bb`: pointers (embedded ones too), bytes stored, bytes allocated.
const ZDB_COUNTS: [(&str, u64, u64, u64); 45] = [
    ("attributes", 1167, 2079232, 2688512),
    ("compat", 174, 526336, 962560),
    ("compat-grub", 115, 1047552, 1376256),
    ("dedup-fast", 633, 3809280, 4829184),
    ("dedup-legacy", 416, 2073600, 2928640),
    ("draid1", 138, 1254400, 3653632),
    ("draid2-spare", 159, 1578496, 5898240),
    ("encryption", 436, 3584512, 5496832),
    ("expanded", 246, 2291200, 4956160),
    ("expanding", 221, 2546176, 6660096),
    ("gang", 134, 1419264, 1624576),
    ("holes-and-clones", 962, 4687872, 8105984),
    ("in-use", 156, 841728, 1294336),
    ("limits-and-freeing", 964, 3497472, 5095424),
    ("mirror-2", 473, 2054656, 3366912),
    ("mirror-3", 336, 2753024, 4726784),
    ("mirrors-with-everything", 181, 1952256, 2449408),
    ("names", 664, 1989632, 4251648),
    ("no-features", 113, 991744, 1133568),
    ("raidz-unequal", 157, 2030592, 4632576),
    ("raidz1-3", 715, 3025408, 9330688),
    ("raidz1-4-missing", 137, 876032, 1338368),
    ("raidz1-5-damaged", 144, 1311744, 2539520),
    ("raidz2-4-missing", 134, 717824, 2764800),
    ("raidz2-6-damaged", 136, 1293824, 3416064),
    ("raidz3-5", 137, 940544, 2709504),
    ("raidz3-7-missing", 138, 1233408, 4128768),
    ("raidz3-8-mixed-trouble", 142, 1483776, 4489216),
    ("redacted", 1096, 3109376, 5156864),
    ("removed", 173, 1488896, 2002944),
    ("removed-snapshots", 182, 136192, 301056),
    ("removed-twice", 136, 1017344, 1441792),
    ("removing", 289, 20965376, 21446656),
    ("replaced", 132, 852992, 2203648),
    ("resilver-midway", 146, 1515008, 3096576),
    ("scrub-paused", 128, 563712, 917504),
    ("single", 208, 1066496, 1229824),
    ("snapshots", 320, 1606656, 2519040),
    ("stale", 171, 1781760, 2224128),
    ("streams", 455, 2891264, 4415488),
    ("stripe-copies", 274, 1139712, 2232320),
    ("version-28", 269, 1548800, 3035136),
    ("version-28-upgraded", 229, 869888, 1900544),
    ("volumes", 365, 1772544, 5120000),
    ("whole-disk", 404, 4251136, 5140480),
];

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[test]
fn fixtures_have_exactly_their_listed_faults() {
    for fixture in fixtures::all() {
        let Fixture { name, dir, .. } = &fixture;
        let report = check_dir(dir, 2);
        assert_eq!(report.lost, 0, "{name}: {:?}", report.damaged);
        let spaces =
            (report.leaked_bytes(), report.unallocated_bytes(), report.double_claimed_bytes);
        assert_eq!(spaces, (0, 0, 0), "{name}: {:?}", report.space);
        assert_eq!(report.out_of_range_count, 0, "{name}: {:?}", report.out_of_range);
        assert!(!report.notes.iter().any(|note| note.is_fault), "{name}: {:?}", report.notes);
        assert!(report.is_complete && report.objsets == report.objsets_done, "{name}");

        let named = |wanted: &dyn Fn(&check::report::LeafReport) -> bool| -> BTreeSet<String> {
            let leaves = report.leaves.iter().filter(|leaf| wanted(leaf));
            leaves.map(|leaf| file_name(&leaf.path).to_owned()).collect()
        };
        let damaged: BTreeSet<String> =
            fixture.damaged_images().into_iter().map(str::to_owned).collect();
        assert_eq!(named(&|leaf| leaf.checksum_errors > 0), damaged, "{name}");
        assert_eq!(named(&|leaf| leaf.read_errors > 0), BTreeSet::new(), "{name}");
        assert_eq!(report.repairable == 0, damaged.is_empty(), "{name}");
        assert_eq!(report.is_clean(), damaged.is_empty(), "{name}");
        assert_eq!(report.damaged.is_empty(), damaged.is_empty(), "{name}");
        let missing = named(&|leaf| leaf.is_missing && leaf.missing_blocks > 0);
        let gone: BTreeSet<String> =
            fixture.missing_images().into_iter().map(str::to_owned).collect();
        // a spare may stand in for all that a missing device had
        assert!(missing.is_subset(&gone), "{name}: {missing:?}");
        assert!(report.degraded == 0 || !gone.is_empty() || name == "stale", "{name}");
    }
}

#[test]
fn blocks_are_counted_as_zdb_counts_them() {
    let mut compared = 0;
    for (name, pointers, psize, asize) in ZDB_COUNTS {
        if !fixtures::exists(name) {
            continue;
        }
        let report = check_dir(&fixtures::load(name).dir, 1);
        let blocks = report.total.blocks + report.embedded + report.pending_frees.blocks;
        let stored = report.total.psize + report.pending_frees.psize;
        let allocated = report.total.asize + report.pending_frees.asize;
        assert_eq!((blocks, stored, allocated), (pointers, psize, asize), "{name}");
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} fixtures are there");
}

#[test]
fn damaged_blocks_are_named() {
    let fixture = fixtures::load("raidz3-8-mixed-trouble");
    let report = check_dir(&fixture.dir, 2);
    let files: BTreeSet<&[u8]> =
        report.damaged.iter().filter_map(|object| object.path.as_deref()).collect();
    assert!(!files.is_empty());
    let datasets = fixture.manifest["datasets"].as_array().unwrap();
    let entries = datasets.iter().flat_map(|dataset| dataset["entries"].as_array().unwrap());
    let known: BTreeSet<String> =
        entries.filter_map(|entry| Some(entry["path"].as_str()?.to_owned())).collect();
    for file in files {
        let name = String::from_utf8(file.to_vec()).unwrap();
        let name = name.trim_start_matches('/');
        assert!(
            name.is_empty() || known.iter().any(|path| path.trim_start_matches('/') == name),
            "{name} is not in the manifest"
        );
    }
}

#[test]
fn report_marks_a_stopped_examination() {
    let pool = open_pool(&fixtures::load("mirror-2").dir);
    let job = Arc::new(Job::default());
    job.cancel.cancel();
    let report = check_pool(&pool, 2, &job);
    assert!(!report.is_complete);
    assert_eq!(report.objsets_done, 0);
    // missing references of a partial walk are not leaks
    assert!(report.space.is_empty());
}

#[test]
fn progress_reaches_the_allocated_bytes() {
    for name in ["mirror-2", "draid1", "dedup-legacy"] {
        let pool = open_pool(&fixtures::load(name).dir);
        let job = Arc::new(Job::default());
        let report = check_pool(&pool, 2, &job);
        let (done, total) = (job.progress.bytes_done(), job.progress.bytes_total());
        let allocated: u64 = report.space.iter().map(|space| space.allocated).sum();
        assert_eq!(total, allocated, "{name}");
        assert!(done <= total && done > total / 10 * 9, "{name}: {done} of {total}");
    }
}
