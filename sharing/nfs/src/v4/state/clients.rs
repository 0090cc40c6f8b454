//! Clients: EXCHANGE_ID, CREATE_SESSION, and their end (RFC 5661, sections 18.35 to 18.37, 18.50, 18.51). Those of NFSv4.0
//! make themselves known by other operations: see `clients_v40`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use vfs::FileHandle;

use super::callback_program::CallbackProgram;
use super::clients_v40::Confirmation;
use super::delegations::{Delegation, RecallQueue};
use super::owners::{OpenOwnerEntry, SeqOwner};
use super::{NewSession, Removed, Session, StateTable, Tables};
use crate::export::Caller;
use crate::request::Result;
use crate::wire::rpc::Credentials;
use crate::wire::status::Status;
use crate::wire::v4::{ClientOwner, CreateSession, ExchangeId, SessionId, Verifier};

/// SEQUENCE: the server cannot call the client.
const CALLBACK_PATH_DOWN: u32 = 0x1;
/// SEQUENCE: the client has delegations that were revoked.
const RECALLABLE_STATE_REVOKED: u32 = 0x40;
/// SEQUENCE: the server cannot call the client by this session.
const CALLBACK_PATH_DOWN_SESSION: u32 = 0x200;

/// A client.
pub(super) struct Client {
    pub(super) owner: Vec<u8>,
    pub(super) verifier: Verifier,
    pub(super) principal: Principal,
    /// How a client of NFSv4.0 confirms itself; none: the client has sessions.
    pub(super) confirmation: Option<Confirmation>,
    pub(super) is_confirmed: bool,
    /// The number that its next CREATE_SESSION must have.
    next_sequence: u32,
    /// The last session that it created, for a repetition of the request.
    last_created: Option<SessionId>,
    pub(super) sessions: Vec<SessionId>,
    /// The time of its last request.
    pub(super) renewed: Instant,
    pub(super) address: SocketAddr,
    /// Whether it is silent, and keeps its state as long as nobody needs it.
    pub(super) is_courteous: bool,
    /// Whether it has said that it reclaimed all.
    pub(super) has_reclaimed: bool,
    /// The numbers of its opens, by open owner and file.
    pub(super) opens: HashMap<(Vec<u8>, FileHandle), u64>,
    /// The numbers of its lock states, by lock owner and file.
    pub(super) locks: HashMap<(Vec<u8>, FileHandle), u64>,
    /// The numbers that the lock owners have in file systems, and in how many files each has state.
    pub(super) lock_owners: HashMap<Vec<u8>, (u64, usize)>,
    /// The numbers of its delegations, by file.
    pub(super) delegations: HashMap<FileHandle, u64>,
    /// The delegations that it must return.
    pub(super) recalls: RecallQueue,
    /// The open owners of a client of NFSv4.0.
    pub(super) open_owners: HashMap<Vec<u8>, OpenOwnerEntry>,
    /// The lock owners of a client of NFSv4.0: those in `lock_owners`, and those that are about to lock.
    pub(super) lock_sequences: HashMap<Vec<u8>, Arc<SeqOwner>>,
}

/// The user who made a client known: another one may not take its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Principal(Option<u32>);

/// The clients of one owner string.
#[derive(Default)]
pub(super) struct OwnerRecords {
    pub(super) confirmed: Option<u64>,
    /// A restarted client that has not created a session yet.
    unconfirmed: Option<u64>,
}

/// The result of EXCHANGE_ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchanged {
    pub(crate) client: u64,
    /// The number that the next CREATE_SESSION must have.
    pub(crate) sequence: u32,
    pub(crate) is_confirmed: bool,
}

impl Principal {
    pub(super) fn new(credentials: &Credentials) -> Self {
        match credentials {
            Credentials::System { uid, .. } => Self(Some(*uid)),
            Credentials::None | Credentials::Unknown { .. } => Self(None),
        }
    }
}

