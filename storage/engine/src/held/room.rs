//! What may still be written to a file system: by the pool, by its quotas and its owners'.

use std::thread;
use std::time::{Duration, Instant};

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

/// Whoever had a removed file open may have let go of it a moment ago, and it is being freed: that
/// long that is waited for, in steps, before a quota is told to be used up.
const LEAVING: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(5);

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
        let takes = on_drives(owned, need);
        for _ in 0..PATIENCE {
            if owned.has_room(takes) || !owned.awaits_room() {
                break;
            }
            owned.make_room();
            owned.sync().map_err(stopped)?;
        }
        if !owned.has_room(takes) {
            return Err(Error::NoSpace { objset });
        }
        let mut known = self.known(owned, set)?;
        let bytes = need.bytes.saturating_add(need.shared);
        if known.room.bytes < bytes.saturating_add(owned.groups().unsynced()) {
            let was_left = has_unlinked(set)?;
            owned.sync().map_err(stopped)?;
            known = self.known(owned, set)?;
            if known.room.quota && !fits(known.room, need) && was_left {
                wait_for_what_leaves(set)?;
                owned.sync().map_err(stopped)?;
                known = self.known(owned, set)?;
            }
            match known.room.quota {
                true if !fits(known.room, need) => return Err(Error::OverQuota { objset }),
                // what is shared takes nothing of the pool
                false if known.room.bytes < need.bytes => return Err(Error::NoSpace { objset }),
                _ => {}
            }
        }
        let judges = known.owners && need.owners.iter().any(Option::is_some);
        if judges && zpl::is_over_quota(&set.objset, need.owners, need.objects > 0)? {
            return Err(Error::OverQuota { objset });
        }
        Ok(())
    }

    fn known(&self, owned: &Owned, set: &Set) -> zpl::Result<Known> {
        let synced = owned.groups().synced();
        if let Some((_, known)) = self.0.lock().filter(|(txg, _)| *txg == synced) {
            return Ok(known);
        }
        let objset = set.objset.id();
        let room = owned.room(objset).map_err(|_| Error::Stopped { objset })?;
        let known = Known { room, owners: is_of_files(set) && zpl::has_quotas(&set.objset)? };
        *self.0.lock() = Some((synced, known));
        Ok(known)
    }
}

/// Bytes that it takes where every block takes whole sectors, parity and copies left aside.
fn on_drives(owned: &Owned, need: &Need) -> u64 {
    match need.bytes.checked_div(need.piece) {
        Some(pieces) => {
            let block = owned.groups().on_drive(need.piece);
            pieces.saturating_add(1).saturating_mul(block).max(need.bytes)
        }
        None => need.bytes,
    }
}

/// Whether it fits below a quota: what is left may be used up, and the last write go a bit beyond.
fn fits(room: Room, need: &Need) -> bool {
    let bytes = need.bytes.saturating_add(need.shared);
    let left = room.bytes;
    left > 0 && left >= need.shared && left.saturating_add(BEYOND) >= bytes
}

fn is_of_files(set: &Set) -> bool {
    set.objset.header().kind == Kind::Filesystem
}

fn has_unlinked(set: &Set) -> zpl::Result<bool> {
    Ok(is_of_files(set) && zpl::has_unlinked(&set.objset)?)
}

fn wait_for_what_leaves(set: &Set) -> zpl::Result<()> {
    let begun = Instant::now();
    while has_unlinked(set)? && begun.elapsed() < LEAVING {
        thread::sleep(STEP);
    }
    Ok(())
}
