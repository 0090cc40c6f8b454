//! What may still be written to a file system: by the pool, by its quotas and its owners'.

use dsl::write::Room;
use ondisk::objset::Kind;
use parking_lot::Mutex;
use spa::{Owned, Set};
use units::Txg;
use zpl::{Error, Need};

/// So many groups at most are written to find room: what was freed can be used again after two.
const PATIENCE: usize = 4;

/// So many bytes may lie beyond a quota: as a rule less than a single write, as all is on the drives
/// before what is left is looked at.
const BEYOND: u64 = 4 << 20;

/// What was last known of a file system's room.
#[derive(Default)]
pub(super) struct Rooms(Mutex<Option<(Txg, Known)>>);

#[derive(Clone, Copy)]
struct Known {
    room: Room,
    /// Whether owners have quotas.
    owners: bool,
}

impl Rooms {
    /// Refuses what there is no room for. Near a limit all that waits is written first, so that
    /// nothing is counted that was only guessed.
    pub(super) fn judge(&self, owned: &Owned, set: &Set, need: &Need) -> zpl::Result<()> {
        if need.frees {
            return Ok(());
        }
        let objset = set.objset.id();
        let stopped = |_| Error::Stopped { objset };
        for _ in 0..PATIENCE {
            if owned.has_room(need.bytes) || !owned.awaits_room() {
                break;
            }
            owned.make_room();
            owned.sync().map_err(stopped)?;
        }
        if !owned.has_room(need.bytes) {
            return Err(Error::NoSpace { objset });
        }
        let mut known = self.known(owned, set)?;
        let bytes = need.bytes.saturating_add(need.shared);
        if known.room.bytes < bytes.saturating_add(owned.groups().unsynced()) {
            owned.sync().map_err(stopped)?;
            known = self.known(owned, set)?;
            let left = known.room.bytes;
            if !known.room.quota && left < bytes {
                return Err(Error::NoSpace { objset });
            }
            // what is left below a quota may be used up, and the last write go a bit beyond
            let fits = left > 0 && left >= need.shared && left.saturating_add(BEYOND) >= bytes;
            if known.room.quota && !fits {
                return Err(Error::OverQuota { objset });
            }
        }
        match need.owners.filter(|_| known.owners) {
            Some(owners) if zpl::is_over_quota(&set.objset, owners, need.objects > 0)? => {
                Err(Error::OverQuota { objset })
            }
            _ => Ok(()),
        }
    }

    fn known(&self, owned: &Owned, set: &Set) -> zpl::Result<Known> {
        let synced = owned.groups().synced();
        if let Some((_, known)) = self.0.lock().filter(|(txg, _)| *txg == synced) {
            return Ok(known);
        }
        let objset = set.objset.id();
        let room = owned.room(objset).map_err(|_| Error::Stopped { objset })?;
        let files = set.objset.header().kind == Kind::Filesystem;
        let known = Known { room, owners: files && zpl::has_quotas(&set.objset)? };
        *self.0.lock() = Some((synced, known));
        Ok(known)
    }
}
