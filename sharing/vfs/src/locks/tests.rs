//! Byte-range locks compared with a model that has an entry for each byte of each owner.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use posix::Ino;
use proptest::prelude::*;

use super::{ByteLock, LockError, LockKind, LockOwner, LockState, LockTable, WaitEnd, WaitId};
use crate::{ClientId, DoorId};

const FILES: u64 = 2;
const BYTES: u64 = 12;
const OWNERS: u64 = 4;

/// Owners 0 and 1 are of one client, 2 and 3 of another.
fn owner(number: u64) -> LockOwner {
    LockOwner { client: ClientId { door: DoorId::DAEMON, client: number / 2 }, owner: number }
}

fn lock(number: u64, range: Range<u64>, kind: LockKind) -> ByteLock {
    ByteLock { owner: owner(number), range, kind }
}

#[derive(Clone, Debug)]
enum Step {
    Try(Ino, ByteLock),
    Wait(Ino, ByteLock),
    Unlock(Ino, LockOwner, Range<u64>),
    Cancel(usize),
    ReleaseFile(Ino, LockOwner),
    ReleaseClient(ClientId),
}

fn any_step() -> impl Strategy<Value = Step> {
    let range = (0..BYTES, 1..BYTES).prop_map(|(start, length)| start..(start + length).min(BYTES));
    let kind = prop_oneof![Just(LockKind::Shared), Just(LockKind::Exclusive)];
    let parts = (0..6_u8, 0..FILES, 0..OWNERS, range, kind, any::<prop::sample::Index>());
    parts
        .prop_map(|(what, file, number, range, kind, index)| {
            (what, Ino::new(file), number, range, kind, index)
        })
        .prop_map(|(what, file, number, range, kind, index)| match what {
            0 => Step::Try(file, lock(number, range, kind)),
            1 | 2 => Step::Wait(file, lock(number, range, kind)),
            3 => Step::Unlock(file, owner(number), range),
            4 => Step::Cancel(index.index(1000)),
            _ if range.start == 0 => Step::ReleaseClient(owner(number).client),
            _ if range.start < 4 => Step::ReleaseFile(file, owner(number)),
            _ => Step::Unlock(file, owner(number), range),
        })
}

/// A model of the locks: by file, byte and owner the kind; and the waiting requests.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    bytes: BTreeMap<(Ino, u64, LockOwner), LockKind>,
    waiting: Vec<(Ino, u64, ByteLock)>,
}

impl Model {
    fn blockers(&self, file: Ino, lock: &ByteLock) -> Vec<LockOwner> {
        let conflicts = |((of, byte, holder), kind): (&(Ino, u64, LockOwner), &LockKind)| {
            let exclusive = [*kind, lock.kind].contains(&LockKind::Exclusive);
            let is_in = *of == file && lock.range.contains(byte);
            (is_in && exclusive && *holder != lock.owner).then_some(*holder)
        };
        self.bytes.iter().filter_map(conflicts).collect()
    }

    fn insert(&mut self, file: Ino, lock: &ByteLock) {
        for byte in lock.range.clone() {
            self.bytes.insert((file, byte, lock.owner), lock.kind);
        }
    }

    /// Whether the waits of owners lead from `from` to `to`.
    fn leads_to(&self, from: LockOwner, to: LockOwner, depth: u64) -> bool {
        from == to
            || depth > 0
                && self.waiting.iter().filter(|(_, _, lock)| lock.owner == from).any(
                    |(file, _, lock)| {
                        let next = self.blockers(*file, lock);
                        next.into_iter().any(|next| self.leads_to(next, to, depth - 1))
                    },
                )
    }

    fn settle(&mut self, ended: &mut Vec<(u64, WaitEnd)>) {
        let free = |model: &Self| {
            model.waiting.iter().position(|(file, _, lock)| model.blockers(*file, lock).is_empty())
        };
        while let Some(at) = free(self) {
            let (file, wait, lock) = self.waiting.remove(at);
            self.insert(file, &lock);
            ended.push((wait, WaitEnd::Granted));
        }
    }
}

