//! Changing the pool's tree of datasets.
//!
//! Every operation takes a [`Change`] and is made by the one who writes a transaction group, after
//! the contents of the datasets and before the MOS. It judges first and changes then: an
//! operation that is refused has changed nothing.

mod bookmark;
mod change;
mod create;
mod deadlist;
mod destroy;
mod destroy_snapshots;
pub mod features;
mod holds;
mod keys;
mod ledger;
mod leftovers;
mod limits;
mod list;
mod livelist;
mod names;
mod old_deadlist;
pub mod pool;
mod pool_property;
mod promote;
mod release;
mod remapped;
mod rename;
mod rewrap;
mod rollback;
mod set;
mod snapshot;
mod space;

pub use bookmark::{bookmark, destroy_bookmark};
pub use change::{Change, Moment};
pub use create::{clone, create, log_bars, make_caseless};
pub use destroy::destroy;
pub use destroy_snapshots::{destroy_snapshot, destroy_snapshots, find_snapshots, is_held};
pub use holds::{hold, release as release_hold};
pub use keys::{NewKey, encrypt};
pub use ledger::DatasetLedger;
pub use leftovers::{PASSING_HOLDS, drop_passing_holds, drop_received, give_up_received};
pub use limits::{Room, available, room};
pub use names::{dataset_of, head_of};
pub use pool_property::{pool_number, set_pool_number, unset_pool_property};
pub use promote::promote;
pub use release::{Released, release, waits};
pub use rename::{rename, rename_snapshot};
pub use rewrap::{Rewrap, change_key, inherit_key};
pub use rollback::rollback;
pub use set::{By, effective, inherit, set};
pub use snapshot::snapshot;
pub use space::Space;
