//! Volumes with all their space reserved: how much that is, and how it follows their size.

use engine::dataset::Wanted;
use engine::held::{Held, NewDataset, Shape};

use crate::held::{Folder, faults, new_pool, world};

fn reserved(held: &Held, name: &str) -> (u64, u64) {
    let properties = ["volsize", "refreservation"].map(str::to_owned).to_vec();
    let wanted = Wanted { depth: Some(0), properties, ..Wanted::default() };
    let mut found = (0, 0);
    let mut show = |dataset: engine::dataset::Dataset| {
        let number = |name: &str| dataset.value(name).and_then(|it| it.parse().ok()).unwrap_or(0);
        found = (number("volsize"), number("refreservation"));
    };
    held.list(name, &wanted, &mut show, &mut |_| ()).unwrap();
    found
}

fn new(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

const METADATA: u64 = (7 + 1) * 2 * (128 << 10);

#[test]
fn what_a_volume_reserves_follows_its_size() {
    let folder = Folder::new("thick", 1, 256 << 20);
    let held = engine::held::create(&new_pool(&folder, Shape::Single, 1), &world()).unwrap();
    held.create_volume(&new("tank/vol", &[]), 4 << 20, 16 << 10, false).unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA));
    held.volume("tank/vol").unwrap().write(0, &vec![1; 100_000]).unwrap();
    held.set("tank/vol", "volsize", "8M").unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (8 << 20, (8 << 20) + METADATA));
    held.set("tank/vol", "volsize", "2M").unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (2 << 20, (2 << 20) + METADATA));
    // what somebody chose stays
    held.set("tank/vol", "refreservation", "1M").unwrap();
    held.set("tank/vol", "volsize", "4M").unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (4 << 20, 1 << 20));
    held.set("tank/vol", "refreservation", "auto").unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA));
    // who makes it shorter loses what is behind
    held.set("tank/vol", "readonly", "on").unwrap();
    assert!(held.set("tank/vol", "volsize", "8M").is_err());
    assert_eq!(reserved(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA));
    held.set("tank/vol", "readonly", "off").unwrap();
    for wrong in ["0", "5000", "1T", "colour"] {
        assert!(held.set("tank/vol", "volsize", wrong).is_err(), "{wrong}");
    }
    held.create_volume(&new("tank/own", &[("refreservation", "1M")]), 4 << 20, 8 << 10, false)
        .unwrap();
    assert_eq!(reserved(&held, "tank/own"), (4 << 20, 1 << 20));
    held.create_volume(&new("tank/twice", &[("copies", "2")]), 4 << 20, 8 << 10, false).unwrap();
    assert_eq!(reserved(&held, "tank/twice"), (4 << 20, (4 << 20) + METADATA));
    held.create_volume(&new("tank/thin", &[]), 4 << 20, 8 << 10, true).unwrap();
    assert_eq!(reserved(&held, "tank/thin"), (4 << 20, 0));
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn with_parity_a_volume_reserves_what_its_blocks_take() {
    let folder = Folder::new("thick-raidz", 3, 256 << 20);
    let held = engine::held::create(&new_pool(&folder, Shape::Raidz(1), 3), &world()).unwrap();
    // with sectors of 4 KiB: 8 KiB take 16 KiB, and 128 KiB take 192 KiB
    held.create_volume(&new("tank/vol", &[]), 6 << 20, 8 << 10, false).unwrap();
    assert_eq!(reserved(&held, "tank/vol"), (6 << 20, (8 << 20) + METADATA));
    // as OpenZFS rounds it
    held.create_volume(&new("tank/small", &[]), 10 << 20, 4 << 10, false).unwrap();
    assert_eq!(reserved(&held, "tank/small"), (10 << 20, 16_864_512));
    // as large as they are told
    held.create_volume(&new("tank/large", &[]), 6 << 20, 128 << 10, false).unwrap();
    assert_eq!(reserved(&held, "tank/large"), (6 << 20, (6 << 20) + METADATA));
}
