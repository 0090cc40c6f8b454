//! Drives are replaced, put beside others and taken away while the pool is in use; OpenZFS would
//! take the pool over at any moment.

use std::path::PathBuf;

use engine::held::{Groups, Held, Shape, Watch};

use crate::held::{Folder, faults, new_pool, read_file, world, write_file};
use crate::shared::{noise, zdb};

const DRIVE: u64 = 128 << 20;

fn hold(drives: &[PathBuf]) -> Held {
    engine::held::hold(drives, "tank", false, &world()).unwrap()
}

fn fresh(folder: &Folder, name: &str, size: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// What the drives hold now, as after a power cut, looked at by the examiner and by zdb.
fn cut(folder: &Folder, name: &str) -> String {
    let copy = Folder::new(&format!("{name}-cut"), 0, 0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let from = entry.unwrap().path();
        let to = copy.path().join(from.file_name().unwrap());
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("--sparse=always").args([&from, &to]).status().unwrap().success());
    }
    // what the new drive lacks is noted, so that nothing but it is short of anything
    zdb(copy.path(), &["-bcc", "-C"])
}

fn fill(held: &Held) {
    write_file(held, "tank", "one", &noise(1, 7 << 20));
    held.snapshot(&["tank@one".to_owned()]).unwrap();
    for number in 0..100 {
        write_file(held, "tank", &format!("small{number}"), &noise(number, 900));
    }
    held.sync().unwrap();
}

fn compare(held: &Held, name: &str) {
    assert!(read_file(held, "tank", "one") == noise(1, 7 << 20), "{name}");
    assert!(read_file(held, "tank", "small33") == noise(33, 900), "{name}");
}

fn mend(held: &Held, name: &str) {
    assert!(held.wants_resilver(), "{name}");
    let mended = held.resilver(&Watch::new()).unwrap();
    assert!(mended.complete && mended.errors == 0 && mended.written > 0, "{name}: {mended:?}");
    assert!(!held.wants_resilver(), "{name}");
}

fn leaves(held: &Held) -> usize {
    fn count(vdev: &engine::held::VdevStatus) -> usize {
        if vdev.children.is_empty() { 1 } else { vdev.children.iter().map(count).sum() }
    }
    held.status().vdevs.iter().map(count).sum()
}

fn replace(name: &str, shape: Shape, count: usize, missing: bool) {
    let folder = Folder::new(name, count, DRIVE);
    let held = engine::held::create(&new_pool(&folder, shape, count), &world()).unwrap();
    fill(&held);
    held.export().unwrap();
    drop(held);
    let mut drives = folder.drives(count);
    let old = drives.remove(0);
    if missing {
        std::fs::remove_file(&old).unwrap();
    } else {
        drives.insert(0, old.clone());
    }
    let held = hold(&drives);
    let small = fresh(&folder, "small.img", 64 << 20);
    let name_of_old = old.to_str().unwrap();
    let refused = held.replace(name_of_old, Some(&small), false).unwrap_err().to_string();
    assert!(refused.contains(&(64 << 20).to_string()), "{refused}");
    std::fs::remove_file(&small).unwrap();
    let new = fresh(&folder, "new.img", DRIVE + (1 << 20));
    held.replace(name_of_old, Some(&new), false).unwrap();
    assert!(held.replace(name_of_old, Some(&new), true).is_err(), "it is in use now");
    assert_eq!(leaves(&held), count + 1);
    write_file(&held, "tank", "meanwhile", &noise(5, 1 << 20));
    held.sync().unwrap();
    let said = cut(&folder, name);
    assert!(
        said.is_empty() || said.contains("'replacing'") || said.contains("replacing"),
        "{said}"
    );
    mend(&held, name);
    assert_eq!(leaves(&held), count);
    compare(&held, name);
    let said = cut(&folder, name);
    assert!(!said.contains("replacing"), "{said}");
    write_file(&held, "tank", "later", &noise(6, 1 << 20));
    held.export().unwrap();
    drop(held);
    if !missing {
        std::fs::remove_file(&old).unwrap();
    }
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new(), "{name}");
    let mut drives = folder.drives(count)[1..].to_vec();
    drives.insert(0, new);
    let held = hold(&drives);
    compare(&held, name);
    assert!(read_file(&held, "tank", "later") == noise(6, 1 << 20));
    assert!(!held.wants_resilver());
    held.export().unwrap();
}

#[test]
fn drives_are_replaced_whatever_they_are_part_of() {
    replace("replace-single", Shape::Single, 1, false);
    replace("replace-mirror", Shape::Mirror, 2, false);
    replace("replace-raidz1", Shape::Raidz(1), 3, false);
    let groups = Groups { parity: 1, data: 4, spares: 0 };
    replace("replace-draid", Shape::Draid(groups), 5, false);
}

#[test]
fn drives_that_are_gone_are_replaced() {
    replace("replace-gone-mirror", Shape::Mirror, 2, true);
    replace("replace-gone-raidz2", Shape::Raidz(2), 4, true);
}

#[test]
fn a_replacing_that_was_cut_short_goes_on() {
    let folder = Folder::new("replace-cut", 3, DRIVE);
    let held = engine::held::create(&new_pool(&folder, Shape::Raidz(1), 3), &world()).unwrap();
    fill(&held);
    let new = fresh(&folder, "new.img", DRIVE);
    held.replace("d1.img", Some(&new), false).unwrap();
    held.release().unwrap();
    drop(held);
    let held = hold(&[folder.path().into()]);
    assert_eq!(leaves(&held), 4);
    mend(&held, "replace-cut");
    assert_eq!(leaves(&held), 3);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn sides_come_and_go() {
    let folder = Folder::new("attach", 1, DRIVE);
    let held = engine::held::create(&new_pool(&folder, Shape::Single, 1), &world()).unwrap();
    fill(&held);
    assert!(held.detach("d0.img").is_err(), "what it holds is nowhere else");
    let (a, b) = (fresh(&folder, "a.img", DRIVE), fresh(&folder, "b.img", DRIVE));
    held.attach("d0.img", &a, false).unwrap();
    assert!(held.detach("d0.img").is_err(), "the other lacks all");
    held.attach("d0.img", &b, false).unwrap();
    assert_eq!(held.status().vdevs[0].children.len(), 3);
    cut(&folder, "attach");
    mend(&held, "attach");
    held.detach("d0.img").unwrap();
    cut(&folder, "attach");
    held.detach("a.img").unwrap();
    assert_eq!(leaves(&held), 1);
    let said = cut(&folder, "attach");
    assert!(!said.contains("mirror"), "{said}");
    compare(&held, "attach");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    for gone in ["d0.img", "a.img"] {
        std::fs::remove_file(folder.path().join(gone)).unwrap();
    }
    let held = hold(&[b]);
    compare(&held, "attach");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}
