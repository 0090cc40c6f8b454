//! Namespaces of extended attributes: Linux's permission to set one depends on its namespace, so no
//! name may reach another namespace.

use std::sync::Arc;

use ondisk::acl::encode_posix;
use posix::{NewInode, XattrMode, acl::PosixAclEntry};
use units::ObjectId;
use zpl::{Error, Fs, FsOptions, FsWriter, Transactions, WriteSettings};

use crate::test_fs::{TestFs, credentials};

const ACL: &[u8] = b"system.posix_acl_access";

fn set_xattr(
    writer: &FsWriter,
    file: ObjectId,
    name: &[u8],
    value: Option<&[u8]>,
) -> zpl::Result<()> {
    writer.set_xattr(&credentials(3), file, name, value, XattrMode::Any)
}

fn get_xattr(writer: &FsWriter, file: ObjectId, name: &[u8]) -> zpl::Result<Option<Vec<u8>>> {
    writer.fs().inode(file).expect("node").xattr(name)
}

fn xattr_names(writer: &FsWriter, file: ObjectId) -> Vec<String> {
    let all = writer.fs().inode(file).expect("node").xattrs().expect("xattrs");
    all.into_iter().map(|xattr| String::from_utf8(xattr.name).expect("text")).collect()
}

fn posix_acl() -> Vec<u8> {
    let none = u32::MAX;
    let list = [(1, 6, none), (2, 7, 1001), (4, 5, none), (16, 7, none), (32, 0, none)];
    let list = list.map(|(tag, permissions, id)| PosixAclEntry { tag, permissions, id });
    encode_posix(&list)
}

#[test]
fn user_names_reach_no_other_namespace() {
    for xattr_sa in [true, false] {
        let pool = TestFs::new(WriteSettings { xattr_sa, ..WriteSettings::default() });
        let (writer, top) = (&pool.writer, pool.writer.fs().master().root);
        let file =
            writer.create(&credentials(2), top, b"file", &NewInode::default()).expect("file").id;
        let kept = [(ACL, posix_acl()), (b"security.capability", vec![1]), (b"trusted.x", vec![2])];
        for (name, value) in &kept {
            set_xattr(writer, file, name, Some(value)).expect("set");
        }
        for inner in [ACL, b"security.capability", b"trusted.x", b"user.x", b"freebsd:x", b""] {
            let name = [b"user.", inner].concat();
            for result in [
                set_xattr(writer, file, &name, Some(b"v")),
                set_xattr(writer, file, &name, None),
                get_xattr(writer, file, &name).map(drop),
            ] {
                assert!(matches!(result, Err(Error::Invalid { .. })), "{name:?}: {result:?}");
            }
        }
        for name in ["system.foo", "system.posix_acl", "foo", "freebsd:x", "btrfs.x", "os2.x"] {
            for result in [
                set_xattr(writer, file, name.as_bytes(), Some(b"v")),
                set_xattr(writer, file, name.as_bytes(), None),
                get_xattr(writer, file, name.as_bytes()).map(drop),
            ] {
                assert!(matches!(result, Err(Error::NotSupported { .. })), "{name}: {result:?}");
            }
        }
        for (name, value) in kept {
            assert_eq!(get_xattr(writer, file, name), Ok(Some(value)));
        }
        set_xattr(writer, file, b"user.x", Some(b"y")).expect("set");
        let wanted = ["security.capability", "system.posix_acl_access", "trusted.x", "user.x"];
        assert_eq!(xattr_names(writer, file), wanted);
    }
}

#[test]
fn user_attributes_can_be_disabled() {
    let pool = TestFs::new(WriteSettings::default());
    let top = pool.writer.fs().master().root;
    set_xattr(&pool.writer, top, b"user.before", Some(b"y")).expect("set");
    let options = FsOptions { user_xattrs: false, ..FsOptions::default() };
    let fs = Fs::open(pool.objset.clone(), options, None).expect("file system").0;
    let begin = Arc::clone(&pool.transactions) as Arc<dyn Transactions>;
    let writer = FsWriter::new(fs, begin, WriteSettings::default()).expect("writer");
    for result in [
        set_xattr(&writer, top, b"user.x", Some(b"v")),
        set_xattr(&writer, top, b"user.before", None),
        get_xattr(&writer, top, b"user.before").map(drop),
    ] {
        assert!(matches!(result, Err(Error::NotSupported { .. })), "{result:?}");
    }
    set_xattr(&writer, top, b"trusted.x", Some(b"v")).expect("set");
    assert_eq!(xattr_names(&writer, top), ["trusted.x"]);
}
