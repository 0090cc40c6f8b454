//! The words that users read, and the exit statuses that programs see.

use super::{Error, UnavailableVdev};

fn text(value: &str) -> String {
    value.to_owned()
}

fn all_errors() -> Vec<(u8, Error, &'static str)> {
    let mut all = pool_errors();
    all.extend(dataset_errors());
    all.extend(path_errors());
    all
}

#[expect(clippy::too_many_lines, reason = "a table of all sentences")]
fn pool_errors() -> Vec<(u8, Error, &'static str)> {
    let paths = vec![text("/images")];
    let lacking = vec![UnavailableVdev {
        vdev: text("raidz2-0"),
        devices: 6,
        missing: vec![text("/dev/sda"), text("/dev/sdb"), text("/dev/sdc")],
        redundancy: 2,
    }];
    vec![
        (2, Error::Usage { what: text("-t folder: no") }, "-t folder: no"),
        (
            3,
            Error::NoPool { paths: paths.clone() },
            "no pool found at '/images': no file or device there has a ZFS label that can be \
             read; name the folder, images, disks or partitions with -d",
        ),
        (
            3,
            Error::NoSuchPool { name: text("home"), paths, found: vec![text("'tank'")] },
            "there is no pool 'home' at '/images'; found: 'tank'",
        ),
        (
            3,
            Error::NoSuchTxg { pool: text("tank"), txg: 7, available: vec![30, 29] },
            "pool 'tank' cannot be read as of txg 7: its uberblock no longer exists; the existing ones are \
             of txg 30, 29",
        ),
        (
            3,
            Error::NoCheckpoint { pool: text("tank") },
            "pool 'tank' has no checkpoint; leave out --checkpoint to read its newest state",
        ),
        (
            4,
            Error::AmbiguousName { name: text("tank"), guids: vec![11, 22] },
            "2 pools are named 'tank'; choose one by its guid: 11, 22",
        ),
        (
            5,
            Error::MissingDevices { pool: text("tank"), vdevs: lacking },
            "pool 'tank': 3 of 6 devices are missing from raidz2-0 (/dev/sda, /dev/sdb, /dev/sdc), \
             which can do without 2; the pool cannot be opened: add the folder of missing devices with -d",
        ),
        (
            6,
            Error::DamagedPool { pool: text("tank"), why: text("it is") },
            "pool 'tank' cannot be opened because its metadata is damaged: it is; an older state may be intact: `zpool import -F tank` rewinds to it, and `poolhouse rescue \
             --rewind` reads it (or --txg, with one that `rescue scan -v` lists)",
        ),
        (
            6,
            Error::RewindFailed {
                pool: text("tank"),
                states_tried: 3,
                has_older_states: true,
                why: text("it is"),
            },
            "pool 'tank' cannot be rewound: it is in the newest of 3 tried states; \
             `zpool import -FX tank` tries all older ones; `poolhouse rescue` copies the readable files",
        ),
        (
            6,
            Error::Unreadable { subject: text("'tank/a'"), why: text("no copy is good") },
            "'tank/a' cannot be read: no copy is good",
        ),
        (
            7,
            Error::UnsupportedFeatures {
                pool: text("tank"),
                features: vec![text("org.new:thing")],
            },
            "pool 'tank' uses a feature that this version of poolhouse does not know and that \
             reading needs: org.new:thing; a newer version may read it",
        ),
        (
            7,
            Error::UnsupportedVersion { pool: text("tank"), version: 34 },
            "pool 'tank' has version 34; this version of poolhouse knows 1 to 28 and 5000 \
             (feature flags)",
        ),
        (
            7,
            Error::Unsupported { what: text("pool 'tank' has a vdev of kind 'tape'") },
            "pool 'tank' has a vdev of kind 'tape', which this version of poolhouse does not know",
        ),
    ]
}

