//! What is no pool, or not all of one: sentences and exit statuses.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::poolhouse::{arg, key_files, run};

/// Runs a command that has to fail, and compares its status and a part of its sentence.
fn fails(args: &[&str], status: i32, words: &str) {
    let run = run(args);
    assert_eq!(run.status, status, "{args:?}: {}{}", run.out, run.err);
    assert!(run.err.contains(words), "{args:?}: {}", run.err);
}

/// A copy of some images in a folder of its own.
fn copy(images: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let dir = fixtures::scratch(name);
    let copy = |image: &PathBuf| {
        let to = dir.join(image.file_name().expect("it has a name"));
        fs::copy(image, &to).expect("it can be copied");
        to
    };
    images.iter().map(copy).collect()
}

fn folder(images: &[PathBuf]) -> &str {
    arg(images[0].parent().expect("it is in a folder"))
}

#[test]
fn what_is_not_there() {
    let fixture = fixtures::load("mirror-2");
    let dir = arg(&fixture.dir);
    fails(
        &["rescue", "scan", "-d", "/no/such/path"],
        10,
        "'/no/such/path' cannot be used: no such",
    );
    fails(&["rescue", "list", "-d", "/no/such/path", "tank"], 10, "'/no/such/path' cannot be used");
    fails(&["rescue", "list", "-d", dir, "pond"], 3, "there is no pool 'pond'");
    fails(&["rescue", "list", "-d", dir, "tank/no"], 12, "there is no dataset 'tank/no'");
    fails(&["rescue", "list", "-d", dir, "tank", "--txg", "1"], 3, "as of txg 1");
    fails(&["rescue", "list", "-d", dir, "tank", "--checkpoint"], 3, "has no checkpoint");
    fails(&["inspect", "object", "-d", dir, "tank", "999999"], 12, "there is no object 999999");
    fails(&["rescue", "list", "-d", dir, "tank", "-t", "folder"], 2, "-t folder");
    fails(&["rescue", "lost"], 2, "unrecognized subcommand");
}

#[test]
fn what_is_no_device() {
    let dir = fixtures::scratch("no-device");
    fs::create_dir(dir.join("d0.img")).expect("a folder");
    let image = dir.join("d0.img");
    fails(&["rescue", "scan", "-d", arg(&image)], 10, "is a folder, and no image");
    fails(&["inspect", "labels", arg(&image)], 10, "is a folder; an image");
    let blank = dir.join("blank.img");
    File::create(&blank).and_then(|file| file.set_len(64 << 20)).expect("an image");
    fails(&["rescue", "scan", "-d", arg(&blank)], 3, "no pool found");
    fails(&["inspect", "uberblocks", arg(&blank)], 10, "has no ZFS label");
}

#[test]
fn too_many_devices_are_missing() {
    let fixture = fixtures::load("draid1");
    let images = copy(&fixture.images()[..2], "too-many-missing");
    let words = "6 of 8 devices are missing from draid1:3d:8c:1s-0 (";
    fails(&["rescue", "list", "-d", folder(&images), "tank"], 5, words);
    let found = run(&["rescue", "scan", "-d", folder(&images)]);
    assert!(found.out.contains("readable:  no: pool 'tank': 6 of 8"), "{}", found.out);
}

#[test]
fn what_is_left_is_read() {
    // the pool's own data have three copies, so that a lost row is not yet the end of them
    let fixture = fixtures::load("draid1");
    let images = copy(&fixture.images()[..6], "partly-lost");
    let run = run(&["rescue", "scan", "-d", folder(&images)]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.contains("readable:  in part"), "{}", run.out);
    assert!(run.out.contains("what lies there is lost, the rest goes on"), "{}", run.out);
}

