//! `zpool initialize` and `zpool trim`: work that goes over the free space of a leaf, in steps.
//!
//! ```text
//! step   lend a free range of the top-level vdev (Allocator::lend_free)
//!        translate it to the leaf's part of it
//!        initialize: write the pattern    trim: have the device discard it
//!        return the range
//! ```
//!
//! The table of the leaf keeps the state, so that the work goes on after an export, here or with OpenZFS:
//!
//! ```text
//!              initialize                               trim
//! state        com.delphix:vdev_initialize_state        org.zfsonlinux:vdev_trim_state
//! next byte    com.delphix:next_offset_to_initialize    org.zfsonlinux:next_offset_to_trim
//! time         com.delphix:vdev_initialize_action_time  org.zfsonlinux:vdev_trim_action_time
//! rate                                                  org.zfsonlinux:vdev_trim_rate
//! ```
//!
//! The next byte counts from the end of the leaf's front labels. Free space is what is free in the last txg
//! and the two before, and what no checkpoint uses, so no state that an import can open loses anything.
//!
//! Learnt from: `vdev_initialize.c`, `vdev_trim.c` and `vdev_raidz_xlate` of OpenZFS 2.3.2. Proved by: the
//! engine's `tests/it/leaf_activity.rs`.

use std::collections::BTreeMap;
use std::ops::Range;

use dsl::write::SyncTaskContext;
use lock::{Mutex, rank};
use ondisk::history::Entry;
use ondisk::label::VdevConfig;
use units::{Guid, MetaslabId, ObjectId, VdevId};
use vdev::{IoClass, LayoutHold, Leaf, NodeKind, VdevNode};
use zap::Zap;

use super::{ActivePool, DeviceChangeError};
use crate::Error;

/// The pattern that OpenZFS writes.
const PATTERN: u64 = 0xdead_beef_dead_beee;
/// Bytes of a step of initialize, and of trim.
const INITIALIZE_STEP: u32 = 1 << 20;
pub(super) const TRIM_STEP: u32 = 64 << 20;
/// Bytes in front of the space of a leaf.
const DATA_START: u64 = 4 << 20;

/// Work that goes over a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActivityKind {
    /// All free space is written.
    Initialize,
    /// The device is told which space is free.
    Trim,
}

/// How the work of a leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivityState {
    /// It goes on.
    Active,
    /// It was ended, and begins anew the next time.
    Canceled,
    /// It goes on from there the next time.
    Suspended,
    /// It came to its end.
    Complete,
}

/// The work of one leaf.
#[derive(Clone, Copy, Debug)]
struct Activity {
    state: ActivityState,
    /// The next byte of the leaf.
    next: u64,
    /// The next byte of the top-level vdev.
    top_next: u64,
    /// When it came to be in its state, in seconds since 1970.
    time: u64,
    /// Bytes a second at most; 0: no limit.
    rate: u64,
}

/// The work of all leaves.
#[derive(Default)]
pub(super) struct LeafActivities(
    Mutex<BTreeMap<(Guid, ActivityKind), Activity>, { rank::LEAF_ACTIVITIES }>,
);

/// What a command wants of the work of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityCommand {
    /// Start it, or go on; bytes a second at most, 0 for no limit.
    Start(u64),
    /// Stop it, to go on later.
    Suspend,
    /// End it.
    Cancel,
    /// Forget it, so that the leaf counts as not initialized.
    Reset,
}

/// How far the work of a leaf has come that goes on or is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafProgress {
    /// The leaf.
    pub leaf: Guid,
    /// Its work.
    pub kind: ActivityKind,
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// Bytes of the leaf that it is past.
    pub done: u64,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityStep {
    /// Bytes of the leaf that were written or discarded.
    pub bytes: u64,
    /// Bytes a second at most; 0: no limit.
    pub rate: u64,
}

