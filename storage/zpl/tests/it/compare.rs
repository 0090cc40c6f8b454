//! A file system set against what OpenZFS shows of it.

use std::collections::BTreeMap;

use ::fixtures::{hex, parse_hex};
use posix::FileType;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use zpl::{Fs, Inode};

/// Larger files are written down as ranges of data.
const RANGE_LISTED_SIZE: u64 = 8 << 20;
/// The inode of a snapshot's root is this less the snapshot's number (ZFSCTL_INO_SNAPDIRS).
const SNAPDIR_INO_BASE: u64 = 0xffff_ffff_fffc;

/// The differences between a file system and the entries of a manifest, a line each.
///
/// `snapshot`: it is one, whose root Linux shows with an inode of the hidden directory `.zfs`.
pub(crate) fn manifest_differences(fs: &Fs, entries: &[Value], snapshot: bool) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut out = Vec::new();
    walk(fs, &fs.root().expect("the root"), b"", &mut |path, node| {
        let entry = describe_entry(&path, node);
        let mut entry = entry.unwrap_or_else(|why| json!({"error": why.to_string()}));
        if snapshot && path == b"." {
            entry["ino"] = json!(SNAPDIR_INO_BASE - fs.objset().id().get());
        }
        seen.insert(path, entry);
    })
    .unwrap_or_else(|why| out.push(why.to_string()));
    for entry in entries {
        let was = entry.as_object().expect("an entry");
        let path = match (&was.get("path"), &was.get("path_hex")) {
            (Some(Value::String(path)), _) => path.clone().into_bytes(),
            (_, Some(Value::String(hex))) => parse_hex(hex),
            _ => panic!("an entry without a path"),
        };
        let shown = String::from_utf8_lossy(&path).into_owned();
        match seen.remove(&path) {
            None => out.push(format!("{shown}: is not there")),
            Some(now) => compare_entry(&shown, was, now.as_object().expect("an entry"), &mut out),
        }
    }
    out.extend(seen.keys().map(|path| format!("{}: is new", String::from_utf8_lossy(path))));
    out
}

fn compare_entry(
    path: &str,
    was: &Map<String, Value>,
    now: &Map<String, Value>,
    out: &mut Vec<String>,
) {
    let keys: std::collections::BTreeSet<_> = was.keys().chain(now.keys()).collect();
    for key in keys {
        // the time of a replay is not written down
        let forgotten = key == "mtime_ns" && !was.contains_key(key);
        if was.get(key) != now.get(key) && !forgotten {
            let show = |map: &Map<String, Value>| match map.get(key) {
                Some(value) => value.to_string().chars().take(300).collect(),
                None => String::from("nothing"),
            };
            out.push(format!("{path}: {key}: {} here, {} there", show(now), show(was)));
        }
    }
}

/// The files of a redacted copy, compared with those of its origin.
#[derive(Debug, Default)]
pub(crate) struct RedactionCounts {
    pub(crate) same: usize,
    pub(crate) refused: usize,
    pub(crate) different: Vec<String>,
}

/// Sets a redacted copy against the whole.
pub(crate) fn compare_redacted(whole: &Fs, redacted: &Fs) -> RedactionCounts {
    let mut out = RedactionCounts::default();
    let root = whole.root().expect("the root");
    walk(whole, &root, b"", &mut |path, node| {
        if node.attributes().kind != FileType::File {
            return;
        }
        let copy = redacted.find_path(&path).expect("no fault");
        let size = node.attributes().size;
        let there = digest(node, 0, size).expect("content");
        match copy.map(|copy| digest(&copy, 0, size)) {
            Some(Ok(here)) if here == there => out.same += 1,
            Some(Err(zpl::Error::Redacted { .. })) => out.refused += 1,
            found => {
                let path = String::from_utf8_lossy(&path);
                out.different.push(format!("{path}: {found:?}"));
            }
        }
    })
    .expect("a walk");
    out
}

