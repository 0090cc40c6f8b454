//! Opens and their share modes: each client's access to a file, and the accesses that it denies to
//! others.
//!
//! SMB (CREATE) and NFSv4 (OPEN) let a client deny others access while it has a file open. A new open fails if it
//! wants what an existing one denies, or denies what an existing one has. Opens of one client do not except each
//! other: both protocols compare every pair.
//!
//! The opens of a client that was not heard of for longer than its lease stay by courtesy: the first open that conflicts with
//! one of them removes all of them.
//!
//! Leases depend on the same table: a client gets the right to cache writes only while nobody else has the file
//! open.

use std::collections::HashMap;

use parking_lot::Mutex;
use posix::Ino;

use crate::{ClientId, LeaseHolder};

/// Kinds of access to an open file: a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// No access.
    pub const NONE: Self = Self(0);
    /// Reads.
    pub const READ: Self = Self(1);
    /// Writes.
    pub const WRITE: Self = Self(2);
    /// Removes or renames (SMB).
    pub const DELETE: Self = Self(4);

    /// Both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets have something in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// How a client has a file open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareMode {
    /// The client, and the key of the lease that its open belongs to.
    pub holder: LeaseHolder,
    /// The access of the client.
    pub access: Access,
    /// The accesses denied to others.
    pub deny: Access,
}

/// An open file conflicts with another open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("another program has the file open and does not share it")]
pub struct ShareConflict {
    /// The other open.
    pub other: ShareMode,
}

/// The identity of an open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpenId(u64);

/// The opens of one file system.
#[derive(Default)]
pub struct OpenTable(Mutex<Opens>);

#[derive(Default)]
struct Opens {
    files: HashMap<Ino, Vec<(OpenId, ShareMode)>>,
    next: u64,
    /// The clients that have opens by courtesy, and whether these gave way already.
    courteous: HashMap<ClientId, bool>,
}

impl ShareMode {
    fn conflicts_with(&self, other: &Self) -> bool {
        self.access.intersects(other.deny) || self.deny.intersects(other.access)
    }
}

impl OpenTable {
    /// Adds an open of a file, unless it conflicts with another.
    pub fn open(&self, ino: Ino, mode: ShareMode) -> Result<OpenId, ShareConflict> {
        let mut opens = self.0.lock();
        opens.check(ino, &mode, None)?;
        let id = OpenId(opens.next);
        opens.next += 1;
        opens.files.entry(ino).or_default().push((id, mode));
        Ok(id)
    }

    /// Changes what an open is for: an NFSv4 client opens the same file again, or downgrades.
    pub fn change(&self, ino: Ino, id: OpenId, mode: ShareMode) -> Result<(), ShareConflict> {
        let mut opens = self.0.lock();
        opens.check(ino, &mode, Some(id))?;
        let of_file = opens.files.get_mut(&ino).into_iter().flatten();
        of_file.filter(|(other, _)| *other == id).for_each(|(_, held)| *held = mode);
        Ok(())
    }

    /// Removes an open.
    pub fn close(&self, ino: Ino, id: OpenId) {
        let mut opens = self.0.lock();
        if let Some(of_file) = opens.files.get_mut(&ino) {
            of_file.retain(|(other, _)| *other != id);
            if of_file.is_empty() {
                opens.files.remove(&ino);
            }
        }
    }

    /// Removes all opens of clients that are gone.
    pub fn release_where(&self, is_gone: impl Fn(ClientId) -> bool) {
        let mut opens = self.0.lock();
        opens.remove_where(&is_gone);
        opens.courteous.retain(|client, _| !is_gone(*client));
    }

    /// A client was not heard of for longer than its lease: from now on its opens give way to those of others.
    pub fn begin_courtesy(&self, client: ClientId) {
        self.0.lock().courteous.entry(client).or_insert(false);
    }

    /// Whether the opens that a client has by courtesy gave way.
    pub fn has_given_way(&self, client: ClientId) -> bool {
        self.0.lock().courteous.get(&client).is_some_and(|gave_way| *gave_way)
    }

    /// A client is heard of again. Returns whether it has all its opens still.
    pub fn end_courtesy(&self, client: ClientId) -> bool {
        self.0.lock().courteous.remove(&client) != Some(true)
    }

    /// The accesses of all holders but one to a file.
    pub fn access_of_others(&self, ino: Ino, holder: LeaseHolder) -> Access {
        let opens = self.0.lock();
        let others = opens.files.get(&ino).into_iter().flatten();
        let others = others.filter(|(_, mode)| mode.holder != holder);
        others.fold(Access::NONE, |all, (_, mode)| all.union(mode.access))
    }

