//! Properties of vdevs, and what `zpool add`, `remove` and `labelclear` do with mismatches and old labels.

use crate::command::path_arg;
use crate::test_nas::TestNas;

#[test]
fn vdev_properties_are_shown_and_set() {
    let nas = TestNas::new("vdevprops", 2);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(2);
    let drive = path_arg(&drives[0]);
    for vdev in ["root", "mirror-0", drive] {
        nas.run_ok(&format!("zpool set comment=bay4 tank {vdev}"));
        nas.run_ok(&format!("zpool set site:rack=7 tank {vdev}"));
    }
    nas.run_ok("zpool export tank");
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(drives[0].parent().unwrap())));
    for (vdev, name) in [("root", "root-0"), ("mirror-0", "mirror-0"), (drive, drive)] {
        let told = nas.run_ok(&format!("zpool get -H comment,site:rack tank {vdev}"));
        let wanted = format!("{name}\tcomment\tbay4\tlocal\n{name}\tsite:rack\t7\tlocal\n");
        assert_eq!(told, wanted);
    }
    nas.run_ok("zpool set site:rack= tank root");
    assert_eq!(nas.run_ok("zpool get -H -o value,source site:rack tank root"), "-\tdefault\n");
    let told = nas.run_ok("zpool get -Hp -o property,value all tank mirror-0");
    let value = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("{name}\t")));
        line.unwrap_or_else(|| panic!("{name}: {told}")).to_owned()
    };
    assert_eq!((value("numchildren"), value("parent")), ("2".to_owned(), "root-0".to_owned()));
    assert_eq!((value("state"), value("ashift")), ("ONLINE".to_owned(), "12".to_owned()));
    assert!(value("size").parse::<u64>().unwrap() > 0 && value("children").contains(drive));
    let all = nas.run_ok("zpool get -H -o name,property state tank all-vdevs");
    assert_eq!(all.lines().count(), 4, "{all}");
    let why = nas.run_failing("zpool set path=/dev/null tank mirror-0", 1);
    assert!(why.contains("cannot be set"), "{why}");
    let why = nas.run_failing("zpool set comment=x tank mirror-7", 1);
    assert!(why.contains("no such vdev"), "{why}");
    assert!(nas.run_ok("zpool history -i tank").contains("vdev set vdev_guid="));
}

#[test]
fn each_mismatch_has_its_own_option() {
    let nas = TestNas::new("allowances", 4);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(4);
    let (third, fourth) = (path_arg(&drives[2]), path_arg(&drives[3]));
    let run = |options: &str, vdev: &str| nas.run(&format!("zpool add -n {options} tank {vdev}"));
    let pair = format!("mirror {third} {fourth}");
    assert_eq!(run("--allow-replication-mismatch", third).status, 0);
    assert_ne!(run("--allow-ashift-mismatch", third).status, 0);
    assert_eq!(run("--allow-ashift-mismatch -o ashift=9", &pair).status, 0);
    assert_ne!(run("--allow-replication-mismatch -o ashift=9", &pair).status, 0);
    nas.run_ok(&format!(
        "zpool create -O canmount=off -R {} other {third}",
        path_arg(&nas.altroot())
    ));
    nas.run_ok("zpool export other");
    assert_ne!(run("--allow-replication-mismatch --allow-ashift-mismatch", &pair).status, 0);
    assert_eq!(run("--allow-in-use", &pair).status, 0);
}

#[test]
fn removed_devices_keep_a_label_to_clear() {
    let nas = TestNas::new("removedlabel", 4);
    nas.create_pool("-O canmount=off tank mirror", 2);
    let drives = nas.drive_paths(4);
    let [_, second, spare, log] = &drives[..] else { panic!("four drives") };
    let [second, spare, log] = [second, spare, log].map(|path| path_arg(path));
    nas.run_ok(&format!("zpool add tank spare {spare} log {log}"));
    for (command, device) in [("remove", spare), ("remove", log), ("detach", second)] {
        nas.run_ok(&format!("zpool {command} tank {device}"));
        nas.run_ok(&format!("zpool labelclear {device}"));
        let why = nas.run_failing(&format!("zpool labelclear -f {device}"), 1);
        assert!(why.contains("failed to read label"), "{why}");
    }
    nas.run_ok("zpool export tank");
}