impl ActivityKind {
    /// The entries of the state, the next byte and the time.
    const fn entries(self) -> [&'static [u8]; 3] {
        match self {
            Self::Initialize => [
                b"com.delphix:vdev_initialize_state",
                b"com.delphix:next_offset_to_initialize",
                b"com.delphix:vdev_initialize_action_time",
            ],
            Self::Trim => [
                b"org.zfsonlinux:vdev_trim_state",
                b"org.zfsonlinux:next_offset_to_trim",
                b"org.zfsonlinux:vdev_trim_action_time",
            ],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Trim => "trim",
        }
    }
}

/// In the table of a leaf: how fast it is trimmed.
const TRIM_RATE_ENTRY: &[u8] = b"org.zfsonlinux:vdev_trim_rate";

impl ActivityState {
    const fn number(self) -> u64 {
        match self {
            Self::Active => 1,
            Self::Canceled => 2,
            Self::Suspended => 3,
            Self::Complete => 4,
        }
    }

    const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Active),
            2 => Some(Self::Canceled),
            3 => Some(Self::Suspended),
            4 => Some(Self::Complete),
            _ => None,
        }
    }

    const fn event(self) -> &'static str {
        match self {
            Self::Active => "activated",
            Self::Canceled => "canceled",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
        }
    }
}

impl LeafActivities {
    /// Reads the state of all leaves. A table that cannot be read tells of nothing.
    pub(super) fn load(mos: &dmu::Objset, root: Option<&VdevConfig>) -> Self {
        let mut all = BTreeMap::new();
        for leaf in root.into_iter().flat_map(VdevConfig::leaves) {
            let table = leaf.leaf_zap.and_then(|id| Zap::open(mos.object(id).ok()?).ok());
            let Some(table) = table else { continue };
            let number = |name: &[u8]| table.lookup_u64(name).ok().flatten();
            for kind in [ActivityKind::Initialize, ActivityKind::Trim] {
                let [state, next, time] = kind.entries().map(number);
                let Some(state) = state.and_then(ActivityState::from_number) else { continue };
                let (next, time) = (next.unwrap_or(0), time.unwrap_or(0));
                let rate = number(TRIM_RATE_ENTRY).filter(|_| kind == ActivityKind::Trim);
                let rate = rate.unwrap_or(0);
                let activity = Activity { state, next, top_next: 0, time, rate };
                all.insert((leaf.guid, kind), activity);
            }
        }
        Self(Mutex::new(all))
    }
}

impl ActivePool {
    /// Starts, stops or ends the work of a leaf.
    pub fn command_activity(
        &self,
        leaf: Guid,
        kind: ActivityKind,
        command: ActivityCommand,
    ) -> Result<(), Error> {
        self.run_sync_task(move |active, change| {
            active.command_activity_sync(change, leaf, kind, command)
        })?
    }

    fn command_activity_sync(
        &self,
        change: &SyncTaskContext<'_>,
        leaf: Guid,
        kind: ActivityKind,
        command: ActivityCommand,
    ) -> Result<(), Error> {
        let before = self.activities.0.lock().get(&(leaf, kind)).copied();
        let state = before.map(|activity| activity.state);
        let is_active = state == Some(ActivityState::Active);
        let new = match command {
            ActivityCommand::Start(_) | ActivityCommand::Reset if is_active => {
                return Err(DeviceChangeError::ActivityRuns(kind.name()).into());
            }
            ActivityCommand::Start(_) => ActivityState::Active,
            ActivityCommand::Suspend if is_active => ActivityState::Suspended,
            ActivityCommand::Cancel if is_active || state == Some(ActivityState::Suspended) => {
                ActivityState::Canceled
            }
            ActivityCommand::Reset => return self.reset_activity(change, leaf, kind),
            ActivityCommand::Suspend | ActivityCommand::Cancel => {
                return Err(DeviceChangeError::NoActivity(kind.name()).into());
            }
        };
        self.check_activity(leaf)?;
        // one that was suspended goes on where it was, and keeps the time of its start
        let going = before.filter(|activity| {
            matches!(activity.state, ActivityState::Active | ActivityState::Suspended)
        });
        let fresh =
            Activity { state: new, next: 0, top_next: 0, time: change.now.seconds, rate: 0 };
        let mut activity = going.unwrap_or(fresh);
        activity.state = new;
        if new == ActivityState::Canceled {
            activity.time = change.now.seconds;
        }
        if let ActivityCommand::Start(rate) = command {
            (activity.rate, activity.top_next) = (rate, 0);
        }
        self.activities.0.lock().insert((leaf, kind), activity);
        self.write_activity(change, leaf, kind, &activity)?;
        self.log_activity(change, leaf, kind, new.event());
        Ok(())
    }

