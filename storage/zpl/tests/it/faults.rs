//! A failure within a transaction leaves everything unchanged.

use std::sync::Arc;

use posix::{FileType, NewInode, RenameMode, RenameRequest};
use units::ObjectId;
use zpl::{FsWriter, WriteSettings};

use crate::consistency;
use crate::test_fs::{TestFs, credentials};

type Operation<'a> = (&'a str, &'a dyn Fn(&FsWriter) -> zpl::Result<()>);

fn new_directory() -> NewInode<'static> {
    NewInode { kind: FileType::Directory, mode: 0o777, ..NewInode::default() }
}

/// Names so long that their tables are fat ones, and of more than one leaf.
fn long_name(number: usize) -> Vec<u8> {
    format!("{number:060}").into_bytes()
}

/// The contents of these directories, and the files without a name.
fn list_state(writer: &FsWriter, dirs: &[ObjectId]) -> Vec<String> {
    let fs = writer.fs();
    let mut rows = Vec::new();
    for dir in dirs {
        let node = fs.inode(*dir).expect("directory");
        rows.push(format!("{dir} {:?}", node.attributes()));
        for entry in fs.list_dir(&node).expect("names") {
            let found = fs.attributes(entry.object).expect("attributes");
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            rows.push(format!("{dir} {name} {} {:?} {found:?}", entry.object, entry.kind));
        }
    }
    let mut note = |id: ObjectId| {
        rows.push(format!("unlinked {id}"));
        true
    };
    fs.for_each_unlinked(&mut note).expect("unlinked");
    rows
}

/// The set of those without a name becomes a fat table, too.
fn fatten_unlinked(pool: &TestFs) {
    let set = pool.objset.object(pool.writer.fs().master().unlinked_set).expect("object");
    let set = zap::Zap::open(set).expect("set");
    let tx = pool.transactions.txgs.begin_tx().expect("a group");
    for number in 0..100 {
        set.insert_u64(&tx, &long_name(number), 1).expect("insert");
    }
    for number in 0..100 {
        set.remove(&tx, &long_name(number)).expect("remove");
    }
}

#[test]
fn failed_change_leaves_all_names_unchanged() {
    let pool = TestFs::new(WriteSettings::default());
    let (writer, top) = (&pool.writer, pool.writer.fs().master().root);
    let (by, file) = (credentials(2), NewInode::default());
    let [from, to] = [b"from", b"to--"].map(|name| {
        let dir = writer.create(&by, top, name, &new_directory()).expect("directory").id;
        let names = (0..100).map(long_name);
        for name in names.chain([b"file".to_vec(), b"other".to_vec(), b"held".to_vec()]) {
            writer.create(&by, dir, &name, &file).expect("file");
        }
        for name in [b"dir", b"die"] {
            writer.create(&by, dir, name, &new_directory()).expect("directory");
        }
        dir
    });
    fatten_unlinked(&pool);
    let unnamed = writer.create_tmpfile(&by, top, &file).expect("unnamed").id;
    let start = pool.sync();
    let node = writer.fs().inode(to).expect("directory");
    let held = writer.fs().lookup(&node, b"held").expect("held").expect("held").id();
    let go = |writer: &FsWriter, kind, from_dir, from: &[u8], to_dir, to: &[u8]| {
        writer.rename(
            &credentials(3),
            &RenameRequest { from_dir, from_name: from, to_dir, to_name: to, mode: kind },
        )
    };
    let (plain, exchange) = (RenameMode::Replace, RenameMode::Exchange);
    let operations: &[Operation<'_>] = &[
        ("to a new name", &|w| go(w, plain, from, b"file", to, &long_name(200))),
        ("within a directory", &|w| go(w, plain, from, b"file", from, &long_name(200))),
        ("over a file", &|w| go(w, plain, from, b"file", to, b"other")),
        ("over one that is held", &|w| go(w, plain, from, b"file", to, b"held")),
        ("over a directory", &|w| go(w, plain, from, b"dir", to, b"die")),
        ("of a directory", &|w| go(w, plain, from, b"dir", to, &long_name(201))),
        ("exchange", &|w| go(w, exchange, from, b"dir", to, b"file")),
        ("exchange in one", &|w| go(w, exchange, from, b"dir", from, b"file")),
        ("whiteout", &|w| go(w, RenameMode::Whiteout, from, b"file", to, &long_name(202))),
        ("whiteout over one", &|w| go(w, RenameMode::Whiteout, from, b"file", to, b"held")),
        ("link of one without a name", &|w| w.link(&credentials(3), unnamed, to, &long_name(203))),
        ("link", &|w| w.link(&credentials(3), held, from, &long_name(203))),
        ("unlink", &|w| w.unlink(&credentials(3), to, b"other")),
        ("unlink of one that is held", &|w| w.unlink(&credentials(3), to, b"held")),
        ("rmdir", &|w| w.rmdir(&credentials(3), to, b"dir")),
        ("make", &|w| w.create(&credentials(3), to, &long_name(204), &file).map(drop)),
        ("unnamed", &|w| w.create_tmpfile(&credentials(3), to, &NewInode::default()).map(drop)),
    ];
    for (what, operation) in operations {
        let mut failed = 0;
        for reads in 0.. {
            let again = pool.reopen_copy(&start, WriteSettings::default());
            again.writer.hold_file(held).expect("hold");
            let before = list_state(&again.writer, &[top, from, to]);
            *again.transactions.read_fault.lock() = Some((Arc::clone(&again.memory), reads));
            let done = operation(&again.writer);
            again.memory.fail_after(None);
            if done.is_ok() {
                again.writer.release_file(held).ok();
                consistency::check_consistency(&again.reopen_read_only());
                break;
            }
            failed += 1;
            let text = format!("{what}, {reads} reads");
            let after = list_state(&again.writer, &[top, from, to]);
            let lost: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
            let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
            assert!(lost.is_empty() && new.is_empty(), "{text}: {lost:#?} {new:#?}");
            consistency::check_consistency(&again.reopen_read_only());
        }
        assert!(failed > 5, "{what}: {failed}");
    }
}
