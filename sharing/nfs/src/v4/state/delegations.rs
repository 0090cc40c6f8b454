//! Delegations: leases of files that clients hold (RFC 5661 and RFC 7530, section 10.4).
//!
//! ```text
//! granted ── another client uses the file ──▶ recalled ── DELEGRETURN ──▶ gone
//!                                               │
//!                                               └─ no answer in time ──▶ revoked ── FREE_STATEID ──▶ gone
//! ```
//!
//! The lease table of the file system decides when a lease must come back, whatever door the other client uses, and
//! revokes it from a client that does not answer. A client of NFSv4.0 has no FREE_STATEID: a delegation that is revoked from
//! it is gone at once. A request for attributes recalls nothing: the server asks the holder of a write delegation for those
//! that it may have changed (CB_GETATTR), and the holder keeps the delegation.
//!
//! A thread for each client that has something to return calls the client; it ends when nothing is left to recall.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use vfs::{Context, FileHandle, LeaseCallback, LeaseEvent, LeaseId, LeaseRights};

use super::callback_path::CallbackPath;
use super::clients::Client;
use super::{Removed, StateTable, Tables};
use crate::node::FileNode;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{CachedAttributes, StateId};

/// The time that a client has to reply to a call.
const REPLY_TIME: Duration = Duration::from_secs(10);
/// The time until a client that could not be called is called again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time that a client has to tell the attributes of a file. Then the delegation is recalled.
const ATTRIBUTE_TIME: Duration = Duration::from_secs(2);
/// The number of a delegation's state, which never changes.
const SEQID: u32 = 1;

/// A delegation.
pub(super) struct Delegation {
    pub(super) client: u64,
    pub(super) node: FileNode,
    /// The bytes of the file's handle.
    handle: Vec<u8>,
    /// The lease; none: it is not granted yet, or it was revoked.
    lease: Option<LeaseId>,
    is_write: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Held,
    Recalled,
    Revoked,
}

/// The delegations that a client must return.
#[derive(Default)]
pub(super) struct RecallQueue {
    numbers: VecDeque<u64>,
    /// Whether a thread calls the client.
    has_thread: bool,
}

/// A delegation that a client asks for.
pub(crate) struct DelegationRequest<'a> {
    pub(crate) node: &'a FileNode,
    pub(crate) handle: Vec<u8>,
    pub(crate) is_write: bool,
}

/// The client with a write delegation.
struct WriteHolder {
    holder: u64,
    /// Whether the asker is the holder: a client of NFSv4.0, most of whose requests do not say whose they are.
    is_asker: bool,
    /// The bytes of the file's handle.
    handle: Vec<u8>,
    paths: Vec<CallbackPath>,
}

/// A delegation that is to be recalled.
struct PendingRecall {
    state: StateId,
    handle: Vec<u8>,
    paths: Vec<CallbackPath>,
}

impl Delegation {
    /// Gives the lease back.
    pub(super) fn release(&self) {
        if let Some(lease) = self.lease {
            self.node.export.filesystem.leases().release(self.node.ino, lease);
        }
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.phase == Phase::Revoked
    }
}

impl StateTable {
    /// Grants a delegation, unless others use the file in a way that conflicts.
    pub(crate) fn grant_delegation(
        &self,
        context: &Context<'_>,
        request: DelegationRequest<'_>,
    ) -> Option<StateId> {
        let DelegationRequest { node, handle, is_write } = request;
        let client = context.client;
        let number = {
            let mut tables = self.lock();
            let number = tables.next_number();
            let record = tables.client_mut(client).ok()?;
            if record.delegations.contains_key(&node.handle)
                || record.states() >= self.limits.states
            {
                return None;
            }
            record.delegations.insert(node.handle, number);
            let (node, phase) = (node.clone(), Phase::Held);
            let delegation = Delegation { client, node, handle, lease: None, is_write, phase };
            tables.delegations.insert(number, delegation);
            number
        };
        let read = LeaseRights::READ;
        let rights = if is_write { read.union(LeaseRights::WRITE) } else { read };
        let callback = self.lease_callback(number);
        let fs = &node.export.filesystem;
        let lease = fs.grant_lease(context, node.ino, rights, callback);
        let mut tables = self.lock();
        if let Some(lease) = lease
            && let Some(delegation) = tables.delegations.get_mut(&number)
        {
            delegation.lease = Some(lease);
            if delegation.phase == Phase::Held {
                tables.note_reclaim(client);
                return Some(self.state_id(number, SEQID));
            }
        }
        // recalled before it was granted, or the client is gone
        let removed = tables.remove_delegation(number);
        drop(tables);
        match (removed, lease) {
            (Some(removed), _) => removed.release(),
            (None, Some(lease)) => fs.leases().release(node.ino, lease),
            (None, None) => {}
        }
        None
    }

