//! The state of NFSv4 clients: their sessions, opens and locks.
//!
//! ```text
//! client    a machine: known by its owner string, alive as long as it sends something within the lease
//!  ├ session  slots, each of which carries out one request at a time, exactly once; NFSv4.0 has numbered owners instead
//!  ├ open     an open file of an open owner: a stateid
//!  ├ delegation  a lease of a file: a stateid
//!  └ lock     the locks of a lock owner in a file, below an open: a stateid
//! ```
//!
//! One mutex guards all of it. It is not held while a file system works: an open is entered after the file was opened,
//! and files are closed after their entries are gone.
//!
//! A server that starts with a list of clients from before gives them a grace period. Only they may open and lock
//! then, and only what they say they had. It ends when all of them have finished, or after the time of a lease.

mod callback_path;
mod callback_program;
mod client_list;
mod clients;
mod clients_v40;
mod courtesy;
mod delegations;
mod locks;
mod opens;
mod owners;
mod session;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::core::Core;
use crate::export::{ExportTable, ServedExport};
use crate::nlm::LockGrace;
use crate::request::Result;
use crate::status::{ClientStatus, ExportStatus};
use crate::wire::status::Status;
use crate::wire::v4::{SessionId, StateId};
use client_list::{ClientList, StateCount};
pub(crate) use clients::Exchanged;
use clients::{Client, OwnerRecords};
use delegations::Delegation;
pub(crate) use delegations::DelegationRequest;
pub(crate) use locks::{LockRequest, LockResult};
pub(crate) use opens::NewOpen;
use opens::OpenState;
pub(crate) use owners::{OwnerResult, OwnerTurn, SeqOwner};
pub(crate) use session::{NewSession, Session, SlotAnswer};

/// The state of all clients.
pub(crate) struct StateTable {
    tables: Arc<Mutex<Tables>>,
    limits: Limits,
    /// The time in which clients of NFSv3 reclaim their locks.
    lock_grace: Arc<LockGrace>,
    /// Tells identifiers of this start of the server from those of others.
    boot: u32,
}

/// The limits of the server's options.
#[derive(Clone, Copy, Debug)]
struct Limits {
    lease: Duration,
    clients: usize,
    sessions: usize,
    states: usize,
}

struct Tables {
    clients: HashMap<u64, Client>,
    by_owner: HashMap<Vec<u8>, OwnerRecords>,
    sessions: HashMap<SessionId, Arc<Session>>,
    opens: HashMap<u64, OpenState>,
    locks: HashMap<u64, locks::LockState>,
    delegations: HashMap<u64, Delegation>,
    /// The opens that owners of NFSv4.0 have closed by their last request: client and owner.
    closed: HashMap<u64, (u64, Vec<u8>)>,
    /// The last states that ended with their clients of NFSv4.0, the oldest first.
    expired: VecDeque<u64>,
    next_number: u64,
    grace: Option<Grace>,
    list: ClientList,
}

/// The time after a start in which clients from before reclaim their state.
struct Grace {
    ends: Instant,
    /// The owner strings of clients that have not finished yet, and the state that they had, if it is known.
    unfinished: HashMap<Vec<u8>, Option<StateCount>>,
}

/// State that was removed from the tables, to be dropped without the lock.
#[derive(Default)]
pub(crate) struct Removed {
    opens: Vec<OpenState>,
    delegations: Vec<Delegation>,
    /// Clients that are gone, and the exports that they had locks or open files in.
    clients: Vec<(u64, Arc<ServedExport>)>,
}

impl Drop for Removed {
    fn drop(&mut self) {
        self.delegations.drain(..).for_each(|delegation| delegation.release());
        for (client, export) in &self.clients {
            export.filesystem.release_client(export.client_id(*client));
        }
        self.opens.clear();
    }
}

/// The state ID of a state.
fn state_id(boot: u32, number: u64, seqid: u32) -> StateId {
    let mut other = [0; 12];
    let (first, rest) = other.split_at_mut(4);
    first.copy_from_slice(&boot.to_be_bytes());
    rest.copy_from_slice(&number.to_be_bytes());
    StateId { seqid, other }
}

