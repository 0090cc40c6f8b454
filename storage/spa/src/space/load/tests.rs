//! Space maps beside the log of changes.

use std::ops::Range;
use std::sync::Arc;

use dmu::Objset;
use metaslab::RangeSet;
use ondisk::objset::Kind;
use units::{MetaslabId, ObjsetId, Txg, VdevId};
use vdev::VdevTree;
use zio::{Reader, Source};

use super::PoolSpace;
use crate::Error;
use crate::space::log::LoggedChanges;

fn empty_space() -> PoolSpace {
    let nothing = Arc::new(Reader::new(Arc::new(VdevTree::new(Vec::new()))));
    let source = nothing as Arc<dyn Source>;
    PoolSpace::empty(&Objset::new_empty(source, ObjsetId::MOS, Kind::Meta, None), &[])
}

#[test]
fn log_that_contradicts_its_map_is_refused() {
    let space = empty_space();
    let (vdev, metaslab) = (VdevId::new(0), MetaslabId::new(0));
    let changes = |allocated, freed| LoggedChanges { allocated, freed };
    let apply = |free: Range<u64>, logged: LoggedChanges| {
        space.maps.log.lock().changes.insert((vdev, metaslab), logged);
        space.maps.apply_log(RangeSet::from_range(free), (vdev, metaslab), Txg::ZERO)
    };
    let (none, part) = (RangeSet::new, || RangeSet::from_range(10..20));
    let error = spa_error(vdev, metaslab);
    assert_eq!(apply(0..15, changes(part(), none())), error, "allocated twice");
    assert_eq!(apply(15..30, changes(none(), part())), error, "freed twice");
    assert!(apply(0..30, changes(part(), none())).is_ok());
    assert!(apply(20..30, changes(none(), part())).is_ok());
}

fn spa_error(vdev: VdevId, metaslab: MetaslabId) -> Result<Option<RangeSet>, Error> {
    Err(Error::SpaceLogContradiction { vdev, metaslab })
}

#[test]
fn flush_during_a_map_read_frees_nothing() {
    let space = empty_space();
    let at = (VdevId::new(0), MetaslabId::new(0));
    let read = || (RangeSet::from_range(0..100), space.maps.synced_txg());
    let logged = LoggedChanges { allocated: RangeSet::from_range(10..20), freed: RangeSet::new() };
    space.maps.log.lock().flushing.insert(at, logged);

    let (free, as_of) = read();
    let free = space.maps.apply_log(free, at, as_of).unwrap().unwrap();
    assert_eq!(free.iter().collect::<Vec<_>>(), [0..10, 20..100]);

    // the map is of before the group with which the change moved there, the log of after it
    let (free, as_of) = read();
    space.mark_synced(Txg::new(1));
    assert_eq!(space.maps.apply_log(free, at, as_of), Ok(None), "it must be read again");
}
