//! Files that have no name any more, or none yet.

use units::ObjectId;
use zap::Zap;
use zpl::{New, Settings};

use crate::pool::{Pool, caller};
use crate::sound;

fn root(pool: &Pool) -> ObjectId {
    pool.writer.fs().master().root
}

#[test]
fn what_cannot_be_freed_keeps_nobody_from_the_rest() {
    let pool = Pool::new(Settings::default());
    let (writer, top) = (&pool.writer, root(&pool));
    for number in 0..8 {
        let name = format!("file-{number}");
        let file = writer.make(&caller(2), top, name.as_bytes(), &New::default()).expect("file").id;
        writer.hold(file).expect("hold");
        writer.unlink(&caller(3), top, name.as_bytes()).expect("unlink");
    }
    let again = pool.again(Settings::default());
    let master = again.writer.fs().master().clone();
    let set = Zap::open(again.objset.object(master.unlinked).expect("object")).expect("set");
    // tables are no files, whatever damage says of them
    let tables = [ObjectId::new(1), master.unlinked, master.attributes];
    let tx = again.host.groups.begin().expect("a group");
    for table in tables {
        set.insert_u64(&tx, format!("{:x}", table.get()).as_bytes(), table.get()).expect("insert");
    }
    drop(tx);
    again.writer.drain().expect("drain");
    let mut left = Vec::new();
    let mut note = |id| {
        left.push(id);
        true
    };
    again.writer.fs().unlinked(&mut note).expect("unlinked");
    left.sort();
    let mut wanted = tables.to_vec();
    wanted.sort();
    assert_eq!(left, wanted);
    let tx = again.host.groups.begin().expect("a group");
    for table in tables {
        set.remove(&tx, format!("{:x}", table.get()).as_bytes()).expect("remove");
    }
    drop(tx);
    sound::check(&again.cold());
}
