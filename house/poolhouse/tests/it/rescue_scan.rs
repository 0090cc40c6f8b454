//! The output of `rescue scan` and `inspect`.

use serde_json::Value;

use crate::command::{path_arg, run, run_json, run_ok};

#[test]
fn every_fixture_is_readable_with_its_devices() {
    for fixture in fixtures::all() {
        let found = run_json(&["rescue", "scan", "-d", path_arg(&fixture.dir), "--json"]);
        let pools = found["pools"].as_array().expect("a list of pools");
        assert_eq!(pools.len(), 1, "{}", fixture.name);
        let pool = &pools[0];
        assert_eq!(pool["name"], fixture.pool_name(), "{}", fixture.name);
        assert_eq!(pool["readable"], true, "{}: {}", fixture.name, pool["reason"]);
        let state = if fixture.state() == "exported" { "exported" } else { "active" };
        assert_eq!(pool["state"], state, "{}", fixture.name);
        let guid = fixture.manifest["pool_properties"]["guid"].as_str().unwrap_or_default();
        assert_eq!(pool["guid"].to_string(), guid, "{}", fixture.name);
        let mut missing = Vec::new();
        collect_missing(&pool["vdevs"], &mut missing);
        let mut wanted = fixture.missing_images();
        // a removed disk may have been replaced since
        wanted.retain(|name| missing.iter().any(|known| known == name));
        assert_eq!(missing.len(), wanted.len(), "{}: {missing:?}", fixture.name);
    }
}

/// The names of missing devices.
fn collect_missing(vdevs: &Value, missing: &mut Vec<String>) {
    for vdev in vdevs.as_array().map_or(&[][..], Vec::as_slice) {
        let is_device = vdev["kind"] == "file" || vdev["kind"] == "disk";
        if is_device && vdev["state"] == "missing" {
            missing.push(vdev["name"].as_str().unwrap_or_default().to_owned());
        }
        collect_missing(&vdev["children"], missing);
    }
}

