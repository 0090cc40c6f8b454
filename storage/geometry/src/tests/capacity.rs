//! Sizes that `zpool list` and `zfs list` of OpenZFS 2.3.2 printed for real pools.

use crate::capacity::{
    Class, Metaslab, Pool, SlopRule, Vdev, leaf_space, metaslab, metaslab_shift, vdev_space,
};
use crate::draid::DraidShape;
use crate::{Draid, Expandable, Layout, Raidz, Reflow};
use units::{Ashift, Txg};

fn ashift(shift: u64) -> Ashift {
    Ashift::new(shift).unwrap()
}

fn plain(shift: u64) -> Layout {
    Layout::Plain(ashift(shift))
}

fn raidz(children: u32, parity: u32, shift: u64) -> Layout {
    Layout::Raidz(Raidz::new(children, parity, ashift(shift)).unwrap().into())
}

fn expanded_raidz(children: u32, parity: u32, finished: &[Txg], reflow: Option<Reflow>) -> Layout {
    let now = Raidz::new(children, parity, ashift(12)).unwrap();
    Layout::Raidz(Expandable::new(now, finished, reflow).unwrap())
}

fn draid(children: u32, data: u32, parity: u32, spares: u32) -> Layout {
    let shape = DraidShape::with_fewest_groups(children, data, parity, spares);
    Layout::Draid(Draid::new(shape, ashift(12)).unwrap())
}

/// One vdev of a fixture: layout, bytes of each drive, and from its label asize and metaslab shift.
type FixtureVdev = (Layout, u64, u64, u32);

/// Vdevs, SIZE, USED + AVAIL.
fn check(vdevs: &[FixtureVdev], size: u64, usable: u64) {
    let mut spaces = Vec::new();
    for (layout, drive, asize, shift) in vdevs {
        assert_eq!(vdev_space(layout, leaf_space(*drive).unwrap()), *asize);
        assert_eq!(metaslab_shift(*asize), *shift);
        spaces.push(Vdev::new(layout, *asize, *shift, Class::Normal));
    }
    let pool = Pool::new(&spaces, SlopRule::Since2_1);
    assert_eq!((pool.size, pool.usable_space(0, 0)), (size, usable));
}

#[test]
fn real_pools_have_the_computed_capacity() {
    let mib = 1 << 20;
    check(&[(plain(9), 96 * mib, 95944704, 24)], 83886080, 41943040);
    check(&[(plain(12), 128 * mib, 129499136, 24)], 117440512, 58720256);
    check(&[(plain(13), 128 * mib, 129499136, 24)], 117440512, 58720256);
    check(&[(raidz(3, 1, 12), 160 * mib, 489160704, 25)], 469762048, 178651136);
    check(&[(raidz(5, 1, 12), 64 * mib, 311951360, 25)], 301989888, 120619008);
    check(&[(raidz(6, 2, 12), 64 * mib, 374341632, 25)], 369098752, 122912768);
    check(&[(raidz(5, 3, 9), 64 * mib, 311951360, 25)], 301989888, 60162048);
    check(&[(draid(8, 3, 1, 1), 64 * mib, 67108864, 24)], 67108864, 24379392);
    check(&[(draid(11, 4, 2, 2), 64 * mib, 100663296, 24)], 100564992, 33488928);
    check(
        &[(raidz(6, 2, 12), 64 * mib, 374341632, 25), (raidz(4, 2, 12), 64 * mib, 249561088, 24)],
        603979776,
        225378304,
    );
    check(
        &[
            (plain(12), 64 * mib, 62390272, 24),
            (plain(12), 96 * mib, 95944704, 24),
            (plain(12), 128 * mib, 129499136, 24),
        ],
        251658240,
        125829120,
    );
}