#[test]
fn one_device_may_be_missing() {
    let fixture = fixtures::load("draid1");
    let images = copy(&fixture.images()[..7], "one-missing");
    let run = run(&["rescue", "list", "-d", folder(&images), "tank"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains("the others make up for it"), "{}", run.err);
}

#[test]
fn a_truncated_image_is_named() {
    let fixture = fixtures::load("mirror-2");
    let both = copy(&fixture.images(), "truncated-both");
    for image in &both {
        let file = OpenOptions::new().write(true).open(image).expect("it is there");
        file.set_len(8 << 20).expect("it can be cut");
    }
    fails(&["rescue", "list", "-d", folder(&both), "tank"], 10, "d0.img' is truncated");
    let one = copy(&fixture.images(), "truncated-one");
    let file = OpenOptions::new().write(true).open(&one[1]).expect("it is there");
    file.set_len(8 << 20).expect("it can be cut");
    let run = run(&["rescue", "list", "-d", folder(&one), "tank"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains("d1.img' is truncated"), "{}", run.err);
}

#[test]
fn two_pools_of_one_name() {
    let (one, other) = (fixtures::load("mirror-2"), fixtures::load("snapshots"));
    let guid = one.manifest["pool_properties"]["guid"].as_str().expect("it has one").to_owned();
    let both = ["rescue", "list", "-d", arg(&one.dir), "-d", arg(&other.dir)];
    let ask = |pool: &str| run(&[&both[..], &[pool, "-Ho", "name", "--depth", "0"]].concat());
    let unclear = ask("tank");
    assert_eq!(unclear.status, 4, "{}", unclear.err);
    assert!(unclear.err.contains("2 pools are named 'tank'"), "{}", unclear.err);
    assert!(unclear.err.contains(&guid), "{}", unclear.err);
    let chosen = ask(&guid);
    assert_eq!((chosen.status, &*chosen.out), (0, "tank\n"), "{}", chosen.err);
}

#[test]
fn an_image_in_use() {
    let fixture = fixtures::load("mirror-2");
    let images = copy(&fixture.images(), "in-use");
    let held = File::open(&images[0]).expect("it is there");
    held.lock().expect("nobody else has it");
    fails(&["rescue", "list", "-d", folder(&images), "tank"], 11, "d0.img' is in use");
    drop(held);
    assert_eq!(run(&["rescue", "list", "-d", folder(&images), "tank"]).status, 0);
}

#[test]
fn wrong_keys() {
    let fixture = fixtures::load("encryption");
    let key = fixtures::scratch("wrong-keys").join("key");
    fs::write(&key, "certainly not the passphrase").expect("a file");
    let given = |dataset: &str| format!("{dataset}={}", arg(&key));
    let list = |key: &str| run(&["rescue", "list", "-d", arg(&fixture.dir), "tank", "--key", key]);
    let wrong = list(&given("tank/pass"));
    assert_eq!(wrong.status, 8, "{}", wrong.err);
    assert!(wrong.err.contains("the key for 'tank/pass' is wrong"), "{}", wrong.err);
    assert_eq!(list(&given("tank/hex")).status, 8);
    assert_eq!(list(&given("tank/plain")).status, 8);
    assert_eq!(list(&given("tank/none")).status, 12);
    assert_eq!(list("tank/pass").status, 2);
    assert_eq!(list("tank/pass=/no/such/key").status, 10);
}

#[test]
fn right_keys() {
    let fixture = fixtures::load("encryption");
    let keys = key_files(&fixture, "right-keys");
    let mut args = vec!["rescue", "list", "-d", arg(&fixture.dir), "tank"];
    args.extend(keys.iter().map(String::as_str));
    let run = run(&args);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(!run.out.contains("locked"), "{}", run.out);
}

#[test]
fn damaged_labels_are_told_one_by_one() {
    let fixture = fixtures::load("mirror-2");
    let images = copy(&fixture.images()[..1], "damaged-label");
    damage(&images[0], 16_384 + 500);
    let out = run(&["inspect", "labels", arg(&images[0])]).out;
    assert!(out.contains("damaged: its checksum does not match"), "{out}");
    assert_eq!(out.matches("good").count(), 3, "{out}");
}

/// Turns a byte over.
fn damage(image: &Path, offset: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(image).expect("it is there");
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read(&mut byte))
        .expect("it is long enough");
    file.seek(SeekFrom::Start(offset)).expect("it is long enough");
    file.write_all(&[!byte[0]]).expect("it can be written");
}
