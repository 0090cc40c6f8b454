//! Changing the pool's tree of datasets.
//!
//! The txg sync thread runs every operation with a [`SyncTaskContext`], after the contents of the
//! datasets and before the MOS. An operation checks first and changes then: a refused one has
//! changed nothing.

mod async_free;
mod bookmark;
mod bpobj;
mod change_key;
mod context;
mod create;
mod deadlist;
mod delegation;
mod destroy;
mod destroy_snapshots;
pub mod features;
mod holds;
mod interrupted;
mod keys;
mod ledger;
mod limits;
mod livelist;
mod names;
mod old_deadlist;
pub mod pool;
mod pool_property;
mod pool_upgrade;
mod promote;
mod raw_key;
mod receive;
mod redaction;
mod remap_deadlist;
mod rename;
mod resume;
mod rollback;
mod set_properties;
mod set_property;
mod snapshot;
pub(crate) mod space;

pub use async_free::{FreeProgress, free_pending, has_pending_frees};
pub use bookmark::{create_bookmark, destroy_bookmark};
pub use change_key::{KeyChange, change_key, inherit_key};
pub use context::{DatasetEvent, Moment, SyncTaskContext};
pub use create::{check_no_partial_log, create_clone, create_dataset, set_case_insensitive};
pub use delegation::{DelegationEntries, allow, allow_creator, unallow};
pub use destroy::destroy;
pub use destroy_snapshots::{destroy_snapshot, destroy_snapshots, find_snapshots, is_held};
pub use holds::{hold, release_hold};
pub use interrupted::{
    TMP_USERREFS, destroy_partial_receive, destroy_recv_clone, release_temporary_holds,
};
pub use keys::{NewKey, encrypt_dataset};
pub use ledger::DatasetLedger;
pub use limits::{SpaceLimit, available_space, space_limit};
pub use names::{dataset_id, head_id};
pub use pool_property::{
    pool_property_u64, set_pool_property, set_pool_property_text, unset_pool_property,
};
pub use pool_upgrade::upgrade_structures;
pub use promote::{PromotedHeads, promote};
pub use raw_key::{
    inherit_received_key, separate_received_key, set_received_key, update_received_key,
};
pub use receive::{
    ReceivedSnapshot, begin_clone_receive, begin_full_receive, begin_incremental_receive,
    begin_replacing_receive, end_full_receive, end_incremental_receive,
};
pub use redaction::{create_redaction_bookmark, set_redaction};
pub use rename::{rename, rename_snapshot};
pub use resume::{abort_receive, set_resume_position, set_resume_state};
pub use rollback::rollback;
pub use set_properties::set_properties;
pub use set_property::{
    SetSource, effective_value, exclude_received_property, inherit_property,
    received_property_names, remove_received_property, set_property,
};
pub use snapshot::create_snapshots;
pub use space::SpaceDelta;
