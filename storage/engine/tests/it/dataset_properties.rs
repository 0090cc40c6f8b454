//! Several properties of a dataset that are set together.

use engine::dataset::DatasetQuery;
use engine::pool::{NewDataset, Pool};

use crate::test_pool::{TempDir, check_pool, environment, new_pool};

const NAMES: [&str; 5] = ["compression", "quota", "refquota", "reservation", "user:note"];

/// The values and sources of properties.
fn values(pool: &Pool) -> Vec<(String, String)> {
    let names = NAMES.map(str::to_owned).to_vec();
    let query = DatasetQuery { properties: names, depth: Some(0), ..DatasetQuery::default() };
    let mut found = Vec::new();
    let mut show = |dataset: engine::dataset::Dataset| {
        found.extend(dataset.properties.into_iter().map(|it| (it.value, it.source)));
    };
    pool.datasets().list("tank/fs", &query, &mut show, &mut |event| panic!("{event}")).unwrap();
    found
}

fn set(pool: &Pool, properties: &[(&str, &str)]) -> engine::Result<()> {
    let all: Vec<_> =
        properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    pool.properties().set_all("tank/fs", &all)
}

#[test]
fn properties_are_set_together_or_not_at_all() {
    let folder = TempDir::new("together", 1, 128 << 20);
    let pool = new_pool(&folder, engine::pool::VdevLayout::Single, 1);
    let pool = engine::pool::create(&pool, &environment()).unwrap();
    let new = NewDataset { name: "tank/fs".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&new).unwrap();
    let before = values(&pool);
    // refused for its value, its name, and the free space: the last only when the others are set
    for refused in [("compression", "best"), ("nonsense", "on"), ("reservation", "1T")] {
        let all = [("quota", "2T"), ("compression", "lz4"), ("user:note", "x"), refused];
        set(&pool, &all).unwrap_err();
        assert_eq!(values(&pool), before, "{refused:?}");
    }
    let all = [("compression", "lz4"), ("quota", "64M"), ("reservation", "8M"), ("user:note", "x")];
    let txg = pool.txg();
    set(&pool, &all).unwrap();
    assert_eq!(pool.txg(), txg + 1);
    let after = values(&pool);
    for (at, value) in [(0, "lz4"), (1, "67108864"), (3, "8388608"), (4, "x")] {
        assert_eq!(after[at], (value.to_owned(), "local".to_owned()));
    }
    // the earlier settings are restored
    set(&pool, &[("quota", "32M"), ("compression", "off"), ("reservation", "1T")]).unwrap_err();
    assert_eq!(values(&pool), after);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
