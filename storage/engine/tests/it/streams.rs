//! Streams of OpenZFS received, and sent again: the same objects, attributes and blocks. A stream that
//! is damaged, cut or hostile leaves the pool as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::dataset::DatasetQuery;
use engine::pool::{self, Environment, Pool, ReceiveRequest, SendRequest, VdevLayout};
use ondisk::stream::{CHECKSUM_OFFSET, RECORD_SIZE, RawRecord, Record};

use crate::test_pool::{
    TempDir, check_pool, environment, new_pool, read_file, write_file, write_to,
};

/// A pool on a file, which zdb can examine.
pub(crate) fn create_pool(name: &str) -> (Pool, TempDir) {
    let folder = TempDir::new(name, 1, 128 << 20);
    let new = new_pool(&folder, VdevLayout::Single, 1);
    (pool::create(&new, &environment()).unwrap(), folder)
}

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load("sent").dir.join(name)).unwrap()
}

pub(crate) fn receive(
    pool: &Pool,
    target: &str,
    stream: &[u8],
) -> Result<pool::Received, engine::Error> {
    let request = ReceiveRequest { target: target.to_owned(), ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &*stream)
}

fn send(pool: &Pool, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    let request = SendRequest {
        snapshot: snapshot.to_owned(),
        base: base.map(str::to_owned),
        large_blocks: true,
        ..SendRequest::default()
    };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).unwrap();
    stream
}

/// Objects and their data, however these are cut into blocks.
#[derive(Default)]
struct Contents {
    /// OBJECT and SPILL records with their payloads.
    objects: Vec<(Record, Vec<u8>)>,
    /// Sectors that are not zeros, by object and offset.
    sectors: BTreeMap<(u64, u64), Vec<u8>>,
}

fn contents(stream: &[u8]) -> Contents {
    let mut reader = send::StreamReader::new(stream);
    let mut found = Contents::default();
    while let Some(next) = reader.next_record().unwrap() {
        match next.record {
            Record::Object(_) | Record::Spill(_) => found.objects.push((next.record, next.payload)),
            Record::Write(write) => {
                for (index, sector) in (0_u64..).zip(next.payload.chunks(512)) {
                    let at = (write.object, write.offset + index * 512);
                    if sector.iter().any(|byte| *byte != 0) {
                        assert_eq!(found.sectors.insert(at, sector.to_vec()), None, "sent twice");
                    }
                }
            }
            _ => {}
        }
    }
    assert!(!found.objects.is_empty() && !found.sectors.is_empty());
    found
}

/// Every dataset and snapshot, hidden ones apart.
fn names(pool: &Pool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let query = DatasetQuery::default();
    let mut trouble = Vec::new();
    let show = &mut |dataset: engine::dataset::Dataset| {
        names.insert(dataset.name);
    };
    pool.datasets().list("tank", &query, show, &mut |event| trouble.push(event)).unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    names
}

fn assert_same_contents(name: &str, sent: &[u8], again: &[u8]) {
    let (sent, again) = (contents(sent), contents(again));
    for (one, other) in sent.objects.iter().zip(&again.objects) {
        assert_eq!(one.0, other.0, "{name}");
        assert!(one.1 == other.1, "{name}: payload of {:?}", one.0);
    }
    assert_eq!(sent.objects.len(), again.objects.len(), "{name}");
    let differs = sent.sectors.iter().zip(&again.sectors).find(|(one, other)| one != other);
    let differs = differs.map(|(one, other)| (one.0, other.0));
    assert_eq!(differs, None, "{name}: object and offset");
    assert_eq!(sent.sectors.len(), again.sectors.len(), "{name}");
}

#[test]
fn received_snapshots_equal_those_sent() {
    let (pool, folder) = create_pool("received");
    let done = receive(&pool, "tank/from", &recorded("large.zstream")).unwrap();
    assert_eq!(done.snapshot, "tank/from@one");
    assert!(!done.is_incremental);
    assert_same_contents("full", &recorded("large.zstream"), &send(&pool, "tank/from@one", None));
    let numbers: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    assert!(read_file(&pool, "tank/from", "large") == numbers.as_bytes());
    // a stream with every flag, on top of one that is open
    let incremental = recorded("all-flags-incremental.zstream");
    assert!(receive(&pool, "tank/from", &incremental).unwrap().is_incremental);
    assert!(read_file(&pool, "tank/from", "large") != numbers.as_bytes());
    receive(&pool, "tank/whole", &recorded("all-flags.zstream")).unwrap();
    receive(&pool, "tank/whole", &incremental).unwrap();
    let [one, other] = ["tank/from", "tank/whole"]
        .map(|name| send(&pool, &format!("{name}@two"), Some(&format!("{name}@one"))));
    assert_same_contents("incremental", &one, &other);
    receive(&pool, "tank/clone", &recorded("clone.zstream")).unwrap();
    receive(&pool, "tank/volume", &recorded("volume.zstream")).unwrap();
    receive(&pool, "tank/volume", &recorded("volume-incremental.zstream")).unwrap();
    let again = send(&pool, "tank/volume@two", Some("tank/volume@one"));
    assert_same_contents("volume", &recorded("volume-incremental.zstream"), &again);
    close_and_check(pool, &folder);
}

