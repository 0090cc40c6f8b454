//! Raw streams of OpenZFS received without a key: the datasets are sent again byte for byte, and open with the
//! user's key. A stream that is damaged, cut or hostile leaves the pool as it was.

use engine::pool::{Pool, ReceiveRequest, SendRequest};
use ondisk::stream::Record;

use crate::streams::{
    close_and_check, create_pool, receive, receive_mutants, record_offsets, reseal,
};
use crate::test_pool::{read_file, write_file};

const PASSPHRASE: &[u8] = b"correct horse battery staple";

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load("sent-raw").dir.join(name)).unwrap()
}

fn send_raw(pool: &Pool, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    let request = SendRequest {
        snapshot: snapshot.to_owned(),
        base: base.map(str::to_owned),
        raw: true,
        ..SendRequest::default()
    };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).unwrap();
    stream
}

fn assert_same_stream(name: &str, ours: &[u8]) {
    let theirs = recorded(name);
    if theirs == ours {
        return;
    }
    let mut readers = [&theirs[..], ours].map(send::StreamReader::new);
    loop {
        let records = readers.each_mut().map(|reader| reader.next_record().unwrap());
        let [theirs, ours] = records.map(|it| it.expect("a record"));
        assert_eq!(theirs.record, ours.record, "{name} at {}", theirs.at);
        assert!(theirs.payload == ours.payload, "{name}: {}", send::describe_record(&theirs));
    }
}

fn numbers(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn received_raw_snapshots_are_sent_again_unchanged() {
    let (pool, folder) = create_pool("rawagain");
    receive(&pool, "tank/secret", &recorded("raw.zstream")).unwrap();
    assert_same_stream("raw.zstream", &send_raw(&pool, "tank/secret@one", None));
    let incremental = recorded("raw-incremental.zstream");
    receive(&pool, "tank/secret", &incremental).unwrap();
    let base = Some("tank/secret@one");
    assert_same_stream("raw-incremental.zstream", &send_raw(&pool, "tank/secret@two", base));
    receive(&pool, "tank/secret/clone", &recorded("raw-clone.zstream")).unwrap();
    assert_same_stream("raw-clone.zstream", &send_raw(&pool, "tank/secret/clone@two", base));
    close_and_check(pool, &folder);
}

#[test]
fn received_raw_volumes_are_sent_again_unchanged() {
    let (pool, folder) = create_pool("rawvolume");
    receive(&pool, "tank/secret", &recorded("raw.zstream")).unwrap();
    receive(&pool, "tank/secret/volume", &recorded("raw-volume.zstream")).unwrap();
    receive(&pool, "tank/secret/volume", &recorded("raw-volume-incremental.zstream")).unwrap();
    let (snapshot, base) = ("tank/secret/volume@two", Some("tank/secret/volume@one"));
    assert_same_stream("raw-volume-incremental.zstream", &send_raw(&pool, snapshot, base));
    close_and_check(pool, &folder);
}

#[test]
fn received_raw_filesystem_opens_with_its_key() {
    let (pool, folder) = create_pool("rawkey");
    receive(&pool, "tank/secret", &recorded("raw.zstream")).unwrap();
    assert!(pool.keys().load("tank/secret", b"another phrase").is_err());
    pool.keys().load("tank/secret", PASSPHRASE).unwrap();
    assert_eq!(read_file(&pool, "tank/secret", "small"), numbers(30));
    assert_eq!(read_file(&pool, "tank/secret", "large"), numbers(60_000));
    // with the key loaded, an increment is still received as it is
    receive(&pool, "tank/secret", &recorded("raw-incremental.zstream")).unwrap();
    assert_eq!(read_file(&pool, "tank/secret", "new"), numbers(20));
    write_file(&pool, "tank/secret", "mine", b"written here");
    assert_eq!(read_file(&pool, "tank/secret", "mine"), b"written here");
    close_and_check(pool, &folder);
}

#[test]
fn raw_increment_of_another_dataset_is_refused() {
    let (pool, folder) = create_pool("rawother");
    receive(&pool, "tank/secret", &recorded("raw.zstream")).unwrap();
    pool.snapshots().create(&["tank/secret@mine".to_owned()]).unwrap();
    let refused = receive(&pool, "tank/secret", &recorded("raw-incremental.zstream"));
    assert!(refused.is_err(), "a newer snapshot is in the way");
    pool.datasets().destroy("tank/secret@mine").unwrap();
    let volume = receive(&pool, "tank/secret", &recorded("raw-volume-incremental.zstream"));
    assert!(volume.is_err(), "a stream of another dataset");
    receive(&pool, "tank/secret", &recorded("raw-incremental.zstream")).unwrap();
    close_and_check(pool, &folder);
}

#[test]
fn cut_raw_receive_is_resumed() {
    let (pool, folder) = create_pool("rawcut");
    let stream = recorded("raw.zstream");
    let target = "tank/secret".to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &stream[..60_000]).unwrap_err();
    let token = pool.streams().resume_token("tank/secret").unwrap().expect("a token");
    // the sender has the whole snapshot
    let (sender, _kept) = create_pool("rawcutsender");
    receive(&sender, "tank/secret", &stream).unwrap();
    let resumed = SendRequest { resume: Some(token), ..SendRequest::default() };
    let mut rest = Vec::new();
    sender.streams().send(&resumed, &mut rest).unwrap();
    assert!(rest.len() < stream.len());
    pool.streams().receive(&request, &mut &rest[..]).unwrap();
    assert_same_stream("raw.zstream", &send_raw(&pool, "tank/secret@one", None));
    close_and_check(pool, &folder);
}

