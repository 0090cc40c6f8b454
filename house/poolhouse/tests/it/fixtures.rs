//! A test for each fixture, by its name: its content equals OpenZFS's output, and a check
//! finds exactly the planted damage. COMPAT.md names these tests.

use crate::command::{key_files, path_arg, run};
use crate::rescue_manifest::check_manifest;

/// Everything about a fixture.
fn check_fixture(name: &str) {
    let fixture = fixtures::load(name);
    check_manifest(&fixture, &[], "fixtures");
    let keys = key_files(&fixture, "fixtures-verify");
    let mut args =
        vec!["rescue", "verify", "-q", "--json", "-d", path_arg(&fixture.dir), fixture.pool_name()];
    args.extend(keys.iter().map(String::as_str));
    let run = run(&args);
    let found: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let damaged = fixture.damaged_images();
    assert_eq!(found["clean"], damaged.is_empty(), "{name}: {}\n{}", run.stdout, run.stderr);
    assert_eq!(run.status, i32::from(!damaged.is_empty()), "{name}: {}", run.stderr);
    for device in found["devices"].as_array().expect("a list") {
        let path = device["path"].as_str().unwrap_or_default();
        let hurt = damaged.iter().any(|image| path.ends_with(image));
        assert_eq!(device["checksum_errors"] != 0, hurt, "{name}: {device}");
        let missing = fixture.missing_images().iter().any(|image| path.ends_with(image));
        assert_eq!(device["missing"], missing, "{name}: {device}");
    }
    assert_eq!(found["lost"], 0, "{name}: {}", run.stdout);
}

macro_rules! fixture_tests {
    ($($test:ident = $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                check_fixture($name);
            }
        )*

        #[test]
        fn no_fixture_is_forgotten() {
            let tested = [$($name),*];
            for name in fixtures::names() {
                if std::env::var_os("POOLHOUSE_FIXTURES").is_some() && !tested.contains(&&*name) {
                    check_fixture(&name);
                } else {
                    assert!(tested.contains(&&*name), "{name} has no test");
                }
            }
        }
    };
}

fixture_tests! {
    checkpoint_raidz = "checkpoint-raidz",
    clones_claimed = "clones-claimed",
    clones_promised = "clones-promised",
    dedup_legacy = "dedup-legacy",
    dedup_waiting = "dedup-waiting",
    draid1 = "draid1",
    encryption = "encryption",
    expanded = "expanded",
    gang = "gang",
    gang_encrypted = "gang-encrypted",
    intent_log_slog = "intent-log-slog",
    limits_and_freeing = "limits-and-freeing",
    mirror_2 = "mirror-2",
    mirror_3 = "mirror-3",
    raidz3_8_mixed_trouble = "raidz3-8-mixed-trouble",
    received = "received",
    removed_snapshots = "removed-snapshots",
    removing = "removing",
    removed_twice = "removed-twice",
    resilver_midway = "resilver-midway",
    sent = "sent",
    sent_raw = "sent-raw",
    snapshots = "snapshots",
    stripe_copies = "stripe-copies",
    swept = "swept",
    version_28_upgraded = "version-28-upgraded",
}
