//! File systems with case-insensitive or normalized names.

use engine::files::Reason;
use engine::pool::{NewDataset, Pool, VdevLayout};
use posix::{NewInode, RenameMode, RenameRequest};
use units::ObjectId;

use crate::test_pool::{
    TempDir, check_pool, credentials, environment, new_pool, read_file, write_file,
};

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn create_error(pool: &Pool, fs: &str, name: &[u8]) -> Option<Reason> {
    let live = pool.datasets().filesystem(fs).unwrap();
    let root = ObjectId::new(live.reader().root_object());
    live.create(&credentials(), root, name, &NewInode::default()).err().map(|error| error.reason())
}

#[test]
fn names_are_compared_as_was_chosen() {
    let folder = TempDir::new("naming", 1, 128 << 20);
    let mut pool = new_pool(&folder, VdevLayout::Single, 1);
    pool.properties = vec![("normalization".to_owned(), "formD".to_owned())];
    let held = engine::pool::create(&pool, &environment()).unwrap();
    held.datasets()
        .create_filesystem(&new_dataset("tank/any", &[("casesensitivity", "insensitive")]))
        .unwrap();
    held.datasets()
        .create_filesystem(&new_dataset("tank/any/below", &[("normalization", "none")]))
        .unwrap();
    held.datasets()
        .create_filesystem(&new_dataset(
            "tank/exact",
            &[("normalization", "none"), ("utf8only", "off")],
        ))
        .unwrap();
    assert!(
        held.datasets()
            .create_filesystem(&new_dataset("tank/x", &[("casesensitivity", "blind")]))
            .is_err()
    );
    assert!(
        held.properties().set("tank/any", "casesensitivity", "sensitive").is_err(),
        "is readonly"
    );
    write_file(&held, "tank", "caf\u{e9}", b"composed");
    assert_eq!(read_file(&held, "tank", "cafe\u{301}"), b"composed");
    assert_eq!(create_error(&held, "tank", "cafe\u{301}".as_bytes()), Some(Reason::Exists));
    assert_eq!(create_error(&held, "tank", b"CAFE"), None);
    assert!(create_error(&held, "tank", b"\xff").is_some(), "it is not UTF-8");
    write_file(&held, "tank/any", "Caf\u{e9}", b"both");
    assert_eq!(read_file(&held, "tank/any", "CAFE\u{301}"), b"both");
    write_file(&held, "tank/any/below", "Letter", b"inherited");
    assert_eq!(read_file(&held, "tank/any/below", "lETTER"), b"inherited");
    for name in [&b"\xff"[..], b"a", b"A"] {
        assert_eq!(create_error(&held, "tank/exact", name), None);
    }
    let fs = held.datasets().filesystem("tank/any").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    for number in 0..3000 {
        let name = format!("Some longer name {number}");
        fs.create(&credentials(), root, name.as_bytes(), &NewInode::default()).unwrap();
    }
    let (from, to) = ("caf\u{e9}".as_bytes(), b"some LONGER name 7".as_slice());
    let request = RenameRequest {
        from_dir: root,
        from_name: from,
        to_dir: root,
        to_name: to,
        mode: RenameMode::Replace,
    };
    fs.rename(&credentials(), &request).unwrap();
    drop(fs);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    let held =
        engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    assert_eq!(read_file(&held, "tank/any", "SOME longer NAME 7"), b"both");
    assert_eq!(create_error(&held, "tank/any", b"SOME longer NAME 8"), Some(Reason::Exists));
}
