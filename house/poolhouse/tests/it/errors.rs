//! Invalid or incomplete pools: messages and exit statuses.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::command::{key_files, path_arg, run};

/// Runs a command that has to fail, and compares its status and a part of its sentence.
fn assert_fails(args: &[&str], status: i32, words: &str) {
    let run = run(args);
    assert_eq!(run.status, status, "{args:?}: {}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
}

/// A copy of some images in a folder of its own.
fn copy_images(images: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let dir = fixtures::scratch_dir(name);
    let copy = |image: &PathBuf| {
        let to = dir.join(image.file_name().expect("it has a name"));
        fs::copy(image, &to).expect("it can be copied");
        to
    };
    images.iter().map(copy).collect()
}

fn parent_dir(images: &[PathBuf]) -> &str {
    path_arg(images[0].parent().expect("it is in a folder"))
}

#[test]
fn missing_objects_are_reported() {
    let fixture = fixtures::load("mirror-2");
    let dir = path_arg(&fixture.dir);
    assert_fails(
        &["rescue", "scan", "-d", "/no/such/path"],
        10,
        "'/no/such/path' cannot be used: no such",
    );
    assert_fails(
        &["rescue", "list", "-d", "/no/such/path", "tank"],
        10,
        "'/no/such/path' cannot be used",
    );
    assert_fails(&["rescue", "list", "-d", dir, "pond"], 3, "there is no pool 'pond'");
    assert_fails(
        &["rescue", "list", "-d", dir, "tank/no"],
        12,
        "cannot open 'tank/no': dataset does not exist",
    );
    assert_fails(&["rescue", "list", "-d", dir, "tank", "--txg", "1"], 3, "as of txg 1");
    assert_fails(&["rescue", "list", "-d", dir, "tank", "--checkpoint"], 3, "has no checkpoint");
    assert_fails(
        &["inspect", "object", "-d", dir, "tank", "999999"],
        12,
        "there is no object 999999",
    );
    assert_fails(
        &["rescue", "list", "-d", dir, "tank", "-t", "folder"],
        2,
        "invalid type 'folder'",
    );
    assert_fails(&["rescue", "lost"], 2, "unrecognized subcommand");
}

#[test]
fn paths_that_are_not_devices_are_reported() {
    let dir = fixtures::scratch_dir("no-device");
    fs::create_dir(dir.join("d0.img")).expect("a folder");
    let image = dir.join("d0.img");
    assert_fails(&["rescue", "scan", "-d", path_arg(&image)], 10, "is a folder, and no image");
    assert_fails(&["inspect", "labels", path_arg(&image)], 10, "is a folder; name an image");
    let blank = dir.join("blank.img");
    File::create(&blank).and_then(|file| file.set_len(64 << 20)).expect("an image");
    assert_fails(&["rescue", "scan", "-d", path_arg(&blank)], 3, "no pool found");
    assert_fails(&["inspect", "uberblocks", path_arg(&blank)], 10, "has no ZFS label");
}

#[test]
fn too_many_devices_are_missing() {
    let fixture = fixtures::load("draid1");
    let images = copy_images(&fixture.images()[..2], "too-many-missing");
    let words = "6 of 8 devices are missing from draid1:3d:8c:1s-0 (";
    assert_fails(&["rescue", "list", "-d", parent_dir(&images), "tank"], 5, words);
    let found = run(&["rescue", "scan", "-d", parent_dir(&images)]);
    assert!(found.stdout.contains("readable:  no: pool 'tank': 6 of 8"), "{}", found.stdout);
}

#[test]
fn remaining_data_is_read() {
    // the pool's own data have three copies, so that a lost row is not yet the end of them
    let fixture = fixtures::load("draid1");
    let images = copy_images(&fixture.images()[..6], "partly-lost");
    let run = run(&["rescue", "scan", "-d", parent_dir(&images)]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("readable:  in part"), "{}", run.stdout);
    assert!(run.stdout.contains("its data are lost, the rest is read"), "{}", run.stdout);
}

#[test]
fn one_device_may_be_missing() {
    let fixture = fixtures::load("draid1");
    let images = copy_images(&fixture.images()[..7], "one-missing");
    let run = run(&["rescue", "list", "-d", parent_dir(&images), "tank"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("the others make up for it"), "{}", run.stderr);
}

#[test]
fn a_truncated_image_is_named() {
    let fixture = fixtures::load("mirror-2");
    let both = copy_images(&fixture.images(), "truncated-both");
    for image in &both {
        let file = OpenOptions::new().write(true).open(image).expect("the image exists");
        file.set_len(8 << 20).expect("it can be cut");
    }
    assert_fails(&["rescue", "list", "-d", parent_dir(&both), "tank"], 10, "d0.img' is truncated");
    let one = copy_images(&fixture.images(), "truncated-one");
    let file = OpenOptions::new().write(true).open(&one[1]).expect("the image exists");
    file.set_len(8 << 20).expect("it can be cut");
    let run = run(&["rescue", "list", "-d", parent_dir(&one), "tank"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("d1.img' is truncated"), "{}", run.stderr);
}

#[test]
fn two_pools_of_one_name() {
    let (one, other) = (fixtures::load("mirror-2"), fixtures::load("snapshots"));
    let guid =
        one.manifest["pool_properties"]["guid"].as_str().expect("the pool has a guid").to_owned();
    let both = ["rescue", "list", "-d", path_arg(&one.dir), "-d", path_arg(&other.dir)];
    let ask = |pool: &str| run(&[&both[..], &[pool, "-Ho", "name", "--depth", "0"]].concat());
    let unclear = ask("tank");
    assert_eq!(unclear.status, 4, "{}", unclear.stderr);
    assert!(unclear.stderr.contains("2 pools are named 'tank'"), "{}", unclear.stderr);
    assert!(unclear.stderr.contains(&guid), "{}", unclear.stderr);
    let chosen = ask(&guid);
    assert_eq!((chosen.status, &*chosen.stdout), (0, "tank\n"), "{}", chosen.stderr);
}

#[test]
fn an_image_in_use() {
    let fixture = fixtures::load("mirror-2");
    let images = copy_images(&fixture.images(), "in-use");
    let held = File::open(&images[0]).expect("the image exists");
    held.lock().expect("no other process has it");
    assert_fails(&["rescue", "list", "-d", parent_dir(&images), "tank"], 11, "d0.img' is in use");
    drop(held);
    assert_eq!(run(&["rescue", "list", "-d", parent_dir(&images), "tank"]).status, 0);
}

#[test]
fn wrong_keys() {
    let fixture = fixtures::load("encryption");
    let key = fixtures::scratch_dir("wrong-keys").join("key");
    fs::write(&key, "certainly not the passphrase").expect("a file");
    let given = |dataset: &str| format!("{dataset}={}", path_arg(&key));
    let list =
        |key: &str| run(&["rescue", "list", "-d", path_arg(&fixture.dir), "tank", "--key", key]);
    let wrong = list(&given("tank/pass"));
    assert_eq!(wrong.status, 8, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("the key for 'tank/pass' is wrong"), "{}", wrong.stderr);
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
    let mut args = vec!["rescue", "list", "-d", path_arg(&fixture.dir), "tank"];
    args.extend(keys.iter().map(String::as_str));
    let run = run(&args);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(!run.stdout.contains("locked"), "{}", run.stdout);
}

#[test]
fn damaged_labels_are_listed_one_by_one() {
    let fixture = fixtures::load("mirror-2");
    let images = copy_images(&fixture.images()[..1], "damaged-label");
    flip_byte(&images[0], 16_384 + 500);
    let out = run(&["inspect", "labels", path_arg(&images[0])]).stdout;
    assert!(out.contains("damaged: its checksum does not match"), "{out}");
    assert_eq!(out.matches("good").count(), 3, "{out}");
}

/// Turns a byte over.
fn flip_byte(image: &Path, offset: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(image).expect("the image exists");
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read(&mut byte))
        .expect("it is long enough");
    file.seek(SeekFrom::Start(offset)).expect("it is long enough");
    file.write_all(&[!byte[0]]).expect("it can be written");
}
