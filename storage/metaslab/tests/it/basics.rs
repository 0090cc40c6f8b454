//! Each promise once, by hand.

use std::sync::Arc;

use metaslab::{Allocator, Class, Error, TopSpec, Want};
use units::{Ashift, Txg, VdevId};

fn top(vdev: u32, class: Class, asize: u64) -> TopSpec {
    TopSpec {
        vdev: VdevId::new(vdev),
        class,
        asize,
        metaslab_shift: 20,
        ashift: Ashift::new(12).unwrap(),
        row: 4096,
        width: 1,
        cost: Arc::new(|psize: u64| psize.next_multiple_of(4096)),
    }
}

fn empty(tops: Vec<TopSpec>) -> Allocator {
    let vdevs: Vec<VdevId> = tops.iter().map(|top| top.vdev).collect();
    let allocator = Allocator::new(tops);
    for vdev in vdevs {
        allocator.load_empty(vdev).unwrap();
    }
    allocator
}

#[test]
fn freed_space_waits_for_three_txgs() {
    let allocator = empty(vec![top(0, Class::Normal, 1 << 20)]);
    let txg = Txg::new;
    let [Some(dva), None, None] = allocator.allocate(&Want::new(1 << 20, txg(10))).unwrap() else {
        panic!("one copy")
    };
    allocator.free(&dva, txg(11)).unwrap();
    assert!(matches!(allocator.free(&dva, txg(11)), Err(Error::NotAllocated { .. })));
    for now in 10..13 {
        let full = allocator.allocate(&Want::new(4096, txg(14)));
        assert_eq!(full, Err(Error::NoSpace { psize: 4096 }));
        allocator.take_changes(txg(now));
        allocator.synced(txg(now));
    }
    assert_eq!(allocator.usage(Class::Normal).deferred, 1 << 20);
    allocator.synced(txg(13));
    allocator.allocate(&Want::new(1 << 20, txg(14))).unwrap();
}