impl StateTable {
    /// EXCHANGE_ID.
    pub(crate) fn exchange_id(
        &self,
        caller: &Caller,
        request: &ExchangeId<'_>,
        is_update: bool,
    ) -> Result<Exchanged> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let principal = Principal::new(&caller.credentials);
        let owner = request.owner.id.to_vec();
        let confirmed = tables.by_owner.get(&owner).and_then(|records| records.confirmed);
        let confirmed =
            confirmed.filter(|number| !tables.remove_if_given_way(*number, &mut removed));
        if let Some(number) = confirmed {
            let known = tables.client_mut(number)?;
            let is_same_user = known.principal == principal;
            // a client that comes back with another version of the protocol has no use for its old state
            let is_same_start = known.verifier == request.owner.verifier && !known.is_minor0();
            match (is_update, is_same_user, is_same_start) {
                (true, _, false) => return Err(Status::NOT_SAME),
                (true, false, true) => return Err(Status::PERM),
                (false, false, _) if known.has_state() => return Err(Status::CLID_INUSE),
                (false, false, _) => tables.remove_client(number, &mut removed),
                (_, true, true) => {
                    known.renew(caller.address);
                    let sequence = known.next_sequence;
                    return Ok(Exchanged { client: number, sequence, is_confirmed: true });
                }
                // the client restarted: its old state stays until it creates a session
                (false, true, false) => {}
            }
        } else if is_update {
            return Err(Status::NOENT);
        }
        let client = Client::new(&request.owner, principal, caller.address);
        let number = self.enter_unconfirmed(&mut tables, client, &mut removed)?;
        Ok(Exchanged { client: number, sequence: 1, is_confirmed: false })
    }

    /// Enters a client that has not confirmed itself, in place of one that did not either. Returns its number.
    pub(super) fn enter_unconfirmed(
        &self,
        tables: &mut Tables,
        client: Client,
        removed: &mut Removed,
    ) -> Result<u64> {
        let owner = client.owner.clone();
        let unconfirmed = tables.by_owner.get(&owner).and_then(|records| records.unconfirmed);
        if let Some(number) = unconfirmed {
            tables.remove_client(number, removed);
        }
        if tables.clients.len() >= self.limits.clients {
            // clients that never confirmed themselves make room, and those that were silent for long
            let dispensable = |client: &Client| !client.is_confirmed || client.is_courteous;
            let idle = tables.clients.iter().filter(|(_, client)| dispensable(client));
            let oldest = idle.min_by_key(|(_, client)| client.renewed);
            let number = *oldest.ok_or(Status::DELAY)?.0;
            tables.remove_client(number, removed);
        }
        let number = u64::from(self.boot) << 32 | (tables.next_number() & 0xffff_ffff);
        tables.clients.insert(number, client);
        tables.by_owner.entry(owner).or_default().unconfirmed = Some(number);
        Ok(number)
    }

    /// CREATE_SESSION. `new` has the limits that the server gives the session.
    pub(crate) fn create_session(
        &self,
        caller: &Caller,
        request: &CreateSession,
        new: NewSession,
    ) -> Result<Arc<Session>> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let number = request.client_id;
        let client = tables.clients.get(&number).filter(|client| !client.is_minor0());
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        if request.sequence == client.next_sequence.wrapping_sub(1)
            && let Some(session) = client.last_created.and_then(|id| tables.sessions.get(&id))
        {
            return Ok(Arc::clone(session));
        }
        if request.sequence != client.next_sequence {
            return Err(Status::SEQ_MISORDERED);
        }
        if !client.is_confirmed && client.principal != Principal::new(&caller.credentials) {
            return Err(Status::CLID_INUSE);
        }
        if client.sessions.len() >= self.limits.sessions {
            return Err(Status::RESOURCE);
        }
        tables.confirm(number, &mut removed)?;
        let mut id = [0; 16];
        let (first, second) = id.split_at_mut(8);
        first.copy_from_slice(&number.to_be_bytes());
        second.copy_from_slice(&tables.next_number().to_be_bytes());
        let session = Arc::new(Session::new(id, number, new));
        tables.sessions.insert(id, Arc::clone(&session));
        let client = tables.client_mut(number)?;
        client.sessions.push(id);
        client.last_created = Some(id);
        client.next_sequence = client.next_sequence.wrapping_add(1);
        client.renew(caller.address);
        Ok(session)
    }

    /// The session of a request, whose client is alive by it.
    pub(crate) fn session(&self, id: &SessionId, address: SocketAddr) -> Result<Arc<Session>> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let session = Arc::clone(tables.sessions.get(id).ok_or(Status::BADSESSION)?);
        match tables.renew(session.client, address, &mut removed) {
            Err(Status::EXPIRED) => Err(Status::BADSESSION),
            renewed => renewed.map(|()| session),
        }
    }

    /// The flags of SEQUENCE, which tell the client what it must see to.
    pub(crate) fn sequence_flags(&self, session: &Session) -> u32 {
        let mut flags = if session.lacks_back_channel() { CALLBACK_PATH_DOWN_SESSION } else { 0 };
        let tables = self.lock();
        let Ok(client) = tables.client(session.client) else { return flags };
        if flags != 0 {
            let sessions = client.sessions.iter().filter_map(|id| tables.sessions.get(id));
            let has_path = sessions.into_iter().any(|session| session.has_back_channel());
            flags |= if has_path { 0 } else { CALLBACK_PATH_DOWN };
        }
        let mut delegations =
            client.delegations.values().filter_map(|number| tables.delegations.get(number));
        if delegations.any(Delegation::is_revoked) {
            flags |= RECALLABLE_STATE_REVOKED;
        }
        flags
    }

    /// DESTROY_SESSION.
    pub(crate) fn destroy_session(&self, id: &SessionId) -> Result<()> {
        let mut tables = self.lock();
        let session = tables.sessions.get(id).ok_or(Status::BADSESSION)?;
        if session.is_busy() {
            return Err(Status::DELAY);
        }
        let client = session.client;
        tables.sessions.remove(id);
        if let Ok(client) = tables.client_mut(client) {
            client.sessions.retain(|other| other != id);
        }
        Ok(())
    }

    /// DESTROY_CLIENTID.
    pub(crate) fn destroy_client(&self, number: u64) -> Result<()> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let client = tables.clients.get(&number).ok_or(Status::STALE_CLIENTID)?;
        if client.has_state() || !client.sessions.is_empty() {
            return Err(Status::CLIENTID_BUSY);
        }
        tables.remove_client(number, &mut removed);
        Ok(())
    }

    /// RECLAIM_COMPLETE.
    pub(crate) fn reclaim_complete(&self, number: u64) -> Result<()> {
        let mut tables = self.lock();
        let client = tables.client_mut(number)?;
        if client.has_reclaimed {
            return Err(Status::COMPLETE_ALREADY);
        }
        client.has_reclaimed = true;
        let owner = client.owner.clone();
        if let Some(grace) = &mut tables.grace {
            grace.unfinished.remove(&owner);
        }
        tables.end_grace_if_over();
        Ok(())
    }
}

