//! `zfs send`, `zfs receive` and `stream dump`: streams pass from one command to the other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{path_arg, run, run_ok};
use crate::test_nas::{TestNas, cannot_mount};

/// No command of these tests takes longer.
const LIMIT: Duration = Duration::from_mins(1);

/// A command with its standard input and output as given; it is killed when it takes too long.
struct Transfer(Child);

impl Transfer {
    fn start(nas: &TestNas, words: &str, input: Stdio, output: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(words.split_whitespace()).args(["--state", path_arg(&nas.state_dir())]);
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Waits for its end. Gives its exit status and what it says.
    fn finish(mut self) -> (i32, String) {
        let last = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < last, "the command takes too long");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code().unwrap_or(-1), said)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The pool of the fixture `sent`, in a daemon of its own.
fn import_sent(name: &str) -> TestNas {
    let nas = TestNas::new(name, 0);
    let fixture = fixtures::load("sent");
    std::fs::copy(&fixture.images()[0], nas.0.join("drives/d0.img")).unwrap();
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!("zpool import -R {} -d {} tank", path_arg(&root), path_arg(&drives)));
    nas
}

fn send_to_file(nas: &TestNas, words: &str) -> Vec<u8> {
    let path = nas.0.join("sent.zstream");
    let out = File::create(&path).unwrap();
    let done = Transfer::start(nas, words, Stdio::null(), out.into()).finish();
    assert_eq!(done, (0, String::new()), "{words}");
    std::fs::read(&path).unwrap()
}

fn receive_file(nas: &TestNas, words: &str, stream: &Path) -> (i32, String) {
    let input = File::open(stream).unwrap();
    Transfer::start(nas, words, input.into(), Stdio::null()).finish()
}

#[test]
fn send_command_writes_the_stream_of_openzfs() {
    let nas = import_sent("send");
    let recorded = |name: &str| std::fs::read(fixtures::load("sent").dir.join(name)).unwrap();
    assert!(send_to_file(&nas, "zfs send -Lec tank/from@one") == recorded("all-flags.zstream"));
    let incremental = send_to_file(&nas, "zfs send -i @one tank/from@two");
    assert!(incremental == recorded("incremental.zstream"));
    let said = nas.run_failing("zfs send -R tank/from@one", 2);
    assert!(said.contains("zfs send -R is not supported yet"), "{said}");
    nas.run_failing("zfs send tank/from@none", 1);
    nas.run_failing("zfs send tank/from", 2);
}

#[test]
fn sent_snapshots_are_received_through_a_pipe() {
    let nas = import_sent("recv");
    for words in [["tank/from@one", ""], ["tank/from@two", "-i @one"]] {
        let send = format!("zfs send {} {}", words[1], words[0]);
        let mut sender = Transfer::start(&nas, &send, Stdio::null(), Stdio::piped());
        let pipe = sender.0.stdout.take().unwrap();
        let receiver = "zfs receive -u tank/copy";
        let (status, said) = Transfer::start(&nas, receiver, pipe.into(), Stdio::null()).finish();
        assert_eq!((status, said.as_str()), (0, ""), "{}", nas.read_log());
        assert_eq!(sender.finish(), (0, String::new()));
    }
    let guids = nas.run_ok("zfs get -Hpo value guid tank/from@two tank/copy@two");
    let guids: Vec<&str> = guids.lines().collect();
    assert!(guids.len() == 2 && guids[0] == guids[1], "{guids:?}");
    let history = nas.run_ok("zpool history tank");
    assert!(history.contains("zfs receive -u tank/copy"), "{history}");
    nas.run_ok("zfs destroy -r tank/copy");
}

/// Of each file of a directory the size, and the beginning: one has a hole of gigabytes.
fn read_files(dir: &Path) -> BTreeMap<OsString, (u64, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    let read = |path: PathBuf| {
        let (file, mut bytes) = (File::open(&path).unwrap(), Vec::new());
        let size = file.metadata().unwrap().len();
        file.take(1 << 20).read_to_end(&mut bytes).unwrap();
        (path.file_name().unwrap().to_owned(), (size, bytes))
    };
    files.map(read).collect()
}

#[test]
fn mounted_target_shows_what_is_received() {
    if cannot_mount() {
        return;
    }
    let nas = import_sent("recv-mounted");
    for (name, dir) in [("tank", "/tank"), ("tank/from", "/from")] {
        nas.run_ok(&format!("zfs set mountpoint={dir} {name}"));
    }
    let copy = nas.altroot().join("tank/copy");
    let mut seen = Vec::new();
    for (snapshot, words) in [("one", ""), ("two", "-i @one")] {
        send_to_file(&nas, &format!("zfs send {words} tank/from@{snapshot}"));
        let (status, said) =
            receive_file(&nas, "zfs receive -F tank/copy", &nas.0.join("sent.zstream"));
        assert_eq!((status, said.as_str()), (0, ""));
        let wanted = nas.altroot().join("from/.zfs/snapshot").join(snapshot);
        seen.push(read_files(&copy));
        assert_eq!(seen.last(), Some(&read_files(&wanted)), "{snapshot}");
        // the mount goes on
        std::fs::write(copy.join("local"), snapshot).unwrap();
    }
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn broken_stream_is_refused_by_the_command() {
    let nas = import_sent("cut");
    let stream = std::fs::read(fixtures::load("sent").dir.join("full.zstream")).unwrap();
    let path = nas.0.join("cut.zstream");
    std::fs::write(&path, &stream[..stream.len() / 2]).unwrap();
    let (status, said) = receive_file(&nas, "zfs recv tank/copy", &path);
    assert!(status == 1 && said.contains("ends too early"), "{said}");
    assert!(!nas.run_ok("zfs list -Ho name").contains("copy"));
    let (status, _) = receive_file(&nas, "zfs recv -n tank/copy", &path);
    assert_eq!(status, 0, "only the header is read");
}

#[test]
fn dump_shows_the_records_of_a_stream() {
    let stream = fixtures::load("sent").dir.join("incremental.zstream");
    let text = run_ok(&["stream", "dump", "-v", path_arg(&stream)]);
    for words in ["toname = tank/from@two", "FREEOBJECTS firstobj = ", "DRR_SPILL records = 1 "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let refused = run(&["stream", "dump", path_arg(&fixtures::load("sent").dir.join("d0.img"))]);
    assert!(refused.stderr.contains("not a ZFS send stream"), "{}", refused.stderr);
}
