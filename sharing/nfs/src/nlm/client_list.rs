//! The list of clients with locks, in a file that outlasts the server.
//!
//! ```text
//! poolhouse nfs lock clients 1
//! state 3                                        the server's number for NOTIFY: odd, grows with each start
//! 192.168.1.9 192.168.1.2 6d6163                 addresses of client and server, the client's name in hexadecimal digits
//! 192.168.1.8 - 6c6170746f70                     the address by which this client knows the server is not known
//! ```
//!
//! After a restart the server notifies these clients, which then reclaim their locks. The file is replaced as a whole
//! and synced before the client that is added gets its first lock.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::ClientKey;
use crate::Error;
use crate::list_file::{from_hex, replace, to_hex};

const HEADER: &str = "poolhouse nfs lock clients 1";

/// The clients, and the addresses by which they know the server.
pub(super) type Entries = BTreeMap<ClientKey, Option<IpAddr>>;

/// The list.
pub(super) struct ClientList {
    /// The file; none: the list is in memory only.
    path: Option<PathBuf>,
    /// The server's number for NOTIFY.
    pub(super) state: u32,
    entries: Entries,
    /// The server stops: the file stays as it is.
    is_frozen: bool,
}

impl ClientList {
    /// The list of a file for a new start of the server. A file that does not exist is empty.
    pub(super) fn load(path: Option<&Path>) -> crate::Result<Self> {
        let (mut before, mut entries) = (None, Entries::new());
        if let Some(path) = path {
            let failed = |why| Error::ClientList { path: path.to_owned(), why };
            match fs::read_to_string(path) {
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                read => {
                    let text = read.map_err(failed)?;
                    let (state, clients) = parse(&text).ok_or_else(|| {
                        failed(io::Error::other("it was written by another version; remove it"))
                    })?;
                    (before, entries) = (Some(state), clients);
                }
            }
        }
        let state = before.map_or(1, |state| state.wrapping_add(2) | 1);
        let list = Self { path: path.map(Path::to_owned), state, entries, is_frozen: false };
        if let (Some(path), Some(_)) = (path, before) {
            // a client that sees the same number twice takes the second notice for a copy of the first
            list.store().map_err(|why| Error::ClientList { path: path.to_owned(), why })?;
        }
        Ok(list)
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Adds a client. On an error the client would not learn of a restart, and must get no lock.
    pub(super) fn add(&mut self, key: &ClientKey, server: Option<IpAddr>) -> io::Result<()> {
        if self.entries.contains_key(key) {
            return Ok(());
        }
        self.entries.insert(key.clone(), server);
        let stored = self.store();
        if stored.is_err() {
            self.entries.remove(key);
        }
        stored
    }

    /// Removes clients. One that stays in the file after an error is notified once too often.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ClientKey) -> bool) {
        let before = self.entries.len();
        if self.is_frozen {
            return;
        }
        self.entries.retain(|key, _| is_kept(key));
        if self.entries.len() < before {
            let _ = self.store();
        }
    }

    /// Keeps the file as it is from now on.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    fn store(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        replace(path, &print(self.state, &self.entries))
    }
}

fn print(state: u32, entries: &Entries) -> String {
    let line = |(key, server): (&ClientKey, &Option<IpAddr>)| {
        let server = server.map_or_else(|| "-".to_owned(), |address| address.to_string());
        format!("{} {server} {}\n", key.address, to_hex(&key.name))
    };
    let lines: String = entries.iter().map(line).collect();
    format!("{HEADER}\nstate {state}\n{lines}")
}

fn parse(text: &str) -> Option<(u32, Entries)> {
    let rest = text.strip_prefix(HEADER)?.strip_prefix('\n')?;
    let mut lines = rest.lines();
    let state = lines.next()?.strip_prefix("state ")?.parse().ok()?;
    let entry = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (address, server, name) = (words.next()?, words.next()?, words.next()?);
        let key = ClientKey { address: address.parse().ok()?, name: from_hex(name)? };
        let server = if server == "-" { None } else { Some(server.parse().ok()?) };
        Some((key, server))
    };
    Some((state, lines.map(entry).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_clients_are_parsed_as_written() {
        let key = |address: &str, name: &[u8]| {
            let address = address.parse().unwrap();
            ClientKey { address, name: name.to_vec() }
        };
        let entries = Entries::from([
            (key("10.0.0.1", b"mac"), Some("10.0.0.2".parse().unwrap())),
            (key("fd00::1", b""), None),
            (key("10.0.0.1", b"\xff \n"), None),
        ]);
        assert_eq!(parse(&print(7, &entries)), Some((7, entries)));
        let bad = [
            "",
            "poolhouse nfs lock clients 2\nstate 1\n",
            "poolhouse nfs lock clients 1\n",
            "poolhouse nfs lock clients 1\nstate x\n",
            "poolhouse nfs lock clients 1\nstate 1\n10.0.0.1 -\n",
            "poolhouse nfs lock clients 1\nstate 1\n10.0.0.1 - abc\n",
            "poolhouse nfs lock clients 1\nstate 1\nhost - 61\n",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_start_has_a_higher_state() {
        let dir = tempfile();
        let path = dir.join("list");
        let key = ClientKey { address: [10, 0, 0, 1].into(), name: b"mac".to_vec() };
        let mut list = ClientList::load(Some(&path)).unwrap();
        assert_eq!(list.state, 1);
        list.add(&key, None).unwrap();
        for state in [3, 5] {
            let list = ClientList::load(Some(&path)).unwrap();
            assert_eq!((list.state, list.entries().len()), (state, 1));
        }
        fs::remove_dir_all(dir).unwrap();
    }

    fn tempfile() -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nfs-lock-clients-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}
