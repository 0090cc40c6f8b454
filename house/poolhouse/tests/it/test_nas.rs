//! A daemon in a folder of its own, with files as drives, and its mounts in the kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{CommandOutput, path_arg, run};

/// A daemon's folder, with sparse files for drives. In the end the daemon ends, and all goes.
pub(crate) struct TestNas(pub(crate) PathBuf);

impl TestNas {
    pub(crate) fn new(name: &str, drives: usize) -> Self {
        // short: a socket has a path of 107 bytes at most
        let path = std::env::temp_dir().join(format!("ph-{name}-{}", std::process::id()));
        let nas = Self(path);
        std::fs::create_dir_all(nas.0.join("drives")).unwrap();
        for drive in nas.drive_paths(drives) {
            File::create(drive).unwrap().set_len(256 << 20).unwrap();
        }
        nas
    }

    pub(crate) fn drive_paths(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.0.join(format!("drives/d{index}.img"))).collect()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.0.join("state")
    }

    /// Runs `poolhouse` with the daemon of this folder.
    pub(crate) fn run(&self, words: &str) -> CommandOutput {
        let state = self.state_dir();
        let mut args: Vec<&str> = words.split_whitespace().collect();
        args.extend(["--state", path_arg(&state)]);
        run(&args)
    }

    /// Starts the daemon with another PATH.
    pub(crate) fn start_with_path(&self, path: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(["share", "status", "--state", path_arg(&self.state_dir())]);
        let output = command.env("PATH", path).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn run_ok(&self, words: &str) -> String {
        let run = self.run(words);
        // without FUSE new file systems are not mounted, and the command prints so
        let is_not_mounted = !has_fuse() && run.status == 1 && run.stderr.contains("cannot mount");
        assert!(run.status == 0 || is_not_mounted, "{words}: {}{}", run.stderr, self.read_log());
        run.stdout
    }

    #[track_caller]
    pub(crate) fn run_failing(&self, words: &str, status: i32) -> String {
        let run = self.run(words);
        assert_eq!(run.status, status, "{words}: {}{}", run.stdout, run.stderr);
        run.stderr
    }

    /// Waits for an event without polling the daemon's commands.
    pub(crate) fn wait_until(&self, is_so: impl Fn() -> bool) {
        let last = Instant::now() + Duration::from_mins(1);
        while !is_so() {
            assert!(Instant::now() < last, "{}", self.read_log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn read_log(&self) -> String {
        std::fs::read_to_string(self.state_dir().join("log")).unwrap_or_default()
    }

    pub(crate) fn create_pool(&self, words: &str, count: usize) {
        let drives: Vec<_> =
            self.drive_paths(count).iter().map(|path| path_arg(path).to_owned()).collect();
        let root = self.altroot();
        self.run_ok(&format!("zpool create -R {} {words} {}", path_arg(&root), drives.join(" ")));
    }

    /// The prefix of the mountpoints.
    pub(crate) fn altroot(&self) -> PathBuf {
        self.0.join("root")
    }
}

impl Drop for TestNas {
    fn drop(&mut self) {
        self.run("serve --stop");
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Kills the daemon, as a power cut would.
pub(crate) fn kill_daemon(state: &Path) {
    let log = std::fs::read_to_string(state.join("log")).unwrap();
    let pid = log.lines().filter_map(|line| line.split(" as process ").nth(1)).next_back().unwrap();
    let killed = Command::new("kill").args(["-9", pid]).stdin(Stdio::null()).status().unwrap();
    assert!(killed.success());
    while Path::new("/proc").join(pid).join("exe").exists() {
        std::thread::yield_now();
    }
}

/// The kernel's entry of a mount at a folder: its source, the folder, its type, its options.
fn mount_entry(dir: &Path) -> Option<Vec<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let at = |line: &str| line.split(' ').nth(1) == dir.to_str();
    let line = mounts.lines().rfind(|line| at(line))?;
    Some(line.split(' ').map(str::to_owned).collect())
}

/// The source of a mount at a folder.
pub(crate) fn mount_source(dir: &Path) -> Option<String> {
    mount_entry(dir)?.into_iter().next()
}

/// How it is mounted: `rw`, `noexec` and the like.
pub(crate) fn mount_options(dir: &Path) -> Vec<String> {
    mount_entry(dir).unwrap()[3].split(',').map(str::to_owned).collect()
}

fn has_fuse() -> bool {
    Path::new("/dev/fuse").exists()
}

/// A machine without FUSE has nothing to be mounted with.
pub(crate) fn cannot_mount() -> bool {
    let cannot = !has_fuse();
    if cannot {
        eprintln!("nothing is mounted: there is no /dev/fuse");
    }
    cannot
}

/// Bytes without a pattern, the same each time.
pub(crate) fn random_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}
