//! Owners of opens and locks in NFSv4.0, whose requests are numbered (RFC 7530, section 9.1.3 and after).
//!
//! A client of NFSv4.0 has no sessions. Each of its open owners and lock owners counts its own requests instead:
//!
//! ```text
//! number of the request   what the server does
//! last + 1                carries it out, and keeps the result
//! last                    sends the kept result again
//! another one             BAD_SEQID
//! ```
//!
//! An owner has one request at a time: a repetition waits until the first is carried out. An open owner that the server
//! does not know must confirm its first OPEN by OPEN_CONFIRM, since that OPEN may be a repetition from long ago.
//!
//! An open owner without opens is forgotten after the time of a lease, and a lock owner with its last lock state.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::locks::LockState;
use super::{StateTable, Tables};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{StateId, op};

/// An owner of opens or locks.
#[derive(Default)]
pub(crate) struct SeqOwner(Mutex<OwnerTurn>);

/// The turn of a request of an owner.
#[derive(Default)]
pub(crate) struct OwnerTurn {
    last: Option<OwnerRequest>,
    /// Whether the client has confirmed the open owner.
    pub(crate) is_confirmed: bool,
    /// The open that the last request closed: a repetition names it.
    pub(crate) closed: Option<u64>,
}

/// A request of an owner, and its result.
struct OwnerRequest {
    seqid: u32,
    operation: u32,
    result: OwnerResult,
}

/// The result of an owner's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnerResult {
    pub(crate) status: Status,
    /// The bytes behind the status.
    pub(crate) body: Vec<u8>,
    /// The handle of the file that an OPEN made the current one.
    pub(crate) current: Option<Vec<u8>>,
}

/// An open owner in the table of its client.
pub(super) struct OpenOwnerEntry {
    sequence: Arc<SeqOwner>,
    used: Instant,
}

/// States of vanished clients that are remembered. Clients name a state that is forgotten as well get BAD_STATEID, and
/// open their files again after both.
const MAX_EXPIRED: usize = 4096;

/// Whether a result advances the number of its owner: a request that failed like that counts as never sent.
fn advances(status: Status) -> bool {
    ![
        Status::STALE_CLIENTID,
        Status::STALE_STATEID,
        Status::BAD_STATEID,
        Status::BAD_SEQID,
        Status::BADXDR,
        Status::RESOURCE,
        Status::NOFILEHANDLE,
    ]
    .contains(&status)
}

impl SeqOwner {
    /// Waits until the owner's earlier request is carried out.
    pub(crate) fn lock(&self) -> MutexGuard<'_, OwnerTurn> {
        self.0.lock()
    }
}

impl OwnerTurn {
    /// Begins a request. Some: it is a repetition, with this result.
    pub(crate) fn begin(&self, operation: u32, seqid: u32) -> Result<Option<OwnerResult>> {
        match &self.last {
            Some(last) if seqid == last.seqid && operation == last.operation => {
                Ok(Some(last.result.clone()))
            }
            Some(last) if seqid != last.seqid.wrapping_add(1) => Err(Status::BAD_SEQID),
            _ => Ok(None),
        }
    }

    /// Whether an OPEN replaces what the owner has opened: the client did not confirm it, so that the client may have
    /// started to count anew.
    pub(crate) fn is_replaced_by(&self, seqid: u32) -> bool {
        let is_repeated = |last: &OwnerRequest| last.seqid == seqid && last.operation == op::OPEN;
        !self.is_confirmed && self.last.as_ref().is_some_and(|last| !is_repeated(last))
    }

    /// Forgets the requests from before.
    pub(crate) fn restart(&mut self) {
        self.last = None;
    }

    /// Ends a request.
    pub(crate) fn finish(&mut self, operation: u32, seqid: u32, result: OwnerResult) {
        if advances(result.status) {
            self.last = Some(OwnerRequest { seqid, operation, result });
        }
    }
}

