//! Redaction bookmarks and redacted streams, compared with those of OpenZFS.

use std::collections::BTreeMap;

use engine::pool::{self, Pool, ReceiveRequest, SendRequest};
use ondisk::stream::Record;

use crate::streams::{close_and_check, create_pool, receive};
use crate::test_pool::{TempDir, environment, read_file};

/// The pool of a fixture.
fn import_fixture(name: &str, fixture: &str) -> (Pool, TempDir) {
    let folder = TempDir::new(name, 0, 0);
    let fixture = fixtures::load(fixture);
    std::fs::copy(&fixture.images()[0], folder.path().join("d0.img")).unwrap();
    (import(&folder), folder)
}

fn import(folder: &TempDir) -> Pool {
    pool::import(&[folder.path().to_owned()], "tank", true, &environment()).unwrap()
}

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load("sent-raw").dir.join(name)).unwrap()
}

fn send(pool: &Pool, snapshot: &str, base: Option<&str>, redact: Option<&str>) -> Vec<u8> {
    let request = SendRequest {
        snapshot: snapshot.to_owned(),
        base: base.map(str::to_owned),
        redact: redact.map(str::to_owned),
        ..SendRequest::default()
    };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).unwrap();
    stream
}

fn assert_same_stream(name: &str, theirs: &[u8], ours: &[u8]) {
    if theirs == ours {
        return;
    }
    let mut readers = [theirs, ours].map(send::StreamReader::new);
    loop {
        let records = readers.each_mut().map(|reader| reader.next_record().unwrap());
        let [theirs, ours] = records.map(|it| it.expect("a record"));
        assert_eq!(theirs.record, ours.record, "{name} at {}", theirs.at);
        assert!(theirs.payload == ours.payload, "{name}: {}", send::describe_record(&theirs));
    }
}

/// Bytes of a stream that REDACT records cover.
fn redacted_bytes(stream: &[u8]) -> u64 {
    let (mut reader, mut sum) = (send::StreamReader::new(stream), 0);
    while let Some(next) = reader.next_record().unwrap() {
        if let Record::Redact(range) = next.record {
            sum += range.length;
        }
    }
    sum
}

/// Redacts a snapshot again as OpenZFS did, and compares the streams.
fn compare_lists(pool: &Pool, snapshot: &str, theirs: &str, others: &[String]) {
    pool.streams().redact(snapshot, "ours", others).unwrap();
    let theirs = send(pool, snapshot, None, Some(theirs));
    assert_same_stream(snapshot, &theirs, &send(pool, snapshot, None, Some("ours")));
    assert!(redacted_bytes(&theirs) > 0);
}

#[test]
fn redaction_lists_equal_those_of_openzfs() {
    let (pool, folder) = import_fixture("redactlist", "received");
    let censored = ["tank/censored@done".to_owned()];
    compare_lists(&pool, "tank/from@a", "public", &censored);
    let refused = |snapshot: &str, name: &str, others: &[String]| {
        pool.streams().redact(snapshot, name, others).unwrap_err().to_string()
    };
    let why = refused("tank/from@a", "ours", &censored);
    assert!(why.contains("(ours) provided already exists"), "{why}");
    let why = refused("tank/from@b", "more", &censored);
    assert!(why.contains("must be descendent of snapshot being redacted"), "{why}");
    // more snapshots than fit a bonus
    let others: Vec<String> = (1..=60).map(|number| format!("tank/censored@{number}")).collect();
    pool.snapshots().create(&others[..1]).unwrap();
    for other in &others[1..] {
        pool.snapshots().create(std::slice::from_ref(other)).unwrap();
    }
    pool.streams().redact("tank/from@a", "many", &others).unwrap();
    let [one, many] =
        ["ours", "many"].map(|mark| redacted_bytes(&send(&pool, "tank/from@a", None, Some(mark))));
    assert_eq!(one, many);
    close_and_check(pool, &folder);
    let pool = import(&folder);
    pool.datasets().destroy("tank/from#many").unwrap();
    close_and_check(pool, &folder);
}

#[test]
fn redaction_lists_of_many_files_are_equal() {
    // only where all fixtures are
    if !fixtures::exists("redacted") {
        return;
    }
    let (pool, folder) = import_fixture("redactmany", "redacted");
    compare_lists(&pool, "tank/whole@a", "public", &["tank/censored@done".to_owned()]);
    close_and_check(pool, &folder);
}

