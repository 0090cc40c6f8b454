//! Other people's initiators: libiscsi's programs and QEMU's, where they are installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::pattern;
use crate::served_pool::{ServedPool, TARGET};
use crate::volume_pool::SIZE;

/// A program that runs longer than this hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// A folder that is removed in the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("poolhouse-iscsi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing = programs.iter().find(|name| !is_found(name));
    if let Some(missing) = missing {
        println!(
            "skipped: {missing} is not installed (Debian: libiscsi-bin, qemu-utils, qemu-block-extra)"
        );
    }
    missing.is_none()
}

/// Runs a program to its end. Returns whether it succeeded, and its output.
fn run_any(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("a program");
    let id = child.id();
    let begun = Instant::now();
    let (sender, ended) = std::sync::mpsc::channel();
    // a program that prints much is read while it runs
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(LIMIT) else {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        panic!("{program} {arguments:?} hangs for {:?}", begun.elapsed());
    };
    let output = output.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn run(program: &str, arguments: &[&str]) -> String {
    let (is_done, said) = run_any(program, arguments);
    assert!(is_done, "{program} {arguments:?}: {said}");
    said
}

fn url(served: &ServedPool) -> String {
    format!("iscsi://{}/{TARGET}/0", served.address())
}

#[test]
fn libiscsi_discovers_and_reads_pages() {
    if !is_installed(&["iscsi-ls", "iscsi-inq"]) {
        return;
    }
    let served = ServedPool::start();
    let listed = run("iscsi-ls", &["-s", &format!("iscsi://{}/", served.address())]);
    assert!(listed.contains(&format!("Target:{TARGET} Portal:{},1", served.address())), "{listed}");
    assert!(listed.contains("Lun:0    Type:DIRECT_ACCESS"), "{listed}");
    let limits = run("iscsi-inq", &["-e", "1", "-c", "176", &url(&served)]);
    for fact in ["wsnz:0", "maximum compare and write length:255", "optimal unmap granularity:16"] {
        assert!(limits.contains(fact), "{fact} is not in {limits}");
    }
}

/// Suites of iscsi-test-cu that are quick, and that no part of may be left out.
const SUITES: [&str; 18] = [
    "ALL.CompareAndWrite.Simple",
    "ALL.CompareAndWrite.Miscompare",
    "ALL.ExtendedCopy",
    "ALL.GetLBAStatus.Simple",
    "ALL.Inquiry",
    "ALL.Mandatory",
    "ALL.ModeSense6",
    "ALL.ProutRegister",
    "ALL.ProutReserve",
    "ALL.ProutClear",
    "ALL.ProutPreempt",
    "ALL.Read16",
    "ALL.ReportSupportedOpcodes",
    "ALL.Unmap",
    "ALL.Write16",
    "ALL.WriteSame16.Unmap",
    "ALL.iSCSIResiduals",
    "ALL.iSCSITMF",
];

#[test]
fn libiscsi_test_suites_pass() {
    if !is_installed(&["iscsi-test-cu"]) {
        return;
    }
    let served = ServedPool::start();
    let url = url(&served);
    for suite in SUITES {
        let (is_done, said) = run_any("iscsi-test-cu", &["--dataloss", "-t", suite, &url]);
        let failed =
            said.lines().filter(|line| line.starts_with("    ") && line.contains(". test_"));
        let failed: Vec<&str> = failed.collect();
        assert!(is_done && failed.is_empty(), "{suite}: {said}");
        let is_left_out = said.contains("is not implemented") || !said.contains("passed");
        assert!(!is_left_out, "{suite}: {said}");
    }
}

#[test]
fn qemu_converts_compares_and_discards() {
    if !is_installed(&["qemu-img", "qemu-io"]) || !run("qemu-img", &["--help"]).contains(" iscsi") {
        return;
    }
    let (served, folder) = (ServedPool::start(), TempDir::new("qemu"));
    let (url, source) = (url(&served), folder.file("source"));
    let mut image = pattern(usize::try_from(SIZE).unwrap());
    image[500_000..1_500_000].fill(0);
    std::fs::write(&source, &image).unwrap();
    run("qemu-img", &["convert", "-n", "-W", "-f", "raw", "-O", "raw", &source, &url]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &url]);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &url]);
    assert!(map.matches("\"data\": false").count() >= 1, "{map}");
    let commands = [
        "discard 16384 65536",
        "write -P 7 1024 5120",
        "write -z -u 8192 8192",
        "write -f -P 3 1048576 4096",
        "aio_write -P 4 1400832 102400",
        "aio_write -P 5 1600512 102400",
        "aio_flush",
        "flush",
        "read -P 7 1024 5120",
    ];
    let mut arguments = vec!["-f", "raw", "-d", "unmap"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&url);
    let printed = run("qemu-io", &arguments);
    assert!(!printed.contains("failed"), "{printed}");
    for (range, fill) in [
        (16_384..81_920, 0),
        (1024..6144, 7),
        (8192..16_384, 0),
        (1_048_576..1_052_672, 3),
        (1_400_832..1_503_232, 4),
        (1_600_512..1_702_912, 5),
    ] {
        image[range].fill(fill);
    }
    std::fs::write(&source, image).unwrap();
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &url]);
}
