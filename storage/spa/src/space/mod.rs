//! Space: the maps on disk, and the allocator that is built from them.
//!
//! ```text
//! map     one space map: read, appended to
//! tops    what is known of each vdev's space without reading its maps
//! log     the log of changes that are in no metaslab's map yet
//! logging what a txg changed, to that log
//! load    from all of these to an allocator
//! write   what a txg changed, to the maps of metaslabs
//! removed what became obsolete on removed vdevs
//! away    which txgs a drive missed
//! ```

mod away;
mod fragmentation;
mod load;
mod log;
mod logging;
mod map;
mod removed;
mod tops;
mod write;

pub(crate) use away::load_away;
use away::unfinished_spare;
pub use load::Space;
pub(crate) use load::{is_closed, judge};
pub(crate) use map::MapWriter;
pub use map::space_map_entries;
pub use tops::TopSpace;
pub(crate) use write::free_map;
