//! A fixture's pool, opened and unlocked.

use std::sync::Arc;

use ::fixtures::Fixture;
use device::{Device, DeviceSlice, File, partitions};
use dsl::{DatasetTree, PoolInfo};
use spa::Pool;

/// The pool in a fixture's images, and its tree of datasets with all keys loaded.
pub(crate) fn pool(fixture: &Fixture) -> (Pool, DatasetTree) {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in fixture.images() {
        let file: Arc<dyn Device> = Arc::new(File::open(&path).expect("an image"));
        for part in partitions(&*file) {
            let name = format!("{}-{}", file.name(), part.number);
            devices.push(Arc::new(DeviceSlice::new(
                name,
                Arc::clone(&file),
                part.start,
                part.size,
            )));
        }
        devices.push(file);
    }
    let (found, _) = spa::scan_devices(&devices);
    let candidate = found.iter().find(|pool| pool.name() == fixture.pool_name()).expect("the pool");
    let pool = candidate.open(&spa::PoolOpenOptions::default()).expect("the pool opens");
    let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let tree = DatasetTree::open(pool.mos().clone(), facts).expect("a tree of datasets");
    for key in fixture.keys() {
        let dataset = tree.find(&key.dataset).expect("an encryption root");
        tree.load_key(&dataset, &key.file_content()).expect("the right key");
    }
    (pool, tree)
}
