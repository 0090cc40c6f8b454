//! The clients of the lock manager, their locked files, and their waits.
//!
//! ```text
//! client   a machine: its address and its name
//!  ├ file   a file with locks of the client: it stays open, so that it outlasts its last name
//!  └ wait   a lock that others hold
//! share    an open file with a share reservation of a client
//! ```
//!
//! The locks themselves are in the lock tables of the file systems, which all protocols share. Their owner is the
//! process of the client.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posix::Ino;
use vfs::{ByteLock, ClientId, FileHandle, LockKind, LockOwner, OpenFile, WaitId};

use super::client_list::ClientList;
use super::granted::{GrantedCall, Retry};
use crate::export::ServedExport;
use crate::node::FileNode;
use crate::status::LockClientStatus;
use crate::wire::nlm::{Lock, Share};
use crate::wire::portmap::Transport;

/// The bit that the numbers of these clients have, and those of NFSv4 clients do not.
const CLIENT_BIT: u64 = 1 << 63;
/// The time after which a client without locks is forgotten.
const IDLE: Duration = Duration::from_mins(5);

/// The identity of a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ClientKey {
    pub(crate) address: IpAddr,
    /// The name that the client gives itself.
    pub(crate) name: Vec<u8>,
}

/// Where a request came from, and the address by which the client knows the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) server: Option<IpAddr>,
    pub(crate) transport: Transport,
}

/// A file of an export.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) export: Arc<ServedExport>,
    pub(super) ino: Ino,
    pub(super) handle: FileHandle,
}

impl Target {
    pub(super) fn new(node: &FileNode) -> Self {
        Self { export: Arc::clone(&node.export), ino: node.ino, handle: node.handle }
    }

    /// The owner of locks of a client's process. A client that is not known has no locks.
    pub(super) fn owner(&self, client: Option<u64>, process: u32) -> LockOwner {
        let client = self.export.client_id(client.unwrap_or(CLIENT_BIT));
        LockOwner { client, owner: process.into() }
    }
}

/// A lock as its client named it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OwnedLock {
    caller: Vec<u8>,
    handle: Vec<u8>,
    owner: Vec<u8>,
    process: u32,
    offset: u64,
    length: u64,
}

impl OwnedLock {
    pub(super) fn new(lock: &Lock<'_>) -> Self {
        let Lock { caller, handle, owner, process, offset, length } = *lock;
        let (caller, handle, owner) = (caller.to_vec(), handle.to_vec(), owner.to_vec());
        Self { caller, handle, owner, process, offset, length }
    }

    pub(super) fn as_wire(&self) -> Lock<'_> {
        Lock {
            caller: &self.caller,
            handle: &self.handle,
            owner: &self.owner,
            process: self.process,
            offset: self.offset,
            length: self.length,
        }
    }
}

/// A file with locks of a client, or with waits.
pub(super) struct LockedFile {
    target: Target,
    /// Open while the client has locks in it.
    file: Option<OpenFile>,
    pub(super) is_writing: bool,
    /// The ranges that the client has locked.
    ranges: usize,
}

/// A lock that a client waits for.
pub(super) struct Wait {
    pub(super) target: Target,
    pub(super) id: Option<WaitId>,
    pub(super) lock: OwnedLock,
    pub(super) byte_lock: ByteLock,
    pub(super) transport: Transport,
    /// A further attempt to tell the client that the wait has ended.
    retry: Option<Retry>,
}

impl Wait {
    pub(super) fn new(
        target: Target,
        lock: OwnedLock,
        byte_lock: ByteLock,
        transport: Transport,
    ) -> Self {
        Self { target, id: None, lock, byte_lock, transport, retry: None }
    }
}

/// A client with locks, or that had some lately.
pub(super) struct LockClient {
    pub(super) key: ClientKey,
    used: Instant,
    pub(super) files: HashMap<FileHandle, LockedFile>,
    pub(super) waits: HashMap<u64, Wait>,
    /// The number of share reservations.
    pub(super) shares: usize,
}

