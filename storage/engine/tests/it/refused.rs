//! What a pool's features do not allow is refused, and nothing of it is left behind.

use engine::dataset::Wanted;
use engine::held::{Held, NewDataset, Shape, Wishes};

use crate::held::{Folder, faults, new_pool, world};

fn new(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn names(held: &Held) -> Vec<String> {
    let (mut found, wanted) = (Vec::new(), Wanted::default());
    held.list("tank", &wanted, &mut |dataset| found.push(dataset.name), &mut |_| ()).unwrap();
    found
}

#[test]
fn what_takes_features_that_are_disabled_is_not_made() {
    let folder = Folder::new("refused", 1, 256 << 20);
    let mut pool = new_pool(&folder, Shape::Single, 1);
    pool.properties.clear();
    let wishes = [("compatibility".to_owned(), "zol-0.6.4".to_owned())];
    let wishes = Wishes::of(&wishes, false).unwrap();
    let held = engine::held::create_with(&pool, wishes, &world()).unwrap();
    let own = [("encryption", "on"), ("keyformat", "raw")];
    let key = Some(&[7; 32][..]);
    assert!(held.create_filesystem_with(&new("tank/secret", &own), key).is_err());
    assert!(held.create_volume_with(&new("tank/v", &own), (8 << 20, 16384), true, key).is_err());
    assert_eq!(names(&held), ["tank"]);
    // its first block would have ended the pool's use
    assert!(held.create_volume(&new("tank/large", &[]), 8 << 20, 1 << 20, true).is_err());
    assert_eq!(names(&held), ["tank"]);
    held.create_volume(&new("tank/small", &[]), 8 << 20, 128 << 10, true).unwrap();
    held.volume("tank/small").unwrap().write(0, &vec![5; 300_000]).unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}
