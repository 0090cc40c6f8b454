//! A log has what somebody asked for, and not all that was done before it: what is there after a power
//! cut must be a state that makes sense all the same.

use ondisk::znode::flag;
use sim::Storm;
use units::ObjectId;
use zpl::{MoveKind, Position, Set};

use super::replayed::{caller, cut, hold, is_there, make, pool, root};
use super::{Held, LiveFiles, Move, New};
use crate::files::Kind;

fn live(held: &Held) -> LiveFiles {
    held.files("tank").expect("file system")
}

/// Makes a file that has nothing to do with others, and asks for it alone.
fn ask_for_another(held: &Held) {
    let other = make(held, "another", &New::default());
    live(held).fsync(Some(other.get())).expect("fsync");
}

fn set(held: &Held, file: ObjectId, set: &Set) {
    live(held).writer().set(&caller().below(), file, set).expect("set");
}

fn flags(held: &Held, file: ObjectId, which: u64, to: u64) {
    set(held, file, &Set { flags: Some((which, to)), ..Set::default() });
}

fn content(held: &Held, name: &str) -> Vec<u8> {
    let file = live(held).files().find(name.as_bytes()).expect("a look").expect("a file");
    let mut bytes = vec![0; usize::try_from(file.facts().size).expect("a small file")];
    file.content().read(0, &mut bytes).expect("read");
    bytes
}

fn rename(held: &Held, from: &str, (to_dir, to): (ObjectId, &str), kind: MoveKind) {
    let (live, from_dir) = (live(held), root(&live(held)));
    let how = Move { from_dir, from: from.as_bytes(), to_dir, to: to.as_bytes(), kind };
    live.rename(&caller(), &how).expect("rename");
}

/// What the log could not do again, after a power cut.
fn after(storm: &Storm, held: Held) -> (Held, Vec<String>) {
    let storm = cut(storm);
    drop(held);
    let held = hold(&storm.devices());
    let broken = held.take_broken_logs();
    (held, broken.into_iter().map(|log| log.to_string()).collect())
}

#[test]
fn what_flags_of_a_file_forbade_before_is_done_again() {
    let storm = Storm::new(&[96 << 20]);
    let held = pool(&storm);
    let [gone, moved, linked, dir] = ["gone", "moved", "linked", "dir"].map(|name| {
        let kind = if name == "dir" { Kind::Directory } else { Kind::File };
        let file = make(&held, name, &New { kind, ..New::default() });
        flags(&held, file, flag::IMMUTABLE, flag::IMMUTABLE);
        file
    });
    held.sync().expect("group");
    for file in [gone, moved, linked, dir] {
        flags(&held, file, flag::IMMUTABLE, 0);
    }
    let (by, top) = (caller(), root(&live(&held)));
    live(&held).unlink(&by, top, b"gone").expect("unlink");
    live(&held).link(&by, linked, top, b"second").expect("link");
    rename(&held, "moved", (dir, "inside"), MoveKind::Replace);
    ask_for_another(&held);
    let (held, broken) = after(&storm, held);
    assert_eq!(broken, Vec::<String>::new());
    assert!(is_there(&held, "another") && is_there(&held, "second") && !is_there(&held, "gone"));
    assert!(!is_there(&held, "moved"));
}

#[test]
fn what_projects_forbade_before_is_done_again() {
    let storm = Storm::new(&[96 << 20]);
    let held = pool(&storm);
    let dir = make(&held, "dir", &New { kind: Kind::Directory, ..New::default() });
    let inherits = Some((flag::PROJINHERIT, flag::PROJINHERIT));
    set(&held, dir, &Set { project: Some(7), flags: inherits, ..Set::default() });
    let file = make(&held, "file", &New::default());
    held.sync().expect("group");
    set(&held, file, &Set { project: Some(7), ..Set::default() });
    rename(&held, "file", (dir, "file"), MoveKind::Replace);
    ask_for_another(&held);
    let (held, broken) = after(&storm, held);
    assert_eq!(broken, Vec::<String>::new());
    assert!(is_there(&held, "another"));
}

#[test]
fn who_gets_the_name_of_another_has_its_content() {
    let storm = Storm::new(&[96 << 20]);
    for kind in [MoveKind::Replace, MoveKind::Exchange, MoveKind::Whiteout] {
        let held = pool(&storm);
        let old = make(&held, "settings", &New::default());
        live(&held).write(&caller(), old, Position::At(0), b"old").expect("write");
        held.sync().expect("group");
        let new = make(&held, "settings.new", &New::default());
        live(&held).write(&caller(), new, Position::At(0), b"new").expect("write");
        let top = root(&live(&held));
        rename(&held, "settings.new", (top, "settings"), kind);
        ask_for_another(&held);
        let (held, broken) = after(&storm, held);
        assert_eq!(broken, Vec::<String>::new());
        assert_eq!(content(&held, "settings"), b"new", "{kind:?}");
    }
}