#[test]
fn saved_part_of_raw_receive_is_sent() {
    let [(middle, first), (last, second), (sender, _kept)] =
        ["rawsaved", "rawsavedlast", "rawsavedsender"].map(create_pool);
    let stream = recorded("raw.zstream");
    receive(&sender, "tank/secret", &stream).unwrap();
    let target = "tank/secret".to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    middle.streams().receive(&request, &mut &stream[..60_000]).unwrap_err();
    let saved =
        SendRequest { snapshot: "tank/secret".to_owned(), saved: true, ..SendRequest::default() };
    let mut part = Vec::new();
    middle.streams().send(&saved, &mut part).unwrap();
    last.streams().receive(&request, &mut &part[..]).unwrap_err();
    let token = last.streams().resume_token("tank/secret").unwrap().expect("a token");
    let mut rest = Vec::new();
    let resumed = SendRequest { resume: Some(token), ..SendRequest::default() };
    sender.streams().send(&resumed, &mut rest).unwrap();
    assert!(rest.len() < stream.len());
    last.streams().receive(&request, &mut &rest[..]).unwrap();
    assert_same_stream("raw.zstream", &send_raw(&last, "tank/secret@one", None));
    last.keys().load("tank/secret", PASSPHRASE).unwrap();
    assert_eq!(read_file(&last, "tank/secret", "small"), numbers(30));
    close_and_check(last, &second);
    close_and_check(middle, &first);
}

#[test]
fn damaged_raw_stream_leaves_nothing() {
    let (pool, folder) = create_pool("rawdamaged");
    let stream = recorded("raw-child.zstream");
    for cut in record_offsets(&stream).into_iter().skip(1).step_by(7) {
        assert!(receive(&pool, "tank/child", &stream[..cut]).is_err());
        let mut bytes = stream.clone();
        bytes[cut + 20] ^= 1;
        assert!(receive(&pool, "tank/child", &bytes).is_err());
        assert!(pool.snapshots().list("tank/child").is_err(), "nothing is left of it");
    }
    receive(&pool, "tank/child", &stream).unwrap();
    close_and_check(pool, &folder);
}

#[test]
fn hostile_raw_stream_never_harms_the_pool() {
    let (pool, folder) = create_pool("rawhostile");
    receive(&pool, "tank/secret", &recorded("raw.zstream")).unwrap();
    let stream = recorded("raw-incremental.zstream");
    receive_mutants(&pool, "tank/secret", &stream, 64);
    receive(&pool, "tank/secret", &stream).unwrap();
    let base = Some("tank/secret@one");
    assert_same_stream("raw-incremental.zstream", &send_raw(&pool, "tank/secret@two", base));
    close_and_check(pool, &folder);
}

#[test]
fn raw_records_are_refused_in_plain_streams() {
    let (pool, folder) = create_pool("rawinplain");
    let stream = recorded("raw-child.zstream");
    let mut bytes = stream.clone();
    // the feature bit 24 of version_info, which begins behind the magic number
    let version_info = 16;
    bytes[version_info + 3] &= !(1 << 2);
    reseal(&mut bytes);
    let begin = send::StreamReader::new(&bytes[..]).next_record().unwrap().unwrap();
    let Record::Begin(begin) = begin.record else { panic!("no BEGIN") };
    assert!(!begin.features.has(ondisk::stream::StreamFeatures::RAW));
    assert!(receive(&pool, "tank/child", &bytes).is_err());
    close_and_check(pool, &folder);
}
