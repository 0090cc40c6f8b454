//! Clients that cache under leases never read what another client has overwritten.

use std::collections::HashMap;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posix::Ino;
use proptest::prelude::*;

use super::{
    LeaseAction, LeaseEvent, LeaseHolder, LeaseId, LeaseRights, LeaseTable, RecallPending,
};
use crate::{ClientId, DoorId};

const CLIENTS: u64 = 3;
const FILES: u64 = 2;
const FILE: Ino = Ino::new(1);
const NEVER: Duration = Duration::from_hours(1);

fn holder(client: u64) -> LeaseHolder {
    LeaseHolder { client: ClientId { door: DoorId::DAEMON, client }, key: 0 }
}

/// A server with two files, each of one number.
struct Server {
    table: LeaseTable,
    files: Mutex<HashMap<Ino, u64>>,
}

/// The rights of a client's cache of a file.
struct Cached {
    id: LeaseId,
    rights: LeaseRights,
    value: Option<u64>,
    is_dirty: bool,
}

struct Client {
    number: u64,
    server: Arc<Server>,
    cache: Mutex<HashMap<Ino, Cached>>,
}

impl Client {
    /// Writes back and gives rights up, as a recall demands.
    fn recalled(&self, event: LeaseEvent) {
        let LeaseEvent::Recall { ino, lease, keep } = event else { panic!("{event:?}") };
        let mut cache = self.cache.lock();
        let Some(cached) = cache.get_mut(&ino).filter(|cached| cached.id == lease) else { return };
        if cached.is_dirty {
            self.server.files.lock().insert(ino, cached.value.unwrap());
        }
        cached.is_dirty = false;
        if !keep.intersects(LeaseRights::READ) {
            cached.value = None;
        }
        cached.rights = keep;
        self.server.table.downgrade(ino, lease, keep);
        if keep == LeaseRights::NONE {
            cache.remove(&ino);
        }
    }

    fn begin(&self, ino: Ino, action: LeaseAction) -> super::Operation<'_> {
        self.server.table.begin(ino, holder(self.number), action, None).unwrap()
    }

    fn read(&self, ino: Ino) -> u64 {
        if let Some(value) = self.cache.lock().get(&ino).and_then(|cached| cached.value) {
            return value;
        }
        let _operation = self.begin(ino, LeaseAction::Read);
        let value = self.server.files.lock()[&ino];
        if let Some(cached) = self.cache.lock().get_mut(&ino)
            && cached.rights.intersects(LeaseRights::READ)
        {
            cached.value = Some(value);
        }
        value
    }

    fn write(&self, ino: Ino, value: u64) {
        if let Some(cached) = self.cache.lock().get_mut(&ino)
            && cached.rights.contains(LeaseRights::WRITE.union(LeaseRights::READ))
        {
            (cached.value, cached.is_dirty) = (Some(value), true);
            return;
        }
        let _operation = self.begin(ino, LeaseAction::Write);
        self.server.files.lock().insert(ino, value);
        if let Some(cached) = self.cache.lock().get_mut(&ino) {
            cached.value = cached.value.map(|_| value);
        }
    }

    fn lease(self: &Arc<Self>, ino: Ino, rights: LeaseRights) {
        if self.cache.lock().contains_key(&ino) {
            return;
        }
        let weak: Weak<Self> = Arc::downgrade(self);
        let callback = Arc::new(move |event| weak.upgrade().unwrap().recalled(event));
        if let Some(id) = self.server.table.grant(ino, holder(self.number), rights, callback) {
            let cached = Cached { id, rights, value: None, is_dirty: false };
            self.cache.lock().insert(ino, cached);
        }
    }
}