/// The locks of a file, spread to bytes; checks that they are merged.
fn spread(table: &LockTable, file: Ino) -> BTreeMap<(Ino, u64, LockOwner), LockKind> {
    let (held, mut bytes) = (table.held_locks(file), BTreeMap::new());
    for pair in held.windows(2).filter(|pair| pair[0].owner == pair[1].owner) {
        let (one, next) = (&pair[0], &pair[1]);
        assert!(one.range.end <= next.range.start, "{pair:?}");
        assert!(one.range.end < next.range.start || one.kind != next.kind, "{pair:?}");
    }
    for lock in held {
        for byte in lock.range.clone() {
            bytes.insert((file, byte, lock.owner), lock.kind);
        }
    }
    bytes
}

/// A table, its model, and the waits so far: file, wait, and the step that began it.
#[derive(Default)]
struct Run {
    table: LockTable,
    model: Model,
    ended: Arc<Mutex<Vec<(u64, WaitEnd)>>>,
    waits: Vec<(Ino, WaitId, u64)>,
}

impl Run {
    fn try_lock(&mut self, file: Ino, lock: &ByteLock) {
        let blockers = self.model.blockers(file, lock);
        match self.table.try_lock(file, lock) {
            Ok(()) => {
                assert!(blockers.is_empty());
                self.model.insert(file, lock);
            }
            Err(LockError::Conflict(found)) => assert!(blockers.contains(&found.owner)),
            Err(why) => panic!("{why}"),
        }
    }

    fn lock_or_wait(&mut self, file: Ino, lock: &ByteLock, number: u64) {
        let blockers = self.model.blockers(file, lock);
        let ended = Arc::clone(&self.ended);
        let callback = Box::new(move |end| ended.lock().push((number, end)));
        let leads_back = |from: &LockOwner| self.model.leads_to(*from, lock.owner, OWNERS);
        match self.table.lock_or_wait(file, lock, callback) {
            Ok(LockState::Granted) => {
                assert!(blockers.is_empty());
                self.model.insert(file, lock);
            }
            Ok(LockState::Waiting(wait)) => {
                assert!(!blockers.is_empty() && !blockers.iter().any(leads_back));
                self.model.waiting.push((file, number, lock.clone()));
                self.waits.push((file, wait, number));
            }
            Err(LockError::Deadlock) => assert!(blockers.iter().any(leads_back)),
            Err(why) => panic!("{why}"),
        }
    }

    /// Does a step; returns the waits that it ends at once.
    fn step(&mut self, step: &Step, number: u64) -> Vec<(u64, WaitEnd)> {
        match step {
            Step::Try(file, lock) => self.try_lock(*file, lock),
            Step::Wait(file, lock) => self.lock_or_wait(*file, lock, number),
            Step::Unlock(file, owner, range) => {
                self.table.unlock(*file, *owner, range);
                self.model.bytes.retain(|(of, byte, held), _| {
                    of != file || held != owner || !range.contains(byte)
                });
            }
            Step::ReleaseFile(file, owner) => {
                self.table.release_file(*file, *owner);
                self.model.bytes.retain(|(of, _, held), _| of != file || held != owner);
            }
            Step::ReleaseClient(client) => {
                self.table.release_client(*client);
                self.model.bytes.retain(|(_, _, held), _| held.client != *client);
                let is_gone = |(_, _, lock): &mut (_, _, ByteLock)| lock.owner.client == *client;
                let gone = self.model.waiting.extract_if(.., is_gone);
                return gone.map(|(_, wait, _)| (wait, WaitEnd::Released)).collect();
            }
            Step::Cancel(index) => {
                let at = index % self.waits.len().max(1);
                if let Some((file, wait, step)) = self.waits.get(at).copied() {
                    let before = self.model.waiting.len();
                    self.model.waiting.retain(|(_, other, _)| *other != step);
                    let is_canceled = self.table.cancel_wait(file, wait);
                    assert_eq!(is_canceled, self.model.waiting.len() < before);
                }
            }
        }
        Vec::new()
    }
}

