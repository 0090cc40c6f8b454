//! Uberblocks of the fixture pools against what `zdb -lu` prints of them.

use ondisk::Blkptr;
use ondisk::uberblock::{Scratch, Uberblock};

#[test]
fn golden_uberblock() {
    let bytes = include_bytes!("../golden/uberblock-single.bin");
    let uberblock = Uberblock::parse_required(bytes).expect("an uberblock");
    assert_eq!(uberblock.encode()[..], bytes[..Uberblock::SIZE]);
    assert_eq!((uberblock.version, uberblock.txg.get()), (5000, 28));
    assert_eq!(uberblock.guid_sum, 10058794606727762164);
    assert_eq!(uberblock.timestamp, 1795210260);
    assert!(!uberblock.is_checkpoint());
    let multihost = uberblock.multihost.expect("its magic number is there");
    assert_eq!((multihost.delay, multihost.sequence), (0, None));
    let Blkptr::Regular(root) = uberblock.root else { panic!("the pool has a root") };
    let copies: Vec<_> = root.copies().map(|dva| dva.to_string()).collect();
    assert_eq!(copies, ["0:12ea00:200", "0:1049e00:200", "0:201e600:200"]);
    assert_eq!((root.lsize, root.psize, root.fill), (0x1000, 0x200, 58));
    assert_eq!(root.sum[0], 0x0000_0009_c482_f387);
}

#[test]
fn uberblock_during_raidz_expansion() {
    let bytes = include_bytes!("../golden/uberblock-expanding.bin");
    let uberblock = Uberblock::parse_required(bytes).expect("an uberblock");
    assert_eq!(uberblock.encode()[..], bytes[..Uberblock::SIZE]);
    assert_eq!(uberblock.reflow.offset, 65540096);
    assert_eq!(uberblock.reflow.scratch, Scratch::InvalidSyncedReflow);
}
