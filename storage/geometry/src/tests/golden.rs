//! Addresses of blocks of real pools.
//!
//! `real_blocks.txt` holds, for fixture pools that OpenZFS 2.3.2 made, some of their blocks:
//!
//! ```text
//! pool NAME
//! OFFSET SIZE BIRTH ROWS COLUMN COLUMN ...      COLUMN: child@offset+size:data_start, and "s"
//!                                               where it is in the scratch copy
//! spare ID OFFSET CHILD                         which child stands for a distributed spare
//! ```
//!
//! Numbers are hexadecimal, but for txgs, counts and children. Each was proved before it was
//! written down: the columns were read from the pool's images and put together, and the block's
//! checksum as `zdb -bbbbb` prints it was right, and so was every parity. (Of all blocks of those
//! pools, some 1700 copies, none was elsewhere than the map said.) As those dRAID pools have but
//! one group, blocks further up were proved the other way round: random bytes were written where
//! the map says, on copies of the pool with longer images, and `zdb -R` read the same bytes back,
//! across groups, slices and the distributed spare of `draid2-spare`, whose drive 4 is missing;
//! and so were blocks around the offset that the expansion of `expanding` had come to. For
//! `expanding-scratch` that pool's uberblocks were changed to say that the scratch copy is valid.

use crate::draid::DraidShape;
use crate::{BOOT_SIZE, Block, Column, Draid, Expandable, Layout, Map, Raidz, Reflow};
use units::{Ashift, Txg};

const BLOCKS: &str = include_str!("real_blocks.txt");

fn layout(pool: &str) -> Layout {
    let raidz = |children, parity, shift| {
        Raidz::new(children, parity, Ashift::new(shift).unwrap()).unwrap()
    };
    let draid = |shape| Layout::Draid(Draid::new(shape, Ashift::new(12).unwrap()).unwrap());
    let reflow = Reflow { offset: 135790592, scratch: false };
    match pool {
        "raidz1-3" => Layout::Raidz(raidz(3, 1, 12).into()),
        "raidz3-5" => Layout::Raidz(raidz(5, 3, 9).into()),
        "expanded" => {
            Layout::Raidz(Expandable::new(raidz(4, 1, 12), &[Txg::new(43)], None).unwrap())
        }
        "expanding" => Layout::Raidz(Expandable::new(raidz(6, 2, 12), &[], Some(reflow)).unwrap()),
        "expanding-scratch" => {
            let reflow = Reflow { offset: 6 * BOOT_SIZE, scratch: true };
            Layout::Raidz(Expandable::new(raidz(6, 2, 12), &[], Some(reflow)).unwrap())
        }
        "draid1" => draid(DraidShape { children: 8, data: 3, parity: 1, spares: 1, groups: 7 }),
        "draid2-spare" => {
            draid(DraidShape { children: 11, data: 4, parity: 2, spares: 2, groups: 3 })
        }
        other => panic!("no pool {other}"),
    }
}

fn map(layout: &Layout, block: Block, birth: Txg) -> Map {
    match layout {
        Layout::Raidz(raidz) => raidz.map(block, birth).unwrap(),
        Layout::Draid(draid) => draid.map(block).unwrap(),
        Layout::Plain(_) => panic!("no columns"),
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

fn format_column(column: &Column) -> String {
    let Column { child, offset, size, data_start, scratch } = column;
    let scratch = if *scratch { "s" } else { "" };
    format!("{child}@{offset:x}+{size:x}:{data_start:x}{scratch}")
}

#[test]
fn map_locates_blocks_of_real_pools() {
    let mut array = layout("raidz1-3");
    let mut checked = 0;
    for line in BLOCKS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["pool", name] => array = layout(name),
            ["spare", id, offset, child] => {
                let Layout::Draid(draid) = &array else { panic!("{line}") };
                let found = draid.spare_child(id.parse().unwrap(), hex(offset));
                assert_eq!(found, Some(child.parse().unwrap()), "{line}");
            }
            [offset, size, birth, rows, columns @ ..] => {
                let size = usize::try_from(hex(size)).unwrap();
                let block = Block { offset: hex(offset), size };
                let map = map(&array, block, Txg::new(birth.parse().unwrap()));
                assert_eq!(map.rows().len().to_string(), *rows, "{line}");
                let found: Vec<_> =
                    map.rows().flat_map(|row| row.columns().iter().map(format_column)).collect();
                assert_eq!(found, columns, "{line}");
                checked += 1;
            }
            _ => panic!("{line}"),
        }
    }
    assert!(checked > 70, "only {checked} blocks");
}
