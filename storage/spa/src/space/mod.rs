//! Space: the maps on disk, and the allocator that is built from them.
//!
//! ```text
//! map     one space map: read, appended to
//! vdevs   the space of each vdev, known without reading its maps
//! log     the log of changes that are in no metaslab's map yet
//! log_write   writes the changes of a txg to that log
//! load    from all of these to an allocator
//! write   writes the changes of a txg to the maps of metaslabs
//! removed obsolete ranges of removed vdevs
//! checkpoint  freed ranges that the pool's checkpoint protects
//! dtl     the txgs that a drive missed
//! freed   space freed by recent txgs, for autotrim
//! ```

mod checkpoint;
mod dtl;
mod fragmentation;
mod freed;
mod load;
mod log;
mod log_write;
mod map;
mod removed;
mod vdevs;
mod write;

pub(crate) use checkpoint::CHECKPOINT_FEATURE;
pub(crate) use dtl::load_dtls;
pub use load::PoolSpace;
pub(crate) use load::{check_writable, is_closed_to_allocation, vdev_spec};
pub use map::space_map_entries;
pub(crate) use map::{SpaceMapWriter, read_header};
pub(crate) use removed::{OBSOLETE_COUNTS, OBSOLETE_MAP_ENTRY, RemovalMapping};
pub use vdevs::VdevSpace;
pub(crate) use write::{MapSyncContext, free_space_map};
