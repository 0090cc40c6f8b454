//! The list of clients that have state, in a file that outlasts the server.
//!
//! ```text
//! poolhouse nfs clients 1
//! 4c696e7578204e465376342e31...        the owner string of a client, in hexadecimal digits
//! ```
//!
//! After a restart the clients of the list, and no others, may reclaim their opens and locks. The file is replaced as
//! a whole and synced before the client that is added may open anything.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::Error;

const HEADER: &str = "poolhouse nfs clients 1";

/// The list.
pub(super) struct ClientList {
    /// The file; none: the list is in memory only.
    path: Option<PathBuf>,
    owners: BTreeSet<Vec<u8>>,
    /// The server stops: the file stays as it is.
    is_frozen: bool,
}

impl ClientList {
    /// The list of a file. A file that does not exist is empty.
    pub(super) fn load(path: Option<&Path>) -> crate::Result<Self> {
        let mut owners = BTreeSet::new();
        if let Some(path) = path {
            let failed = |why| Error::ClientList { path: path.to_owned(), why };
            let text = match fs::read_to_string(path) {
                Err(why) if why.kind() == ErrorKind::NotFound => String::new(),
                read => read.map_err(failed)?,
            };
            owners = parse(&text).ok_or_else(|| {
                failed(io::Error::other("it was written by another version; remove it"))
            })?;
        }
        Ok(Self { path: path.map(Path::to_owned), owners, is_frozen: false })
    }

    pub(super) fn owners(&self) -> &BTreeSet<Vec<u8>> {
        &self.owners
    }

    /// Adds a client. On an error the client cannot reclaim after a restart.
    pub(super) fn add(&mut self, owner: &[u8]) -> io::Result<()> {
        if self.owners.insert(owner.to_owned()) { self.store() } else { Ok(()) }
    }

    /// Removes a client. A client that stays in the file after an error finds nothing to reclaim.
    pub(super) fn remove(&mut self, owner: &[u8]) {
        if !self.is_frozen && self.owners.remove(owner) {
            let _ = self.store();
        }
    }

    /// Keeps the file as it is from now on.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    fn store(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let lines = self.owners.iter().map(|owner| to_hex(owner));
        let text: String =
            std::iter::once(HEADER.to_owned()).chain(lines).map(|line| line + "\n").collect();
        let new = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| match std::str::from_utf8(pair) {
            Ok(pair) if pair.len() == 2 => u8::from_str_radix(pair, 16).ok(),
            _ => None,
        })
        .collect()
}

fn parse(text: &str) -> Option<BTreeSet<Vec<u8>>> {
    let mut lines = text.lines();
    match lines.next() {
        None => Some(BTreeSet::new()),
        Some(HEADER) => lines.map(from_hex).collect(),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_as_written() {
        let owners = [&b"one"[..], b"", b"\xff\x00"].map(<[u8]>::to_vec);
        let text = format!("{HEADER}\n{}\n", owners.each_ref().map(|o| to_hex(o)).join("\n"));
        assert_eq!(parse(&text), Some(owners.into_iter().collect()));
        assert_eq!(parse(""), Some(BTreeSet::new()));
        for bad in ["poolhouse nfs clients 2\n", "poolhouse nfs clients 1\nabc\n", "x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
