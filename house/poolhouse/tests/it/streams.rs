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

    /// Waits for its end. Returns its exit status and output.
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
pub(crate) fn import_sent(name: &str) -> TestNas {
    import_fixture(name, "sent")
}

pub(crate) fn import_fixture(name: &str, fixture: &str) -> TestNas {
    let nas = TestNas::new(name, 0);
    let fixture = fixtures::load(fixture);
    std::fs::copy(&fixture.images()[0], nas.0.join("drives/d0.img")).unwrap();
    let (root, drives) = (nas.altroot(), nas.0.join("drives"));
    nas.run_ok(&format!("zpool import -R {} -d {} tank", path_arg(&root), path_arg(&drives)));
    nas
}

pub(crate) fn send_to_file(nas: &TestNas, words: &str) -> Vec<u8> {
    let path = nas.0.join("sent.zstream");
    let out = File::create(&path).unwrap();
    let done = Transfer::start(nas, words, Stdio::null(), out.into()).finish();
    assert_eq!(done, (0, String::new()), "{words}");
    std::fs::read(&path).unwrap()
}

pub(crate) fn receive_file(nas: &TestNas, words: &str, stream: &Path) -> (i32, String) {
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
    assert!(send_to_file(&nas, "zfs send -w tank/from@one") == recorded("all-flags.zstream"));
    let said = nas.run_failing("zfs send -S tank/from", 1);
    assert!(said.contains("has no saved part of an interrupted receive"), "{said}");
    nas.run_failing("zfs send -S -i @one tank/from", 2);
    nas.run_failing("zfs send tank/from@none", 1);
    nas.run_failing("zfs send tank/from", 1);
}

#[test]
fn corrective_receive_compares_blocks() {
    let nas = import_sent("corrective");
    let full = fixtures::load("sent").dir.join("full.zstream");
    let (status, said) = receive_file(&nas, "zfs receive -c tank/from@one", &full);
    assert_eq!((status, said.as_str()), (0, ""));
    let (status, said) = receive_file(&nas, "zfs receive -c tank/from@two", &full);
    assert!(status == 1 && said.contains("is not of this snapshot"), "{said}");
    let (status, said) = receive_file(&nas, "zfs receive -c -F tank/from@one", &full);
    assert_eq!(status, 2, "{said}");
    assert_eq!(
        nas.run_ok("zfs list -Ho name -t snapshot tank/from"),
        "tank/from@one\ntank/from@two\n"
    );
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
fn mounted_target_shows_received_files() {
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
        // the mount continues
        std::fs::write(copy.join("local"), snapshot).unwrap();
    }
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn dry_run_reports_in_the_words_of_openzfs() {
    let nas = import_sent("dry");
    let said = |words: &str| nas.run_ok(words);
    assert_eq!(
        said("zfs send -nv tank/from@two"),
        "full send of tank/from@two estimated size is 546K\ntotal estimated size is 546K\n"
    );
    assert_eq!(
        said("zfs send -nvP -i #one tank/from@two"),
        "incremental\ttank/from#one\ttank/from@two\t405104\nsize\t405104\n"
    );
    nas.run_ok("zfs snapshot -r tank@three");
    assert_eq!(
        said("zfs send -nP -I @one tank/from@three"),
        "incremental\tone\ttank/from@two\t405104\nincremental\ttwo\ttank/from@three\t1136\nsize\t406240\n"
    );
    let all = said("zfs send -nvP -R -I @one tank@three");
    for line in [
        "incremental\tone\ttank@two\t7792",
        "incremental\ttwo\ttank/volume@three\t1136",
        "incremental\ttank/from@one\ttank/clone@two\t8816",
        "incremental\ttwo\ttank/clone@three\t624",
        "size\t441216",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}: {all}");
    }
    for words in ["-R -i three tank/from@three", "-I @three tank/from@two"] {
        let said = nas.run_failing(&format!("zfs send -nv {words}"), 1);
        assert!(said.contains("WARNING: could not send"), "{words}: {said}");
        assert!(said.contains("is not earlier than it"), "{words}: {said}");
    }
}