    /// Refuses leaves whose free space is not known in terms of their own bytes.
    fn check_activity(&self, leaf: Guid) -> Result<(), Error> {
        let vdev = self.top_of(leaf).ok_or(DeviceChangeError::NotInPool)?;
        let layout = self.tree.hold_layout(vdev);
        let is_draid = |layout: &LayoutHold| matches!(layout.node().kind, NodeKind::Draid(..));
        if layout.is_none_or(|layout| is_draid(&layout)) {
            return Err(DeviceChangeError::ActivityUnsupported.into());
        }
        Ok(())
    }

    fn top_of(&self, leaf: Guid) -> Option<VdevId> {
        let mut tops = self.tree.tops().into_iter();
        let found = tops.find(|(_, top)| top.leaves().iter().any(|own| own.guid() == leaf));
        found.map(|(vdev, _)| vdev)
    }

    fn leaf_table(&self, leaf: Guid) -> Result<Zap, Error> {
        let config = self.config();
        let mut leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let table: Option<ObjectId> =
            leaves.find(|own| own.guid == leaf).and_then(|own| own.leaf_zap);
        let table = table.ok_or(DeviceChangeError::ActivityUnsupported)?;
        Ok(Zap::open(self.mos.object(table)?)?)
    }

    fn reset_activity(
        &self,
        change: &SyncTaskContext<'_>,
        leaf: Guid,
        kind: ActivityKind,
    ) -> Result<(), Error> {
        self.activities.0.lock().remove(&(leaf, kind));
        let table = self.leaf_table(leaf)?;
        for name in kind.entries() {
            table.remove(change.tx, name)?;
        }
        Ok(())
    }

    fn write_activity(
        &self,
        change: &SyncTaskContext<'_>,
        leaf: Guid,
        kind: ActivityKind,
        activity: &Activity,
    ) -> Result<(), Error> {
        let table = self.leaf_table(leaf)?;
        let values = [activity.state.number(), activity.next, activity.time];
        for (name, value) in kind.entries().into_iter().zip(values) {
            table.update_u64(change.tx, name, value)?;
        }
        if kind == ActivityKind::Trim {
            table.update_u64(change.tx, TRIM_RATE_ENTRY, activity.rate)?;
        }
        Ok(())
    }

    fn log_activity(
        &self,
        change: &SyncTaskContext<'_>,
        leaf: Guid,
        kind: ActivityKind,
        event: &str,
    ) {
        let path = self.tree.leaf(leaf).map(|leaf| leaf.path().to_owned()).unwrap_or_default();
        let detail = format!("vdev={path} {event}");
        self.log_history(
            change,
            &Entry::Event { name: kind.name(), detail: &detail, dataset: None },
        );
    }

    /// Bytes of a leaf without its labels, if its device is there.
    pub fn leaf_space(&self, leaf: Guid) -> Option<u64> {
        geometry::capacity::leaf_space(self.tree.leaf(leaf)?.device()?.size())
    }

    /// How far the work has come that goes on or is suspended, of all leaves.
    pub fn leaf_progress(&self) -> Vec<LeafProgress> {
        let all = self.activities.0.lock();
        let is_open = |activity: &Activity| {
            matches!(activity.state, ActivityState::Active | ActivityState::Suspended)
        };
        let open = all.iter().filter(|(_, activity)| is_open(activity));
        open.map(|((leaf, kind), activity)| LeafProgress {
            leaf: *leaf,
            kind: *kind,
            is_suspended: activity.state == ActivityState::Suspended,
            done: activity.next,
        })
        .collect()
    }