#[test]
fn streams_without_large_blocks_are_received() {
    let (pool, folder) = create_pool("plain");
    receive(&pool, "tank/from", &recorded("full.zstream")).unwrap();
    assert_same_contents("full", &recorded("full.zstream"), &send(&pool, "tank/from@one", None));
    receive(&pool, "tank/from", &recorded("incremental.zstream")).unwrap();
    let again = send(&pool, "tank/from@two", Some("tank/from@one"));
    assert_same_contents("incremental", &recorded("incremental.zstream"), &again);
    // the object keeps its smaller blocks when large ones follow
    receive(&pool, "tank/switch", &recorded("full.zstream")).unwrap();
    receive(&pool, "tank/switch", &recorded("all-flags-incremental.zstream")).unwrap();
    let [one, other] =
        ["from", "switch"].map(|fs| read_file(&pool, &format!("tank/{fs}"), "large"));
    assert!(one == other);
    close_and_check(pool, &folder);
}

#[test]
fn receive_refuses_what_would_lose_data() {
    let (pool, _folder) = create_pool("refused");
    let (full, incremental) = (recorded("full.zstream"), recorded("incremental.zstream"));
    let refusal =
        |target: &str, stream: &[u8]| receive(&pool, target, stream).unwrap_err().to_string();
    assert!(refusal("tank/from", &incremental).contains("does not exist"));
    receive(&pool, "tank/from", &full).unwrap();
    assert!(refusal("tank/from", &full).contains("must specify -F to overwrite it"));
    write_file(&pool, "tank/from", "mine", b"written here");
    assert!(refusal("tank/from", &incremental).contains("modified"));
    assert_eq!(read_file(&pool, "tank/from", "mine"), b"written here");
    let force =
        ReceiveRequest { target: "tank/from".to_owned(), force: true, ..ReceiveRequest::default() };
    pool.streams().receive(&force, &mut &*incremental).unwrap();
    assert!(refusal("tank/from", &incremental).contains("newer snapshots"));
    assert!(refusal("tank/other", b"no stream").contains("not a ZFS send stream"));
}

#[test]
fn damaged_or_cut_stream_changes_nothing() {
    let (pool, folder) = create_pool("damaged");
    let (full, incremental) = (recorded("full.zstream"), recorded("incremental.zstream"));
    receive(&pool, "tank/from", &full).unwrap();
    let before = names(&pool);
    for (target, stream) in [("tank/new", &full), ("tank/from", &incremental)] {
        for part in 1..9 {
            let at = stream.len() / 9 * part;
            let mut bytes = stream.clone();
            bytes[at] ^= 1;
            assert!(receive(&pool, target, &bytes).is_err(), "{target}: byte {at} was changed");
            assert!(receive(&pool, target, &stream[..at]).is_err(), "{target}: cut at {at}");
            assert_eq!(names(&pool), before, "{target}: at {at}");
        }
    }
    receive(&pool, "tank/from", &incremental).unwrap();
    close_and_check(pool, &folder);
}

/// Recomputes every checksum of a stream, as far as its records can be read.
pub(crate) fn reseal(stream: &mut [u8]) {
    let (mut sum, mut at) = (simd::fletcher::Fletcher4::new(false), 0);
    while let Some(record) = stream.get_mut(at..at + RECORD_SIZE) {
        let Ok(raw) = RawRecord::parse(record, ondisk::Order::Little) else { return };
        if let Record::End(_) = raw.record {
            for (field, word) in record[8..40].chunks_exact_mut(8).zip(sum.finish()) {
                field.copy_from_slice(&word.to_le_bytes());
            }
        }
        sum.update(&record[..CHECKSUM_OFFSET]);
        if !matches!(raw.record, Record::Begin(_)) {
            let words = sum.finish();
            for (field, word) in record[CHECKSUM_OFFSET..].chunks_exact_mut(8).zip(words) {
                field.copy_from_slice(&word.to_le_bytes());
            }
        }
        sum.update(&record[CHECKSUM_OFFSET..]);
        let end = at + RECORD_SIZE + usize::try_from(raw.payload_length).unwrap();
        let Some(payload) = stream.get(at + RECORD_SIZE..end) else { return };
        sum.update(payload);
        at = end;
    }
}