    /// The function that the lease table calls when the lease must come back.
    fn lease_callback(&self, number: u64) -> LeaseCallback {
        let (tables, boot) = (Arc::downgrade(&self.tables), self.boot);
        Arc::new(move |event| {
            let Some(tables) = tables.upgrade() else { return };
            match event {
                LeaseEvent::Recall { .. } => recall(&tables, number, boot),
                LeaseEvent::Revoked { ino, lease, .. } => {
                    let mut locked = tables.lock();
                    let Some(delegation) = locked.delegations.get_mut(&number) else { return };
                    delegation.phase = Phase::Revoked;
                    delegation.lease = None;
                    let (node, client) = (delegation.node.clone(), delegation.client);
                    let is_minor0 = locked.clients.get(&client).is_some_and(Client::is_minor0);
                    let removed = if is_minor0 { locked.remove_delegation(number) } else { None };
                    drop(locked);
                    drop(removed);
                    // a client that may still read holds nothing: a delegation is returned as a whole
                    node.export.filesystem.leases().release(ino, lease);
                }
            }
        })
    }

    /// Asks the client that has a write delegation of a file for the attributes in its cache, on behalf of another client,
    /// which is known by its number and address. Returns them with the number of the holder; no attributes: the holder asks
    /// itself. None: there is no such delegation, or the holder does not answer.
    pub(crate) fn cached_attributes(
        &self,
        asker: (u64, SocketAddr),
        file: &FileHandle,
    ) -> Option<(u64, Option<CachedAttributes>)> {
        let WriteHolder { holder, is_asker, handle, paths } =
            self.lock().write_holder(asker, file)?;
        if is_asker {
            return Some((holder, None));
        }
        let mut answers = paths.iter().map(|it| it.cached_attributes(&handle, ATTRIBUTE_TIME));
        Some((holder, Some(answers.find_map(|answer| answer)?)))
    }

    /// DELEGRETURN.
    pub(crate) fn return_delegation(
        &self,
        client: u64,
        id: &StateId,
        file: &FileHandle,
    ) -> Result<()> {
        let mut tables = self.lock();
        let number = self.state_number(id)?;
        let delegation = tables.delegation(client, number)?;
        if delegation.node.handle != *file {
            return Err(Status::BAD_STATEID);
        }
        check_phase(delegation, id)?;
        let removed = tables.remove_delegation(number);
        drop(tables);
        if let Some(removed) = removed {
            removed.release();
        }
        Ok(())
    }

    /// The access that a delegation gives to a file: 1 read, 3 both. None: the state is no delegation.
    pub(crate) fn delegated_access(
        &self,
        client: u64,
        id: &StateId,
        file: &FileHandle,
    ) -> Result<Option<u32>> {
        let tables = self.lock();
        let number = self.state_number(id)?;
        let Ok(delegation) = tables.delegation(client, number) else { return Ok(None) };
        check_phase(delegation, id)?;
        if delegation.node.handle != *file {
            return Err(Status::BAD_STATEID);
        }
        Ok(Some(if delegation.is_write { 3 } else { 1 }))
    }
}

fn check_phase(delegation: &Delegation, id: &StateId) -> Result<()> {
    if delegation.phase == Phase::Revoked {
        return Err(Status::DELEG_REVOKED);
    }
    super::opens::check_seqid(id, SEQID)
}

impl Tables {
    pub(super) fn delegation(&self, client: u64, number: u64) -> Result<&Delegation> {
        let delegation = self.delegations.get(&number);
        delegation.filter(|found| found.client == client).ok_or(Status::BAD_STATEID)
    }

