//! An entry of a manifest: a file with its attributes and its hash, as a line of JSON.

use engine::files::{Error, File, FileStat, FileSystemReader, FileType};
use engine::hex;

use super::hash::{self, LARGE};

/// JSON written by hand, as its strings may hold bytes that are no UTF-8: these are written as
/// Python does, as lone halves of surrogate pairs.
#[derive(Default)]
pub(crate) struct Line {
    text: String,
}

impl Line {
    /// Begins an object.
    pub(crate) fn object() -> Self {
        Self { text: "{".to_owned() }
    }

    /// Ends the object.
    pub(crate) fn close(mut self) -> String {
        self.text.push('}');
        self.text
    }

    fn key(&mut self, key: &[u8]) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push_str(", ");
        }
        self.string(key);
        self.text.push_str(": ");
    }

    /// Adds a field whose value is JSON already.
    pub(crate) fn raw(&mut self, key: &str, json: &str) {
        self.key(key.as_bytes());
        self.text.push_str(json);
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, key: &str, number: impl std::fmt::Display) {
        self.raw(key, &number.to_string());
    }

    /// Adds a string.
    pub(crate) fn text(&mut self, key: &[u8], value: &[u8]) {
        self.key(key);
        self.string(value);
    }

    fn string(&mut self, bytes: &[u8]) {
        use std::fmt::Write as _;
        self.text.push('"');
        for chunk in bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => self.text.extend(['\\', letter]),
                    '\n' => self.text.push_str("\\n"),
                    '\t' => self.text.push_str("\\t"),
                    '\0'..='\x1f' | '\x7f' => {
                        let _ = write!(self.text, "\\u{:04x}", u32::from(letter));
                    }
                    _ => self.text.push(letter),
                }
            }
            for byte in chunk.invalid() {
                let _ = write!(self.text, "\\udc{byte:02x}");
            }
        }
        self.text.push('"');
    }
}

/// A string as JSON.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut line = Line::default();
    line.string(text);
    line.text
}

/// The line of the file of that number and path; and whether something of it cannot be read.
pub(crate) fn describe(files: &FileSystemReader, id: u64, path: &[u8]) -> (String, bool) {
    let mut line = Line::object();
    match std::str::from_utf8(path) {
        Ok(_) => line.text(b"path", path),
        Err(_) => line.text(b"path_hex", hex(path).as_bytes()),
    }
    let shown = if path == b"." { (files.root_ino(), files.extra_root_links()) } else { (id, 0) };
    let wrong = match files.file(id).and_then(|file| facts(&file, shown, &mut line)) {
        Ok(wrong) => wrong,
        Err(why) => Some(why),
    };
    if let Some(why) = &wrong {
        line.text(b"error", why.to_string().as_bytes());
    }
    (line.close(), wrong.is_some())
}

/// What is known of a file, which Linux shows with that inode and so many more links than are
/// stored; gives why not all of it is, if so.
fn facts(file: &File, (inode, more): (u64, u64), line: &mut Line) -> Result<Option<Error>, Error> {
    let facts = file.stat();
    line.text(b"type", facts.kind.name().as_bytes());
    line.number("ino", inode);
    line.text(b"mode", format!("{:04o}", facts.mode).as_bytes());
    line.number("uid", facts.uid);
    line.number("gid", facts.gid);
    line.number("nlink", facts.nlink.saturating_add(more));
    line.number("size", facts.size);
    line.number("mtime_ns", facts.mtime.total_nanoseconds());
    match facts.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            line.raw("rdev", &format!("[{}, {}]", facts.rdev.0, facts.rdev.1));
        }
        FileType::Symlink => line.text(b"target", &file.read_link()?),
        _ => {}
    }
    let mut wrong = None;
    if facts.kind == FileType::File {
        wrong = content(file, facts.size, line).err();
    }
    if matches!(facts.kind, FileType::File | FileType::Directory) {
        match file.xattrs() {
            Ok(xattrs) if xattrs.is_empty() => {}
            Ok(xattrs) => {
                let mut each = Line::object();
                for (name, value) in xattrs {
                    each.text(&name, hex(&value).as_bytes());
                }
                line.raw("xattrs_hex", &each.close());
            }
            Err(why) => wrong = wrong.or(Some(why)),
        }
        if facts.flags != 0 {
            line.number("flags", facts.flags);
        }
    }
    Ok(wrong)
}

/// A file as `stat --json` prints it.
pub(crate) fn stat_line(
    place: &str,
    facts: &FileStat,
    target: Option<&[u8]>,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> String {
    let mut line = Line::object();
    line.text(b"place", place.as_bytes());
    line.text(b"type", facts.kind.name().as_bytes());
    line.number("ino", facts.ino);
    line.text(b"mode", format!("{:04o}", facts.mode).as_bytes());
    line.number("uid", facts.uid);
    line.number("gid", facts.gid);
    line.number("nlink", facts.nlink);
    line.number("size", facts.size);
    for (name, time) in [
        ("atime_ns", facts.atime),
        ("mtime_ns", facts.mtime),
        ("ctime_ns", facts.ctime),
        ("crtime_ns", facts.crtime),
    ] {
        line.number(name, time.total_nanoseconds());
    }
    line.raw("rdev", &format!("[{}, {}]", facts.rdev.0, facts.rdev.1));
    line.number("flags", facts.flags);
    line.number("project", facts.project_id);
    line.number("parent", facts.parent);
    line.number("generation", facts.generation);
    if let Some(target) = target {
        line.text(b"target", target);
    }
    let mut each = Line::object();
    for (name, value) in xattrs {
        each.text(name, hex(value).as_bytes());
    }
    line.raw("xattrs_hex", &each.close());
    line.close()
}

fn content(file: &File, size: u64, line: &mut Line) -> Result<(), Error> {
    let content = file.content();
    if size <= LARGE {
        line.text(b"sha256", hash::digest(&content, 0, size)?.as_bytes());
        return Ok(());
    }
    let ranges = hash::ranges(&content)?;
    let ranges: Vec<String> = ranges
        .into_iter()
        .map(|(start, length, sha)| format!("[{start}, {length}, \"{sha}\"]"))
        .collect();
    line.raw("data", &format!("[{}]", ranges.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_as_python_writes_them() {
        assert_eq!(quoted(b"a\"b\\c\n\x01"), r#""a\"b\\c\n\u0001""#);
        assert_eq!(quoted("ü".as_bytes()), "\"ü\"");
        assert_eq!(quoted(b"x\xffy"), r#""x\udcffy""#);
    }
}
