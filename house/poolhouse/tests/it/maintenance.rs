//! `zpool checkpoint`, `reguid`, `upgrade`, `wait` and `iostat` with a daemon.

use std::os::unix::fs::PermissionsExt as _;

use crate::command::path_arg;
use crate::test_nas::TestNas;

#[test]
fn checkpoint_is_listed_rewound_to_and_discarded() {
    let nas = TestNas::new("checkpoint", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create -u tank/lost");
    assert_eq!(nas.run_ok("zpool list -Ho ckpoint tank"), "-\n");
    nas.run_ok("zpool checkpoint tank");
    nas.run_ok("zfs destroy tank/lost");
    assert!(nas.run_ok("zpool status tank").contains("checkpoint: created "));
    assert!(nas.run("zpool checkpoint tank").stderr.contains("checkpoint exists"));
    assert!(nas.run("zpool reguid tank").stderr.contains("checkpoint exists"));
    nas.run_ok("zpool export tank");
    let drives = nas.0.join("drives");
    nas.run_ok(&format!("zpool import -N -d {} --rewind-to-checkpoint tank", path_arg(&drives)));
    assert_eq!(nas.run_ok("zfs list -Ho name"), "tank\ntank/lost\n");
    nas.run_ok("zpool checkpoint tank");
    nas.run_ok("zpool checkpoint -d -w tank");
    assert!(!nas.run_ok("zpool status tank").contains("checkpoint:"));
    assert!(nas.run("zpool checkpoint -d tank").stderr.contains("checkpoint does not exist"));
}

#[test]
fn guid_and_features_are_changed() {
    let nas = TestNas::new("reguid", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zpool reguid -g 4711 tank");
    assert_eq!(nas.run_ok("zpool get -Ho value guid tank"), "4711\n");
    nas.run_ok("serve --stop");
    assert_eq!(nas.run_ok("zpool get -Ho value guid tank"), "4711\n");
    assert!(nas.run_ok("zpool upgrade").contains("Every feature flags pool has all"));
    assert!(nas.run_ok("zpool upgrade tank").contains("Pool 'tank' already has all"));
    assert!(nas.run_ok("zpool upgrade -v").contains("\ndraid "));
    assert_ne!(nas.run("zpool upgrade -V 99 tank").status, 0);
}

#[test]
fn status_shows_columns_of_scripts() {
    let nas = TestNas::new("scripts", 1);
    nas.create_pool("tank", 1);
    let folder = nas.0.join("scripts");
    std::fs::create_dir(&folder).unwrap();
    let script = folder.join("bay");
    std::fs::write(&script, "#!/bin/sh\necho bay=7\necho \"file=${VDEV_PATH##*/}\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |as_root: &str, names: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(["zpool", "status", "-c", names, "tank", "--state"]).arg(nas.state_dir());
        command.env("ZPOOL_SCRIPTS_PATH", &folder).env("ZPOOL_SCRIPTS_AS_ROOT", as_root);
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (is_done, shown) = run("1", "bay");
    let heads = shown.lines().find(|line| line.contains("CKSUM")).unwrap();
    assert!(is_done && heads.split_whitespace().skip(5).eq(["bay", "file"]), "{shown}");
    let drive = shown.lines().find(|line| line.contains(".img  ONLINE")).unwrap();
    let cells: Vec<&str> = drive.split_whitespace().skip(5).collect();
    assert!(cells[0] == "7" && cells[1].contains(".img"), "{shown}");
    assert!(!run("1", "nothere").0 && !run("1", "../bay").0);
    if rustix::process::geteuid().is_root() {
        let (is_done, why) = run("", "bay");
        assert!(!is_done && why.contains("ZPOOL_SCRIPTS_AS_ROOT"), "{why}");
    }
}

#[test]
fn iostat_shows_each_drive() {
    let nas = TestNas::new("iostat", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zpool sync tank");
    let shown = nas.run_ok("zpool iostat -vHp tank");
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split('\t').collect()).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.len() == 7), "{shown}");
    assert_eq!(rows[0][0], "tank");
    let json: serde_json::Value =
        serde_json::from_str(&nas.run_ok("zpool iostat --json tank")).unwrap();
    let write = &json[0]["drives"][0]["write"];
    assert!(write["requests"].as_u64() > Some(0) && write["bytes"].as_u64() > Some(0), "{json}");
    let queue = &json[0]["drives"][0]["queue"];
    let labels = queue["sync_write"]["requests"].as_u64();
    assert!(labels > Some(0) && queue["async_write"]["requests"].as_u64() > Some(0), "{json}");
    let shown = nas.run_ok("zpool iostat -rHp tank");
    let sizes: u64 =
        shown.lines().filter_map(|line| line.split('\t').nth(4)?.parse::<u64>().ok()).sum();
    assert!(
        sizes >= labels.unwrap() && shown.lines().all(|line| line.split('\t').count() == 16),
        "{shown}"
    );
    let shown = nas.run_ok("zpool iostat -lqHp tank");
    assert_eq!(shown.trim_end().split('\t').count(), 7 + 11 + 14, "{shown}");
    let shown = nas.run_ok("zpool iostat -w tank");
    assert!(shown.contains("latency") && shown.contains("1ms"), "{shown}");
    assert_eq!(nas.run_ok("zpool iostat -y -H tank 0.1 2").lines().count(), 2);
    assert!(nas.run("zpool iostat -c x tank").stderr.contains("not supported"));
    assert_eq!(nas.run_ok("zpool wait tank"), "");
    assert_eq!(nas.run_ok("zpool wait -H -t scrub,free tank 1"), "-\t-\n");
    assert_ne!(nas.run("zpool wait nope").status, 0);
}
