//! Corrective receives: damaged blocks of a snapshot are written again from a stream of it, and nothing else is.

use std::os::unix::fs::FileExt;

use engine::Error;
use engine::pool::{self, Healed, NewDataset, Pool, SendRequest, StreamInput, VdevLayout};
use ondisk::stream::Record;

use crate::shared_blocks::noise_bytes;
use crate::streams::{close_and_check, reseal};
use crate::test_pool::{TempDir, environment, new_pool, read_file, write_file};

const SECRET: &[u8] = b"correct horse battery staple";

/// A pool with `tank/plain` and the encrypted `tank/secret`, each with `@one`: a file that is not compressible, and one that
/// is.
fn create_pool(name: &str) -> (Pool, TempDir) {
    let folder = TempDir::new(name, 1, 128 << 20);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let new = |name: &str, properties: &[(&str, &str)]| NewDataset {
        name: name.to_owned(),
        properties: properties.iter().copied().map(pair).collect(),
    };
    pool.datasets().create_filesystem(&new("tank/plain", &[])).unwrap();
    let key = [("encryption", "on"), ("keyformat", "passphrase"), ("pbkdf2iters", "100000")];
    pool.datasets().create_filesystem_with(&new("tank/secret", &key), Some(SECRET)).unwrap();
    for filesystem in ["tank/plain", "tank/secret"] {
        write_file(&pool, filesystem, "noise", &noise_bytes(5, 700_000));
        write_file(&pool, filesystem, "text", &text());
        pool.snapshots().create(&[format!("{filesystem}@one")]).unwrap();
    }
    (pool, folder)
}

fn text() -> Vec<u8> {
    (0..60_000_u32).flat_map(|number| format!("{number} bottles\n").into_bytes()).collect()
}

fn send(pool: &Pool, request: &SendRequest) -> Vec<u8> {
    let mut stream = Vec::new();
    pool.streams().send(request, &mut stream).unwrap();
    stream
}

/// The blocks of large files in a stream, as they are stored if the stream is raw or compressed.
fn payloads(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = send::StreamReader::new(stream);
    let mut found = Vec::new();
    while let Some(next) = reader.next_record().unwrap() {
        // tables are compressed on the drive, and not in the stream
        let is_content = matches!(&next.record, Record::Write(write) if write.kind.0 == 19);
        if is_content && next.payload.len() >= 8192 {
            found.push(next.payload);
        }
    }
    found
}

/// Overwrites every second block on the drive. Returns how many.
fn damage(folder: &TempDir, blocks: &[Vec<u8>]) -> u64 {
    let drive = &folder.drives(1)[0];
    let bytes = std::fs::read(drive).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(drive).unwrap();
    let mut count = 0;
    for block in blocks.iter().step_by(2) {
        let mut sectors = (0..bytes.len()).step_by(512);
        let at = sectors.find(|at| bytes[*at..].starts_with(block)).expect("it is on the drive");
        file.write_all_at(&noise_bytes(77, 4096), at as u64 + 512).unwrap();
        count += 1;
    }
    count
}

fn import(folder: &TempDir) -> Pool {
    pool::import(&[folder.path().to_owned()], "tank", true, &environment()).unwrap()
}

fn heal(pool: &Pool, target: &str, dry_run: bool, stream: &[u8]) -> Result<Healed, Error> {
    let mut bytes = stream;
    let mut input = StreamInput::open(&mut bytes)?;
    pool.streams().heal(target, dry_run, &mut input)
}

fn can_read(pool: &Pool, filesystem: &str, name: &str) -> bool {
    let live = pool.datasets().filesystem(filesystem).unwrap();
    let file = live.reader().find(name.as_bytes()).unwrap().unwrap();
    let mut bytes = vec![0; usize::try_from(file.stat().size).unwrap()];
    file.content().read(0, &mut bytes).is_ok()
}

/// The forms in which a stream has the blocks: as they are stored, and as their files see them.
const FORMS: [(&str, bool, bool); 5] = [
    ("tank/plain", true, false),
    ("tank/plain", false, false),
    ("tank/secret", false, true),
    ("tank/secret", false, false),
    ("tank/secret", true, false),
];