#[test]
fn redacted_streams_equal_those_of_openzfs() {
    let (pool, _folder) = import_fixture("redactsend", "sent-raw");
    let ours = send(&pool, "tank/plain@one", None, Some("public"));
    assert_same_stream("redacted", &recorded("redacted.zstream"), &ours);
    let ours = send(&pool, "tank/plain@two", Some("tank/plain#public"), None);
    assert_same_stream("from redaction", &recorded("from-redaction.zstream"), &ours);
    for (redact, words) in
        [("none", "nonexistent redaction bookmark provided"), ("one", "nonexistent")]
    {
        let request = SendRequest {
            snapshot: "tank/plain@one".to_owned(),
            redact: Some(redact.to_owned()),
            ..SendRequest::default()
        };
        let why = pool.streams().send(&request, &mut Vec::new()).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn redacted_copy_is_completed_by_an_increment() {
    let (sender, _sent) = import_fixture("redactfrom", "sent-raw");
    let (pool, folder) = create_pool("redactcopy");
    receive(&pool, "tank/copy", &recorded("redacted.zstream")).unwrap();
    assert!(pool.datasets().incomplete_kind("tank/copy").unwrap().is_some());
    // the increment from the snapshot itself lacks the redacted blocks
    let plain = send(&sender, "tank/plain@two", Some("tank/plain@one"), None);
    let why = receive(&pool, "tank/copy", &plain).unwrap_err().to_string();
    assert!(why.contains("it is redacted"), "{why}");
    // a copy of the redacted copy is redacted, too
    let again = send(&pool, "tank/copy@one", None, None);
    receive(&pool, "tank/second", &again).unwrap();
    assert!(pool.datasets().incomplete_kind("tank/second").unwrap().is_some());
    receive(&pool, "tank/copy", &recorded("from-redaction.zstream")).unwrap();
    assert_eq!(pool.datasets().incomplete_kind("tank/copy").unwrap(), None);
    let same = read_file(&sender, "tank/plain", "numbers");
    assert!(read_file(&pool, "tank/copy", "numbers") == same);
    // one of the redaction snapshots becomes a clone of the redacted snapshot
    let clone = send(&sender, "tank/censored@done", Some("tank/plain@one"), None);
    receive(&pool, "tank/censored", &clone).unwrap();
    assert_eq!(read_file(&pool, "tank/censored", "numbers").len(), 51);
    close_and_check(pool, &folder);
}

#[test]
fn unchanged_redacted_blocks_are_sent_from_bookmark() {
    let (sender, _sent) = import_fixture("redactsame", "received");
    let (pool, folder) = create_pool("redactwhole");
    let redacted = send(&sender, "tank/from@a", None, Some("public"));
    receive(&pool, "tank/copy", &redacted).unwrap();
    sender.snapshots().create(&["tank/from@c".to_owned()]).unwrap();
    let rest = send(&sender, "tank/from@c", Some("tank/from#public"), None);
    receive(&pool, "tank/copy", &rest).unwrap();
    assert_eq!(pool.datasets().incomplete_kind("tank/copy").unwrap(), None);
    let [theirs, ours] = [(&sender, "tank/from@c"), (&pool, "tank/copy@c")]
        .map(|(pool, name)| blocks(&send(pool, name, None, None)));
    assert!(theirs == ours);
    close_and_check(pool, &folder);
}

/// The data of a stream by object and offset, without holes.
fn blocks(stream: &[u8]) -> BTreeMap<(u64, u64), Vec<u8>> {
    let (mut reader, mut found) = (send::StreamReader::new(stream), BTreeMap::new());
    while let Some(next) = reader.next_record().unwrap() {
        if let Record::Write(write) = next.record {
            found.insert((write.object, write.offset), next.payload);
        }
    }
    found
}

#[test]
fn cut_redacted_receive_is_resumed() {
    let (sender, _sent) = import_fixture("redactcut", "received");
    let (pool, folder) = create_pool("redactresume");
    let whole = send(&sender, "tank/from@a", None, Some("public"));
    let target = "tank/copy".to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &whole[..whole.len() / 2]).unwrap_err();
    let token = pool.streams().resume_token("tank/copy").unwrap().expect("a token");
    let resumed = SendRequest { resume: Some(token), ..SendRequest::default() };
    let mut rest = Vec::new();
    sender.streams().send(&resumed, &mut rest).unwrap();
    assert!(rest.len() < whole.len());
    pool.streams().receive(&request, &mut &*rest).unwrap();
    assert!(pool.datasets().incomplete_kind("tank/copy").unwrap().is_some());
    let [theirs, ours] = [&whole, &send(&pool, "tank/copy@a", None, None)].map(|it| blocks(it));
    assert!(theirs == ours);
    close_and_check(pool, &folder);
}
