//! Where the transactions of file systems come from, and where their promises go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::Blkptr;
use ondisk::feature::Feature;
use ondisk::zil::{Body, Write};
use spa::{Owned, Set};
use txg::Tx;
use units::ObjectId;
use zil::{Entry, Item, Log};
use zpl::{Begin, Error, Need, Promise};

use super::World;
use super::keep::Manners;
use super::room::Rooms;

/// Begins transactions of one file system.
pub(super) struct Beginner {
    pub(super) owned: Arc<Owned>,
    pub(super) set: Arc<Set>,
    pub(super) log: Arc<Log>,
    pub(super) world: World,
    /// What may still be written.
    pub(super) rooms: Rooms,
    /// How it is changed.
    pub(super) manners: Manners,
    /// The record that is being replayed.
    pub(super) replaying: Replaying,
}

/// The record of the intent log that is being replayed.
#[derive(Default)]
pub(super) struct Replaying {
    /// One more than its number; 0: there is none, what is done now is new.
    record: AtomicU64,
    /// It can be done once more.
    repeats: AtomicBool,
}

impl Replaying {
    /// From now on this one is, or none.
    pub(super) fn set(&self, entry: Option<&Entry>) {
        self.repeats.store(entry.is_some_and(zpl::can_repeat), Ordering::Release);
        let next = entry.map_or(0, |entry| entry.record.seq.saturating_add(1));
        self.record.store(next, Ordering::Release);
    }

    fn is_on(&self) -> bool {
        self.record.load(Ordering::Acquire) != 0
    }

    /// The last record that is done once a transaction is on the drives; none: nothing is replayed. What
    /// may take several, and can be done once more, is done for sure with those of the next one.
    fn done_with(&self, need: &Need) -> Option<u64> {
        let seq = self.record.load(Ordering::Acquire).checked_sub(1)?;
        let is_last = !need.ahead && !self.repeats.load(Ordering::Acquire);
        Some(if is_last { seq } else { seq.saturating_sub(1) })
    }
}

impl Begin for Beginner {
    fn begin(&self, need: &Need) -> zpl::Result<Tx> {
        let objset = self.set.objset.id();
        if self.set.is_retired() {
            return Err(Error::Stopped { objset });
        }
        // what the log promised was judged when it was promised
        if !self.replaying.is_on() {
            if self.manners.now().read_only {
                return Err(Error::ReadOnly { objset });
            }
            self.rooms.judge(&self.owned, &self.set, need)?;
        }
        if need.blocks > 0 {
            self.owned.groups().wait_to_free();
        }
        let tx = self.owned.begin().map_err(|_| Error::Stopped { objset })?;
        tx.freed(need.blocks);
        if let Some(seq) = self.replaying.done_with(need) {
            self.log.replayed(&tx, seq);
        }
        Ok(tx)
    }

    fn promise(&self, tx: &Tx, promise: Promise<'_>) {
        if self.replaying.is_on() {
            return;
        }
        let item = match promise {
            // its bytes are read from the file when somebody asks for them to be kept
            Promise::Write { object, offset, bytes } => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let (pointer, data) = (Blkptr::EMPTY, None);
                let write = Write { object, offset, length, pointer, data };
                Item::of_object(Body::Write(Box::new(write)))
            }
            Promise::Record(body) if body.changed_object().is_some() => Item::of_object(body),
            Promise::Record(body) | Promise::Hidden(body) => Item::ordered(body),
        };
        self.log.add(tx, item);
    }

    fn must_sync(&self, tx: &Tx) {
        if !self.replaying.is_on() {
            self.log.add_untold(tx);
        }
    }

    fn renamed(&self, object: ObjectId) {
        self.log.renamed(object);
    }

    fn is_again(&self) -> bool {
        self.replaying.is_on()
    }

    fn gone(&self, object: ObjectId) {
        self.log.forget(object);
    }

    fn has_long_name(&self, tx: &Tx) {
        if let Some(feature) = Feature::by_name("longname") {
            self.set.activate_feature(tx, feature);
        }
    }

    fn random(&self) -> u64 {
        self.world.number()
    }
}
