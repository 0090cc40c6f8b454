//! Opens and their share modes: each client's access to a file, and the accesses that it denies to
//! others.
//!
//! SMB (CREATE) and NFSv4 (OPEN) let a client deny others access while it has a file open. A new open fails if it
//! wants what an existing one denies, or denies what an existing one has. Opens of one client do not except each
//! other: both protocols compare every pair.
//!
//! Leases depend on the same table: a client gets the right to cache writes only while no other
//! client has the file open.

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
        self.0.lock().files.retain(|_, opens| {
            opens.retain(|(_, mode)| !is_gone(mode.holder.client));
            !opens.is_empty()
        });
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
    fn check(&self, ino: Ino, mode: &ShareMode, own: Option<OpenId>) -> Result<(), ShareConflict> {
        let others = self.files.get(&ino).into_iter().flatten();
        let mut others = others.filter(|(id, _)| Some(*id) != own);
        match others.find(|(_, other)| mode.conflicts_with(other)) {
            Some((_, other)) => Err(ShareConflict { other: *other }),
            None => Ok(()),
        }
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