#[test]
fn stream_heals_damaged_blocks_of_snapshot() {
    for (number, (filesystem, compressed, raw)) in FORMS.into_iter().enumerate() {
        let (pool, folder) = create_pool(&format!("heal{number}"));
        let snapshot = format!("{filesystem}@one");
        let form = SendRequest {
            snapshot: snapshot.clone(),
            large_blocks: true,
            ..SendRequest::default()
        };
        let stream = send(&pool, &SendRequest { compressed, raw, ..form.clone() });
        let is_secret = filesystem == "tank/secret";
        let stored = send(&pool, &SendRequest { compressed: true, raw: is_secret, ..form });
        pool.export().unwrap();
        drop(pool);
        let damaged = damage(&folder, &payloads(&stored));
        assert!(damaged > 3, "{damaged}");
        let pool = import(&folder);
        if is_secret && !raw {
            let locked = heal(&pool, &snapshot, false, &stream).unwrap_err();
            assert!(matches!(locked, Error::Locked { .. }), "{locked}");
            pool.keys().load(filesystem, SECRET).unwrap();
        }
        let counted = heal(&pool, &snapshot, true, &stream).unwrap();
        assert_eq!((counted.damaged, counted.repaired), (damaged, 0), "{filesystem}");
        // the snapshot of the stream is found by its guid
        let done = heal(&pool, filesystem, false, &stream).unwrap();
        assert_eq!((done.damaged, done.repaired), (damaged, damaged), "{filesystem}");
        assert_eq!(done.snapshot, snapshot);
        assert_eq!(heal(&pool, &snapshot, false, &stream).unwrap().damaged, 0);
        if raw {
            pool.keys().load(filesystem, SECRET).unwrap();
        }
        assert!(read_file(&pool, filesystem, "noise") == noise_bytes(5, 700_000));
        assert!(read_file(&pool, filesystem, "text") == text());
        close_and_check(pool, &folder);
    }
}

#[test]
fn wrong_stream_heals_nothing() {
    let (pool, folder) = create_pool("healwrong");
    let form = SendRequest { large_blocks: true, compressed: true, ..SendRequest::default() };
    let stream =
        send(&pool, &SendRequest { snapshot: "tank/plain@one".to_owned(), ..form.clone() });
    pool.snapshots().create(&["tank/plain@two".to_owned()]).unwrap();
    let other = send(&pool, &SendRequest { snapshot: "tank/plain@two".to_owned(), ..form });
    pool.export().unwrap();
    drop(pool);
    let damaged = damage(&folder, &payloads(&stream));
    let before = std::fs::read(&folder.drives(1)[0]).unwrap();
    let pool = import(&folder);
    let why = heal(&pool, "tank/plain@one", false, &other).unwrap_err().to_string();
    assert!(why.contains("is not of this snapshot"), "{why}");
    // the content of another snapshot under this one's guid
    let mut forged = stream;
    for block in payloads(&forged) {
        let at = forged.windows(block.len()).position(|it| it == block).unwrap();
        forged[at + 700] ^= 0x55;
    }
    reseal(&mut forged);
    let why = heal(&pool, "tank/plain@one", false, &forged).unwrap_err().to_string();
    assert!(
        why.contains(&format!("0 damaged blocks were healed, and {damaged} were not")),
        "{why}"
    );
    assert!(!can_read(&pool, "tank/plain", "noise"));
    drop(pool);
    let after = std::fs::read(&folder.drives(1)[0]).unwrap();
    let wrong = noise_bytes(77, 4096);
    let places = |bytes: &[u8]| {
        let sectors = (0..bytes.len()).step_by(512);
        sectors.filter(|at| bytes[*at..].starts_with(&wrong)).collect::<Vec<_>>()
    };
    assert_eq!(places(&before).len() as u64, damaged);
    assert_eq!(places(&before), places(&after), "it stays as it was");
}
