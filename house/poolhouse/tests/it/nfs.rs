//! NFS shares of a running daemon, used by the programs of libnfs.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::command::path_arg;
use crate::shares::{free_port, lacks, run_client, run_client_ok, shares};
use crate::test_nas::{TestNas, cannot_mount, random_bytes};

/// The URL of a path on the server.
fn url(port: u16, path: &str) -> String {
    format!("nfs://127.0.0.1{path}?version=3&nfsport={port}&mountport={port}")
}

#[test]
fn filesystems_are_used_over_nfs() {
    if lacks("nfs-ls") || lacks("nfs-cp") || lacks("nfs-cat") {
        return;
    }
    let nas = TestNas::new("nfs", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create tank/photos");
    let port = free_port();
    nas.run_ok("share add nfs tank/photos -o path=/photos -o squash=none");
    let closed = nas.run_ok("share status");
    assert!(closed.contains("problem: NFS listens nowhere: `poolhouse config set"), "{closed}");
    nas.run_ok(&format!("config set nfs.listen {port}"));

    let [share] = &shares(&nas)[..] else { panic!("one share") };
    assert_eq!((&share["path"], &share["problem"]), (&"/photos".into(), &Value::Null));
    assert_eq!((&share["address"], &share["port"]), (&"127.0.0.1".into(), &port.into()));
    let (source, back) = (nas.0.join("source"), nas.0.join("back"));
    let (source, back) = (path_arg(&source), path_arg(&back));
    std::fs::write(source, random_bytes(3 << 20)).unwrap();
    run_client_ok(&["nfs-cp", source, &url(port, "/photos/picture")]);
    let listed = run_client_ok(&["nfs-ls", &url(port, "/photos")]);
    assert!(listed.contains("picture"), "{listed}");
    run_client_ok(&["nfs-cp", &url(port, "/photos/picture"), back]);
    assert!(std::fs::read(source).unwrap() == std::fs::read(back).unwrap());
    // nfs-cp creates the file exclusively (GUARDED)
    assert!(!run_client(&["nfs-cp", source, &url(port, "/photos/picture")]).0);
    assert!(!run_client(&["nfs-ls", &url(port, "/elsewhere")]).0);

    // the daemon starts again with its shares, and the file system may be renamed
    nas.run_ok("serve --stop");
    nas.run_ok("zfs rename tank/photos tank/pictures");
    run_client_ok(&["nfs-ls", &url(port, "/photos")]);
    nas.run_ok("zfs destroy tank/pictures");
    assert!(!run_client(&["nfs-ls", &url(port, "/photos")]).0);
    nas.run_ok("zpool export tank");
}

#[test]
fn sharenfs_exports_and_forbids_writes() {
    if lacks("nfs-ls") || lacks("nfs-cp") || lacks("nfs-cat") {
        return;
    }
    let nas = TestNas::new("sharenfs", 1);
    nas.create_pool("-m none tank", 1);
    let port = free_port();
    nas.run_ok(&format!("config set nfs.listen {port}"));
    nas.run_ok("zfs create -o mountpoint=/a -u -o sharenfs=ro=127.0.0.1,insecure tank/a");
    let (source, path) = (nas.0.join("source"), shares(&nas)[0]["path"].clone());
    let path = path.as_str().unwrap();
    std::fs::write(&source, b"text").unwrap();
    let file = url(port, &format!("{path}/file"));
    assert!(!run_client(&["nfs-cp", path_arg(&source), &file]).0);
    nas.run_ok("zfs set sharenfs=rw=127.0.0.1,insecure,no_root_squash tank/a");
    run_client_ok(&["nfs-cp", path_arg(&source), &file]);
    assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
    if !cannot_mount() {
        // what is unmounted is not exported, until it is mounted again
        nas.run_ok("zfs mount tank/a");
        run_client_ok(&["nfs-cat", &file]);
        nas.run_ok("zfs unmount tank/a");
        assert!(!run_client(&["nfs-cat", &file]).0);
        nas.run_ok("zfs mount tank/a");
        assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
    }
    nas.run_ok("zfs set sharenfs=rw=localhost,insecure,no_root_squash tank/a");
    assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
    let why = nas.run_failing("zfs set sharenfs=rw=@st@ff tank/a", 255);
    assert!(why.contains("neither a network nor a netgroup"), "{why}");
    nas.run_ok("zfs set sharenfs=rw=10.0.0.0/8,insecure tank/a");
    assert!(!run_client(&["nfs-cat", &file]).0);
    nas.run_ok("zfs set sharenfs=off tank/a");
    assert!(!run_client(&["nfs-cat", &file]).0);
}

#[test]
fn netgroups_admit_their_hosts() {
    if lacks("nfs-ls") {
        return;
    }
    let nas = TestNas::new("netgroup", 1);
    // the name service of this machine has no netgroups
    let programs = nas.0.join("programs");
    std::fs::create_dir(&programs).unwrap();
    let getent = programs.join("getent");
    let script = "#!/bin/sh\ncase $1.$2 in\n\
                  netgroup.staff) echo 'staff (localhost,,) (-,anna,)' ;;\n\
                  netgroup.others) echo 'others (192.0.2.1,,)' ;;\n\
                  *) exit 2 ;;\nesac\n";
    std::fs::write(&getent, script).unwrap();
    std::fs::set_permissions(&getent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", path_arg(&programs), std::env::var("PATH").unwrap());
    nas.start_with_path(&path);
    nas.create_pool("-m none tank", 1);
    let port = free_port();
    nas.run_ok(&format!("config set nfs.listen {port}"));
    nas.run_ok("zfs create -o mountpoint=/a -u -o sharenfs=rw=@staff,insecure tank/a");
    let listed = url(port, shares(&nas)[0]["path"].as_str().unwrap());
    run_client_ok(&["nfs-ls", &listed]);
    for others in ["rw=@others,insecure", "rw=@unknown,insecure"] {
        nas.run_ok(&format!("zfs set sharenfs={others} tank/a"));
        assert!(!run_client(&["nfs-ls", &listed]).0, "{others}");
    }
    nas.run_ok("zfs set sharenfs=rw=@others:@staff,insecure tank/a");
    run_client_ok(&["nfs-ls", &listed]);
}

#[test]
fn unmounted_entries_are_not_served() {
    if lacks("nfs-cp") || lacks("nfs-cat") || cannot_mount() {
        return;
    }
    let nas = TestNas::new("nfs-unmount", 1);
    nas.create_pool("tank", 1);
    nas.run_ok("zfs create tank/a");
    let port = free_port();
    nas.run_ok(&format!("config set nfs.listen {port}"));
    nas.run_ok("share add nfs tank/a -o path=/a -o squash=none");
    std::fs::write(nas.altroot().join("tank/a/file"), b"text").unwrap();
    let file = url(port, "/a/file");
    assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
    nas.run_ok("zfs unmount tank/a");
    let is_served = || shares(&nas)[0]["problem"] == Value::Null;
    nas.wait_until(|| !is_served());
    assert!(!run_client(&["nfs-cat", &file]).0);
    let status = nas.run_ok("share status");
    assert!(status.contains("'tank/a' is not mounted: `zfs mount tank/a`"), "{status}");
    nas.run_ok("zfs mount tank/a");
    nas.wait_until(is_served);
    assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
    // a rename unmounts it and mounts it again
    nas.run_ok("zfs rename tank/a tank/b");
    assert_eq!(run_client_ok(&["nfs-cat", &file]), "text");
}