#[test]
fn expanded_raidz_keeps_original_deflate_ratio() {
    let widened = expanded_raidz(4, 1, &[Txg::new(43)], None);
    check(&[(widened, 96 << 20, 383778816, 25)], 369098752, 122912768);
    let reflow = Some(Reflow { offset: 135790592, scratch: false });
    check(&[(expanded_raidz(6, 2, &[], reflow), 96 << 20, 479723520, 25)], 469762048, 143785984);
}

#[test]
fn savings_and_deferred_frees_change_usable_space() {
    let vdev = |asize| Vdev::new(&plain(12), asize, 24, Class::Normal);
    // a pool with 1 MiB of cloned blocks, and one with a checkpoint
    let cloned = Pool::new(&[vdev(129499136)], SlopRule::Since2_1);
    assert_eq!(cloned.usable_space(1 << 20, 0), 59768832);
    let checkpoint = Pool::new(&[vdev(95944704)], SlopRule::Since2_1);
    assert_eq!(checkpoint.usable_space(0, 1695744), 40247296);
    // one with 28644 bytes of frees put off to the next txg
    let raidz = Vdev::new(&raidz(3, 1, 9), 187170816, 24, Class::Normal);
    let deferred = Pool::new(&[raidz], SlopRule::Since2_1);
    assert_eq!((deferred.size, deferred.usable_space(0, 28644)), (184549376, 61427740));
}

#[test]
fn special_vdevs_add_size_only_logs_nothing() {
    let class = |class| Vdev::new(&plain(12), 62390272, 24, class);
    let vdevs = [Class::Normal, Class::Normal, Class::Special, Class::Log].map(class);
    let pool = Pool::new(&vdevs, SlopRule::Since2_1);
    assert_eq!((pool.size, pool.usable_space(0, 0)), (150994944, 50331648));
}

#[test]
fn metaslabs_grow_with_the_vdev() {
    let gib = 1_u64 << 30;
    for (asize, shift) in [
        (0, 24),
        (gib, 27),
        (8 * gib - 1, 29),
        (8 * gib, 29),
        (100 * gib, 29),
        (101 * gib, 30),
        (3000 * gib, 34),
        (1 << 51, 34),
        ((1 << 51) + (1 << 34), 35),
        (1 << 52, 36),
    ] {
        assert_eq!(metaslab_shift(asize), shift, "asize {asize}");
    }
}

#[test]
fn large_pools_reserve_slop_and_a_log_metaslab() {
    let tib = 1_u64 << 40;
    let vdev = Vdev::new(&plain(12), 100 * tib, metaslab_shift(100 * tib), Class::Normal);
    assert_eq!((vdev.metaslabs, vdev.log_deflated), (6400, 16 << 30));
    let pool = Pool::new(&[vdev], SlopRule::Since2_1);
    assert_eq!(pool.size, 100 * tib);
    assert_eq!(pool.deflated, 100 * tib - (16 << 30));
    assert_eq!(pool.slop, (128 << 30) - (16 << 30));
    let before = Pool::new(&[vdev], SlopRule::Before2_1);
    assert_eq!((before.deflated, before.slop), (100 * tib, 100 * tib / 32));
    assert_eq!(Pool::new(&[vdev], SlopRule::Before0_6_4).slop, 100 * tib / 64);
}

#[test]
fn metaslabs_of_a_draid_are_whole_rows() {
    let layout = draid(11, 4, 2, 2);
    let row = 6 << 12;
    assert_eq!(metaslab(&layout, 0, 24), Metaslab { start: 0, size: (1 << 24) / row * row });
    let second = metaslab(&layout, 1, 24);
    assert_eq!((second.start % row, second.size % row), (0, 0));
    assert!(second.start >= 1 << 24 && second.start + second.size <= 2 << 24);
}

#[test]
fn too_small_devices_are_refused() {
    assert_eq!(leaf_space((64 << 20) - 1), None);
    assert_eq!(leaf_space((64 << 20) + 5), Some((64 << 20) - (9 << 19)));
}