impl StateTable {
    /// The table of a server that starts: empty, but for the clients that may reclaim their state.
    pub(crate) fn load(core: &Core) -> crate::Result<Self> {
        let options = &core.options;
        let list = ClientList::load(options.client_list.as_deref())?;
        let has_state = |count: &Option<StateCount>| *count != Some(StateCount::default());
        let owners = list.owners().clone().into_iter();
        let unfinished = owners.filter(|(_, count)| has_state(count)).collect();
        let grace = Grace { ends: Instant::now() + options.lease, unfinished };
        let tables = Tables {
            clients: HashMap::new(),
            by_owner: HashMap::new(),
            sessions: HashMap::new(),
            opens: HashMap::new(),
            locks: HashMap::new(),
            delegations: HashMap::new(),
            closed: HashMap::new(),
            expired: VecDeque::new(),
            next_number: 1,
            grace: Some(grace).filter(|grace| !grace.unfinished.is_empty()),
            list,
        };
        let [a, b, c, d, e, f, g, h] = core.boot_id.to_be_bytes();
        Ok(Self {
            tables: Arc::new(Mutex::new(tables)),
            limits: Limits {
                lease: options.lease,
                clients: options.max_clients,
                sessions: options.max_sessions_per_client,
                states: options.max_states_per_client,
            },
            lock_grace: Arc::clone(&core.lock_grace),
            // differs between two starts, however soon one follows the other
            // bit 63 of a client's number is for the clients of the lock manager
            boot: (u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])) >> 1,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        let mut tables = self.tables.lock();
        tables.end_grace_if_over();
        tables
    }

    /// Whether clients from before the start still reclaim their opens and locks.
    pub(crate) fn is_in_grace(&self) -> bool {
        self.lock().grace.is_some()
    }

    /// The state ID of a state of this server.
    fn state_id(&self, number: u64, seqid: u32) -> StateId {
        state_id(self.boot, number, seqid)
    }

    /// The number of the state that an ID names.
    fn state_number(&self, id: &StateId) -> Result<u64> {
        let (boot, number) = id.other.split_first_chunk::<4>().ok_or(Status::BAD_STATEID)?;
        let number: [u8; 8] = number.try_into().map_err(|_| Status::BAD_STATEID)?;
        if u32::from_be_bytes(*boot) != self.boot {
            return Err(Status::BAD_STATEID);
        }
        Ok(u64::from_be_bytes(number))
    }

    /// Ends the state in file systems that are no longer exported, or are others under the same path.
    pub(crate) fn release_unexported(&self, table: &ExportTable) {
        let mut tables = self.lock();
        let is_gone = |export: &ServedExport| {
            let now = table.by_handle(&export.root_handle);
            now.is_none_or(|now| now.door != export.door)
        };
        let gone: Vec<u64> = tables
            .opens
            .iter()
            .filter(|(_, open)| is_gone(&open.node.export))
            .map(|(number, _)| *number)
            .collect();
        let mut removed = Removed::default();
        for number in gone {
            tables.remove_open(number, &mut removed);
        }
        let delegations = tables.delegations.iter().filter(|(_, it)| is_gone(&it.node.export));
        let gone: Vec<u64> = delegations.map(|(number, _)| *number).collect();
        for number in gone {
            removed.delegations.extend(tables.remove_delegation(number));
        }
        drop(tables);
    }

    /// Ends all state, as the server stops. The list of clients stays for the next start.
    pub(crate) fn release_all(&self) {
        let mut tables = self.lock();
        let counts = tables.count_v40_states();
        tables.list.freeze(counts.into_iter());
        let clients: Vec<u64> = tables.clients.keys().copied().collect();
        let mut removed = Removed::default();
        for client in clients {
            tables.remove_client(client, &mut removed);
        }
        drop(tables);
    }

    /// The state of an export.
    pub(crate) fn export_status(&self, export: &ServedExport) -> ExportStatus {
        let tables = self.lock();
        let is_in = |open: &&OpenState| open.node.export.root_handle == export.root_handle;
        let opens = tables.opens.values().filter(is_in).count();
        ExportStatus { path: export.path.clone(), opens }
    }