/// A share reservation. It holds against those of other owners, and gives way to what other protocols deny. It denies
/// nothing to other protocols: reads and writes of NFSv3 do not tell their owner, and would be denied as well.
pub(super) struct ShareState {
    pub(super) client: u64,
    pub(super) owner: Vec<u8>,
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) target: Target,
    pub(super) file: OpenFile,
}

impl LockClient {
    /// The state that counts against the limit of a client.
    pub(super) fn states(&self) -> usize {
        let ranges: usize = self.files.values().map(|file| file.ranges).sum();
        ranges + self.waits.len() + self.shares
    }

    fn is_idle(&self) -> bool {
        self.files.is_empty() && self.waits.is_empty() && self.shares == 0
    }

    /// The wait of a request that was sent before.
    pub(super) fn find_wait(&self, handle: &FileHandle, lock: &ByteLock) -> Option<u64> {
        let is_same = |wait: &Wait| wait.target.handle == *handle && wait.byte_lock == *lock;
        self.waits.iter().find(|(_, wait)| is_same(wait)).map(|(number, _)| *number)
    }
}

/// State that was removed, to be dropped without the lock of the tables: a file that is closed may free its blocks.
#[derive(Default)]
pub(super) struct Removed(Vec<OpenFile>);

impl LockedFile {
    pub(super) fn target(&self) -> &Target {
        &self.target
    }
}

impl Removed {
    pub(super) fn append(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    fn take_file(&mut self, file: LockedFile) {
        self.0.extend(file.file);
    }
}

/// All clients.
pub(super) struct Tables {
    pub(super) clients: HashMap<u64, LockClient>,
    by_key: HashMap<ClientKey, u64>,
    shares: HashMap<FileHandle, Vec<ShareState>>,
    next_number: u64,
    pub(super) list: ClientList,
}

impl Tables {
    pub(super) fn new(list: ClientList) -> Self {
        let (clients, by_key, shares) = Default::default();
        Self { clients, by_key, shares, next_number: 1, list }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    pub(super) fn find_client(&self, key: &ClientKey) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    /// The client, new or as it is. None: there are too many.
    pub(super) fn enter_client(&mut self, key: &ClientKey, limit: usize) -> Option<u64> {
        if let Some(number) = self.find_client(key) {
            let client = self.clients.get_mut(&number)?;
            client.used = Instant::now();
            return Some(number);
        }
        if self.clients.len() >= limit {
            self.forget_clients_idle_for(Duration::ZERO);
        }
        if self.clients.len() >= limit {
            return None;
        }
        let number = CLIENT_BIT | self.next_number();
        let client = LockClient {
            key: key.clone(),
            used: Instant::now(),
            files: HashMap::new(),
            waits: HashMap::new(),
            shares: 0,
        };
        self.clients.insert(number, client);
        self.by_key.insert(key.clone(), number);
        Some(number)
    }

    /// Enters a file of a client that is open, after the client has locked bytes or begun to wait.
    pub(super) fn enter_file(
        &mut self,
        client: u64,
        target: &Target,
        opened: Option<(OpenFile, bool)>,
        removed: &mut Removed,
    ) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        let entry = client.files.entry(target.handle);
        let file = entry.or_insert_with(|| LockedFile {
            target: target.clone(),
            file: None,
            is_writing: false,
            ranges: 0,
        });
        if let Some((opened, is_writing)) = opened {
            file.is_writing = is_writing;
            removed.0.extend(file.file.replace(opened));
        }
    }

    /// Counts the locks of a client in a file again. Closes the file when none is left.
    pub(super) fn update_file(&mut self, client: u64, handle: &FileHandle, removed: &mut Removed) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        let has_waits = state.waits.values().any(|wait| wait.target.handle == *handle);
        let Some(file) = state.files.get_mut(handle) else { return };
        let Target { export, ino, .. } = &file.target;
        file.ranges = export.filesystem.locks().count_ranges(*ino, export.client_id(client));
        if file.ranges == 0 && !has_waits {
            state.files.remove(handle).into_iter().for_each(|file| removed.take_file(file));
        }
    }