    /// The work that goes on, of leaves that are in service. It waits for the expansion of a raidz, which moves
    /// sectors to where others were.
    pub fn running_activities(&self) -> Vec<(Guid, ActivityKind)> {
        let all = self.activities.0.lock();
        let active = all.iter().filter(|(_, activity)| activity.state == ActivityState::Active);
        let in_service = |leaf: Guid| {
            self.tree.leaf(leaf).is_some_and(|leaf| leaf.is_writable() && !leaf.is_failing())
                && self.top_of(leaf).is_some_and(|vdev| {
                    self.removing_vdev() != Some(vdev) && self.tree.hold_layout(vdev).is_some()
                })
        };
        active.map(|(key, _)| *key).filter(|(leaf, _)| in_service(*leaf)).collect()
    }

    /// Does one step of the work of a leaf. After the last one the work is complete, which is on the drives
    /// when this returns.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn step_activity(&self, leaf: Guid, kind: ActivityKind) -> Result<ActivityStep, Error> {
        let none = ActivityStep { bytes: 0, rate: 0 };
        let activity = self.activities.0.lock().get(&(leaf, kind)).copied();
        let activity = activity.filter(|activity| activity.state == ActivityState::Active);
        let (Some(activity), Some(vdev)) = (activity, self.top_of(leaf)) else { return Ok(none) };
        // until the step is done: its range of the leaf may hold data in another layout
        let Some(layout) = self.tree.hold_layout(vdev) else { return Ok(none) };
        let Some(target) = self.tree.leaf(leaf) else { return Ok(none) };
        let map = LeafMap::new(layout.node(), leaf);
        let from = activity.top_next.max(map.to_top(activity.next));
        let Some((metaslab, range)) = self.lend_next(vdev, from, kind)? else {
            self.complete_activity(leaf, kind)?;
            return Ok(none);
        };
        assert!(range.start >= from, "{range:?} of vdev {vdev} is lent again, before {from}");
        let part = map.to_leaf(&range);
        let done = sweep_range(&target, &part, kind);
        self.space.allocator().return_lent(vdev, metaslab, &range)?;
        done?;
        if let Some(known) = self.activities.0.lock().get_mut(&(leaf, kind)) {
            known.next = known.next.max(part.end);
            known.top_next = range.end;
        }
        Ok(ActivityStep { bytes: part.end - part.start, rate: activity.rate })
    }

    /// Lends the next free range of a vdev.
    fn lend_next(
        &self,
        vdev: VdevId,
        from: u64,
        kind: ActivityKind,
    ) -> Result<Option<(MetaslabId, Range<u64>)>, Error> {
        let allocator = self.space.allocator();
        let most = if kind == ActivityKind::Trim { TRIM_STEP } else { INITIALIZE_STEP };
        for metaslab in allocator.metaslabs(vdev)? {
            if allocator.extent(vdev, metaslab)?.end <= from {
                continue;
            }
            let lent = allocator.lend_free(vdev, metaslab, from, most, self.txgs.synced_txg())?;
            if let Some(range) = lent {
                return Ok(Some((metaslab, range)));
            }
        }
        Ok(None)
    }

    fn complete_activity(&self, leaf: Guid, kind: ActivityKind) -> Result<(), Error> {
        self.run_sync_task(move |active, change| {
            let activity = active.activities.0.lock().get(&(leaf, kind)).copied();
            let Some(mut activity) = activity.filter(|it| it.state == ActivityState::Active) else {
                return Ok(());
            };
            (activity.state, activity.time) = (ActivityState::Complete, change.now.seconds);
            active.activities.0.lock().insert((leaf, kind), activity);
            active.write_activity(change, leaf, kind, &activity)?;
            active.log_activity(change, leaf, kind, activity.state.event());
            Ok(())
        })?
    }

    /// Writes down, with the next txg, how far the work has come that goes on.
    pub fn save_activities(&self) {
        self.queue_sync_task(|active, change| {
            for (leaf, kind) in active.running_activities() {
                let activity = active.activities.0.lock().get(&(leaf, kind)).copied();
                if let Some(activity) = activity {
                    // it is no reason to stop the txg that the next byte is not known: the work is done again
                    let _ = active.write_activity(change, leaf, kind, &activity);
                }
            }
        });
    }
}