    /// The client with a write delegation of a file, unless the asker has said that it is that client.
    fn write_holder(
        &self,
        (client, address): (u64, SocketAddr),
        file: &FileHandle,
    ) -> Option<WriteHolder> {
        let others =
            self.clients.iter().filter(|(number, it)| **number != client && !it.is_courteous);
        let mut held = others.filter_map(|(number, holder)| {
            let delegation = self.delegations.get(holder.delegations.get(file)?)?;
            // the connection tells whose request it is
            let is_asker = holder.is_minor0() && holder.address == address;
            let is_held = match delegation.phase {
                Phase::Held => delegation.is_write,
                Phase::Recalled => delegation.is_write && is_asker,
                Phase::Revoked => false,
            };
            is_held.then(|| WriteHolder {
                holder: *number,
                is_asker,
                handle: delegation.handle.clone(),
                paths: self.callback_paths(holder),
            })
        });
        held.next()
    }

    /// TEST_STATEID of a delegation.
    pub(super) fn test_delegation(&self, client: u64, number: u64, id: &StateId) -> Result<()> {
        check_phase(self.delegation(client, number)?, id)
    }

    /// Removes a delegation. The caller releases its lease without the lock.
    #[must_use]
    pub(super) fn remove_delegation(&mut self, number: u64) -> Option<Delegation> {
        let removed = self.delegations.remove(&number)?;
        if let Some(client) = self.clients.get_mut(&removed.client) {
            client.delegations.remove(&removed.node.handle);
        }
        Some(removed)
    }

    /// FREE_STATEID of a delegation: only one that was revoked.
    pub(super) fn free_delegation(
        &mut self,
        (client, number): (u64, u64),
        removed: &mut Removed,
    ) -> Result<()> {
        if !self.delegation(client, number)?.is_revoked() {
            return Err(Status::LOCKS_HELD);
        }
        removed.delegations.extend(self.remove_delegation(number));
        Ok(())
    }

    /// The delegation that a client's thread recalls next; none: the thread ends.
    fn next_recall(&mut self, client: u64, boot: u32) -> Option<PendingRecall> {
        let record = self.clients.get_mut(&client)?;
        while let Some(number) = record.recalls.numbers.pop_front() {
            let Some(delegation) = self.delegations.get(&number) else { continue };
            if delegation.phase != Phase::Recalled {
                continue;
            }
            let (state, handle) = (super::state_id(boot, number, SEQID), delegation.handle.clone());
            let paths = self.callback_paths(self.clients.get(&client)?);
            return Some(PendingRecall { state, handle, paths });
        }
        record.recalls.has_thread = false;
        None
    }
}

/// A lease must come back: its client is called.
fn recall(tables: &Arc<Mutex<Tables>>, number: u64, boot: u32) {
    let mut locked = tables.lock();
    let Some(delegation) = locked.delegations.get_mut(&number) else { return };
    if delegation.phase != Phase::Held {
        return;
    }
    delegation.phase = Phase::Recalled;
    let client = delegation.client;
    let Some(record) = locked.clients.get_mut(&client) else { return };
    record.recalls.numbers.push_back(number);
    if record.recalls.has_thread {
        return;
    }
    record.recalls.has_thread = true;
    let weak = Arc::downgrade(tables);
    let thread = std::thread::Builder::new().name("nfs-recall".to_owned());
    if thread.spawn(move || call_client(&weak, client, boot)).is_err() {
        // the lease is revoked in time
        record.recalls.has_thread = false;
    }
}

/// Recalls delegations of a client until none is left.
fn call_client(tables: &Weak<Mutex<Tables>>, client: u64, boot: u32) {
    let mut removed = Removed::default();
    let is_gone = |tables: &Mutex<Tables>, removed: &mut Removed| {
        tables.lock().remove_if_courteous(client, removed)
    };
    loop {
        if tables.upgrade().is_none_or(|tables| is_gone(&tables, &mut removed)) {
            return;
        }
        let next = tables.upgrade().and_then(|tables| tables.lock().next_recall(client, boot));
        let Some(PendingRecall { state, handle, paths }) = next else { return };
        let mut results = paths.iter().map(|it| it.recall(&state, &handle, REPLY_TIME));
        if results.any(|result| result == Some(Status::OK)) {
            continue;
        }
        // no path to the client, or it does not know the delegation yet: its OPEN is being answered
        std::thread::sleep(RETRY_INTERVAL);
        if let Some(tables) = tables.upgrade()
            && let Some(record) = tables.lock().clients.get_mut(&client)
        {
            let [.., a, b, c, d, e, f, g, h] = state.other;
            record.recalls.numbers.push_back(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
        }
    }
}
