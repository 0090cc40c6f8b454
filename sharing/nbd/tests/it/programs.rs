//! Other people's clients: libnbd's programs and QEMU's, where they are installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::served_pool::ServedPool;
use crate::volume_pool::SIZE;

/// A program that runs longer than this hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// A folder that is removed in the end.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("poolhouse-nbd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn is_installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing = programs.iter().find(|name| !is_found(name));
    if let Some(missing) = missing {
        println!("skipped: {missing} is not installed (Debian: libnbd-bin, qemu-utils)");
    }
    missing.is_none()
}

/// Runs a program to its end; its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{program} {arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stdout}{stderr}");
    stdout
}

/// An image with data at the start, in the middle and at the end, and holes between.
pub(crate) fn image() -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SIZE).unwrap()];
    let mut state = 1_u32;
    for range in [0..50_000, 700_000..1_000_000, 2_000_000..bytes.len()] {
        for byte in &mut bytes[range] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
    }
    bytes
}

#[test]
fn libnbd_copies_and_maps_volumes() {
    if !is_installed(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let (served, folder) = (ServedPool::start(), TempDir::new("libnbd"));
    let url = format!("nbd://{}/disk", served.address());
    let (source, copy) = (folder.file("source"), folder.file("copy"));
    std::fs::write(&source, image()).unwrap();
    run("nbdcopy", &["--connections=4", "--flush", &source, &url]);
    run("nbdcopy", &["--connections=4", &url, &copy]);
    assert!(std::fs::read(&copy).unwrap() == image());
    let facts = run("nbdinfo", &["--json", &url]);
    for fact in [
        "\"export-size\": 2097152",
        "\"can_multi_conn\": true",
        "\"can_fast_zero\": true",
        "\"can_trim\": true",
        "\"is_read_only\": false",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 8192",
        "\"description\": \"volume disk\"",
    ] {
        assert!(facts.contains(fact), "{fact} is not in {facts}");
    }
    let listed = run("nbdinfo", &["--list", &format!("nbd://{}", served.address())]);
    assert!(listed.contains("export=\"disk\""), "{listed}");
    let map = run("nbdinfo", &["--map", &url]);
    let states: Vec<&str> = map.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(states, ["data", "hole,zero", "data", "hole,zero", "data"], "{map}");
}

#[test]
fn qemu_converts_compares_and_discards() {
    if !is_installed(&["qemu-img", "qemu-io"]) {
        return;
    }
    let (served, folder) = (ServedPool::start(), TempDir::new("qemu"));
    let url = format!("nbd://{}/disk", served.address());
    let (source, copy) = (folder.file("source"), folder.file("copy.qcow2"));
    std::fs::write(&source, image()).unwrap();
    run("qemu-img", &["convert", "-n", "-W", "-f", "raw", "-O", "raw", &source, &url]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &url]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &url, &copy]);
    run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &copy, &url]);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &url]);
    assert_eq!(map.matches("\"data\": false").count(), 2, "{map}");
    let commands = [
        "discard 704512 65536",
        "read -P 0 704512 65536",
        "write -P 7 1000 5000",
        "read -P 7 1000 5000",
        "write -z -u 8192 32768",
        "write -f -P 3 1048576 4096",
        "aio_write -P 4 1400000 100000",
        "aio_write -P 5 1500000 100000",
        "aio_flush",
        "flush",
        "read -P 4 1400000 100000",
        "read -P 5 1500000 100000",
    ];
    let mut arguments = vec!["-f", "raw", "-d", "unmap"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&url);
    let printed = run("qemu-io", &arguments);
    assert!(!printed.contains("failed"), "{printed}");
    // discard, zeroes and writes again, as the file has them
    let mut expected = image();
    let changes = [
        (704_512..770_048, 0),
        (1000..6000, 7),
        (8192..40_960, 0),
        (1_048_576..1_052_672, 3),
        (1_400_000..1_500_000, 4),
        (1_500_000..1_600_000, 5),
    ];
    for (range, fill) in changes {
        expected[range].fill(fill);
    }
    std::fs::write(&source, expected).unwrap();
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &url]);
}
