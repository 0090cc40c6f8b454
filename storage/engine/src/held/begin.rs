//! Where the transactions of file systems come from, and where their promises go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::Blkptr;
use ondisk::zil::{Body, Write};
use spa::{Owned, Set};
use txg::Tx;
use units::ObjectId;
use zil::{Item, Log};
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
    /// The record that is being replayed; 0: none, what is done now is new.
    pub(super) replaying: AtomicU64,
}

impl Begin for Beginner {
    fn begin(&self, need: &Need) -> zpl::Result<Tx> {
        let objset = self.set.objset.id();
        if self.set.is_retired() {
            return Err(Error::Stopped { objset });
        }
        // what the log promised was judged when it was promised
        if self.replaying.load(Ordering::Acquire) == 0 {
            if self.manners.now().read_only {
                return Err(Error::ReadOnly { objset });
            }
            self.rooms.judge(&self.owned, &self.set, need)?;
        }
        let tx = self.owned.begin().map_err(|_| Error::Stopped { objset })?;
        let seq = self.replaying.load(Ordering::Acquire);
        if seq != 0 {
            self.log.replayed(&tx, seq);
        }
        Ok(tx)
    }

    fn promise(&self, tx: &Tx, promise: Promise<'_>) {
        if self.replaying.load(Ordering::Acquire) != 0 {
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
        if self.replaying.load(Ordering::Acquire) == 0 {
            self.log.add_untold(tx);
        }
    }

    fn gone(&self, object: ObjectId) {
        self.log.forget(object);
    }

    fn random(&self) -> u64 {
        self.world.number()
    }
}
