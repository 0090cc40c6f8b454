//! Opens: OPEN, OPEN_DOWNGRADE, CLOSE, and the open file of a stateid.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use vfs::{FileHandle, OpenFile};

use super::{Removed, StateTable, Tables};
use crate::node::FileNode;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::StateId;

/// An open file of an open owner.
pub(super) struct OpenState {
    pub(super) client: u64,
    pub(super) owner: Vec<u8>,
    /// The user who opened the file.
    uid: u32,
    /// Whether the owner is confirmed, as it always is but in NFSv4.0.
    pub(super) is_confirmed: bool,
    pub(super) node: FileNode,
    file: Arc<RwLock<OpenFile>>,
    /// The access of the client: 1 read, 2 write.
    access: u32,
    /// The access that it denies to others.
    deny: u32,
    /// The combinations that it has opened the file for: a downgrade goes back to one of them.
    combinations: HashSet<(u32, u32)>,
    seqid: u32,
    /// The numbers of the lock states below it.
    pub(super) locks: HashSet<u64>,
}

/// A file that was opened for a client, and is to be entered.
pub(crate) struct NewOpen<'a> {
    pub(crate) client: u64,
    pub(crate) owner: &'a [u8],
    pub(crate) uid: u32,
    pub(crate) node: FileNode,
    pub(crate) file: OpenFile,
    pub(crate) access: u32,
    pub(crate) deny: u32,
    /// Whether the owner is confirmed.
    pub(crate) is_confirmed: bool,
}

/// An open file as a stateid names it.
#[derive(Clone)]
pub(crate) struct OpenTarget {
    pub(crate) file: Arc<RwLock<OpenFile>>,
    pub(crate) access: u32,
    pub(crate) deny: u32,
    /// The user who opened the file.
    pub(crate) uid: u32,
}

/// The number that follows: 0 has a meaning of its own.
pub(super) fn next_seqid(seqid: u32) -> u32 {
    seqid.checked_add(1).unwrap_or(1)
}

/// Checks the number of a state's last change, as a client knows it.
pub(super) fn check_seqid(id: &StateId, current: u32) -> Result<()> {
    match id.seqid {
        0 => Ok(()),
        seqid if seqid == current => Ok(()),
        seqid if seqid < current => Err(Status::OLD_STATEID),
        _ => Err(Status::BAD_STATEID),
    }
}

impl OpenState {
    /// The number of combinations of access and denial that the client has opened the file for: it reclaims each.
    pub(super) fn count_combinations(&self) -> usize {
        self.combinations.len()
    }
}

impl StateTable {
    /// Checks whether a client may open something now, and has room for it.
    pub(crate) fn check_open(&self, client: u64, is_reclaim: bool) -> Result<()> {
        let tables = self.lock();
        tables.check_grace(client, is_reclaim)?;
        if tables.client(client)?.states() >= self.limits.states {
            return Err(Status::RESOURCE);
        }
        Ok(())
    }

    /// The open that an owner has of a file, if any.
    pub(crate) fn find_open(
        &self,
        client: u64,
        owner: &[u8],
        file: &FileHandle,
    ) -> Option<OpenTarget> {
        let tables = self.lock();
        let number = tables.client(client).ok()?.opens.get(&(owner.to_vec(), *file))?;
        tables.opens.get(number).map(OpenState::target)
    }

    /// Enters an open file. None: another request of the owner has opened the file meanwhile, and the caller widens
    /// that open. The file of this one is closed then.
    pub(crate) fn enter_open(&self, new: NewOpen<'_>) -> Result<Option<StateId>> {
        let NewOpen { client, owner, uid, node, file, access, deny, is_confirmed } = new;
        let (owner, handle) = (owner.to_vec(), node.handle);
        let file = Arc::new(RwLock::new(file));
        let mut tables = self.lock();
        if tables.client(client)?.opens.contains_key(&(owner.clone(), handle)) {
            // the lock is dropped before the file
            return Ok(None);
        }
        let number = tables.next_number();
        let (key, seqid) = ((owner.clone(), handle), 1);
        let (combinations, locks) = (HashSet::from([(access, deny)]), HashSet::new());
        let open = OpenState {
            client,
            owner,
            uid,
            is_confirmed,
            node,
            file,
            access,
            deny,
            combinations,
            seqid,
            locks,
        };
        tables.opens.insert(number, open);
        tables.client_mut(client)?.opens.insert(key, number);
        tables.note_reclaim(client);
        Ok(Some(self.state_id(number, seqid)))
    }

    /// Enters that an owner has opened a file once more, which was changed to that before.
    pub(crate) fn enter_widened(
        &self,
        client: u64,
        owner: &[u8],
        file: &FileHandle,
        (access, deny): (u32, u32),
    ) -> Result<StateId> {
        let mut tables = self.lock();
        let known = tables.client(client)?.opens.get(&(owner.to_vec(), *file)).copied();
        // another request of the owner has closed it meanwhile: the client tries again
        let number = known.ok_or(Status::DELAY)?;
        let seqid = tables.widen_open(number, access, deny)?;
        tables.note_reclaim(client);
        Ok(self.state_id(number, seqid))
    }