    /// The facts of a call that tells a client of the end of its wait. None: the client has ended the wait.
    pub(super) fn granted_call(&mut self, client: u64, wait: u64) -> Option<GrantedCall> {
        let wait = self.clients.get_mut(&client)?.waits.get_mut(&wait)?;
        let (lock, kind) = (wait.lock.clone(), wait.byte_lock.kind);
        Some(GrantedCall { lock, kind, transport: wait.transport })
    }

    /// Calls a client later once more. False: there were enough attempts, or the wait has ended.
    pub(super) fn retry_granted(&mut self, client: u64, wait: u64) -> bool {
        let client = self.clients.get_mut(&client);
        let Some(wait) = client.and_then(|client| client.waits.get_mut(&wait)) else {
            return false;
        };
        wait.retry = Retry::after(wait.retry);
        wait.retry.is_some()
    }

    /// The calls that are to be repeated now.
    pub(super) fn due_granted_calls(&mut self, now: Instant) -> Vec<(IpAddr, u64, u64)> {
        let mut due = Vec::new();
        for (number, client) in &mut self.clients {
            for (wait_number, wait) in &mut client.waits {
                // the next attempt sets it again
                if let Some(retry) = &mut wait.retry
                    && retry.due <= now
                {
                    retry.due = now + IDLE;
                    due.push((client.key.address, *number, *wait_number));
                }
            }
        }
        due
    }

    /// Ends a wait, whether or not its lock was granted. The client has the lock from now on, or has it not.
    pub(super) fn end_wait(&mut self, client: u64, wait: u64, is_held: bool) -> Removed {
        let mut removed = Removed::default();
        let state = self.clients.get_mut(&client);
        let Some(wait) = state.and_then(|state| state.waits.remove(&wait)) else { return removed };
        let locks = wait.target.export.filesystem.locks();
        let is_waiting = wait.id.is_some_and(|id| locks.cancel_wait(wait.target.ino, id));
        if !is_waiting && !is_held {
            locks.unlock(wait.target.ino, wait.byte_lock.owner, &wait.byte_lock.range);
        }
        self.update_file(client, &wait.target.handle, &mut removed);
        removed
    }

    /// Unlocks bytes.
    pub(super) fn unlock(
        &mut self,
        client: u64,
        (handle, process): (&FileHandle, u32),
        range: &Range<u64>,
    ) -> Removed {
        let mut removed = Removed::default();
        let state = self.clients.get(&client);
        let Some(file) = state.and_then(|state| state.files.get(handle)) else { return removed };
        let target = file.target.clone();
        let owner = target.owner(Some(client), process);
        target.export.filesystem.locks().unlock(target.ino, owner, range);
        self.update_file(client, handle, &mut removed);
        removed
    }

    /// Ends all state of a client, such as one that has restarted.
    pub(super) fn remove_client(&mut self, client: u64, removed: &mut Removed) {
        let Some(state) = self.clients.remove(&client) else { return };
        self.by_key.remove(&state.key);
        self.remove_shares(|share| share.client == client, removed);
        for file in state.files.into_values() {
            let export = Arc::clone(&file.target.export);
            export.filesystem.release_client(export.client_id(client));
            removed.take_file(file);
        }
    }

    /// Ends the state in exports that are gone.
    pub(super) fn release_exports(&mut self, is_gone: impl Fn(&ServedExport) -> bool) -> Removed {
        let mut removed = Removed::default();
        for (number, client) in &mut self.clients {
            client.waits.retain(|_, wait| !is_gone(&wait.target.export));
            let files = client.files.extract_if(|_, file| is_gone(&file.target.export));
            for (_, file) in files {
                let export = Arc::clone(&file.target.export);
                export.filesystem.release_client(export.client_id(*number));
                removed.take_file(file);
            }
        }
        self.remove_shares(|share| is_gone(&share.target.export), &mut removed);
        removed
    }