/// Writes the pattern to a range of a leaf, or has the device discard it.
pub(super) fn sweep_range(leaf: &Leaf, part: &Range<u64>, kind: ActivityKind) -> Result<(), Error> {
    if leaf.device().is_none() || part.start >= part.end {
        return Ok(());
    }
    let start = part.start + DATA_START;
    let failed = |_| Error::from(DeviceChangeError::DeviceMissing);
    match kind {
        ActivityKind::Initialize => {
            let length = units::to_usize(part.end - part.start);
            let bytes: Vec<u8> = PATTERN.to_le_bytes().into_iter().cycle().take(length).collect();
            vdev::with_class(IoClass::Initialize, || leaf.write(start, &bytes)).map_err(failed)
        }
        ActivityKind::Trim => {
            let end = part.end + DATA_START;
            leaf.discard(start..end).map_err(failed)
        }
    }
}

/// How ranges of a top-level vdev lie on one of its leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafMap {
    /// At the same place.
    Same,
    /// Of a raidz: each `width`th sector, from the one of this column on.
    Column { column: u64, width: u64, shift: u32 },
}

impl LeafMap {
    pub(super) fn new(top: &VdevNode, leaf: Guid) -> Self {
        let NodeKind::Raidz(_, children) = &top.kind else { return Self::Same };
        let is_below = |child: &VdevNode| child.leaves().iter().any(|own| own.guid() == leaf);
        let column = children.iter().position(is_below).unwrap_or(0);
        let number = |count: usize| units::to_u64(count);
        Self::Column {
            column: number(column),
            width: number(children.len()).max(1),
            shift: top.leaves().first().map_or(9, |leaf| leaf.ashift().get()),
        }
    }

    /// The bytes of the leaf that a range of the vdev lies on.
    pub(super) fn to_leaf(self, range: &Range<u64>) -> Range<u64> {
        let Self::Column { column, width, shift } = self else { return range.clone() };
        let row = |sector: u64| match sector.checked_sub(column) {
            Some(past) => past.div_ceil(width),
            None => 0,
        };
        row(range.start >> shift) << shift..row(range.end >> shift) << shift
    }

    /// The first byte of the vdev that can lie at a byte of the leaf or behind it.
    fn to_top(self, leaf: u64) -> u64 {
        match self {
            Self::Same => leaf,
            Self::Column { width, shift, .. } => ((leaf >> shift) * width) << shift,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LeafMap;

    #[test]
    fn each_sector_of_a_raidz_is_on_one_leaf() {
        let width = 5;
        let columns = (0..width).map(|column| LeafMap::Column { column, width, shift: 9 });
        for (first, last) in [(0, 1), (3, 4), (7, 8), (2, 19), (0, 40), (11, 12)] {
            let range = first << 9..last << 9;
            let bytes: u64 = columns
                .clone()
                .map(|map| {
                    let part = map.to_leaf(&range);
                    part.end - part.start
                })
                .sum();
            assert_eq!(bytes, range.end - range.start, "{first}..{last}");
        }
        let third = LeafMap::Column { column: 2, width, shift: 9 };
        assert_eq!(third.to_leaf(&(7 << 9..8 << 9)), 1 << 9..2 << 9);
        assert_eq!(third.to_top(1 << 9), 5 << 9);
        assert_eq!(LeafMap::Same.to_leaf(&(3..9)), 3..9);
    }
}
