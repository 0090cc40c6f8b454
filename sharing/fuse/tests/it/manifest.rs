//! A folder set against the entries of a manifest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use fixtures::{hex, parse_hex};
use rustix::fs::SeekFrom;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Larger files are written down as ranges of data.
const MAX_WHOLE_FILE: u64 = 8 << 20;
/// The inode's part that is the object's number.
const OBJECT_MASK: u64 = (1 << 40) - 1;

/// The differences, a line each; `covered` are names in `top` that another mount covers.
pub(crate) fn differences(
    top: &Path,
    entries: &[Value],
    covered: &[&str],
    dataset: &str,
) -> Vec<String> {
    let (mut seen, mut out) = (BTreeMap::new(), Vec::new());
    if let Err(why) = walk(top, b"", covered, &mut seen) {
        out.push(why.to_string());
    }
    for entry in entries {
        let was = entry.as_object().expect("an entry");
        let path = match (&was.get("path"), &was.get("path_hex")) {
            (Some(Value::String(path)), _) => path.clone().into_bytes(),
            (_, Some(Value::String(hex))) => parse_hex(hex),
            _ => panic!("an entry without a path"),
        };
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        if covered.iter().any(|name| name.as_bytes() == first) {
            continue;
        }
        let shown = String::from_utf8_lossy(&path).into_owned();
        match seen.remove(&path) {
            None => out.push(format!("{shown}: is not there")),
            Some(now) => {
                // Linux shows the root of a snapshot with another inode
                let skip = if path == b"." && dataset.contains('@') { "ino" } else { "" };
                compare_entries(&shown, was, now.as_object().expect("an entry"), skip, &mut out);
            }
        }
    }
    out.extend(seen.keys().map(|path| format!("{}: is new", String::from_utf8_lossy(path))));
    out
}

fn compare_entries(
    path: &str,
    was: &Map<String, Value>,
    now: &Map<String, Value>,
    skip: &str,
    out: &mut Vec<String>,
) {
    let keys: std::collections::BTreeSet<_> = was.keys().chain(now.keys()).collect();
    for key in keys.into_iter().filter(|key| *key != skip && *key != "flags") {
        // the time of a replay is not written down
        let forgotten = key == "mtime_ns" && !was.contains_key(key);
        if was.get(key) != now.get(key) && !forgotten {
            let show = |map: &Map<String, Value>| match map.get(key) {
                Some(value) => value.to_string().chars().take(200).collect(),
                None => String::from("nothing"),
            };
            out.push(format!("{path}: {key}: {} here, {} there", show(now), show(was)));
        }
    }
}

fn walk(
    path: &Path,
    below: &[u8],
    covered: &[&str],
    seen: &mut BTreeMap<Vec<u8>, Value>,
) -> io::Result<()> {
    let shown = if below.is_empty() { b".".to_vec() } else { below.to_vec() };
    let meta = fs::symlink_metadata(path)?;
    let entry = describe_entry(path, &shown, &meta);
    seen.insert(shown, entry.unwrap_or_else(|why| json!({"error": why.to_string()})));
    if !meta.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if below.is_empty() && covered.iter().any(|each| OsStr::new(each) == name) {
            continue;
        }
        let joined = match below {
            b"" => name.as_bytes().to_vec(),
            _ => [below, b"/", name.as_bytes()].concat(),
        };
        walk(&path.join(&name), &joined, covered, seen)?;
    }
    Ok(())
}

fn describe_entry(path: &Path, shown: &[u8], meta: &Metadata) -> io::Result<Value> {
    let mut out = Map::new();
    match std::str::from_utf8(shown) {
        Ok(text) => out.insert("path".to_owned(), json!(text)),
        Err(_) => out.insert("path_hex".to_owned(), json!(hex(shown))),
    };
    let kind = meta.file_type();
    let word = match () {
        () if kind.is_dir() => "dir",
        () if kind.is_file() => "file",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () => "socket",
    };
    let mtime = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    out.insert("type".to_owned(), json!(word));
    out.insert("ino".to_owned(), json!(meta.ino() & OBJECT_MASK));
    out.insert("mode".to_owned(), json!(format!("{:04o}", meta.mode() & 0o7777)));
    out.insert("uid".to_owned(), json!(meta.uid()));
    out.insert("gid".to_owned(), json!(meta.gid()));
    out.insert("nlink".to_owned(), json!(meta.nlink()));
    out.insert("size".to_owned(), json!(meta.size()));
    out.insert("mtime_ns".to_owned(), json!(i64::try_from(mtime).expect("64 bits")));
    if matches!(word, "char" | "block") {
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        out.insert("rdev".to_owned(), json!([major, minor]));
    }
    if word == "symlink" {
        let target = fs::read_link(path)?;
        let target = String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned();
        out.insert("target".to_owned(), json!(target));
    }
    if word == "file" {
        describe_content(path, meta.size(), &mut out)?;
    }
    if matches!(word, "file" | "dir") {
        let xattrs = xattrs(path)?;
        if !xattrs.is_empty() {
            out.insert("xattrs_hex".to_owned(), Value::Object(xattrs));
        }
    }
    Ok(Value::Object(out))
}

fn describe_content(path: &Path, size: u64, out: &mut Map<String, Value>) -> io::Result<()> {
    let file = File::open(path)?;
    if size <= MAX_WHOLE_FILE {
        out.insert("sha256".to_owned(), json!(digest(&file, 0..size)?));
        return Ok(());
    }
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
        ranges.push(json!([start, end - start, digest(&file, start..end)?]));
        at = end;
    }
    out.insert("data".to_owned(), Value::Array(ranges));
    Ok(())
}

fn digest(file: &File, range: std::ops::Range<u64>) -> io::Result<String> {
    let mut sha = Sha256::new();
    let mut buffer = vec![0xaa; 300_000];
    let mut at = range.start;
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let count = file.read_at(&mut buffer[..want], at)?;
        if count == 0 {
            break;
        }
        sha.update(&buffer[..count]);
        at += count as u64;
    }
    Ok(hex(&sha.finalize()))
}

fn xattrs(path: &Path) -> io::Result<Map<String, Value>> {
    let mut out = Map::new();
    let mut names = vec![0; 64 << 10];
    let count = rustix::fs::llistxattr(path, &mut names[..])?;
    for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let count = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])?;
        let name = String::from_utf8_lossy(name).into_owned();
        out.insert(name, json!(hex(&value[..count])));
    }
    Ok(out)
}