#[test]
fn scan_text_equals_its_json() {
    let fixture = fixtures::load("raidz3-8-mixed-trouble");
    let out = run_ok(&["rescue", "scan", "-d", path_arg(&fixture.dir)]);
    for wanted in ["pool:  tank", "readable:  yes", "raidz3-0", "degraded", "missing", "features:"]
    {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    let more = run_ok(&["rescue", "scan", "-v", "-d", path_arg(&fixture.dir)]);
    assert!(more.contains("states that can be read with --txg"), "{more}");
}

#[test]
fn older_states_can_be_read_while_they_stand() {
    let fixture = fixtures::load("mirror-2");
    let dir = path_arg(&fixture.dir);
    let found = run_json(&["rescue", "scan", "-d", dir, "--json"]);
    let states = found["pools"][0]["uberblocks"].as_array().expect("a list").clone();
    assert!(states.len() > 1);
    let txg = states[1]["txg"].to_string();
    let older = run(&["rescue", "list", "-d", dir, "tank", "--txg", &txg]);
    assert_eq!(older.status, 0, "{}", older.stderr);
    assert!(older.stderr.contains(&format!("as of txg {txg}")), "{}", older.stderr);
}

#[test]
fn labels_and_uberblocks_of_a_device() {
    let fixture = fixtures::load("mirror-2");
    let image = &fixture.images()[0];
    let labels = run_json(&["inspect", "labels", path_arg(image), "--json"]);
    let copies = labels["copies"].as_array().expect("a list");
    assert_eq!(copies.len(), 4);
    assert!(copies.iter().all(|copy| copy["state"] == "good"), "{copies:?}");
    assert_eq!(labels["config"]["name"], "tank");
    let blocks = run_json(&["inspect", "uberblocks", path_arg(image), "--json"]);
    assert_eq!(blocks["uberblocks"][0]["txg"], labels["newest_txg"]);
    let text = run_ok(&["inspect", "labels", path_arg(image)]);
    assert!(text.contains("  COPY     OFFSET  TXG"), "{text}");
}

#[test]
fn structures_of_a_pool() {
    let fixture = fixtures::load("snapshots");
    let dir = path_arg(&fixture.dir);
    let directory = run_json(&["inspect", "zap", "-d", dir, "tank", "1", "--json"]);
    let entries = directory["entries"].as_array().expect("a list");
    let root =
        entries.iter().find(|entry| entry["name"] == "root_dataset").expect("the pool has one");
    let object = root["value"].to_string();
    let found = run_json(&["inspect", "object", "-d", dir, "tank", &object, "--json"]);
    assert_eq!(found["bonus"], "DSL directory");
    let config = run_json(&["inspect", "config", "-d", dir, "tank", "--json"]);
    assert_eq!(config["vdev_tree"]["type"], "root");
    let objset = run_json(&["inspect", "objset", "-d", dir, "tank/", "--json"]);
    assert_eq!(objset["kind"], "filesystem");
    let blocks = run_json(&["inspect", "blkptr", "-d", dir, "tank", "1", "--json"]);
    assert!(!blocks["pointers"].as_array().expect("a list").is_empty());
    let block = run_json(&["inspect", "blkptr", "-d", dir, "tank", "1", "0", "0", "--json"]);
    assert_eq!(block["type"], "object directory");
    let space = run_json(&["inspect", "spacemap", "-d", dir, "tank", "--json"]);
    assert!(space["vdevs"][0]["allocated"].as_u64().is_some_and(|bytes| bytes > 0), "{space}");
    run_ok(&["inspect", "spacemap", "-d", dir, "tank", "0"]);
    run_ok(&["inspect", "spacemap", "-d", dir, "tank", "0", "0"]);
}

#[test]
fn history_has_the_commands_that_made_the_pool() {
    let fixture = fixtures::load("snapshots");
    let dir = path_arg(&fixture.dir);
    let out = run_ok(&["inspect", "history", "-d", dir, "tank"]);
    assert!(out.lines().next().is_some_and(|line| line.contains("zpool create")), "{out}");
    assert!(!out.contains("[txg "), "internal records were not requested: {out}");
    let internal = run_ok(&["inspect", "history", "-il", "-d", dir, "tank"]);
    assert!(internal.contains("[txg ") && internal.contains("user 0"), "{internal}");
}

#[test]
fn completions_and_man_pages_are_made() {
    assert!(run_ok(&["completions", "bash"]).contains("poolhouse"));
    let dir = fixtures::scratch_dir("man");
    run_ok(&["man", path_arg(&dir)]);
    let page = std::fs::read_to_string(dir.join("poolhouse-rescue-scan.1")).expect("a page");
    assert!(page.contains("scan"), "{page}");
}

#[test]
fn pools_are_found_without_a_partition_table() {
    use std::os::unix::fs::FileExt;
    let fixture = fixtures::load("mirror-2");
    let image = fixture.images().into_iter().next().expect("an image");
    let dir = fixtures::scratch_dir("lost-partition");
    let bytes = std::fs::read(image).expect("an image");
    for (start, is_usual) in [(1 << 20, true), (77 * 512, false)] {
        let disk = dir.join(format!("disk{start}"));
        let file = std::fs::File::create(&disk).expect("a file");
        file.write_all_at(&bytes, start).expect("room");
        // behind the partition is something else
        file.set_len(start + u64::try_from(bytes.len()).unwrap() + (3 << 20)).expect("room");
        let plain = run(&["rescue", "scan", "-d", path_arg(&disk)]);
        assert_eq!(plain.stdout.contains("pool:"), is_usual, "{}", plain.stdout);
        let deep = run(&["rescue", "list", "--deep", "-d", path_arg(&disk), fixture.pool_name()]);
        assert_eq!(deep.status, 0, "{}", deep.stderr);
    }
}