    /// The share reservations of others that one would conflict with.
    pub(super) fn has_share_conflict(
        &self,
        new: (u64, &[u8]),
        share: &Share<'_>,
        handle: &FileHandle,
    ) -> bool {
        let held = self.shares.get(handle).into_iter().flatten();
        let mut others = held.filter(|held| (held.client, &held.owner[..]) != new);
        others.any(|held| held.access & share.deny != 0 || held.deny & share.access != 0)
    }

    /// Enters a share reservation in place of that which its owner had.
    pub(super) fn enter_share(&mut self, share: ShareState, removed: &mut Removed) {
        let (client, handle) = (share.client, share.target.handle);
        self.remove_share((client, &share.owner), &handle, removed);
        let Some(state) = self.clients.get_mut(&client) else { return removed.0.push(share.file) };
        state.shares += 1;
        self.shares.entry(handle).or_default().push(share);
    }

    /// Ends the share reservation of an owner.
    pub(super) fn remove_share(
        &mut self,
        (client, owner): (u64, &[u8]),
        handle: &FileHandle,
        removed: &mut Removed,
    ) {
        let is_own = |share: &ShareState| share.client == client && share.owner == owner;
        let is_gone = |share: &ShareState| share.target.handle == *handle && is_own(share);
        self.remove_shares(is_gone, removed);
    }

    fn remove_shares(&mut self, is_gone: impl Fn(&ShareState) -> bool, removed: &mut Removed) {
        let Self { shares, clients, .. } = self;
        shares.retain(|_, of_file| {
            for share in of_file.extract_if(.., |share| is_gone(share)) {
                if let Some(client) = clients.get_mut(&share.client) {
                    client.shares -= 1;
                }
                removed.0.push(share.file);
            }
            !of_file.is_empty()
        });
    }

    /// Forgets the clients that have had no locks for a time.
    fn forget_clients_idle_for(&mut self, time: Duration) {
        let is_idle = |client: &LockClient| client.is_idle() && client.used.elapsed() >= time;
        let idle = self.clients.iter().filter(|(_, client)| is_idle(client));
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        for number in idle {
            self.remove_client(number, &mut Removed::default());
        }
    }

    pub(super) fn forget_idle_clients(&mut self) {
        self.forget_clients_idle_for(IDLE);
    }

    /// Removes the clients from the list that have no state.
    pub(super) fn update_list(&mut self) {
        let Self { list, by_key, .. } = self;
        list.retain(|key| by_key.contains_key(key));
    }

    /// The files of an export that clients have locked.
    pub(super) fn count_files(&self, export: &ServedExport) -> usize {
        let files = self.clients.values().flat_map(|client| client.files.values());
        files.filter(|file| file.target.export.root_handle == export.root_handle).count()
    }

    pub(super) fn status(&self) -> Vec<LockClientStatus> {
        let clients = self.clients.values().filter(|client| !client.is_idle());
        let mut all: Vec<_> = clients
            .map(|client| LockClientStatus {
                name: String::from_utf8_lossy(&client.key.name).into_owned(),
                address: client.key.address,
                files: client.files.len(),
                waits: client.waits.len(),
            })
            .collect();
        all.sort_by(|one, two| one.name.cmp(&two.name));
        all
    }
}

/// The exclusive or the shared kind.
pub(super) const fn lock_kind(is_exclusive: bool) -> LockKind {
    if is_exclusive { LockKind::Exclusive } else { LockKind::Shared }
}

/// Whether locks of a client are those of the lock manager.
pub(super) const fn is_lock_client(client: ClientId) -> bool {
    client.client & CLIENT_BIT != 0
}
