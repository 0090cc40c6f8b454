//! A new file system.

use ondisk::znode::flag;
use posix::FileType;
use units::ObjectId;
use zap::Zap;
use zpl::WriteSettings;

use crate::test_fs::{TestFs, time_at};

#[test]
fn a_new_file_system_is_read() {
    let pool = TestFs::new(WriteSettings::default());
    let fs = pool.reopen_read_only();
    let master = fs.master();
    assert_eq!((master.version, master.normalization, master.utf8_only), (5, 0, false));
    let root = fs.root().expect("root");
    let attributes = *root.attributes();
    assert_eq!((attributes.kind, attributes.mode), (FileType::Directory, 0o755));
    assert_eq!((attributes.size, attributes.nlink, attributes.parent), (2, 2, root.id()));
    assert_eq!(attributes.generation.get(), 4);
    assert_eq!((attributes.atime, attributes.crtime), (time_at(1), time_at(1)));
    // as `zdb` shows it of every directory that OpenZFS makes
    assert_eq!(attributes.flags, 0x8408_0000_0144);
    assert!(attributes.flags & flag::PROJID != 0);
    assert_eq!(fs.list_dir(&root).expect("names"), []);
    assert!(root.acl().expect("ACL").is_trivial);
    assert_eq!(root.acl().expect("ACL").entries.len(), 3);
    let bonus = root.object().expect("object").bonus().len();
    // header 8, numbers and times 7 * 8 + 4 * 16 + 2 * 8, count 8, entries 24
    assert_eq!(bonus, 176);
}

#[test]
fn the_tables_of_a_new_file_system() {
    let pool = TestFs::new(WriteSettings::default());
    let fs = pool.reopen_read_only();
    let object = |id: u64| fs.objset().object(ObjectId::new(id)).expect("object");
    let master = Zap::open(object(1)).expect("master");
    let text = |entry: zap::Result<zap::ZapEntry>| {
        String::from_utf8(entry.expect("entry").name).expect("text")
    };
    let mut names: Vec<String> = master.entries().map(text).collect();
    names.sort();
    let wanted = [
        "DELETE_QUEUE",
        "ROOT",
        "SA_ATTRS",
        "VERSION",
        "casesensitivity",
        "normalization",
        "utf8only",
    ];
    assert_eq!(names, wanted);
    let tables = Zap::open(object(fs.master().sa_master.get())).expect("tables");
    let table = |name: &[u8]| {
        let id = tables.lookup_u64(name).expect("lookup").expect("table");
        Zap::open(object(id)).expect("table")
    };
    assert_eq!(table(b"REGISTRY").count().expect("count"), 22);
    let layouts = table(b"LAYOUTS");
    let layout = layouts.lookup(b"2").expect("lookup").expect("layout").u64s();
    assert_eq!(layout, [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]);
    assert_eq!(layouts.count().expect("count"), 1);
}
