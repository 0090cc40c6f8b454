//! The command history of a pool, as `zpool history` and `zdb -h` show it.

use engine::pool::{NewDataset, VdevLayout};

use crate::shared_blocks::run_zdb;
use crate::test_pool::{TempDir, environment, new_pool};

#[test]
fn changes_are_recorded_in_the_history() {
    let folder = TempDir::new("history", 1, 128 << 20);
    let held =
        engine::pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    held.history().record("zpool create tank d0.img", 1000);
    let child = NewDataset { name: "tank/child".to_owned(), properties: Vec::new() };
    held.datasets().create_filesystem(&child).unwrap();
    held.snapshots().create(&["tank/child@one".to_owned()]).unwrap();
    let clone = NewDataset {
        name: "tank/clone".to_owned(),
        properties: vec![("atime".to_owned(), "off".to_owned())],
    };
    held.snapshots().clone_snapshot("tank/child@one", &clone).unwrap();
    held.datasets().rename("tank/clone", "tank/renamed", false).unwrap();
    held.properties().set("tank/child", "recordsize", "16K").unwrap();
    held.properties().inherit("tank/child", "recordsize").unwrap();
    held.snapshots().rollback("tank/child").unwrap();
    held.datasets().promote("tank/renamed").unwrap();
    held.datasets().destroy("tank/child").unwrap();
    held.properties().set_pool("failmode", "continue").unwrap();
    held.history().record("zpool export tank", 0);
    held.export().unwrap();
    drop(held);

    let search = engine::search(&[folder.path().into()]);
    let pool = search.open("tank", &engine::OpenOptions::default()).unwrap();
    let facts = pool.inspect_history(true).unwrap();
    let records = facts["records"].as_array().unwrap();
    let text = |record: &serde_json::Value, name: &str| {
        record[name].as_str().unwrap_or_default().to_owned()
    };
    let line = |record: &serde_json::Value| {
        let dataset = text(record, "dataset");
        let dataset = dataset.split(' ').next().unwrap_or_default();
        let line = format!("{} {dataset} {}", text(record, "what"), text(record, "detail"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = records.iter().map(line).collect();
    assert!(lines[0].starts_with("create pool version 5000"), "{}", lines[0]);
    assert!(lines.contains(&"set feature@zstd_compress=enabled".to_owned()));
    let made = lines.iter().position(|line| line == "zpool create tank d0.img").unwrap();
    let mut later: Vec<String> = lines[made + 1..].to_vec();
    // the number of the snapshot is not known in advance
    for line in &mut later {
        if let Some((before, _)) = line.split_once(" (") {
            *line = before.to_owned();
        }
    }
    let wanted = [
        "create tank/child",
        "snapshot tank/child@one",
        "clone tank/clone origin=tank/child@one",
        "set tank/clone atime=0",
        "rename tank/clone -> tank/renamed",
        "set tank/child recordsize=16384",
        "inherit tank/child recordsize=",
        "rollback tank/child",
        "promote tank/renamed",
        "destroy tank/child",
        "set failmode=1",
        "zpool export tank",
    ];
    assert_eq!(later, wanted);
    assert_eq!(records[made]["user"], 1000);
    assert_eq!(records[made]["host"], "here");
    drop(pool);
    let told = run_zdb(folder.path(), &["-h"]);
    for wanted in ["zpool create tank d0.img", "snapshot tank/child@one", "zpool export tank"] {
        assert!(told.is_empty() || told.contains(wanted), "{told}");
    }
}