fn run(steps: &[Step]) {
    let mut run = Run::default();
    for (number, step) in (0..).zip(steps) {
        let mut wanted = run.step(step, number);
        run.model.settle(&mut wanted);
        let mut found = std::mem::take(&mut *run.ended.lock());
        found.sort_by_key(|(wait, _)| *wait);
        wanted.sort_by_key(|(wait, _)| *wait);
        assert_eq!(found, wanted, "after step {number}");
        let all = (0..FILES).flat_map(|file| spread(&run.table, Ino::new(file)));
        assert_eq!(all.collect::<BTreeMap<_, _>>(), run.model.bytes, "after step {number}");
    }
    for number in 0..OWNERS {
        run.table.release_client(owner(number).client);
    }
    assert!(run.table.0.lock().files.is_empty());
}

proptest! {
    #[test]
    fn locks_match_a_byte_per_byte_model(steps in prop::collection::vec(any_step(), 1..60)) {
        run(&steps);
    }
}

#[test]
fn crossed_waits_are_refused_as_deadlock() {
    let table = LockTable::default();
    let exclusive = |number, byte| lock(number, byte..byte + 1, LockKind::Exclusive);
    let ignored = || -> super::WaitCallback { Box::new(|_| {}) };
    for number in 0..3 {
        table.try_lock(Ino::new(number), &exclusive(number, 5)).unwrap();
    }
    assert!(table.lock_or_wait(Ino::new(1), &exclusive(0, 5), ignored()).is_ok());
    assert!(table.lock_or_wait(Ino::new(2), &exclusive(1, 5), ignored()).is_ok());
    let closes = table.lock_or_wait(Ino::new(0), &exclusive(2, 5), ignored());
    assert_eq!(closes, Err(LockError::Deadlock));
    assert!(table.lock_or_wait(Ino::new(0), &exclusive(3, 5), ignored()).is_ok());
}

#[test]
fn callbacks_may_use_the_table() {
    let (table, seen) = (Arc::new(LockTable::default()), Arc::new(Mutex::new(Vec::new())));
    let all = |number| lock(number, 0..u64::MAX, LockKind::Exclusive);
    table.try_lock(Ino::new(1), &all(0)).unwrap();
    let (inner, log) = (Arc::clone(&table), Arc::clone(&seen));
    let callback = Box::new(move |end| log.lock().push((end, inner.held_locks(Ino::new(1)).len())));
    assert!(matches!(
        table.lock_or_wait(Ino::new(1), &all(2), callback),
        Ok(LockState::Waiting(_))
    ));
    table.release_client(owner(0).client);
    assert_eq!(*seen.lock(), [(WaitEnd::Granted, 1)]);
    assert_eq!(table.find_conflict(Ino::new(1), &all(0)), Some(all(2)));
}

#[test]
fn courteous_locks_give_way_as_a_whole() {
    let table = LockTable::default();
    let (one, two) = (Ino::new(1), Ino::new(2));
    let silent = owner(0).client;
    let exclusive = |number, range| lock(number, range, LockKind::Exclusive);
    table.try_lock(one, &exclusive(0, 0..5)).unwrap();
    table.try_lock(two, &exclusive(1, 0..5)).unwrap();
    table.begin_courtesy(silent);
    table.try_lock(one, &exclusive(2, 5..9)).unwrap();
    assert!(table.end_courtesy(silent));
    assert!(matches!(table.try_lock(one, &exclusive(2, 0..9)), Err(LockError::Conflict(_))));

    table.begin_courtesy(silent);
    table.try_lock(one, &exclusive(2, 0..9)).unwrap();
    assert!(table.has_given_way(silent) && table.held_locks(two).is_empty());
    assert!(!table.end_courtesy(silent));

    // another waits already when the courtesy begins
    let granted = Arc::new(Mutex::new(None));
    let result = Arc::clone(&granted);
    table.try_lock(two, &exclusive(0, 0..5)).unwrap();
    let callback = Box::new(move |end| *result.lock() = Some(end));
    table.lock_or_wait(two, &exclusive(3, 0..1), callback).unwrap();
    table.begin_courtesy(silent);
    assert_eq!(*granted.lock(), Some(WaitEnd::Granted));
    assert!(table.has_given_way(silent));
}
