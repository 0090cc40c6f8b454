//! `zfs rewrite`: files of a mounted file system get the present properties, and stay as they are.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::command::path_arg;
use crate::test_nas::{TestNas, cannot_mount};

fn allocated(nas: &TestNas) -> u64 {
    nas.run_ok("zpool sync tank");
    nas.run_ok("zfs get -Hpo value used tank").trim().parse().unwrap()
}

#[test]
fn rewrite_compresses_files_and_keeps_their_times() {
    if cannot_mount() {
        return;
    }
    let nas = TestNas::new("rewrite", 1);
    nas.create_pool("-O compression=off tank", 1);
    nas.run_ok("zfs create tank/inner");
    let root = nas.altroot().join("tank");
    fs::create_dir(root.join("dir")).unwrap();
    let text = b"compressible text ".repeat(200_000);
    let paths = ["dir/one", "dir/two", "inner/three"].map(|path| root.join(path));
    for path in &paths {
        fs::write(path, &text).unwrap();
    }
    let before = allocated(&nas);
    let stat = |at: usize| {
        let found = fs::metadata(&paths[at]).unwrap();
        (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec(), found.size())
    };
    let times = [0, 1, 2].map(stat);
    nas.run_ok("zfs set compression=zstd tank");
    let dir = path_arg(&root).to_owned();
    let said = nas.run_failing(&format!("zfs rewrite {dir}/dir"), 1);
    assert!(said.contains("it is a directory; -r rewrites the files below it"), "{said}");
    let said = nas.run_failing("zfs rewrite -r /proc/self", 1);
    assert!(said.contains("not in a mounted file system"), "{said}");
    let said = nas.run_ok(&format!("zfs rewrite -r -v -x {dir}"));
    assert!(said.contains(&format!("{dir}/dir/one\n{dir}/dir/two\n2 file(s) done")), "{said}");
    let half = allocated(&nas);
    assert!(half < before / 2, "{before} bytes before, {half} after");
    // the file system that is mounted below
    let said = nas.run_ok(&format!("zfs rewrite -rv {dir}"));
    assert!(said.contains(&format!("{dir}/inner/three\n")), "{said}");
    assert!(allocated(&nas) < before / 8);
    assert_eq!([0, 1, 2].map(stat), times);
    for path in &paths {
        assert!(fs::read(path).unwrap() == text);
    }
    nas.run_ok("zfs snapshot tank@one");
    let found = nas.run("zfs rewrite tank:/dir/one");
    assert_eq!(found.status, 0);
    assert!(found.stderr.contains("'tank' has 1 snapshot(s), which keep the old blocks"));
    let said = nas.run_ok("zfs rewrite -Sv -o 128K -l 1M tank:/dir/two");
    assert!(said.contains("0 bytes rewritten, 1048576 bytes left as they were"), "{said}");
    let said = nas.run_failing(&format!("zfs rewrite {dir}/.zfs/snapshot/one/dir/one"), 1);
    assert!(said.contains("snapshots cannot be changed"), "{said}");
    let jobs = nas.run_ok("jobs");
    assert!(jobs.contains("rewrite") && jobs.contains("finished"), "{jobs}");
    nas.run_failing(&format!("zfs rewrite -P {dir}/dir/one"), 2);
}