    /// The clients, and the time that is left of the grace period.
    pub(crate) fn status(&self) -> (Vec<ClientStatus>, Option<Duration>) {
        let tables = self.lock();
        let now = Instant::now();
        let confirmed = tables.clients.values().filter(|client| client.is_confirmed);
        let mut clients: Vec<ClientStatus> = confirmed
            .map(|client| ClientStatus {
                name: String::from_utf8_lossy(&client.owner).into_owned(),
                address: client.address,
                silent: now.saturating_duration_since(client.renewed),
                sessions: client.sessions.len(),
                opens: client.opens.len(),
                lock_owners: client.locks.len(),
            })
            .collect();
        clients.sort_by(|one, two| one.name.cmp(&two.name));
        let left = tables.grace.as_ref();
        (clients, left.map(|grace| grace.ends.saturating_duration_since(now)))
    }
}

impl Tables {
    fn next_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn end_grace_if_over(&mut self) {
        let Some(grace) = &self.grace else { return };
        if grace.unfinished.is_empty() || Instant::now() >= grace.ends {
            for owner in
                std::mem::take(&mut self.grace).into_iter().flat_map(|g| g.unfinished.into_keys())
            {
                // a client of NFSv4.0 that came back never says that it has finished
                let records = self.by_owner.get(&owner);
                if records.is_none_or(|records| records.confirmed.is_none()) {
                    self.list.remove(&owner);
                }
            }
        }
    }

    /// The opens, locked ranges and delegations of the clients of NFSv4.0.
    fn count_v40_states(&self) -> Vec<(Vec<u8>, StateCount)> {
        let clients = self.clients.iter();
        let confirmed = clients.filter(|(_, client)| client.is_confirmed && client.is_minor0());
        confirmed
            .map(|(number, client)| (client.owner.clone(), self.count_states(*number, client)))
            .collect()
    }

    fn count_states(&self, number: u64, client: &Client) -> StateCount {
        let states = client.locks.values().filter_map(|lock| self.locks.get(lock));
        // a file with several lock owners counts once
        let mut files = HashMap::new();
        for lock in states {
            files.entry(lock.target.handle()).or_insert(&lock.target);
        }
        let ranges = files.values().map(|target| target.count_ranges(number)).sum();
        let opens = client.opens.values().filter_map(|open| self.opens.get(open));
        let opens = opens.map(OpenState::count_combinations).sum();
        StateCount { opens, ranges, delegations: client.delegations.len() }
    }

    /// After a client of NFSv4.0 has reclaimed something: whether that was all ends its part of the grace period.
    fn note_reclaim(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number).filter(|client| client.is_minor0()) else {
            return;
        };
        let unfinished = self.grace.as_ref().map(|grace| &grace.unfinished);
        let Some(Some(before)) = unfinished.and_then(|all| all.get(&client.owner)) else { return };
        let now = self.count_states(number, client);
        let has_all = now.opens >= before.opens && now.ranges >= before.ranges;
        if !has_all || now.delegations < before.delegations {
            return;
        }
        let owner = client.owner.clone();
        if let Some(grace) = &mut self.grace {
            grace.unfinished.remove(&owner);
        }
        self.end_grace_if_over();
    }

    /// Whether a request of a client is being carried out.
    fn is_busy(&self, client: &Client) -> bool {
        let sessions = client.sessions.iter().filter_map(|id| self.sessions.get(id));
        sessions.into_iter().any(|session| session.is_busy())
    }

    fn client(&self, client: u64) -> Result<&Client> {
        self.clients.get(&client).ok_or(Status::EXPIRED)
    }

    fn client_mut(&mut self, client: u64) -> Result<&mut Client> {
        self.clients.get_mut(&client).ok_or(Status::EXPIRED)
    }

    /// Whether a client may open and lock: what it had before a restart in the grace period, and everything else
    /// after it.
    fn check_grace(&self, client: u64, is_reclaim: bool) -> Result<()> {
        let client = self.client(client)?;
        let may_reclaim = self.grace.as_ref().is_some_and(|grace| {
            !client.has_reclaimed && grace.unfinished.contains_key(&client.owner)
        });
        match (is_reclaim, &self.grace) {
            (true, _) if may_reclaim => Ok(()),
            (true, _) => Err(Status::NO_GRACE),
            (false, Some(_)) => Err(Status::GRACE),
            // a client with sessions must first say that it has nothing more to reclaim
            (false, None) if !client.has_reclaimed && !client.is_minor0() => Err(Status::GRACE),
            (false, None) => Ok(()),
        }
    }
}
