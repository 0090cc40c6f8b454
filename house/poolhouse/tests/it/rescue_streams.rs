//! Files are read out of send streams, without a pool and without a daemon.

use std::path::{Path, PathBuf};

use crate::command::{path_arg, run, run_ok};

fn stream(fixture: &str, name: &str) -> PathBuf {
    fixtures::load(fixture).dir.join(name)
}

fn numbers(last: u32) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

/// Runs `rescue` on streams, whose contents go into a folder.
fn rescue(words: &[&str], streams: &[PathBuf], space: &Path) -> Vec<String> {
    let mut args: Vec<String> = vec!["rescue".to_owned()];
    args.extend(words.iter().map(|word| (*word).to_owned()));
    for stream in streams {
        args.extend(["--stream".to_owned(), path_arg(stream).to_owned()]);
    }
    args.extend(["--space".to_owned(), path_arg(space).to_owned()]);
    args
}

fn as_words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn streams_are_read_like_pools() {
    let space = fixtures::scratch_dir("rescue-streams");
    let both = [stream("sent", "full.zstream"), stream("sent", "incremental.zstream")];
    let ours = |words: &[&str]| run_ok(&as_words(&rescue(words, &both, &space)));
    assert_eq!(ours(&["cat", "tank/from@one:/folder/numbers"]), numbers(9000));
    assert_eq!(ours(&["cat", "tank/from@two:/new"]), numbers(20));
    let listed = ours(&["ls", "tank/from@two:/"]);
    assert!(listed.contains("moved") && !listed.contains("embedded"), "{listed}");
    let listed = ours(&["list", "-H", "-o", "name", "-t", "snapshot", "tank"]);
    assert_eq!(listed, "tank/from@one\ntank/from@two\n");
    let saved = space.join("saved");
    ours(&["get", "-q", "tank/from@two:/", path_arg(&saved)]);
    assert_eq!(std::fs::read_to_string(saved.join("small")).unwrap(), numbers(30));
    std::fs::remove_dir_all(&saved).unwrap();
    // a compound stream
    let one = [stream("sent", "properties.zstream")];
    let found = run_ok(&as_words(&rescue(&["cat", "tank/from@one:/small"], &one, &space)));
    assert_eq!(found, numbers(30));
    assert!(is_empty(&space), "nothing is left behind");
}

#[test]
fn raw_streams_are_read_with_their_key() {
    let space = fixtures::scratch_dir("rescue-raw-streams");
    let key = fixtures::scratch_dir("rescue-raw-key").join("key");
    std::fs::write(&key, "correct horse battery staple").unwrap();
    let tree = [stream("sent-raw", "raw-tree.zstream")];
    let mut args = rescue(&["cat", "tank/secret@one:/small"], &tree, &space);
    assert_eq!(run(&as_words(&args)).status, 9, "it is locked");
    args.extend(["--key".to_owned(), format!("tank/secret={}", path_arg(&key))]);
    assert_eq!(run_ok(&as_words(&args)), numbers(30));
    assert!(is_empty(&space));
}

#[test]
fn unusable_streams_leave_nothing_behind() {
    let space = fixtures::scratch_dir("rescue-bad-streams");
    let whole = std::fs::read(stream("sent", "full.zstream")).unwrap();
    let cut = fixtures::scratch_dir("rescue-cut").join("cut.zstream");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let says = |streams: &[PathBuf], part: &str| {
        let done = run(&as_words(&rescue(&["ls", "tank/from@one:/"], streams, &space)));
        assert!(done.status != 0 && done.stderr.contains(part), "{}", done.stderr);
    };
    says(&[cut], "incomplete stream");
    says(&[stream("sent", "incremental.zstream")], "an incremental stream needs it");
    says(&[stream("sent", "README")], "no such file");
    let other = fixtures::scratch_dir("rescue-other").join("other");
    std::fs::write(&other, [7; 4096]).unwrap();
    says(&[other], "not a ZFS send stream");
    assert!(is_empty(&space));
}
