//! Files and volumes that are copied out are the files and volumes that OpenZFS recorded.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fixtures::{Fixture, hex};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::command::{key_files, path_arg, run, run_json, run_ok};

fn file_sha256(path: &Path) -> String {
    hex(&Sha256::digest(std::fs::read(path).expect("a file")))
}

/// The path of an entry below the copy of its dataset.
fn entry_path(below: &Path, entry: &Value) -> PathBuf {
    if let Some(path) = entry["path"].as_str() {
        return below.join(path);
    }
    let digits = entry["path_hex"].as_str().expect("a path").as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.chunks(2).map(pair).collect();
    below.join(std::ffi::OsStr::from_bytes(&bytes))
}

fn compare_entry(path: &Path, entry: &Value) {
    let shown = path.display();
    let facts = std::fs::symlink_metadata(path).unwrap_or_else(|why| panic!("{shown}: {why}"));
    let kind = facts.file_type();
    let found = match entry["type"].as_str().expect("a type") {
        "file" => kind.is_file(),
        "dir" => kind.is_dir(),
        "symlink" => kind.is_symlink(),
        "fifo" => kind.is_fifo(),
        _ => return, // devices and sockets: where they are permitted
    };
    assert!(found, "{shown} is not a {}", entry["type"]);
    if kind.is_symlink() {
        let target = std::fs::read_link(path).expect("a link");
        assert_eq!(target.to_str(), entry["target"].as_str(), "{shown}");
        return;
    }
    let mode = u32::from_str_radix(entry["mode"].as_str().expect("a mode"), 8).expect("octal");
    let ours = rustix::process::geteuid().as_raw();
    if ours == 0 {
        assert_eq!(facts.mode() & 0o7777, mode, "{shown}");
        assert_eq!(
            (facts.uid(), facts.gid()),
            (to_id(&entry["uid"]), to_id(&entry["gid"])),
            "{shown}"
        );
    }
    let time = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
    if let (true, Some(recorded)) = (kind.is_file(), entry["mtime_ns"].as_i64()) {
        assert_eq!(time, i128::from(recorded), "{shown}");
    }
    if let Some(recorded) = entry["sha256"].as_str() {
        assert_eq!(facts.len(), entry["size"].as_u64().expect("a size"), "{shown}");
        assert_eq!(file_sha256(path), recorded, "{shown}");
    }
}

fn to_id(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("an id")).expect("32 bits")
}

/// Copies all of a fixture's pool and gives the folder.
fn copy_pool(fixture: &Fixture, to: &Path, test: &str) {
    let keys = key_files(fixture, &format!("keys-{test}"));
    let root = format!("{}:/", fixture.pool_name());
    let mut args =
        vec!["rescue", "get", "-r", "-q", "-d", path_arg(&fixture.dir), &root, path_arg(to)];
    args.extend(keys.iter().map(String::as_str));
    let run = run(&args);
    assert_eq!(run.status, 0, "{}: {}", fixture.name, run.stderr);
}

#[test]
fn copied_trees_are_complete_and_second_run_skips() {
    for name in ["snapshots", "encryption", "version-28-upgraded", "raidz3-8-mixed-trouble"] {
        let fixture = fixtures::load(name);
        let to = fixtures::scratch_dir(&format!("copied-{name}"));
        copy_pool(&fixture, &to, "trees");
        let (mut files, mut numbers) = (0, Vec::new());
        for dataset in fixture.manifest["datasets"].as_array().expect("a list") {
            if dataset["type"] != "filesystem" || dataset.get("refused").is_some() {
                continue;
            }
            let path = dataset["name"].as_str().expect("a name");
            let below = path.split_once('/').map_or(to.clone(), |(_, rest)| to.join(rest));
            for entry in dataset["entries"].as_array().expect("a list") {
                let path = entry_path(&below, entry);
                compare_entry(&path, entry);
                if entry["type"] == "file" {
                    files += 1;
                    numbers.push((path.clone(), std::fs::metadata(&path).expect("it").ino()));
                }
            }
        }
        assert!(files > 10, "{name}: only {files} files");
        copy_pool(&fixture, &to, "trees");
        for (path, number) in numbers {
            assert_eq!(
                std::fs::metadata(&path).expect("it").ino(),
                number,
                "{path:?} was rewritten"
            );
        }
    }
}

#[test]
fn hard_links_stay_hard_links() {
    let fixture = fixtures::load("encryption");
    let to = fixtures::scratch_dir("copied-links");
    copy_pool(&fixture, &to, "links");
    let number = |name: &str| {
        std::fs::metadata(to.join("pass/d").join(name)).expect("a file of the recipe").ino()
    };
    assert_eq!(number("plain"), number("second-name"));
    assert_eq!(number("plain"), number("e/third-name"));
}

#[test]
fn copied_volume_equals_its_manifest() {
    let fixture = fixtures::load("encryption");
    let image = fixtures::scratch_dir("volume").join("vol.img");
    let keys = key_files(&fixture, "keys-volume");
    let mut args = vec![
        "rescue",
        "volume",
        "-q",
        "-d",
        path_arg(&fixture.dir),
        "tank/pass/vol",
        path_arg(&image),
    ];
    args.extend(keys.iter().map(String::as_str));
    run_ok(&args);
    let datasets = fixture.manifest["datasets"].as_array().expect("a list");
    let recorded = datasets.iter().find(|each| each["name"] == "tank/pass/vol").expect("it");
    assert_eq!(file_sha256(&image), recorded["volume"]["sha256"].as_str().expect("a sum"));
}

#[test]
fn the_small_commands_are_as_their_namesakes() {
    let fixture = fixtures::load("snapshots");
    let dir = path_arg(&fixture.dir);
    let datasets = fixture.manifest["datasets"].as_array().expect("a list");
    let heir = datasets.iter().find(|each| each["name"] == "tank/heir").expect("it");
    let entries = heir["entries"].as_array().expect("a list");
    let words = entries.iter().find(|each| each["path"] == "mixed/words").expect("it");
    let text = run_ok(&["rescue", "cat", "-d", dir, "tank/heir:/mixed/words"]);
    assert_eq!(hex(&Sha256::digest(text)), words["sha256"].as_str().expect("a sum"));
    let found = run_ok(&["rescue", "find", "-d", dir, "tank/heir:/"]);
    assert_eq!(found.lines().count(), entries.len());
    let listed = run_ok(&["rescue", "ls", "-d", dir, "tank/heir:/mixed"]);
    assert!(listed.lines().any(|line| line == "words"), "{listed}");
    let facts = run_json(&["rescue", "stat", "--json", "-d", dir, "tank/heir:/mixed/words"]);
    assert!(facts.to_string().contains(&words["size"].to_string()), "{facts}");
    let used = run_ok(&["rescue", "du", "-s", "-d", dir, "tank/heir:/"]);
    assert!(used.split_whitespace().next().is_some_and(|n| n.parse::<u64>().is_ok()), "{used}");
    let missing = run(&["rescue", "cat", "-d", dir, "tank/heir:/no/such/file"]);
    assert_eq!(missing.status, 12, "{}", missing.stderr);
}
