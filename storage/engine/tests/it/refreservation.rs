//! Volumes with all their space reserved: how much that is, and how it follows their size.

use engine::dataset::DatasetQuery;
use engine::pool::{NewDataset, Pool, VdevLayout};

use crate::test_pool::{TempDir, check_pool, environment, new_pool};

fn sizes_of(pool: &Pool, name: &str) -> (u64, u64) {
    let properties = ["volsize", "refreservation"].map(str::to_owned).to_vec();
    let wanted = DatasetQuery { depth: Some(0), properties, ..DatasetQuery::default() };
    let mut found = (0, 0);
    let mut show = |dataset: engine::dataset::Dataset| {
        let number =
            |name: &str| dataset.property_value(name).and_then(|it| it.parse().ok()).unwrap_or(0);
        found = (number("volsize"), number("refreservation"));
    };
    pool.datasets().list(name, &wanted, &mut show, &mut |_| ()).unwrap();
    found
}

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

const METADATA_BYTES: u64 = (7 + 1) * 2 * (128 << 10);

#[test]
fn refreservation_follows_volsize() {
    let folder = TempDir::new("thick", 1, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.volumes().create(&new_dataset("tank/vol", &[]), 4 << 20, 16 << 10, false).unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA_BYTES));
    held.volumes().get("tank/vol").unwrap().write(0, &vec![1; 100_000]).unwrap();
    held.properties().set("tank/vol", "volsize", "8M").unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (8 << 20, (8 << 20) + METADATA_BYTES));
    held.properties().set("tank/vol", "volsize", "2M").unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (2 << 20, (2 << 20) + METADATA_BYTES));
    // a chosen value stays
    held.properties().set("tank/vol", "refreservation", "1M").unwrap();
    held.properties().set("tank/vol", "volsize", "4M").unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (4 << 20, 1 << 20));
    held.properties().set("tank/vol", "refreservation", "auto").unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA_BYTES));
    // shrinking loses the content behind the end
    held.properties().set("tank/vol", "readonly", "on").unwrap();
    assert!(held.properties().set("tank/vol", "volsize", "8M").is_err());
    assert_eq!(sizes_of(&held, "tank/vol"), (4 << 20, (4 << 20) + METADATA_BYTES));
    held.properties().set("tank/vol", "readonly", "off").unwrap();
    for wrong in ["0", "5000", "1T", "colour"] {
        assert!(held.properties().set("tank/vol", "volsize", wrong).is_err(), "{wrong}");
    }
    held.volumes()
        .create(&new_dataset("tank/own", &[("refreservation", "1M")]), 4 << 20, 8 << 10, false)
        .unwrap();
    assert_eq!(sizes_of(&held, "tank/own"), (4 << 20, 1 << 20));
    held.volumes()
        .create(&new_dataset("tank/twice", &[("copies", "2")]), 4 << 20, 8 << 10, false)
        .unwrap();
    assert_eq!(sizes_of(&held, "tank/twice"), (4 << 20, (4 << 20) + METADATA_BYTES));
    held.volumes().create(&new_dataset("tank/thin", &[]), 4 << 20, 8 << 10, true).unwrap();
    assert_eq!(sizes_of(&held, "tank/thin"), (4 << 20, 0));
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn refreservation_includes_parity() {
    let folder = TempDir::new("thick-raidz", 3, 256 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment()).unwrap();
    // with sectors of 4 KiB: 8 KiB take 16 KiB, and 128 KiB take 192 KiB
    held.volumes().create(&new_dataset("tank/vol", &[]), 6 << 20, 8 << 10, false).unwrap();
    assert_eq!(sizes_of(&held, "tank/vol"), (6 << 20, (8 << 20) + METADATA_BYTES));
    // as OpenZFS rounds it
    held.volumes().create(&new_dataset("tank/small", &[]), 10 << 20, 4 << 10, false).unwrap();
    assert_eq!(sizes_of(&held, "tank/small"), (10 << 20, 16_864_512));
    // as large as their labels say
    held.volumes().create(&new_dataset("tank/large", &[]), 6 << 20, 128 << 10, false).unwrap();
    assert_eq!(sizes_of(&held, "tank/large"), (6 << 20, (6 << 20) + METADATA_BYTES));
}