impl Client {
    pub(super) fn new(owner: &ClientOwner<'_>, principal: Principal, address: SocketAddr) -> Self {
        Self {
            owner: owner.id.to_vec(),
            verifier: owner.verifier,
            principal,
            confirmation: None,
            is_confirmed: false,
            next_sequence: 1,
            last_created: None,
            sessions: Vec::new(),
            renewed: Instant::now(),
            address,
            is_courteous: false,
            has_reclaimed: false,
            opens: HashMap::new(),
            locks: HashMap::new(),
            lock_owners: HashMap::new(),
            delegations: HashMap::new(),
            recalls: RecallQueue::default(),
            open_owners: HashMap::new(),
            lock_sequences: HashMap::new(),
        }
    }

    /// Whether it is a client of NFSv4.0.
    pub(super) fn is_minor0(&self) -> bool {
        self.confirmation.is_some()
    }

    /// The program by which a client of NFSv4.0 is called.
    pub(super) fn callback_program(&self) -> Option<&Arc<CallbackProgram>> {
        self.confirmation.as_ref().map(Confirmation::program)
    }

    pub(super) fn renew(&mut self, address: SocketAddr) {
        self.renewed = Instant::now();
        self.address = address;
    }

    pub(super) fn has_state(&self) -> bool {
        !self.opens.is_empty() || !self.locks.is_empty() || !self.delegations.is_empty()
    }

    /// The number of opens, lock states and delegations.
    pub(super) fn states(&self) -> usize {
        self.opens.len() + self.locks.len() + self.delegations.len()
    }
}

impl Tables {
    /// A client creates its first session, or confirms itself: it takes the place of its predecessor, and its name goes to
    /// the list.
    pub(super) fn confirm(&mut self, number: u64, removed: &mut Removed) -> Result<()> {
        let client = self.client(number)?;
        if client.is_confirmed {
            return Ok(());
        }
        let owner = client.owner.clone();
        let previous = self.by_owner.get(&owner).and_then(|records| records.confirmed);
        if let Some(previous) = previous {
            self.remove_client(previous, removed);
        }
        // a client that is not in the list could not reclaim its locks, and others would get them
        self.list.add(&owner).map_err(|_| Status::SERVERFAULT)?;
        self.client_mut(number)?.is_confirmed = true;
        let records = OwnerRecords { confirmed: Some(number), unconfirmed: None };
        self.by_owner.insert(owner, records);
        Ok(())
    }

    /// Removes a client with its sessions, opens and locks.
    pub(super) fn remove_client(&mut self, number: u64, removed: &mut Removed) {
        let Some(client) = self.clients.remove(&number) else { return };
        for session in &client.sessions {
            self.sessions.remove(session);
        }
        if client.is_minor0() {
            let numbers = client.opens.values().chain(client.locks.values());
            self.remember_expired(numbers.chain(client.delegations.values()).copied());
        }
        for lock in client.locks.values() {
            self.locks.remove(lock);
        }
        for delegation in client.delegations.values() {
            removed.delegations.extend(self.remove_delegation(*delegation));
        }
        // there are no locks without an open
        for open in client.opens.values() {
            let Some(open) = self.opens.remove(open) else { continue };
            let export = &open.node.export;
            let is_known =
                |(of, known): &(u64, Arc<_>)| *of == number && Arc::ptr_eq(known, export);
            if !removed.clients.iter().any(is_known) {
                removed.clients.push((number, Arc::clone(export)));
            }
            removed.opens.push(open);
        }
        if let Some(records) = self.by_owner.get_mut(&client.owner) {
            for record in [&mut records.confirmed, &mut records.unconfirmed] {
                record.take_if(|known| *known == number);
            }
            if records.confirmed.is_none() && records.unconfirmed.is_none() {
                self.by_owner.remove(&client.owner);
            }
        }
        let is_reclaiming =
            self.grace.as_ref().is_some_and(|grace| grace.unfinished.contains_key(&client.owner));
        if client.is_confirmed && !is_reclaiming {
            self.list.remove(&client.owner);
        }
    }
}
