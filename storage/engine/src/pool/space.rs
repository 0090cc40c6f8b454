//! The space available to a file system: by the pool, by its quotas and its owners'.

use std::thread;
use std::time::{Duration, Instant};

use dsl::write::SpaceLimit;
use ondisk::objset::Kind;
use parking_lot::Mutex;
use spa::{ActivePool, OpenDataset};
use units::{MinusOrZero, Txg};
use zpl::{Error, SpaceNeed};

/// The most txgs that are synced to find space: freed space can be allocated again after two.
const MAX_SYNCED_TXGS: usize = 4;

/// The most bytes beyond a quota: usually less than a single write, because everything is synced
/// before the check.
const QUOTA_OVERSHOOT: u64 = 4 << 20;

/// A removed open file may just have been closed, and its space is being freed: the check waits
/// this long, in steps, before it reports an exceeded quota.
const UNLINKED_WAIT: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The last known space of a file system.
#[derive(Default)]
pub(super) struct SpaceCheck(Mutex<Option<(Txg, SpaceState)>>);

#[derive(Clone, Copy)]
struct SpaceState {
    space: SpaceLimit,
    /// Whether owners have quotas.
    has_owner_quotas: bool,
}

impl SpaceCheck {
    /// Refuses changes without space. Near a limit all dirty data is synced first, so that
    /// no estimate counts.
    pub(super) fn check_space(
        &self,
        active: &ActivePool,
        set: &OpenDataset,
        need: &SpaceNeed,
    ) -> zpl::Result<()> {
        if need.frees_space {
            return Ok(());
        }
        let objset = set.objset().id();
        let stopped = |_| Error::Stopped { objset };
        let takes = allocated_estimate(active, need);
        if !wait_for_space(active, takes).map_err(stopped)? {
            return Err(Error::NoSpace { objset });
        }
        let mut known = self.space_state(active, set)?;
        let left = known.space.bytes.minus_or_zero(active.txgs().unsynced_bytes());
        if left < total_bytes(need) {
            let was_left = has_unlinked(set)?;
            active.sync().map_err(stopped)?;
            known = self.space_state(active, set)?;
            if known.space.is_quota && !fits_quota(known.space, need) && was_left {
                wait_for_unlinked(set)?;
                active.sync().map_err(stopped)?;
                known = self.space_state(active, set)?;
            }
            match known.space.is_quota {
                true if !fits_quota(known.space, need) => return Err(Error::OverQuota { objset }),
                // a clone takes no new space of the pool
                false if known.space.bytes < need.bytes => return Err(Error::NoSpace { objset }),
                _ => {}
            }
        }
        let judges = known.has_owner_quotas && need.quota_owners.iter().any(Option::is_some);
        if judges && zpl::is_over_quota(set.objset(), need.quota_owners, need.objects > 0)? {
            return Err(Error::OverQuota { objset });
        }
        Ok(())
    }

    fn space_state(&self, active: &ActivePool, set: &OpenDataset) -> zpl::Result<SpaceState> {
        let synced = active.txgs().synced_txg();
        if let Some((_, known)) = self.0.lock().filter(|(txg, _)| *txg == synced) {
            return Ok(known);
        }
        let objset = set.objset().id();
        let room = active.dataset_space(objset).map_err(|_| Error::Stopped { objset })?;
        let known = SpaceState {
            space: room,
            has_owner_quotas: is_filesystem(set) && zpl::has_quotas(set.objset())?,
        };
        *self.0.lock() = Some((synced, known));
        Ok(known)
    }
}

/// Waits for space as long as txgs may free some; false: the pool is full.
///
/// One writer waits at a time, and those that come later wait for it. Without that order, other writers would use
/// what each txg frees, and a writer could be refused in a pool with space.
fn wait_for_space(active: &ActivePool, bytes: u64) -> Result<bool, spa::Error> {
    if !active.has_space_waiters() && active.has_space(bytes) {
        return Ok(true);
    }
    let _turn = active.wait_for_space_turn();
    for _ in 0..MAX_SYNCED_TXGS {
        if active.has_space(bytes) || !active.can_gain_space() {
            break;
        }
        active.reclaim_freed_space();
        active.sync()?;
    }
    Ok(active.has_space(bytes))
}

/// Bytes that it takes where every block takes whole sectors, parity and copies left aside.
fn allocated_estimate(active: &ActivePool, need: &SpaceNeed) -> u64 {
    match need.bytes.checked_div(need.block_size) {
        Some(pieces) => {
            let block = active.txgs().allocated_size(need.block_size);
            pieces.saturating_add(1).saturating_mul(block).max(need.bytes)
        }
        None => need.bytes,
    }
}

/// All bytes of a request: more than can be counted is more than there is.
const fn total_bytes(need: &SpaceNeed) -> u64 {
    need.bytes + need.cloned_bytes
}

/// Whether it fits below a quota: what is left may be used up, and the last write go a bit beyond.
fn fits_quota(room: SpaceLimit, need: &SpaceNeed) -> bool {
    let left = room.bytes;
    let bytes = total_bytes(need).minus_or_zero(QUOTA_OVERSHOOT);
    left > 0 && left >= need.cloned_bytes && left >= bytes
}

fn is_filesystem(set: &OpenDataset) -> bool {
    set.objset().header().kind == Kind::Filesystem
}

fn has_unlinked(set: &OpenDataset) -> zpl::Result<bool> {
    Ok(is_filesystem(set) && zpl::has_unlinked_files(set.objset())?)
}

fn wait_for_unlinked(set: &OpenDataset) -> zpl::Result<()> {
    let begun = Instant::now();
    while has_unlinked(set)? && begun.elapsed() < UNLINKED_WAIT {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