    /// The open that OPEN_DOWNGRADE narrows to a combination that it was opened for.
    pub(crate) fn check_downgrade(
        &self,
        client: u64,
        id: &StateId,
        (access, deny): (u32, u32),
    ) -> Result<(FileNode, OpenTarget)> {
        let tables = self.lock();
        let open = tables.open(client, self.state_number(id)?)?;
        check_seqid(id, open.seqid)?;
        let is_subset = access & !open.access == 0 && deny & !open.deny == 0;
        let narrower = open.combinations.iter().filter(|(a, d)| a & !access == 0 && d & !deny == 0);
        let union = narrower.fold((0, 0), |all, one| (all.0 | one.0, all.1 | one.1));
        if !is_subset || access == 0 || union != (access, deny) {
            return Err(Status::INVAL);
        }
        Ok((open.node.clone(), open.target()))
    }

    /// Enters that an open was narrowed.
    pub(crate) fn enter_downgraded(
        &self,
        client: u64,
        id: &StateId,
        (access, deny): (u32, u32),
    ) -> Result<StateId> {
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        let open = tables.opens.get_mut(&number).filter(|open| open.client == client);
        let open = open.ok_or(Status::BAD_STATEID)?;
        (open.access, open.deny) = (access, deny);
        open.combinations.retain(|(a, d)| a & !access == 0 && d & !deny == 0);
        open.seqid = next_seqid(open.seqid);
        Ok(self.state_id(number, open.seqid))
    }

    /// OPEN_CONFIRM: the owner of an open is confirmed.
    pub(crate) fn confirm_open(&self, id: &StateId, file: &FileHandle) -> Result<StateId> {
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        let open = tables.opens.get_mut(&number).filter(|open| !open.is_confirmed);
        let open = open.filter(|open| open.node.handle == *file).ok_or(Status::BAD_STATEID)?;
        check_seqid(id, open.seqid)?;
        open.is_confirmed = true;
        open.seqid = next_seqid(open.seqid);
        Ok(self.state_id(number, open.seqid))
    }

    /// CLOSE: ends an open with the locks below it.
    pub(crate) fn close(&self, client: u64, id: &StateId, file: &FileHandle) -> Result<()> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        let open = tables.open(client, number)?;
        check_seqid(id, open.seqid)?;
        if open.node.handle != *file {
            return Err(Status::BAD_STATEID);
        }
        tables.remove_open(number, &mut removed);
        Ok(())
    }

    /// The open file of a stateid: of an open, or of locks below it.
    pub(crate) fn open_target(
        &self,
        client: u64,
        id: &StateId,
        file: &FileHandle,
    ) -> Result<OpenTarget> {
        let tables = self.lock();
        let number = self.state_number(id)?;
        let number = if let Some(lock) = tables.locks.get(&number) {
            check_seqid(id, lock.seqid)?;
            lock.open
        } else {
            check_seqid(id, tables.open(client, number)?.seqid)?;
            number
        };
        let open = tables.open(client, number)?;
        if open.node.handle == *file { Ok(open.target()) } else { Err(Status::BAD_STATEID) }
    }

    /// TEST_STATEID.
    pub(crate) fn test_state(&self, client: u64, id: &StateId) -> Status {
        if id.is_special() {
            return Status::BAD_STATEID;
        }
        let tables = self.lock();
        let tested = self.state_number(id).and_then(|number| {
            if tables.delegations.contains_key(&number) {
                return tables.test_delegation(client, number, id);
            }
            check_seqid(id, tables.seqid(client, number)?)
        });
        match tested {
            Ok(()) => Status::OK,
            Err(status) => status,
        }
    }
}

impl OpenState {
    fn target(&self) -> OpenTarget {
        let Self { access, deny, uid, .. } = *self;
        OpenTarget { file: Arc::clone(&self.file), access, deny, uid }
    }
}

impl Tables {
    pub(super) fn open(&self, client: u64, number: u64) -> Result<&OpenState> {
        let open = self.opens.get(&number).filter(|open| open.client == client);
        open.ok_or(Status::BAD_STATEID)
    }

    pub(super) fn open_seqid(&self, client: u64, number: u64) -> Result<u32> {
        Ok(self.open(client, number)?.seqid)
    }

    /// The access of an open: 1 read, 2 write.
    pub(super) fn open_access(&self, number: u64) -> Result<u32> {
        Ok(self.opens.get(&number).ok_or(Status::BAD_STATEID)?.access)
    }

    fn seqid(&self, client: u64, number: u64) -> Result<u32> {
        let lock = self.locks.get(&number).filter(|lock| lock.client == client);
        lock.map_or_else(|| Ok(self.open(client, number)?.seqid), |lock| Ok(lock.seqid))
    }

    fn widen_open(&mut self, number: u64, access: u32, deny: u32) -> Result<u32> {
        let open = self.opens.get_mut(&number).ok_or(Status::SERVERFAULT)?;
        open.access |= access;
        open.deny |= deny;
        open.combinations.insert((access, deny));
        open.seqid = next_seqid(open.seqid);
        Ok(open.seqid)
    }

    /// Removes an open with the locks below it.
    pub(super) fn remove_open(&mut self, number: u64, removed: &mut Removed) {
        let Some(open) = self.opens.remove(&number) else { return };
        for lock in &open.locks {
            self.remove_lock(*lock);
        }
        if let Some(client) = self.clients.get_mut(&open.client) {
            client.opens.remove(&(open.owner.clone(), open.node.handle));
        }
        removed.opens.push(open);
    }
}