proptest! {
    #[test]
    fn cached_reads_are_never_stale(
        steps in prop::collection::vec((0..CLIENTS, 0..FILES, 0..4_u8, 0..8_u8, any::<u64>()), 1..80),
    ) {
        let files = Mutex::new((0..FILES).map(|ino| (Ino::new(ino), 0)).collect());
        let server = Arc::new(Server { table: LeaseTable::new(NEVER), files });
        let client = |number| {
            let (server, cache) = (Arc::clone(&server), Mutex::default());
            Arc::new(Client { number, server, cache })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let mut truth: HashMap<Ino, u64> = (0..FILES).map(|ino| (Ino::new(ino), 0)).collect();
        for (number, ino, what, rights, value) in steps {
            let ino = Ino::new(ino);
            let client = &clients[usize::try_from(number).unwrap()];
            match what {
                0 => client.lease(ino, LeaseRights(rights)),
                1 => {
                    client.write(ino, value);
                    truth.insert(ino, value);
                }
                2 if rights == 0 => drop(client.begin(ino, LeaseAction::ChangeName)),
                _ => prop_assert_eq!(client.read(ino), truth[&ino]),
            }
        }
        for number in 0..CLIENTS {
            let gone = holder(number).client;
            server.table.release_where(|client| client == gone);
        }
        prop_assert_eq!(server.table.count.load(super::SeqCst), 0);
    }
}

#[test]
fn operations_wait_until_the_client_answers() {
    let table = LeaseTable::new(NEVER);
    let (sender, events) = mpsc::channel();
    let callback = Arc::new(move |event| sender.send(event).unwrap());
    let rights = LeaseRights::READ.union(LeaseRights::HANDLE);
    let id = table.grant(FILE, holder(0), rights, callback).unwrap();
    let past = Some(Instant::now());
    let write = |deadline| table.begin(FILE, holder(1), LeaseAction::Write, deadline).map(drop);
    assert_eq!(write(past), Err(RecallPending));
    let keep = LeaseRights::HANDLE;
    assert_eq!(events.recv().unwrap(), LeaseEvent::Recall { ino: FILE, lease: id, keep });
    // no second message for the same demand, and one for a further demand
    assert_eq!(write(past), Err(RecallPending));
    let rename = table.begin(FILE, holder(1), LeaseAction::ChangeName, past).map(drop);
    assert_eq!(rename, Err(RecallPending));
    let keep = LeaseRights::NONE;
    assert_eq!(events.recv().unwrap(), LeaseEvent::Recall { ino: FILE, lease: id, keep });
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| write(None));
        table.downgrade(FILE, id, LeaseRights::HANDLE);
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
    assert_eq!(table.rights(FILE, id), LeaseRights::HANDLE);
    assert!(events.try_recv().is_err());
}

#[test]
fn silent_clients_lose_their_leases() {
    let table = LeaseTable::new(Duration::ZERO);
    let (sender, events) = mpsc::channel();
    let callback = Arc::new(move |event| sender.send(event).unwrap());
    let rights = LeaseRights::READ.union(LeaseRights::WRITE);
    let id = table.grant(FILE, holder(0), rights, callback).unwrap();
    drop(table.begin(FILE, holder(1), LeaseAction::Read, None).unwrap());
    let (lease, keep) = (id, LeaseRights::READ);
    let sent: Vec<_> = events.try_iter().collect();
    let wanted = [
        LeaseEvent::Recall { ino: FILE, lease, keep },
        LeaseEvent::Revoked { ino: FILE, lease, keep },
    ];
    assert_eq!(sent, wanted);
    assert_eq!(table.rights(FILE, id), keep);
}

#[test]
fn leases_are_refused_during_a_change() {
    let table = LeaseTable::new(NEVER);
    let callback = || Arc::new(|_| {});
    let write = table.begin(FILE, holder(1), LeaseAction::Write, None).unwrap();
    assert_eq!(table.grant(FILE, holder(0), LeaseRights::READ, callback()), None);
    drop(write);
    assert!(table.grant(FILE, holder(0), LeaseRights::READ, callback()).is_some());
    assert_eq!(table.grant(FILE, holder(1), LeaseRights::WRITE, callback()), None);
    assert!(table.grant(FILE, holder(1), LeaseRights::READ, callback()).is_some());
}
