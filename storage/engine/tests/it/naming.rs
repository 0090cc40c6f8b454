//! File systems whose files' names are compared without case, or normalized.

use engine::files::Reason;
use engine::held::{Held, Move, MoveKind, New, NewDataset, Shape};
use units::ObjectId;

use crate::held::{Folder, caller, faults, new_pool, read_file, world, write_file};

fn new(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn taken(held: &Held, fs: &str, name: &[u8]) -> Option<Reason> {
    let live = held.files(fs).unwrap();
    let root = ObjectId::new(live.files().root_id());
    live.make(&caller(), root, name, &New::default()).err().map(|why| why.reason())
}

#[test]
fn names_are_compared_as_was_chosen() {
    let folder = Folder::new("naming", 1, 128 << 20);
    let mut pool = new_pool(&folder, Shape::Single, 1);
    pool.properties = vec![("normalization".to_owned(), "formD".to_owned())];
    let held = engine::held::create(&pool, &world()).unwrap();
    held.create_filesystem(&new("tank/any", &[("casesensitivity", "insensitive")])).unwrap();
    held.create_filesystem(&new("tank/any/below", &[("normalization", "none")])).unwrap();
    held.create_filesystem(&new("tank/exact", &[("normalization", "none"), ("utf8only", "off")]))
        .unwrap();
    assert!(held.create_filesystem(&new("tank/x", &[("casesensitivity", "blind")])).is_err());
    assert!(held.set("tank/any", "casesensitivity", "sensitive").is_err(), "it is for ever");
    write_file(&held, "tank", "caf\u{e9}", b"composed");
    assert_eq!(read_file(&held, "tank", "cafe\u{301}"), b"composed");
    assert_eq!(taken(&held, "tank", "cafe\u{301}".as_bytes()), Some(Reason::Exists));
    assert_eq!(taken(&held, "tank", b"CAFE"), None);
    assert!(taken(&held, "tank", b"\xff").is_some(), "it is no UTF-8");
    write_file(&held, "tank/any", "Caf\u{e9}", b"both");
    assert_eq!(read_file(&held, "tank/any", "CAFE\u{301}"), b"both");
    write_file(&held, "tank/any/below", "Letter", b"inherited");
    assert_eq!(read_file(&held, "tank/any/below", "lETTER"), b"inherited");
    for name in [&b"\xff"[..], b"a", b"A"] {
        assert_eq!(taken(&held, "tank/exact", name), None);
    }
    let live = held.files("tank/any").unwrap();
    let root = ObjectId::new(live.files().root_id());
    for number in 0..3000 {
        let name = format!("Some longer name {number}");
        live.make(&caller(), root, name.as_bytes(), &New::default()).unwrap();
    }
    let (from, to) = ("caf\u{e9}".as_bytes(), b"some LONGER name 7".as_slice());
    let how = Move { from_dir: root, from, to_dir: root, to, kind: MoveKind::Replace };
    live.rename(&caller(), &how).unwrap();
    drop(live);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
    let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
    assert_eq!(read_file(&held, "tank/any", "SOME longer NAME 7"), b"both");
    assert_eq!(taken(&held, "tank/any", b"SOME longer NAME 8"), Some(Reason::Exists));
}