impl StateTable {
    /// The open owner of a name, new or as it is.
    pub(crate) fn open_owner(&self, client: u64, name: &[u8]) -> Result<Arc<SeqOwner>> {
        let mut tables = self.lock();
        let limit = self.limits.states;
        let client = tables.client_mut(client)?;
        if let Some(entry) = client.open_owners.get_mut(name) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.sequence));
        }
        if client.open_owners.len() >= limit {
            client.forget_idle_owners(Duration::ZERO);
        }
        if client.open_owners.len() >= limit {
            return Err(Status::RESOURCE);
        }
        let entry = OpenOwnerEntry { sequence: Arc::default(), used: Instant::now() };
        let sequence = Arc::clone(&entry.sequence);
        client.open_owners.insert(name.to_vec(), entry);
        Ok(sequence)
    }

    /// The open owner that has an open, or has closed it by its last request. Returns its client and name as well.
    pub(crate) fn owner_of_open(&self, id: &StateId) -> Result<(u64, Vec<u8>, Arc<SeqOwner>)> {
        let mut tables = self.lock();
        let number = self.number_v40(id)?;
        let known = tables.opens.get(&number).map(|open| (open.client, open.owner.clone()));
        let known = known.or_else(|| tables.closed.get(&number).cloned());
        let (client, name) = known.ok_or_else(|| tables.missing(number))?;
        let owners = &mut tables.client_mut(client)?.open_owners;
        let entry = owners.get_mut(&name).ok_or(Status::BAD_STATEID)?;
        entry.used = Instant::now();
        let sequence = Arc::clone(&entry.sequence);
        Ok((client, name, sequence))
    }

    /// The lock owner of a lock state, and its client.
    pub(crate) fn owner_of_lock(&self, id: &StateId) -> Result<(u64, Arc<SeqOwner>)> {
        let mut tables = self.lock();
        let number = self.number_v40(id)?;
        let lock = tables.locks.get(&number).ok_or_else(|| tables.missing(number))?;
        let (client, name) = (lock.client, lock.owner.clone());
        let record = tables.client_mut(client)?;
        if !record.is_minor0() {
            return Err(Status::BAD_STATEID);
        }
        Ok((client, Arc::clone(record.lock_sequences.entry(name).or_default())))
    }

    /// The lock owner of a name, new or as it is. See [`StateTable::forget_unused_lock_owner`].
    pub(crate) fn lock_owner(&self, client: u64, name: &[u8]) -> Result<Arc<SeqOwner>> {
        let mut tables = self.lock();
        let owners = &mut tables.client_mut(client)?.lock_sequences;
        Ok(Arc::clone(owners.entry(name.to_vec()).or_default()))
    }

    /// Forgets a lock owner that has got no lock state.
    pub(crate) fn forget_unused_lock_owner(&self, client: u64, name: &[u8]) {
        let mut tables = self.lock();
        let Ok(client) = tables.client_mut(client) else { return };
        if !client.lock_owners.contains_key(name) {
            client.lock_sequences.remove(name);
        }
    }

    /// Removes what an open owner that was never confirmed has opened.
    pub(crate) fn remove_unconfirmed_opens(&self, client: u64, name: &[u8]) {
        let mut removed = super::Removed::default();
        let mut tables = self.lock();
        let Ok(record) = tables.client(client) else { return };
        let numbers = record.opens.iter().filter(|((owner, _), _)| owner == name);
        let numbers: Vec<u64> = numbers.map(|(_, number)| *number).collect();
        for number in numbers {
            tables.remove_open(number, &mut removed);
        }
        drop(tables);
    }

    /// Remembers whose open was closed, until the owner's next request.
    pub(crate) fn remember_closed(&self, id: &StateId, client: u64, name: &[u8]) -> Result<u64> {
        let number = self.state_number(id)?;
        self.lock().closed.insert(number, (client, name.to_vec()));
        Ok(number)
    }

    /// Forgets a closed open, whose owner has sent its next request.
    pub(crate) fn forget_closed(&self, number: u64) {
        self.lock().closed.remove(&number);
    }

    /// The number of a state as a client of NFSv4.0 names it: one of an earlier start of the server is stale.
    fn number_v40(&self, id: &StateId) -> Result<u64> {
        if [StateId::ANONYMOUS.other, StateId::BYPASS.other].contains(&id.other) {
            return Err(Status::BAD_STATEID);
        }
        self.state_number(id).map_err(|_| Status::STALE_STATEID)
    }

    /// The client of a confirmed state of NFSv4.0, which is alive by this request.
    pub(crate) fn client_of_state(
        &self,
        id: &StateId,
        address: std::net::SocketAddr,
    ) -> Result<u64> {
        let mut removed = super::Removed::default();
        let mut tables = self.lock();
        let number = self.number_v40(id)?;
        let of_lock = tables.locks.get(&number).map(|lock| lock.client);
        let of_open = tables.opens.get(&number).filter(|open| open.is_confirmed);
        let of_delegation = tables.delegations.get(&number).map(|delegation| delegation.client);
        let client = of_lock.or_else(|| of_open.map(|open| open.client)).or(of_delegation);
        let client = client.ok_or_else(|| tables.missing(number))?;
        if !tables.client(client)?.is_minor0() {
            return Err(Status::BAD_STATEID);
        }
        tables.renew(client, address, &mut removed)?;
        // no request of NFSv4.0 leaves the number of a state out
        if id.seqid == 0 { Err(Status::OLD_STATEID) } else { Ok(client) }
    }

    /// RELEASE_LOCKOWNER: frees the lock states of an owner that holds no lock any more.
    pub(crate) fn release_lock_owner(&self, client: u64, name: &[u8]) -> Result<()> {
        let mut tables = self.lock();
        let states = tables.client(client)?.locks.iter();
        let numbers = states.filter(|((owner, _), _)| owner == name).map(|(_, number)| *number);
        let numbers: Vec<u64> = numbers.collect();
        let has_lock = |number: &u64| tables.locks.get(number).is_some_and(LockState::holds_any);
        if numbers.iter().any(has_lock) {
            return Err(Status::LOCKS_HELD);
        }
        for number in numbers {
            tables.remove_lock(number);
        }
        Ok(())
    }
}

