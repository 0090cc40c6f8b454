//! Operations that need a disabled feature are refused, and leave nothing behind.

use engine::dataset::DatasetQuery;
use engine::pool::{CreateOptions, NewDataset, Pool, SendRequest, VdevLayout};

use crate::streams::{create_pool, receive};
use crate::test_pool::{TempDir, check_pool, environment, new_pool, write_file};

fn new_dataset(name: &str, properties: &[(&str, &str)]) -> NewDataset {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewDataset { name: name.to_owned(), properties: properties.iter().map(pair).collect() }
}

fn dataset_names(pool: &Pool) -> Vec<String> {
    let (mut found, wanted) = (Vec::new(), DatasetQuery::default());
    pool.datasets()
        .list("tank", &wanted, &mut |dataset| found.push(dataset.name), &mut |_| ())
        .unwrap();
    found
}

#[test]
fn operations_needing_disabled_features_are_refused() {
    let folder = TempDir::new("refused", 1, 256 << 20);
    let mut pool = new_pool(&folder, VdevLayout::Single, 1);
    pool.properties.clear();
    let wishes = [("compatibility".to_owned(), "zol-0.6.4".to_owned())];
    let wishes = CreateOptions::parse(&wishes, false).unwrap();
    let held = engine::pool::create_with_options(&pool, wishes, &environment()).unwrap();
    let own = [("encryption", "on"), ("keyformat", "raw")];
    let key = Some(&[7; 32][..]);
    assert!(
        held.datasets().create_filesystem_with(&new_dataset("tank/secret", &own), key).is_err()
    );
    assert!(
        held.volumes()
            .create_with(&new_dataset("tank/v", &own), (8 << 20, 16384), true, key)
            .is_err()
    );
    assert_eq!(dataset_names(&held), ["tank"]);
    // its first block would have ended the pool's use
    assert!(
        held.volumes().create(&new_dataset("tank/large", &[]), 8 << 20, 1 << 20, true).is_err()
    );
    assert_eq!(dataset_names(&held), ["tank"]);
    held.volumes().create(&new_dataset("tank/small", &[]), 8 << 20, 128 << 10, true).unwrap();
    held.volumes().get("tank/small").unwrap().write(0, &vec![5; 300_000]).unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn streams_needing_disabled_features_are_refused() {
    let (source, _folder) = create_pool("refused-source");
    write_file(&source, "tank", "file", &vec![7; 200_000]);
    source.snapshots().create(&["tank@one".to_owned()]).unwrap();
    let send = |change: &dyn Fn(&mut SendRequest)| {
        let mut request = SendRequest { snapshot: "tank@one".to_owned(), ..SendRequest::default() };
        change(&mut request);
        let mut stream = Vec::new();
        source.streams().send(&request, &mut stream).unwrap();
        stream
    };
    let folder = TempDir::new("refused-streams", 1, 256 << 20);
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    new.properties.clear();
    let without = CreateOptions::parse(&[], true).unwrap();
    let target = engine::pool::create_with_options(&new, without, &environment()).unwrap();
    for (feature, stream) in [
        ("embedded_data", send(&|request| request.embedded = true)),
        ("lz4_compress", send(&|request| request.compressed = true)),
    ] {
        let why = receive(&target, "tank/copy", &stream).unwrap_err().to_string();
        assert!(why.contains(feature), "{why}");
    }
    receive(&target, "tank/copy", &send(&|_| ())).unwrap();
    target.export().unwrap();
    drop(target);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