#[test]
fn labelclear_leaves_other_data_alone() {
    let nas = TestNas::new("labeldata", 1);
    nas.create_pool("-O canmount=off tank", 1);
    let drives = nas.drive_paths(1);
    nas.run_ok("zpool export tank");
    let drive = std::fs::OpenOptions::new().write(true).open(&drives[0]).unwrap();
    let data = vec![0x42; 512 << 10];
    std::os::unix::fs::FileExt::write_all_at(&drive, &data, 0).unwrap();
    drop(drive);
    nas.run_ok(&format!("zpool labelclear -f {}", path_arg(&drives[0])));
    let bytes = std::fs::read(&drives[0]).unwrap();
    assert!(bytes[..data.len()] == data[..]);
    nas.run_failing(&format!("zpool labelclear -f {}", path_arg(&drives[0])), 1);
}

#[test]
fn disabled_features_are_reported_as_advice() {
    let nas = TestNas::new("oldfeatures", 1);
    nas.create_pool("-O canmount=off -o compatibility=compat-2018 tank", 1);
    assert!(!nas.run_ok("zpool status tank").contains("features are not enabled"));
    nas.run_ok("zpool set compatibility=compat-2020 tank");
    let told = nas.run_ok("zpool status tank");
    assert!(told.contains("features are not enabled") && told.contains("zpool upgrade"), "{told}");
    assert_eq!(nas.run_ok("zpool status -x tank"), "pool 'tank' is healthy\n");
}

#[test]
fn short_help_is_an_invalid_option() {
    let nas = TestNas::new("shorthelp", 0);
    let why = nas.run_failing("zpool scrub -h", 2);
    assert!(why.contains("invalid option 'h'") && why.contains("usage:"), "{why}");
    assert!(nas.run_ok("zpool scrub --help").contains("Examples"));
}

#[test]
fn vdev_settings_are_kept_and_obeyed() {
    let nas = TestNas::new("vdevsettings", 2);
    let drives = nas.drive_paths(2);
    nas.create_pool("-O canmount=off tank", 2);
    let (first, second) = (path_arg(&drives[0]), path_arg(&drives[1]));
    for (setting, vdev) in [
        ("failfast=off", first),
        ("io_n=3", first),
        ("slow_io_t=60", "root"),
        ("allocating=off", second),
    ] {
        nas.run_ok(&format!("zpool set {setting} tank {vdev}"));
    }
    let why = nas.run_failing(&format!("zpool set allocating=off tank {first}"), 1);
    assert!(why.contains("only vdev"), "{why}");
    nas.run_failing(&format!("zpool set io_n=many tank {first}"), 1);
    nas.run_ok("zpool export tank");
    nas.run_ok(&format!("zpool import -d {} tank", path_arg(drives[0].parent().unwrap())));
    let get = |name: &str, vdev: &str| {
        nas.run_ok(&format!("zpool get -Hp -o value,source {name} tank {vdev}"))
    };
    assert_eq!(get("failfast", first), "off\tlocal\n");
    assert_eq!(get("io_n", first), "3\tlocal\n");
    assert_eq!(get("slow_io_t", "root"), "60\tlocal\n");
    assert_eq!(get("allocating", second), "off\tlocal\n");
    assert_eq!(get("allocating", first), "on\tdefault\n");
    let allocated = |vdev: &str| -> u64 {
        let told = nas.run_ok(&format!("zpool get -Hp -o value allocated tank {vdev}"));
        told.trim().parse().unwrap()
    };
    let before = allocated(second);
    nas.run_ok("zfs create -V 16M tank/disk");
    nas.run_ok("zpool sync");
    assert!(allocated(second) <= before, "nothing new is on it");
    nas.run_ok(&format!("zpool set io_n=none tank {first}"));
    assert_eq!(get("io_n", first), "-\tdefault\n");
    nas.run_ok(&format!("zpool set allocating=on tank {second}"));
    assert_eq!(get("allocating", second), "on\tdefault\n");
    nas.run_ok(&format!("zpool set allocating=off tank {first}"));
    nas.run_ok("zpool export tank");
}

#[test]
fn attach_and_replace_take_a_sector_size() {
    let nas = TestNas::new("attachashift", 2);
    nas.create_pool("-O canmount=off -o ashift=9 tank", 1);
    let drives = nas.drive_paths(2);
    let (first, second) = (path_arg(&drives[0]), path_arg(&drives[1]));
    for command in ["attach", "replace"] {
        let why =
            nas.run_failing(&format!("zpool {command} -o ashift=12 tank {first} {second}"), 255);
        assert!(why.contains("different optimal sector size"), "{why}");
        let wrong = nas.run(&format!("zpool {command} -o ashift=17 tank {first} {second}"));
        assert_ne!(wrong.status, 0);
    }
    nas.run_ok(&format!("zpool attach -w -o ashift=9 tank {first} {second}"));
    nas.run_ok(&format!("zpool detach tank {first}"));
    nas.run_ok(&format!("zpool replace -f -w -o ashift=9 tank {second} {first}"));
    nas.run_ok("zpool export tank");
}
