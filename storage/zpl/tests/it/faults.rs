//! What fails in the midst of a transaction leaves everything as it was.

use std::sync::Arc;

use units::ObjectId;
use zpl::{Kind, Move, MoveKind, New, Settings, Writer};

use crate::pool::{Pool, caller};
use crate::sound;

type Operation<'a> = (&'a str, &'a dyn Fn(&Writer) -> zpl::Result<()>);

fn directory() -> New<'static> {
    New { kind: Kind::Directory, mode: 0o777, ..New::default() }
}

/// Names so long that their tables are fat ones, and of more than one leaf.
fn long(number: usize) -> Vec<u8> {
    format!("{number:060}").into_bytes()
}

/// All that the names of these directories tell, and who has none.
fn told(writer: &Writer, dirs: &[ObjectId]) -> Vec<String> {
    let fs = writer.fs();
    let mut rows = Vec::new();
    for dir in dirs {
        let node = fs.node(*dir).expect("directory");
        rows.push(format!("{dir} {:?}", node.attributes()));
        for entry in fs.list(&node).expect("names") {
            let found = fs.attributes(entry.object).expect("attributes");
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            rows.push(format!("{dir} {name} {} {:?} {found:?}", entry.object, entry.kind));
        }
    }
    let mut note = |id: ObjectId| {
        rows.push(format!("unlinked {id}"));
        true
    };
    fs.unlinked(&mut note).expect("unlinked");
    rows
}

/// The set of those without a name becomes a fat table, too.
fn fatten_unlinked(pool: &Pool) {
    let set = pool.objset.object(pool.writer.fs().master().unlinked).expect("object");
    let set = zap::Zap::open(set).expect("set");
    let tx = pool.host.groups.begin().expect("a group");
    for number in 0..100 {
        set.insert_u64(&tx, &long(number), 1).expect("insert");
    }
    for number in 0..100 {
        set.remove(&tx, &long(number)).expect("remove");
    }
}

#[test]
fn what_fails_half_way_leaves_every_name_where_it_was() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, pool.writer.fs().master().root);
    let [from, to] = [b"from", b"to--"].map(|name| {
        let dir = writer.make(&caller(2), top, name, &directory()).expect("directory").id;
        let names = (0..100).map(long);
        for name in names.chain([b"file".to_vec(), b"other".to_vec(), b"held".to_vec()]) {
            writer.make(&caller(2), dir, &name, &New::default()).expect("file");
        }
        for name in [b"dir", b"die"] {
            writer.make(&caller(2), dir, name, &directory()).expect("directory");
        }
        dir
    });
    fatten_unlinked(&pool);
    let unnamed = writer.make_unnamed(&caller(2), top, &New::default()).expect("unnamed").id;
    let start = pool.sync();
    let node = writer.fs().node(to).expect("directory");
    let held = writer.fs().lookup(&node, b"held").expect("held").expect("held").id();
    let go = |writer: &Writer, kind, from_dir, from: &[u8], to_dir, to: &[u8]| {
        writer.rename(&caller(3), &Move { from_dir, from, to_dir, to, kind })
    };
    let (plain, exchange) = (MoveKind::Replace, MoveKind::Exchange);
    let operations: &[Operation<'_>] = &[
        ("to a new name", &|w| go(w, plain, from, b"file", to, &long(200))),
        ("within a directory", &|w| go(w, plain, from, b"file", from, &long(200))),
        ("over a file", &|w| go(w, plain, from, b"file", to, b"other")),
        ("over one that is held", &|w| go(w, plain, from, b"file", to, b"held")),
        ("over a directory", &|w| go(w, plain, from, b"dir", to, b"die")),
        ("of a directory", &|w| go(w, plain, from, b"dir", to, &long(201))),
        ("exchange", &|w| go(w, exchange, from, b"dir", to, b"file")),
        ("exchange in one", &|w| go(w, exchange, from, b"dir", from, b"file")),
        ("whiteout", &|w| go(w, MoveKind::Whiteout, from, b"file", to, &long(202))),
        ("whiteout over one", &|w| go(w, MoveKind::Whiteout, from, b"file", to, b"held")),
        ("link of one without a name", &|w| w.link(&caller(3), unnamed, to, &long(203))),
        ("link", &|w| w.link(&caller(3), held, from, &long(203))),
        ("unlink", &|w| w.unlink(&caller(3), to, b"other")),
        ("unlink of one that is held", &|w| w.unlink(&caller(3), to, b"held")),
        ("rmdir", &|w| w.rmdir(&caller(3), to, b"dir")),
        ("make", &|w| w.make(&caller(3), to, &long(204), &New::default()).map(drop)),
        ("unnamed", &|w| w.make_unnamed(&caller(3), to, &New::default()).map(drop)),
    ];
    for (what, operation) in operations {
        let mut failed = 0;
        for reads in 0.. {
            let again = pool.copy_from(&start, Settings::default());
            again.writer.hold(held).expect("hold");
            let before = told(&again.writer, &[top, from, to]);
            *again.host.failing.lock() = Some((Arc::clone(&again.memory), reads));
            let done = operation(&again.writer);
            again.memory.fail_after(None);
            if done.is_ok() {
                again.writer.release(held).ok();
                sound::check(&again.cold());
                break;
            }
            failed += 1;
            let text = format!("{what}, {reads} reads");
            let after = told(&again.writer, &[top, from, to]);
            let lost: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
            let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
            assert!(lost.is_empty() && new.is_empty(), "{text}: {lost:#?} {new:#?}");
            sound::check(&again.cold());
        }
        assert!(failed > 5, "{what}: {failed}");
    }
}