    /// Whether any but one holder has a file open.
    pub fn is_open_elsewhere(&self, ino: Ino, holder: LeaseHolder) -> bool {
        let opens = self.0.lock();
        let mut others = opens.files.get(&ino).into_iter().flatten();
        others.any(|(_, mode)| mode.holder != holder)
    }
}

impl Opens {
    /// Checks an open against all others, of which those of courteous clients give way.
    fn check(
        &mut self,
        ino: Ino,
        mode: &ShareMode,
        own: Option<OpenId>,
    ) -> Result<(), ShareConflict> {
        loop {
            let others = self.files.get(&ino).into_iter().flatten();
            let mut others = others.filter(|(id, _)| Some(*id) != own);
            let conflict = others.find(|(_, other)| mode.conflicts_with(other));
            let Some((_, other)) = conflict.copied() else { return Ok(()) };
            let client = other.holder.client;
            let Some(gave_way) = self.courteous.get_mut(&client) else {
                return Err(ShareConflict { other });
            };
            *gave_way = true;
            self.remove_where(&|holder| holder == client);
        }
    }

    fn remove_where(&mut self, is_gone: &dyn Fn(ClientId) -> bool) {
        self.files.retain(|_, opens| {
            opens.retain(|(_, mode)| !is_gone(mode.holder.client));
            !opens.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use posix::Ino;
    use proptest::prelude::*;

    use super::{Access, OpenTable, ShareMode};
    use crate::{ClientId, DoorId, LeaseHolder};

    fn mode((client, access, deny): (u64, u8, u8)) -> ShareMode {
        let client = ClientId { door: DoorId::DAEMON, client };
        let holder = LeaseHolder { client, key: 0 };
        ShareMode { holder, access: Access(access), deny: Access(deny) }
    }

    #[test]
    fn courteous_opens_give_way_once() {
        let table = OpenTable::default();
        let file = Ino::new(7);
        let silent = ClientId { door: DoorId::DAEMON, client: 1 };
        table.open(file, mode((1, 1, 2))).unwrap();
        table.begin_courtesy(silent);
        table.open(file, mode((2, 1, 0))).unwrap();
        assert!(!table.has_given_way(silent));
        assert!(table.end_courtesy(silent));
        table.open(file, mode((2, 2, 0))).unwrap_err();
        table.begin_courtesy(silent);
        table.open(file, mode((2, 2, 0))).unwrap();
        assert!(table.has_given_way(silent));
        assert!(!table.end_courtesy(silent));
        assert!(table.end_courtesy(silent));
    }

    proptest! {
        #[test]
        fn opens_never_conflict_with_each_other(
            steps in prop::collection::vec((0..3_u64, (0..3_u64, 0..8_u8, 0..8_u8), 0..4_u8), 1..40),
        ) {
            let (table, mut held) = (OpenTable::default(), Vec::new());
            for (ino, parts, what) in steps {
                let ino = Ino::new(ino);
                let new = mode(parts);
                let clash = |held: &[(Ino, _, ShareMode)], skip| held.iter().any(|(of, id, other)| {
                    let (one, two) = (&new, other);
                    *of == ino && Some(*id) != skip
                        && (one.access.0 & two.deny.0 != 0 || one.deny.0 & two.access.0 != 0)
                });
                let first = held.iter().position(|(of, _, _)| *of == ino);
                match (what, first) {
                    (0, Some(at)) => {
                        let (_, id, _) = held.remove(at);
                        table.close(ino, id);
                    }
                    (1, Some(at)) => {
                        let id = held[at].1;
                        let refused = clash(&held, Some(id));
                        prop_assert_eq!(table.change(ino, id, new).is_err(), refused);
                        if !refused {
                            held[at].2 = new;
                        }
                    }
                    (2, _) if parts.1 == 0 => {
                        table.release_where(|client| client == new.holder.client);
                        held.retain(|(_, _, other)| other.holder != new.holder);
                    }
                    _ => match table.open(ino, new) {
                        Ok(id) => {
                            prop_assert!(!clash(&held, None));
                            held.push((ino, id, new));
                        }
                        Err(why) => {
                            prop_assert!(clash(&held, None));
                            prop_assert!(held.iter().any(|(_, _, other)| *other == why.other));
                        }
                    },
                }
                let others = held.iter().filter(|(of, _, other)| *of == ino && other.holder != new.holder);
                let access = others.clone().fold(0, |all, (_, _, other)| all | other.access.0);
                prop_assert_eq!(table.access_of_others(ino, new.holder), Access(access));
                prop_assert_eq!(table.is_open_elsewhere(ino, new.holder), others.count() > 0);
            }
        }
    }
}
