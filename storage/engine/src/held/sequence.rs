//! A log has what somebody asked for, and not all that was done before it: what is there after a power
//! cut must be a state that makes sense all the same.

use ondisk::acl;
use ondisk::znode::flag;
use sim::Storm;
use units::ObjectId;
use zpl::{MoveKind, Position, Set, XattrMode};

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

/// A POSIX ACL: tags, permissions, numbers.
fn acl(rows: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |&(tag, permissions, id): &_| acl::PosixEntry { tag, permissions, id };
    acl::encode_posix(&rows.iter().map(entry).collect::<Vec<_>>())
}

const NOBODY: u32 = u32::MAX;

/// A pool whose files have POSIX ACLs, and whose log has begun.
fn with_acls(storm: &Storm, xattr: &str) -> Held {
    let held = pool(storm);
    for (property, value) in [("acltype", "posix"), ("xattr", xattr)] {
        held.set("tank", property, value).expect("set");
    }
    held.export().expect("export");
    drop(held);
    let held = hold(&storm.devices());
    // what the log had is given up with a group, and its first promise comes with the next
    for name in ["one", "two"] {
        make(&held, name, &New::default());
        live(&held).fsync(None).expect("fsync");
        held.sync().expect("group");
    }
    held
}

#[test]
fn what_is_new_has_the_permissions_that_it_was_made_with() {
    let storm = Storm::new(&[96 << 20]);
    let held = with_acls(&storm, "sa");
    let top = root(&live(&held));
    let rows = [(1, 7, NOBODY), (2, 7, 1001), (4, 0, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)];
    let default = acl(&rows);
    let name = b"system.posix_acl_default";
    live(&held).set_xattr(&caller(), top, name, Some(&default), XattrMode::Any).expect("ACL");
    held.sync().expect("group");
    make(&held, "new", &New { mode: 0o660, ..New::default() });
    ask_for_another(&held);
    let (held, broken) = after(&storm, held);
    assert_eq!(broken, Vec::<String>::new());
    let new = live(&held).files().find(b"new").expect("a look").expect("a file");
    assert_eq!(new.facts().mode & 0o777, 0o660);
    let access = new.xattr(b"system.posix_acl_access").expect("ACL");
    assert!(access.is_some(), "its group may write now");
}

#[test]
fn the_mode_that_an_acl_makes_is_promised_with_it() {
    let minimal = [(1, 6, NOBODY), (4, 0, NOBODY), (0x20, 0, NOBODY)];
    let full = [(1, 6, NOBODY), (2, 6, 1001), (4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    for (kept, rows, mode) in [
        ("sa", &minimal[..], 0o600),
        ("sa", &full, 0o660),
        ("dir", &minimal, 0o600),
        ("dir", &full, 0o660),
    ] {
        let storm = Storm::new(&[96 << 20]);
        let held = with_acls(&storm, kept);
        let file = make(&held, "file", &New::default());
        held.sync().expect("group");
        let name = b"system.posix_acl_access";
        live(&held)
            .set_xattr(&caller(), file, name, Some(&acl(rows)), XattrMode::Any)
            .expect("ACL");
        live(&held).fsync(Some(file.get())).expect("fsync");
        let (held, broken) = after(&storm, held);
        assert_eq!(broken, Vec::<String>::new());
        let found = live(&held).files().find(b"file").expect("a look").expect("a file");
        assert_eq!(found.facts().mode & 0o777, mode, "xattr={kept}, {rows:?}");
        let access = found.xattr(name).expect("ACL");
        assert_eq!(access.is_some(), rows.len() > 3);
    }
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
