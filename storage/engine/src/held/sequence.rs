//! A log has what somebody asked for, and not all that was done before it: what is there after a power
//! cut must be a state that makes sense all the same.

use sim::Storm;
use units::ObjectId;
use zpl::{MoveKind, Position};

use super::replayed::{caller, cut, hold, make, pool, root};
use super::{Held, LiveFiles, Move, New};

fn live(held: &Held) -> LiveFiles {
    held.files("tank").expect("file system")
}

/// Makes a file that has nothing to do with others, and asks for it alone.
fn ask_for_another(held: &Held) {
    let other = make(held, "another", &New::default());
    live(held).fsync(Some(other.get())).expect("fsync");
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