fn dataset_errors() -> Vec<(u8, Error, &'static str)> {
    let dataset = text("tank/a");
    vec![
        (
            8,
            Error::WrongKey { dataset: dataset.clone() },
            "the key for 'tank/a' is wrong: it does not open the dataset's own keys",
        ),
        (
            8,
            Error::InvalidKey { dataset: dataset.clone(), expected: text("32 raw bytes") },
            "the key for 'tank/a' is invalid: it must be 32 raw bytes",
        ),
        (
            8,
            Error::NotEncrypted { dataset: dataset.clone() },
            "'tank/a' is not encrypted, so it needs no key",
        ),
        (
            9,
            Error::Locked { dataset: text("tank/a/b"), root: dataset.clone() },
            "'tank/a/b' is locked; give its key with --key tank/a=FILE",
        ),
        (
            12,
            Error::NoSuchDataset { name: dataset.clone() },
            "cannot open 'tank/a': dataset does not exist",
        ),
        (12, Error::NoSuchFile { dataset, path: text("/x") }, "there is no '/x' in tank/a"),
        (
            12,
            Error::NotFound { what: text("object 7 in 'tank'") },
            "there is no object 7 in 'tank'",
        ),
    ]
}

fn path_errors() -> Vec<(u8, Error, &'static str)> {
    let path = text("d0.img");
    vec![
        (
            10,
            Error::UnusablePath { path: path.clone(), reason: text("permission denied") },
            "'d0.img' cannot be used: permission denied",
        ),
        (
            10,
            Error::EmptyDirectory { path: path.clone() },
            "'d0.img' is a folder, and no image or device is in it (folders below are not searched)",
        ),
        (
            10,
            Error::IsDirectory { path: path.clone() },
            "'d0.img' is a folder; name an image, a disk or a partition",
        ),
        (
            10,
            Error::NoLabel { path: path.clone(), why: text("it is empty") },
            "'d0.img' has no ZFS label: it is empty",
        ),
        (
            10,
            Error::Truncated { path: path.clone(), pool: text("tank"), size: 10, required: 20 },
            "'d0.img' is truncated: its label says that the vdev takes 20 bytes, and it ends after \
             10; pool 'tank' cannot be opened with the rest",
        ),
        (
            11,
            Error::InUse { path: path.clone() },
            "'d0.img' is in use by another program; stop that program first, because its writes would change the pool under the reader",
        ),
        (
            13,
            Error::WriteFailed { path, reason: text("no space left on device") },
            "'d0.img' cannot be written: no space left on device",
        ),
        (
            130,
            Error::Interrupted,
            "interrupted; finished work is kept, and the same command continues from there",
        ),
    ]
}

#[test]
fn every_error_is_a_sentence_with_a_status() {
    for (status, error, words) in all_errors() {
        assert_eq!(error.to_string(), words);
        assert_eq!(error.exit_status(), status, "{words}");
    }
}

#[test]
fn lacking_vdevs_are_listed_one_by_one() {
    let lacking = |vdev: &str, devices, missing: &[&str], spare| UnavailableVdev {
        vdev: text(vdev),
        devices,
        missing: missing.iter().map(|path| text(path)).collect(),
        redundancy: spare,
    };
    let lacking = vec![
        lacking("d3.img", 1, &["/d3.img"], 0),
        lacking("mirror-1", 2, &["/d4", "/d5"], 1),
        lacking("vdev 2", 0, &[], 0),
    ];
    assert_eq!(
        Error::MissingDevices { pool: text("tank"), vdevs: lacking }.to_string(),
        "pool 'tank': d3.img is missing (/d3.img), and nothing has a copy; 2 of 2 devices are \
         missing from mirror-1 (/d4, /d5), which can do without 1; all devices of vdev 2 are \
         missing; the pool cannot be opened: add the folder of missing devices with -d"
    );
}

#[test]
fn long_lists_of_paths_are_shortened() {
    let paths = ["/a", "/b", "/c", "/d"].map(text).to_vec();
    let words = Error::NoPool { paths }.to_string();
    assert!(words.starts_with("no pool found at '/a' to '/d' (4 paths):"), "{words}");
}