/// Where the records of a stream begin.
pub(crate) fn record_offsets(stream: &[u8]) -> Vec<usize> {
    let mut reader = send::StreamReader::new(stream);
    let mut found = Vec::new();
    while let Some(next) = reader.next_record().unwrap() {
        found.push(usize::try_from(next.at).unwrap());
    }
    found
}

/// Exports a pool, which has no errors then.
pub(crate) fn close_and_check(pool: Pool, folder: &TempDir) {
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(folder, "tank"), Vec::<String>::new());
}

/// Receives an increment with changed fields, 90 times. The dataset goes back after each that was received.
/// `field_bytes`: bytes of a record behind its type and length that change.
pub(crate) fn receive_mutants(pool: &Pool, target: &str, stream: &[u8], field_bytes: usize) {
    let records = record_offsets(stream);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut refused, mut received) = (0, 0);
    for round in 0..90 {
        let mut bytes = stream.to_vec();
        for _ in 0..=round % 3 {
            let record = records[1 + next(records.len() - 2)];
            let field = record + if next(6) == 0 { next(4) } else { 8 + next(field_bytes) };
            bytes[field] = u8::try_from([0, 1, 0x80, 0xff, next(256)][next(5)]).unwrap();
        }
        reseal(&mut bytes);
        match receive(pool, target, &bytes) {
            Err(_) => refused += 1,
            Ok(done) => {
                received += 1;
                pool.datasets().destroy(&done.snapshot).unwrap();
                pool.snapshots().rollback(target).unwrap();
            }
        }
    }
    assert!(refused > 12 && received > 3, "{refused} refused, {received} received");
}

#[test]
fn hostile_stream_never_harms_the_pool() {
    let (pool, folder) = create_pool("hostile");
    receive(&pool, "tank/from", &recorded("full.zstream")).unwrap();
    let stream = recorded("incremental.zstream");
    receive_mutants(&pool, "tank/from", &stream, 60);
    receive(&pool, "tank/from", &stream).unwrap();
    let again = send(&pool, "tank/from@two", Some("tank/from@one"));
    assert_same_contents("after all", &stream, &again);
    close_and_check(pool, &folder);
}

/// Runs a function once, from the sync thread, after it was armed.
#[derive(Clone, Default)]
struct SyncHook(Arc<Mutex<Option<Work>>>);

type Work = Box<dyn FnOnce() + Send>;

impl SyncHook {
    /// The environment of a pool whose syncs run the hook: each reads the time when it begins.
    fn environment(&self) -> Environment {
        let (hook, environment) = (self.clone(), environment());
        let now = Arc::clone(&environment.now);
        let now = Arc::new(move || {
            let armed = hook.0.lock().unwrap().take();
            if let Some(run) = armed {
                run();
            }
            now()
        });
        Environment { now, ..environment }
    }
}

/// A stream that arms a hook when its last byte is read.
struct ArmingStream<'a> {
    stream: &'a [u8],
    hook: SyncHook,
    run: Option<Work>,
}

impl Read for ArmingStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.stream.read(into)?;
        if self.stream.is_empty() {
            *self.hook.0.lock().unwrap() = self.run.take();
        }
        Ok(count)
    }
}

#[test]
fn receive_never_discards_a_concurrent_write() {
    let hook = SyncHook::default();
    let folder = TempDir::new("concurrent", 1, 128 << 20);
    let new = new_pool(&folder, VdevLayout::Single, 1);
    let pool = pool::create(&new, &hook.environment()).unwrap();
    receive(&pool, "tank/from", &recorded("full.zstream")).unwrap();
    let files = pool.datasets().filesystem("tank/from").unwrap();
    let (done, result) = std::sync::mpsc::channel();
    // the write begins while the txg is written in which the receive ends
    let run = Box::new(move || {
        std::thread::spawn(move || done.send(write_to(&files, "mine", b"written here")));
        std::thread::sleep(Duration::from_millis(300));
    });
    let incremental = recorded("incremental.zstream");
    let mut stream = ArmingStream { stream: &incremental, hook, run: Some(run) };
    let request = ReceiveRequest { target: "tank/from".to_owned(), ..ReceiveRequest::default() };
    let received = pool.streams().receive(&request, &mut stream);
    let written = result.recv_timeout(Duration::from_mins(1)).expect("the write ends");
    match (received, written) {
        (Ok(_), Err(_)) => {}
        (_, Ok(())) => assert_eq!(read_file(&pool, "tank/from", "mine"), b"written here"),
        (Err(why), Err(_)) => panic!("neither was done: {why}"),
    }
}
