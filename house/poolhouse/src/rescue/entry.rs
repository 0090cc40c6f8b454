//! An entry of a manifest: a file with its attributes and its hash, as a line of JSON.

use engine::files::{Error, File, FileStat, FileSystemReader, FileType};
use engine::hex;

use super::hash::{self, MAX_WHOLE_HASH};

/// JSON written by hand, because its strings may hold bytes that are not UTF-8: these are written
/// as Python does, as lone surrogates.
#[derive(Default)]
pub(crate) struct JsonObject {
    json: String,
}

impl JsonObject {
    /// Begins an object.
    pub(crate) fn begin() -> Self {
        Self { json: "{".to_owned() }
    }

    /// Ends the object.
    pub(crate) fn finish(mut self) -> String {
        self.json.push('}');
        self.json
    }

    fn write_key(&mut self, key: &[u8]) {
        if !self.json.ends_with(['{', '[']) {
            self.json.push_str(", ");
        }
        self.write_string(key);
        self.json.push_str(": ");
    }

    /// Adds a field whose value is JSON already.
    pub(crate) fn add_raw(&mut self, key: &str, json: &str) {
        self.write_key(key.as_bytes());
        self.json.push_str(json);
    }

    /// Adds a number.
    pub(crate) fn add_number(&mut self, key: &str, number: impl std::fmt::Display) {
        self.add_raw(key, &number.to_string());
    }

    /// Adds a string.
    pub(crate) fn add_string(&mut self, key: &[u8], value: &[u8]) {
        self.write_key(key);
        self.write_string(value);
    }

    fn write_string(&mut self, bytes: &[u8]) {
        use std::fmt::Write as _;
        self.json.push('"');
        for chunk in bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => self.json.extend(['\\', letter]),
                    '\n' => self.json.push_str("\\n"),
                    '\t' => self.json.push_str("\\t"),
                    '\0'..='\x1f' | '\x7f' => {
                        let _ = write!(self.json, "\\u{:04x}", u32::from(letter));
                    }
                    _ => self.json.push(letter),
                }
            }
            for byte in chunk.invalid() {
                let _ = write!(self.json, "\\udc{byte:02x}");
            }
        }
        self.json.push('"');
    }
}

/// A string as JSON.
pub(crate) fn json_string(text: &[u8]) -> String {
    let mut line = JsonObject::default();
    line.write_string(text);
    line.json
}

/// The line of the file of that number and path; and whether something of it cannot be read.
pub(crate) fn describe_entry(files: &FileSystemReader, id: u64, path: &[u8]) -> (String, bool) {
    let mut line = JsonObject::begin();
    match std::str::from_utf8(path) {
        Ok(_) => line.add_string(b"path", path),
        Err(_) => line.add_string(b"path_hex", hex(path).as_bytes()),
    }
    let shown = if path == b"." { (files.root_ino(), files.extra_root_links()) } else { (id, 0) };
    let wrong = match files.file(id).and_then(|file| add_attributes(&file, shown, &mut line)) {
        Ok(wrong) => wrong,
        Err(why) => Some(why),
    };
    if let Some(why) = &wrong {
        line.add_string(b"error", why.to_string().as_bytes());
    }
    (line.finish(), wrong.is_some())
}

/// The facts of a file, with the inode and the additional link count that Linux shows.
/// Returns the reason if they are incomplete.
fn add_attributes(
    file: &File,
    (inode, more): (u64, u64),
    line: &mut JsonObject,
) -> Result<Option<Error>, Error> {
    let facts = file.stat();
    line.add_string(b"type", facts.kind.name().as_bytes());
    line.add_number("ino", inode);
    line.add_string(b"mode", format!("{:04o}", facts.mode).as_bytes());
    line.add_number("uid", facts.uid);
    line.add_number("gid", facts.gid);
    line.add_number("nlink", facts.nlink.saturating_add(more));
    line.add_number("size", facts.size);
    line.add_number("mtime_ns", facts.mtime.total_nanoseconds());
    match facts.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            line.add_raw("rdev", &format!("[{}, {}]", facts.rdev.0, facts.rdev.1));
        }
        FileType::Symlink => line.add_string(b"target", &file.read_link()?),
        _ => {}
    }
    let mut wrong = None;
    if facts.kind == FileType::File {
        wrong = add_content_hash(file, facts.size, line).err();
    }
    if matches!(facts.kind, FileType::File | FileType::Directory) {
        match file.xattrs() {
            Ok(xattrs) if xattrs.is_empty() => {}
            Ok(xattrs) => {
                let mut each = JsonObject::begin();
                for (name, value) in xattrs {
                    each.add_string(&name, hex(&value).as_bytes());
                }
                line.add_raw("xattrs_hex", &each.finish());
            }
            Err(why) => wrong = wrong.or(Some(why)),
        }
        if facts.flags.to_linux() != 0 {
            line.add_number("flags", facts.flags.to_linux());
        }
    }
    Ok(wrong)
}

/// A file as `stat --json` prints it.
pub(crate) fn stat_json(
    place: &str,
    facts: &FileStat,
    target: Option<&[u8]>,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> String {
    let mut line = JsonObject::begin();
    line.add_string(b"place", place.as_bytes());
    line.add_string(b"type", facts.kind.name().as_bytes());
    line.add_number("ino", facts.ino);
    line.add_string(b"mode", format!("{:04o}", facts.mode).as_bytes());
    line.add_number("uid", facts.uid);
    line.add_number("gid", facts.gid);
    line.add_number("nlink", facts.nlink);
    line.add_number("size", facts.size);
    for (name, time) in [
        ("atime_ns", facts.atime),
        ("mtime_ns", facts.mtime),
        ("ctime_ns", facts.ctime),
        ("crtime_ns", facts.crtime),
    ] {
        line.add_number(name, time.total_nanoseconds());
    }
    line.add_raw("rdev", &format!("[{}, {}]", facts.rdev.0, facts.rdev.1));
    line.add_number("flags", facts.flags.to_linux());
    line.add_number("project", facts.project_id);
    line.add_number("parent", facts.parent);
    line.add_number("generation", facts.generation);
    if let Some(target) = target {
        line.add_string(b"target", target);
    }
    let mut each = JsonObject::begin();
    for (name, value) in xattrs {
        each.add_string(name, hex(value).as_bytes());
    }
    line.add_raw("xattrs_hex", &each.finish());
    line.finish()
}

fn add_content_hash(file: &File, size: u64, line: &mut JsonObject) -> Result<(), Error> {
    let content = file.content();
    if size <= MAX_WHOLE_HASH {
        line.add_string(b"sha256", hash::digest(&content, 0, size)?.as_bytes());
        return Ok(());
    }
    let ranges = hash::hash_ranges(&content)?;
    let ranges: Vec<String> = ranges
        .into_iter()
        .map(|(start, length, sha)| format!("[{start}, {length}, \"{sha}\"]"))
        .collect();
    line.add_raw("data", &format!("[{}]", ranges.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::json_string;

    #[test]
    fn strings_are_as_python_writes_them() {
        assert_eq!(json_string(b"a\"b\\c\n\x01"), r#""a\"b\\c\n\u0001""#);
        assert_eq!(json_string("ü".as_bytes()), "\"ü\"");
        assert_eq!(json_string(b"x\xffy"), r#""x\udcffy""#);
    }
}