#[test]
fn replicated_tree_follows_renames_and_destructions() {
    let nas = import_sent("tree");
    let pass = |send: &str, receive: &str| {
        let stream = send_to_file(&nas, send);
        let (status, said) = receive_file(&nas, receive, &nas.0.join("sent.zstream"));
        assert_eq!((status, said.as_str()), (0, ""), "{send} | {receive}");
        stream
    };
    nas.run_ok("zfs create -o mountpoint=none tank/copy");
    nas.run_ok("zfs create -o mountpoint=none -o test:word=kept tank/tree");
    nas.run_ok("zfs create tank/tree/a");
    nas.run_ok("zfs create tank/tree/a/b");
    nas.run_ok("zfs create tank/tree/gone");
    nas.run_ok("zfs set compression=zstd tank/tree/a");
    nas.run_ok("zfs snapshot -r tank/tree@one");
    nas.run_ok("zfs clone tank/tree/a@one tank/tree/clone");
    nas.run_ok("zfs snapshot -r tank/tree@two");
    // changes after the snapshot are not part of the stream
    send_to_file(&nas, "zfs send -R tank/tree@one");
    pass("zfs send -R tank/tree@two", "zfs receive -u tank/copy/tree");
    let names = |root: &str| {
        let all = nas.run_ok(&format!("zfs list -Hro name -t all {root}"));
        all.lines().map(|name| name[root.len()..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("tank/tree"), names("tank/copy/tree"));
    let get = |name: &str| nas.run_ok(&format!("zfs get -Ho value,source {name}"));
    assert_eq!(get("compression tank/copy/tree/a"), "zstd\treceived\n");
    assert_eq!(get("test:word tank/copy/tree/a"), "kept\tinherited from tank/copy/tree\n");
    assert_eq!(get("origin tank/copy/tree/clone"), "tank/copy/tree/a@one\t-\n");
    nas.run_ok("zfs rename tank/tree/a tank/tree/moved");
    nas.run_ok("zfs destroy -r tank/tree/gone");
    nas.run_ok("zfs destroy tank/tree/moved/b@one");
    nas.run_ok("zfs create tank/tree/new");
    nas.run_ok("zfs snapshot -r tank/tree@three");
    pass("zfs send -R -I @two tank/tree@three", "zfs receive -uF tank/copy/tree");
    // older snapshots than the base stay
    nas.run_ok("zfs destroy tank/copy/tree/moved/b@one");
    assert_eq!(names("tank/tree"), names("tank/copy/tree"));
    // all of it is there: nothing is received again
    pass("zfs send -R -I @two tank/tree@three", "zfs receive -uF tank/copy/tree");
    assert_eq!(names("tank/tree"), names("tank/copy/tree"));
    pass(
        "zfs send -R tank/tree@three",
        "zfs receive -du -x compression -o atime=off tank/copy/all",
    );
    // a clone takes the place of its origin
    nas.run_ok("zfs promote tank/tree/clone");
    nas.run_ok("zfs rename tank/tree/clone tank/tree/first");
    nas.run_ok("zfs snapshot -r tank/tree@four");
    pass("zfs send -R -I @three tank/tree@four", "zfs receive -uF tank/copy/tree");
    assert_eq!(names("tank/tree"), names("tank/copy/tree"));
    assert_eq!(get("origin tank/copy/tree/first"), "-\t-\n");
    assert_eq!(get("origin tank/copy/tree/moved"), "tank/copy/tree/first@one\t-\n");
}

#[test]
fn replicated_tree_follows_moves_below_new_parents() {
    let nas = import_sent("moves");
    let pass = |send: &str, receive: &str| {
        send_to_file(&nas, send);
        let (status, said) = receive_file(&nas, receive, &nas.0.join("sent.zstream"));
        assert_eq!((status, said.as_str()), (0, ""), "{send} | {receive}");
    };
    nas.run_ok("zfs create -o mountpoint=none tank/copy");
    nas.run_ok("zfs create -o mountpoint=none tank/tree");
    for name in ["old", "old/inner", "old/inner/leaf", "left", "right"] {
        nas.run_ok(&format!("zfs create tank/tree/{name}"));
    }
    nas.run_ok("zfs snapshot -r tank/tree@one");
    pass("zfs send -R tank/tree@one", "zfs receive -u tank/copy/tree");
    // below a new file system, out of one that is destroyed; and two that change places
    nas.run_ok("zfs create tank/tree/new");
    nas.run_ok("zfs create tank/tree/new/deep");
    nas.run_ok("zfs rename tank/tree/old/inner tank/tree/new/deep/inner");
    nas.run_ok("zfs destroy -r tank/tree/old");
    nas.run_ok("zfs rename tank/tree/left tank/tree/middle");
    nas.run_ok("zfs rename tank/tree/right tank/tree/left");
    nas.run_ok("zfs rename tank/tree/middle tank/tree/right");
    nas.run_ok("zfs snapshot -r tank/tree@two");
    pass("zfs send -R -I @one tank/tree@two", "zfs receive -uF tank/copy/tree");
    let facts = |root: &str| {
        let all = nas.run_ok(&format!("zfs list -Hrpo name,guid,type -t snapshot {root}"));
        all.lines().map(|line| line[root.len()..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(facts("tank/tree"), facts("tank/copy/tree"));
    assert!(!nas.run_ok("zfs list -Hro name tank/copy").contains("recv-"));
}

#[test]
fn received_names_follow_the_options() {
    let nas = import_sent("names");
    let full = fixtures::load("sent").dir.join("properties.zstream");
    nas.run_ok("zfs create -o mountpoint=none tank/in");
    for (words, name) in [
        ("zfs receive -u tank/in/named@other", Some("tank/in/named@other")),
        ("zfs receive -du tank/in/deep@other", None),
        ("zfs receive -u tank/in/exact", Some("tank/in/exact@one")),
        ("zfs receive -du tank/in/deep", Some("tank/in/deep/from@one")),
        ("zfs receive -eu tank/in", Some("tank/in/from@one")),
        ("zfs receive -u -x recordsize -o atime=on tank/in/set", Some("tank/in/set@one")),
    ] {
        let (status, said) = receive_file(&nas, words, &full);
        assert_eq!(status, i32::from(name.is_none()), "{words}: {said}");
        if let Some(name) = name {
            nas.run_ok(&format!("zfs list {name}"));
        }
    }
    let get = |words: &str| nas.run_ok(&format!("zfs get -Ho value,source {words}"));
    assert_eq!(get("recordsize tank/in/exact"), "1M\treceived\n");
    assert_eq!(get("recordsize tank/in/set"), "128K\tdefault\n");
    assert_eq!(get("atime tank/in/set"), "on\tlocal\n");
}

#[test]
fn cut_stream_is_resumed_by_its_token() {
    let nas = import_sent("again");
    let whole = std::fs::read(fixtures::load("sent").dir.join("full.zstream")).unwrap();
    let path = nas.0.join("cut.zstream");
    std::fs::write(&path, &whole[..300_000]).unwrap();
    let (status, said) = receive_file(&nas, "zfs receive -su tank/copy", &path);
    let token = nas.run_ok("zfs get -Ho value receive_resume_token tank/copy");
    assert!(status == 1 && said.contains(token.trim()), "{said}");
    let rest = nas.run_ok(&format!("zfs send -nvPt {token}"));
    assert!(rest.contains("\n\ttoname = tank/from@one\n"), "{rest}");
    assert!(rest.contains("\nfull\ttank/from@one\t29"), "{rest}");
    let (status, said) = receive_file(&nas, "zfs receive -u tank/copy", &path);
    assert!(status == 1 && said.contains("partially-complete state"), "{said}");
    send_to_file(&nas, &format!("zfs send -t {token}"));
    let (status, said) =
        receive_file(&nas, "zfs receive -su tank/copy", &nas.0.join("sent.zstream"));
    assert_eq!((status, said.as_str()), (0, ""));
    let guids = nas.run_ok("zfs get -Ho value guid tank/copy@one tank/from@one");
    assert!(guids.lines().next() == guids.lines().nth(1), "{guids}");
    nas.run_failing("zfs receive -A tank/copy", 1);
}

#[test]
fn held_snapshots_are_not_destroyed() {
    let nas = import_sent("holds");
    nas.run_ok("zfs hold -r keep tank@two");
    let said = nas.run_failing("zfs hold keep tank/from@two", 1);
    assert!(said.contains("tag already exists"), "{said}");
    nas.run_failing("zfs destroy tank/from@two", 1);
    let listed = nas.run_ok("zfs holds -rH tank@two");
    let columns = |line: &str| line.split('\t').take(2).collect::<Vec<_>>().join(" ");
    let listed: Vec<_> = listed.lines().map(columns).collect();
    assert_eq!(
        listed,
        ["tank@two keep", "tank/clone@two keep", "tank/from@two keep", "tank/volume@two keep"]
    );
    nas.run_ok("zfs destroy -d tank/from@two");
    nas.run_ok("zfs release -r keep tank@two");
    nas.run_failing("zfs list tank/from@two", 1);
    nas.run_failing("zfs release keep tank/volume@two", 1);
    nas.run_ok("zfs destroy tank/volume@two");
}

#[test]
fn diff_reports_what_openzfs_reports() {
    let nas = import_sent("diff");
    let top = nas.altroot().join("tank/from");
    let top = path_arg(&top);
    let modified = |kind: &str, path: &str| format!("M\t{kind}\t{top}{path}");
    let removed = |number: u32| format!("-\tF\t{top}/folder/many-{number}");
    let mut expected = vec![
        modified("/", "/folder"),
        modified("F", "/folder/numbers"),
        modified("F", "/folder/hardlink"),
        modified("F", "/sparse"),
        format!("R\tF\t{top}/folder/many-1\t{top}/moved"),
    ];
    expected.extend((10..=26).map(removed));
    expected.push(modified("/", "/"));
    expected.extend((27..=40).map(removed));
    expected.push(format!("+\tF\t{top}/new"));
    expected.push(format!("-\tF\t{top}/embedded"));
    expected.push(modified("F", "/large"));
    let found = nas.run_ok("zfs diff -FH tank/from@one tank/from@two");
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    let found = nas.run_ok("zfs diff -t tank/from@one @two");
    assert!(found.contains(&format!("R\t{top}/folder/many-1 -> {top}/moved")), "{found}");
    assert!(found.starts_with("1795766041.856000000\tM\t"), "{found}");
    assert_eq!(nas.run_ok("zfs diff tank/from@two"), "");
    nas.run_failing("zfs diff tank/from@one tank/clone@two", 1);
    let said = nas.run_failing("zfs diff tank/from@two tank/from@one", 1);
    assert!(said.contains("Not an earlier snapshot from the same fs"), "{said}");
}

#[test]
fn mounted_file_system_shows_received_changes() {
    if cannot_mount() {
        return;
    }
    let nas = import_sent("inuse");
    let stream = |name: &str| fixtures::load("sent").dir.join(name);
    let (status, said) = receive_file(&nas, "zfs receive tank/copy", &stream("full.zstream"));
    assert_eq!((status, said.as_str()), (0, ""));
    let dir = nas.altroot().join("tank/copy");
    let open = File::open(dir.join("folder/numbers")).unwrap();
    assert!(dir.join("folder/many-20").exists() && !dir.join("new").exists());
    let (status, said) =
        receive_file(&nas, "zfs receive -F tank/copy", &stream("incremental.zstream"));
    assert_eq!((status, said.as_str()), (0, ""));
    // the file that is open is the one of the snapshot now
    let mut numbers = String::new();
    (&open).read_to_string(&mut numbers).unwrap();
    assert!(numbers == std::fs::read_to_string(dir.join("folder/numbers")).unwrap());
    assert!(!dir.join("folder/many-20").exists() && dir.join("new").exists());
    std::fs::write(dir.join("own"), "mine").unwrap();
    assert_eq!(std::fs::read(dir.join("own")).unwrap(), b"mine");
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
    // a dry run reads to the end, too
    let (status, said) = receive_file(&nas, "zfs recv -n tank/copy", &path);
    assert!(status == 1 && said.contains("ends too early"), "{said}");
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

#[test]
fn raw_tree_opens_with_the_senders_key() {
    let nas = import_fixture("rawtree", "sent-raw");
    send_to_file(&nas, "zfs send -w -R -X tank/secret/clone tank/secret@two");
    let stream = nas.0.join("sent.zstream");
    let (status, said) = receive_file(&nas, "zfs receive -u tank/safe", &stream);
    assert_eq!((status, said.as_str()), (0, ""), "{}", nas.read_log());
    let get =
        |property: &str, name: &str| nas.run_ok(&format!("zfs get -Ho value {property} {name}"));
    for name in ["tank/safe", "tank/safe/child", "tank/safe/volume"] {
        assert_eq!(get("encryptionroot", name), "tank/safe\n", "{name}");
        assert_eq!(get("keystatus", name), "unavailable\n", "{name}");
    }
    // the place of the key is that of the sender, as OpenZFS sets it
    assert_eq!(get("keylocation", "tank/safe"), "file:///run/keys/tank_secret\n");
    assert_eq!(get("keylocation", "tank/safe/child"), "none\n");
    nas.run_failing("zfs list tank/safe/clone", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    nas.run_ok(&format!("zfs load-key -L file://{} tank/safe", path_arg(&key)));
    assert_eq!(get("keystatus", "tank/safe/child"), "available\n");
}

#[test]
fn holds_travel_with_the_stream() {
    let nas = import_fixture("sent-holds", "sent-raw");
    send_to_file(&nas, "zfs send -h tank/plain@one");
    let stream = nas.0.join("sent.zstream");
    for (receive, target) in [("zfs receive -u", "tank/held"), ("zfs receive -u -h", "tank/free")] {
        let (status, said) = receive_file(&nas, &format!("{receive} {target}"), &stream);
        assert_eq!((status, said.as_str()), (0, ""));
    }
    assert!(nas.run_ok("zfs holds -H tank/held@one").contains("keep"));
    assert_eq!(nas.run_ok("zfs holds -H tank/free@one"), "");
}

#[test]
fn redacted_copy_is_mounted_when_complete() {
    let nas = import_sent("redacted");
    if cannot_mount() {
        return;
    }
    let root = nas.altroot();
    nas.run_ok("zfs create -o mountpoint=/src -o recordsize=4K tank/src");
    let secret = vec![b's'; 20_000];
    std::fs::write(root.join("src/secret"), &secret).unwrap();
    std::fs::write(root.join("src/public"), "for all").unwrap();
    nas.run_ok("zfs snapshot tank/src@all");
    nas.run_ok("zfs clone -o mountpoint=/censored tank/src@all tank/censored");
    std::fs::write(root.join("censored/secret"), vec![b'x'; 20_000]).unwrap();
    nas.run_ok("zfs snapshot tank/censored@done");
    nas.run_ok("zfs redact tank/src@all public tank/censored@done");
    let said = nas.run_failing("zfs redact tank/src@all public tank/censored@done", 1);
    assert!(said.contains("already exists"), "{said}");
    nas.run_failing("zfs send --redact none tank/src@all", 1);
    let stream = send_to_file(&nas, "zfs send --redact public tank/src@all");
    assert!(!stream.windows(100).any(|bytes| bytes == &secret[..100]));
    let receive = |words: &str| receive_file(&nas, words, &nas.0.join("sent.zstream"));
    assert_eq!(receive("zfs receive -o mountpoint=/copy tank/copy"), (0, String::new()));
    assert!(!root.join("copy/public").exists(), "a redacted file system is not mounted");
    nas.run_failing("zfs mount tank/copy", 1);
    send_to_file(&nas, "zfs send -i tank/src@all tank/censored@done");
    assert_eq!(receive("zfs receive -o mountpoint=/clean tank/clean"), (0, String::new()));
    assert_eq!(std::fs::read(root.join("clean/public")).unwrap(), b"for all");
    assert_eq!(std::fs::read(root.join("clean/secret")).unwrap(), vec![b'x'; 20_000]);
    nas.run_ok("zfs snapshot tank/src@more");
    send_to_file(&nas, "zfs send -i '#public' tank/src@more".replace('\'', "").as_str());
    assert_eq!(receive("zfs receive tank/copy"), (0, String::new()));
    assert_eq!(std::fs::read(root.join("copy/secret")).unwrap(), secret);
}

#[test]
fn streams_in_files_are_checked() {
    let dir = fixtures::load("sent-raw").dir;
    let file = dir.join("raw-tree.zstream");
    let said = run_ok(&["stream", "check", path_arg(&file)]);
    assert!(said.contains("it has 3 snapshots"), "{said}");
    // a stream of a partially received dataset has no end
    let saved = dir.join("saved.zstream");
    let cut = run(&["stream", "check", path_arg(&saved)]);
    assert_eq!(cut.status, 14, "{}", cut.stderr);
    assert!(cut.stderr.contains("ends too early"), "{}", cut.stderr);
}
