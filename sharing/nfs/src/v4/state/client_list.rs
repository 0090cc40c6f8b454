//! The list of clients that have state, in a file that outlasts the server.
//!
//! ```text
//! poolhouse nfs clients 1
//! 4c696e7578204e465376342e31...        the owner string of a client, in hexadecimal digits
//! 4c696e7578204e465376342e30... 2 1    a client of NFSv4.0, with the opens and locked ranges that it had at the end
//! 4c696e7578204e465376342e31... 2 1 3  the same, with its delegations
//! ```
//!
//! After a restart the clients of the list, and no others, may reclaim their opens and locks. The file is replaced as
//! a whole and synced before the client that is added may open anything.
//!
//! Clients of NFSv4.0 do not say when they have reclaimed everything. The server that stops writes what they have. The next
//! one removes these numbers when it starts, since they would be wrong after a power cut.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::list_file::{from_hex, replace, to_hex};

const HEADER: &str = "poolhouse nfs clients 1";

/// The opens, locked ranges and delegations of a client. An open counts once for each combination of access and denial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct StateCount {
    pub(super) opens: usize,
    pub(super) ranges: usize,
    pub(super) delegations: usize,
}

/// Clients, and the state that they had when the server stopped, if it is known.
type Owners = BTreeMap<Vec<u8>, Option<StateCount>>;

/// The list.
pub(super) struct ClientList {
    /// The file; none: the list is in memory only.
    path: Option<PathBuf>,
    owners: Owners,
    /// The server stops: the file stays as it is.
    is_frozen: bool,
}

impl ClientList {
    /// The list of a file. A file that does not exist is empty.
    pub(super) fn load(path: Option<&Path>) -> crate::Result<Self> {
        let mut owners = Owners::new();
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
        let list = Self { path: path.map(Path::to_owned), owners, is_frozen: false };
        if let Some(path) = path
            && list.owners.values().any(Option::is_some)
        {
            let stored = list.store(false);
            stored.map_err(|why| Error::ClientList { path: path.to_owned(), why })?;
        }
        Ok(list)
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Adds a client. On an error the client cannot reclaim after a restart.
    pub(super) fn add(&mut self, owner: &[u8]) -> io::Result<()> {
        let is_new = self.owners.insert(owner.to_owned(), None).is_none();
        if is_new { self.store(false) } else { Ok(()) }
    }

    /// Removes a client. A client that stays in the file after an error finds nothing to reclaim.
    pub(super) fn remove(&mut self, owner: &[u8]) {
        if !self.is_frozen && self.owners.remove(owner).is_some() {
            let _ = self.store(false);
        }
    }

    /// Writes the state of clients, and keeps the file as it is from now on.
    pub(super) fn freeze(&mut self, counts: impl Iterator<Item = (Vec<u8>, StateCount)>) {
        if std::mem::replace(&mut self.is_frozen, true) {
            return;
        }
        for (owner, count) in counts {
            self.owners.entry(owner).and_modify(|known| *known = Some(count));
        }
        // after an error the next server waits for a lease
        let _ = self.store(true);
    }

    fn store(&self, with_counts: bool) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let lines = self.owners.iter().map(|(owner, count)| match count {
            Some(StateCount { opens, ranges, delegations: 0 }) if with_counts => {
                format!("{} {opens} {ranges}", to_hex(owner))
            }
            Some(StateCount { opens, ranges, delegations }) if with_counts => {
                format!("{} {opens} {ranges} {delegations}", to_hex(owner))
            }
            _ => to_hex(owner),
        });
        let text: String =
            std::iter::once(HEADER.to_owned()).chain(lines).map(|line| line + "\n").collect();
        replace(path, &text)
    }
}

fn parse(text: &str) -> Option<Owners> {
    let mut lines = text.lines();
    match lines.next() {
        None => Some(Owners::new()),
        Some(HEADER) => lines.map(parse_line).collect(),
        Some(_) => None,
    }
}

fn parse_line(line: &str) -> Option<(Vec<u8>, Option<StateCount>)> {
    let Some((owner, counts)) = line.split_once(' ') else { return Some((from_hex(line)?, None)) };
    let counts: Option<Vec<usize>> = counts.split(' ').map(|count| count.parse().ok()).collect();
    let (opens, ranges, delegations) = match counts?[..] {
        [opens, ranges] => (opens, ranges, 0),
        [opens, ranges, delegations] => (opens, ranges, delegations),
        _ => return None,
    };
    Some((from_hex(owner)?, Some(StateCount { opens, ranges, delegations })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_as_written() {
        let owners = [&b"one"[..], b"", b"\xff\x00"].map(|owner| (owner.to_vec(), None));
        let lines = owners.each_ref().map(|(owner, _)| to_hex(owner)).join("\n");
        let text = format!("{HEADER}\n{lines}\n");
        assert_eq!(parse(&text), Some(owners.into_iter().collect()));
        assert_eq!(parse(""), Some(Owners::new()));
        for (counts, delegations) in [("2 1", 0), ("2 1 3", 3)] {
            let counted = parse(&format!("{HEADER}\n6f6e65 {counts}\n")).unwrap();
            let count = StateCount { opens: 2, ranges: 1, delegations };
            assert_eq!(counted.get(&b"one"[..]), Some(&Some(count)));
        }
        for bad in
            ["2\n", "1\nabc\n", "1\n61 2\n", "1\n61 x 1\n", "1\n61 1 1 1 1\n", "1\n61 1 1 \n"]
        {
            assert_eq!(parse(&format!("poolhouse nfs clients {bad}")), None, "{bad}");
        }
        assert_eq!(parse("x"), None);
    }
}
