//! The pool property `dedup_table_quota`: at the quota the tables of deduplication grow no further.

use engine::pool::{Pool, VdevLayout};

use crate::shared_blocks::noise_bytes;
use crate::test_pool::{TempDir, check_pool, environment, new_pool, read_file, write_file};

const FILE_SIZE: u32 = 4 << 20;

/// Writes two files of the same content, and returns by how many bytes the pool grew.
fn write_twice(held: &Pool, seed: u32) -> u64 {
    let used = || held.status().vdevs.iter().map(|vdev| vdev.allocated).sum::<u64>();
    let before = used();
    for copy in ["first", "second"] {
        write_file(held, "tank", &format!("{copy}-{seed}"), &noise_bytes(seed, FILE_SIZE));
        held.sync().unwrap();
    }
    used() - before
}

#[test]
fn dedup_tables_stop_growing_at_their_quota() {
    let folder = TempDir::new("dedup-quota", 1, 256 << 20);
    let mut held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    for (name, value) in [("compression", "off"), ("dedup", "on"), ("recordsize", "16K")] {
        held.properties().set("tank", name, value).unwrap();
    }
    let set = |held: &Pool, value: &str| held.properties().set_pool("dedup_table_quota", value);
    let value = |held: &Pool| {
        let all = held.properties().of_pool().unwrap();
        all.into_iter().find(|it| it.name == "dedup_table_quota").unwrap().value
    };
    let one = u64::from(FILE_SIZE);
    let room = one / 2;
    assert!((one..one + room).contains(&write_twice(&held, 1)));
    assert_eq!(value(&held), "auto");
    set(&held, "4K").unwrap();
    assert_eq!(value(&held), "4096");
    assert!((2 * one..2 * one + room).contains(&write_twice(&held, 2_000)), "no new entries");
    // what the table has is still found
    let before = held.status().vdevs[0].allocated;
    write_file(&held, "tank", "third-1", &noise_bytes(1, FILE_SIZE));
    held.sync().unwrap();
    assert!(held.status().vdevs[0].allocated < before + room);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    held = engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
    assert!((2 * one..2 * one + room).contains(&write_twice(&held, 4_000)), "the quota is kept");
    set(&held, "none").unwrap();
    assert!((one..one + room).contains(&write_twice(&held, 6_000)));
    for seed in [1, 2_000, 4_000, 6_000] {
        assert_eq!(
            read_file(&held, "tank", &format!("second-{seed}")),
            noise_bytes(seed, FILE_SIZE)
        );
    }
    assert!(set(&held, "much").is_err() && set(&held, "-1").is_err());
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