fn walk(
    fs: &Fs,
    dir: &Inode,
    path: &[u8],
    visit: &mut dyn FnMut(Vec<u8>, &Inode),
) -> zpl::Result<()> {
    visit(if path.is_empty() { b".".to_vec() } else { path.to_vec() }, dir);
    let mut entries = Vec::new();
    fs.read_dir(dir, None, &mut |entry| {
        entries.push(entry);
        true
    })?;
    for entry in entries {
        let mut below = path.to_vec();
        if !below.is_empty() {
            below.push(b'/');
        }
        below.extend_from_slice(&entry.name);
        let node = fs.inode(entry.object)?;
        assert_eq!(node.attributes().kind, entry.kind, "the kind of {below:?}");
        let found = fs.lookup(dir, &entry.name)?.expect("a listed name is found");
        assert_eq!(found.id(), entry.object, "the object of {below:?}");
        if node.attributes().is_directory() {
            walk(fs, &node, &below, visit)?;
        } else {
            visit(below, &node);
        }
    }
    Ok(())
}

/// An entry in the form of the manifests.
fn describe_entry(path: &[u8], node: &Inode) -> zpl::Result<Value> {
    let attributes = node.attributes();
    let mut out = Map::new();
    match std::str::from_utf8(path) {
        Ok(text) => out.insert("path".to_owned(), json!(text)),
        Err(_) => out.insert("path_hex".to_owned(), json!(hex(path))),
    };
    let kind = match attributes.kind {
        FileType::Fifo => "fifo",
        FileType::CharDevice => "char",
        FileType::Directory => "dir",
        FileType::BlockDevice => "block",
        FileType::File => "file",
        FileType::Symlink => "symlink",
        FileType::Socket => "socket",
        FileType::Other(_) => "other",
    };
    let mtime = i64::try_from(attributes.mtime.total_nanoseconds()).expect("64 bits");
    out.insert("type".to_owned(), json!(kind));
    out.insert("ino".to_owned(), json!(node.id().get()));
    out.insert("mode".to_owned(), json!(format!("{:04o}", attributes.mode)));
    out.insert("uid".to_owned(), json!(attributes.uid));
    out.insert("gid".to_owned(), json!(attributes.gid));
    out.insert("nlink".to_owned(), json!(attributes.nlink));
    out.insert("size".to_owned(), json!(attributes.size));
    out.insert("mtime_ns".to_owned(), json!(mtime));
    if matches!(kind, "char" | "block") {
        out.insert("rdev".to_owned(), json!([attributes.rdev.0, attributes.rdev.1]));
    }
    if kind == "symlink" {
        out.insert("target".to_owned(), json!(fsdecode(&node.read_link()?)));
    }
    if kind == "file" {
        content(node, &mut out)?;
    }
    if matches!(kind, "file" | "dir") {
        let mut xattrs = Map::new();
        for xattr in node.xattrs()? {
            let name = String::from_utf8_lossy(&xattr.name).into_owned();
            xattrs.insert(name, json!(hex(&node.xattr_value(xattr)?)));
        }
        if !xattrs.is_empty() {
            out.insert("xattrs_hex".to_owned(), Value::Object(xattrs));
        }
        if attributes.file_flags().to_linux() != 0 {
            out.insert("flags".to_owned(), json!(attributes.file_flags().to_linux()));
        }
    }
    Ok(Value::Object(out))
}

fn content(node: &Inode, out: &mut Map<String, Value>) -> zpl::Result<()> {
    let size = node.attributes().size;
    if size <= RANGE_LISTED_SIZE {
        out.insert("sha256".to_owned(), json!(digest(node, 0, size)?));
        return Ok(());
    }
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Some(start) = node.next_data(at)? {
        let end = node.next_hole(start)?;
        ranges.push(json!([start, end - start, digest(node, start, end - start)?]));
        at = end;
    }
    out.insert("data".to_owned(), Value::Array(ranges));
    Ok(())
}

fn digest(node: &Inode, offset: u64, length: u64) -> zpl::Result<String> {
    let mut sha = Sha256::new();
    let mut buffer = vec![0xaa; 1 << 20];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let count = node.read(at, &mut buffer[..want])?;
        if count == 0 {
            break;
        }
        sha.update(&buffer[..count]);
        at += count as u64;
    }
    Ok(hex(&sha.finalize()))
}

/// Bytes in the form of Python's `os.fsdecode`, as far as the fixtures need it.
fn fsdecode(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