impl super::clients::Client {
    /// Forgets the open owners that have no opens and were not used for a time.
    pub(super) fn forget_idle_owners(&mut self, time: Duration) {
        let Self { open_owners, opens, .. } = self;
        let busy: HashSet<&[u8]> = opens.keys().map(|(owner, _)| &owner[..]).collect();
        open_owners.retain(|name, entry| {
            entry.used.elapsed() < time
                || Arc::strong_count(&entry.sequence) > 1
                || busy.contains(&name[..])
        });
    }
}

impl Tables {
    /// The status of a state that is not in the tables.
    fn missing(&self, number: u64) -> Status {
        let is_expired = self.expired.contains(&number);
        if is_expired { Status::EXPIRED } else { Status::BAD_STATEID }
    }

    /// Remembers states that end with their client.
    pub(super) fn remember_expired(&mut self, numbers: impl Iterator<Item = u64>) {
        self.expired.extend(numbers);
        while self.expired.len() > MAX_EXPIRED {
            self.expired.pop_front();
        }
    }

    /// Forgets the open owners that were idle for a time, with the opens that they have closed.
    pub(super) fn forget_idle_owners(&mut self, time: Duration) {
        for client in self.clients.values_mut().filter(|client| client.is_minor0()) {
            client.forget_idle_owners(time);
        }
        let clients = &self.clients;
        self.closed.retain(|_, (client, name)| {
            clients.get(client).is_some_and(|client| client.open_owners.contains_key(name))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: Status) -> OwnerResult {
        OwnerResult { status, body: vec![1], current: None }
    }

    #[test]
    fn numbers_tell_repeated_requests() {
        let owner = SeqOwner::default();
        let mut turn = owner.lock();
        // the first request of an owner may have any number
        assert_eq!(turn.begin(op::OPEN, u32::MAX), Ok(None));
        turn.finish(op::OPEN, u32::MAX, result(Status::NOENT));
        assert_eq!(turn.begin(op::OPEN, u32::MAX), Ok(Some(result(Status::NOENT))));
        assert_eq!(turn.begin(op::CLOSE, u32::MAX), Err(Status::BAD_SEQID));
        assert_eq!(turn.begin(op::CLOSE, 1), Err(Status::BAD_SEQID));
        assert_eq!(turn.begin(op::CLOSE, 0), Ok(None));
        turn.finish(op::CLOSE, 0, result(Status::BAD_STATEID));
        assert_eq!(turn.begin(op::CLOSE, 0), Ok(None));
        assert!(turn.is_replaced_by(5));
        assert!(!turn.is_replaced_by(u32::MAX));
        turn.is_confirmed = true;
        assert!(!turn.is_replaced_by(5));
    }
}
