//! Sends and receives that are cut and resumed, and the estimates of OpenZFS.

use engine::dataset::DatasetQuery;
use engine::pool::{self, Pool, ReceiveRequest, SendRequest, VdevLayout};
use ondisk::stream::{Record, StreamFeatures};

use crate::test_pool::{TempDir, check_pool, copy_after_cut, environment, new_pool, read_file};

/// The pool of the fixture `sent`.
fn import_sent(name: &str) -> (Pool, TempDir) {
    let folder = TempDir::new(name, 0, 0);
    let fixture = fixtures::load("sent");
    std::fs::copy(&fixture.images()[0], folder.path().join("d0.img")).unwrap();
    (import(&folder), folder)
}

fn import(folder: &TempDir) -> Pool {
    pool::import(&[folder.path().to_owned()], "tank", true, &environment()).unwrap()
}

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load("sent").dir.join(name)).unwrap()
}

fn resume_token(pool: &Pool, name: &str) -> Option<String> {
    let property = "receive_resume_token".to_owned();
    let query = DatasetQuery {
        depth: Some(0),
        properties: vec![property.clone()],
        ..DatasetQuery::default()
    };
    let mut found = None;
    let show = &mut |dataset: engine::dataset::Dataset| {
        found = dataset.property_value(&property).map(str::to_owned);
    };
    pool.datasets().list(name, &query, show, &mut |_| ()).unwrap();
    found.filter(|token| token != "-")
}

fn receive_resumable(
    pool: &Pool,
    target: &str,
    stream: &[u8],
) -> Result<pool::Received, engine::Error> {
    let target = target.to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &*stream)
}

fn send_resumed(pool: &Pool, token: &str) -> Vec<u8> {
    let request = SendRequest { resume: Some(token.to_owned()), ..SendRequest::default() };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).unwrap();
    stream
}

#[test]
fn cut_receives_resume_where_they_stopped() {
    let (sender, _sent) = import_sent("resumesend");
    let folder = TempDir::new("resume", 1, 128 << 20);
    let mut pool = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    for (stream, part) in [("full.zstream", "one"), ("incremental.zstream", "two")] {
        let whole = recorded(stream);
        let mut next = whole.clone();
        let mut resumed = 0;
        while next.len() > 360_000 {
            let why = receive_resumable(&pool, "tank/copy", &next[..300_000]).unwrap_err();
            assert!(why.to_string().contains("Partially received snapshot is saved"), "{why}");
            // the state exists after an import, too
            pool.export().unwrap();
            drop(pool);
            pool = import(&folder);
            let token = resume_token(&pool, "tank/copy").expect("a token");
            assert!(why.to_string().contains(&token), "{why} {token}");
            assert!(receive_resumable(&pool, "tank/copy", &whole).is_err(), "it is not resumed");
            let shorter = send_resumed(&sender, &token);
            assert!(shorter.len() < next.len(), "{} {}", shorter.len(), next.len());
            next = shorter;
            resumed += 1;
        }
        assert!(resumed >= 1, "{stream}");
        let done = receive_resumable(&pool, "tank/copy", &next).unwrap();
        assert_eq!(done.snapshot, format!("tank/copy@{part}"));
        assert_eq!(resume_token(&pool, "tank/copy"), None);
    }
    for name in ["large", "sparse", "small", "folder/numbers", "new"] {
        let [ours, theirs] = [(&pool, "tank/copy"), (&sender, "tank/from")]
            .map(|(pool, fs)| tail(&read_file(pool, fs, name)));
        assert!(ours == theirs, "{name}");
    }
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// The last MiB of a file, and its length.
fn tail(bytes: &[u8]) -> (usize, Vec<u8>) {
    (bytes.len(), bytes[bytes.len().saturating_sub(1 << 20)..].to_vec())
}

/// Sends the saved part of an interrupted receive.
fn send_saved(pool: &Pool, target: &str) -> Result<Vec<u8>, engine::Error> {
    let request =
        SendRequest { snapshot: target.to_owned(), saved: true, ..SendRequest::default() };
    let mut stream = Vec::new();
    pool.streams().send(&request, &mut stream).map(|_| stream)
}

#[test]
fn saved_part_of_a_receive_is_sent_on() {
    let (sender, _sent) = import_sent("savedsend");
    let [first, second] =
        ["savedfirst", "savedsecond"].map(|name| TempDir::new(name, 1, 128 << 20));
    let [middle, last] = [&first, &second].map(|folder| {
        pool::create(&new_pool(folder, VdevLayout::Single, 1), &environment()).unwrap()
    });
    for (stream, part) in [("full.zstream", "one"), ("incremental.zstream", "two")] {
        let whole = recorded(stream);
        receive_resumable(&middle, "tank/copy", &whole[..300_000]).unwrap_err();
        let saved = send_saved(&middle, "tank/copy").unwrap();
        assert!(saved.len() > 200_000, "{}", saved.len());
        let why = receive_resumable(&last, "tank/copy", &saved).unwrap_err().to_string();
        assert!(why.contains("Partially received snapshot is saved"), "{why}");
        // both go on with what the first sender has
        for pool in [&middle, &last] {
            let token = resume_token(pool, "tank/copy").expect("a token");
            let rest = send_resumed(&sender, &token);
            assert!(rest.len() < whole.len(), "{stream}: {} {}", rest.len(), whole.len());
            let done = receive_resumable(pool, "tank/copy", &rest).unwrap();
            assert_eq!(done.snapshot, format!("tank/copy@{part}"));
        }
        let why = send_saved(&middle, "tank/copy").unwrap_err().to_string();
        assert!(why.contains("no saved part of an interrupted receive"), "{why}");
    }
    for name in ["large", "sparse", "small", "folder/numbers", "new"] {
        let [ours, theirs] = [(&last, "tank/copy"), (&sender, "tank/from")]
            .map(|(pool, fs)| tail(&read_file(pool, fs, name)));
        assert!(ours == theirs, "{name}");
    }
    for (pool, folder) in [(middle, first), (last, second)] {
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn saved_increment_has_its_own_base() {
    let (pool, folder) = import_sent("savedbase");
    let [full, increment] = ["full.zstream", "incremental.zstream"].map(recorded);
    receive_resumable(&pool, "tank/old", &full).unwrap();
    receive_resumable(&pool, "tank/old", &increment[..300_000]).unwrap_err();
    // a copy of the base that is younger than the saved part
    receive_resumable(&pool, "tank/new", &full).unwrap();
    let saved = send_saved(&pool, "tank/old").unwrap();
    assert!(saved.len() > 200_000, "{}", saved.len());
    receive_resumable(&pool, "tank/new", &saved).unwrap_err();
    let token = resume_token(&pool, "tank/new").expect("a token");
    receive_resumable(&pool, "tank/new", &send_resumed(&pool, &token)).unwrap();
    let [ours, theirs] = ["tank/new", "tank/from"].map(|fs| tail(&read_file(&pool, fs, "large")));
    assert!(ours == theirs);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn saved_part_may_have_no_records() {
    let (sender, _sent) = import_sent("emptysend");
    let [first, second] =
        ["emptyfirst", "emptysecond"].map(|name| TempDir::new(name, 1, 128 << 20));
    let [middle, last] = [&first, &second].map(|folder| {
        pool::create(&new_pool(folder, VdevLayout::Single, 1), &environment()).unwrap()
    });
    // a record counts when the one behind it was read, so this is BEGIN alone
    receive_resumable(&middle, "tank/copy", &recorded("full.zstream")[..624]).unwrap_err();
    assert!(resume_token(&middle, "tank/copy").is_some());
    let saved = send_saved(&middle, "tank/copy").unwrap();
    receive_resumable(&last, "tank/copy", &saved).unwrap_err();
    for pool in [&middle, &last] {
        let token = resume_token(pool, "tank/copy").expect("a token");
        receive_resumable(pool, "tank/copy", &send_resumed(&sender, &token)).unwrap();
        receive_resumable(pool, "tank/copy", &recorded("incremental.zstream")).unwrap();
    }
    for (pool, folder) in [(middle, first), (last, second)] {
        let ours = tail(&read_file(&pool, "tank/copy", "large"));
        assert!(ours == tail(&read_file(&sender, "tank/from", "large")));
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
    }
}

#[test]
fn aborted_receive_leaves_nothing_behind() {
    let (pool, folder) = import_sent("abort");
    let full = recorded("full.zstream");
    receive_resumable(&pool, "tank/copy", &full[..300_000]).unwrap_err();
    pool.streams().abort_receive("tank/copy").unwrap();
    assert!(pool.streams().abort_receive("tank/copy").is_err());
    receive_resumable(&pool, "tank/copy", &full).unwrap();
    let incremental = recorded("incremental.zstream");
    receive_resumable(&pool, "tank/copy", &incremental[..300_000]).unwrap_err();
    pool.streams().abort_receive("tank/copy").unwrap();
    let why = pool.streams().abort_receive("tank/copy").unwrap_err().to_string();
    assert!(why.contains("does not have any resumable receive state to abort"), "{why}");
    receive_resumable(&pool, "tank/copy", &incremental).unwrap();
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn internal_datasets_cannot_be_changed_by_name() {
    let (pool, folder) = import_sent("internal");
    receive_resumable(&pool, "tank/copy", &recorded("full.zstream")).unwrap();
    let incremental = recorded("incremental.zstream");
    receive_resumable(&pool, "tank/copy", &incremental[..300_000]).unwrap_err();
    for name in ["tank/copy/%recv", "tank/$ORIGIN", "tank/$MOS", "tank/$FREE"] {
        let snapshots = [format!("{name}@x")];
        let tries = [
            ("promote", pool.datasets().promote(name)),
            ("rename", pool.datasets().rename(name, "tank/other", false)),
            ("rename to", pool.datasets().rename("tank/from", &format!("{name}x"), false)),
            ("snapshot", pool.snapshots().create_with(&snapshots, &[]).map(drop)),
            (
                "bookmark",
                pool.snapshots().create_bookmark("tank/copy@one", &format!("{name}#mark")),
            ),
        ];
        for (verb, outcome) in tries {
            let why = outcome.expect_err(&format!("{verb} {name}")).to_string();
            let is_named = why.contains("invalid character") || why.contains("the pool's own");
            assert!(is_named, "{verb} {name}: {why}");
        }
    }
    assert!(pool.datasets().destroy("tank/$ORIGIN").is_err());
    let token = resume_token(&pool, "tank/copy").unwrap();
    receive_resumable(&pool, "tank/copy", &send_resumed(&pool, &token)).unwrap();
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn token_of_openzfs_continues_the_stream() {
    /// Of a receive of the fixture's `full.zstream` that OpenZFS 2.3.2 was given 300000 bytes of.
    const TOKEN: &str = "1-aa221046b-b8-789c636064000310a500c4ec50360710e72765a526973030184394\
        60caa7a515a79630c001489e0d493ea9b224b51848bfe867c1aabf243fbd343305a86ef9b7ad5d4f0edcd340\
        92e704cbe725e6a602e9c4bc6cfdb4a2fc5c87fcbc54a85d009da219b1";
    let (pool, _folder) = import_sent("token");
    let records = |stream: &[u8]| {
        let mut reader = send::StreamReader::new(stream);
        let mut found = Vec::new();
        while let Some(next) = reader.next_record().unwrap() {
            found.push((next.record, next.payload));
        }
        found
    };
    let resumed = records(&send_resumed(&pool, TOKEN));
    let Record::Begin(begin) = &resumed[0].0 else { panic!("no BEGIN") };
    assert!(begin.features.has(StreamFeatures::RESUMING));
    assert_eq!(resumed[0].1.len(), 96, "OpenZFS's list has 96 bytes");
    let full = records(&recorded("full.zstream"));
    let first = full
        .iter()
        .position(|(record, _)| matches!(record, Record::Object(object) if object.object == 0x33));
    let rest = &full[first.unwrap()..full.len() - 1];
    assert!(rest == &resumed[1..resumed.len() - 1]);
    let plan = SendRequest { resume: Some(TOKEN.to_owned()), ..SendRequest::default() };
    assert_eq!(pool.streams().plan_send(&plan).unwrap().steps()[0].bytes, 291_976);
}

#[test]
fn estimates_equal_those_of_openzfs() {
    let (pool, _folder) = import_sent("estimate");
    for (snapshot, base, compressed, bytes) in [
        ("tank/from@two", None, false, 558_704),
        ("tank/from@two", None, true, 212_592),
        ("tank/from@two", Some("tank/from@one"), false, 405_104),
        ("tank/from@two", Some("tank/from#one"), false, 405_104),
        ("tank/volume@two", None, false, 32_552),
        ("tank/clone@two", Some("tank/from@one"), false, 8_816),
    ] {
        let request = SendRequest {
            snapshot: snapshot.to_owned(),
            base: base.map(str::to_owned),
            compressed,
            ..SendRequest::default()
        };
        let plan = pool.streams().plan_send(&request).unwrap();
        assert_eq!(plan.steps()[0].bytes, bytes, "{snapshot} {base:?} {compressed}");
    }
}

#[test]
fn full_stream_replaces_an_empty_file_system() {
    let (pool, folder) = import_sent("replace");
    let new = pool::NewDataset { name: "tank/copy".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&new).unwrap();
    crate::test_pool::write_file(&pool, "tank/copy", "mine", b"given up");
    let full = recorded("full.zstream");
    let mut request =
        ReceiveRequest { target: "tank/copy".to_owned(), ..ReceiveRequest::default() };
    assert!(pool.streams().receive(&request, &mut &*full).is_err());
    request.force = true;
    pool.streams().receive(&request, &mut &*full).unwrap();
    let [ours, theirs] =
        ["tank/copy", "tank/clone"].map(|fs| read_file(&pool, fs, "folder/numbers"));
    assert!(ours == theirs);
    let why = pool.streams().receive(&request, &mut &*full).unwrap_err().to_string();
    assert!(why.contains("destination has snapshots (eg. tank/copy@one)"), "{why}");
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn resumed_full_stream_needs_force_to_replace() {
    let (sender, _sent) = import_sent("forcesend");
    let folder = TempDir::new("forceresume", 1, 128 << 20);
    let pool = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
    let new = pool::NewDataset { name: "tank/copy".to_owned(), properties: Vec::new() };
    pool.datasets().create_filesystem(&new).unwrap();
    let mut request = ReceiveRequest {
        target: "tank/copy".to_owned(),
        force: true,
        resumable: true,
        ..ReceiveRequest::default()
    };
    let full = recorded("full.zstream");
    pool.streams().receive(&request, &mut &full[..300_000]).unwrap_err();
    let token = resume_token(&pool, "tank/copy").expect("a token");
    let rest = send_resumed(&sender, &token);
    request.force = false;
    let why = pool.streams().receive(&request, &mut &rest[..]).unwrap_err().to_string();
    assert!(why.contains("must specify -F to overwrite it"), "{why}");
    request.force = true;
    pool.streams().receive(&request, &mut &rest[..]).unwrap();
    let [ours, theirs] = [(&pool, "tank/copy"), (&sender, "tank/clone")]
        .map(|(pool, fs)| read_file(pool, fs, "folder/numbers"));
    assert!(ours == theirs);
}

/// A stream that copies a pool's drive in the middle, as a power cut there would leave it.
struct CutAt<'a> {
    stream: &'a [u8],
    left: usize,
    pool: Pool,
    folder: &'a TempDir,
    cut: Option<TempDir>,
}

impl std::io::Read for CutAt<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min(4096);
        let count = self.stream.read(&mut into[..count])?;
        self.left = self.left.saturating_sub(count);
        if self.left == 0 && self.cut.is_none() {
            // the last received data is not synced yet
            self.pool.sync().unwrap();
            self.cut = Some(copy_after_cut(self.folder, "cutcopy", 1));
        }
        Ok(count)
    }
}

#[test]
fn power_cut_leaves_a_receive_that_resumes() {
    let (sender, _sent) = import_sent("cutsend");
    let whole = recorded("full.zstream");
    for part in [2, 4] {
        let folder = TempDir::new("cutreceive", 1, 128 << 20);
        let pool = pool::create(&new_pool(&folder, VdevLayout::Single, 1), &environment()).unwrap();
        let left = whole.len() / 5 * part;
        let mut stream =
            CutAt { stream: &whole, left, pool: pool.clone(), folder: &folder, cut: None };
        let target = "tank/copy".to_owned();
        let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
        pool.streams().receive(&request, &mut stream).unwrap();
        let cut = stream.cut.expect("the power was cut");
        let pool = import(&cut);
        let token = resume_token(&pool, "tank/copy").expect("a token");
        receive_resumable(&pool, "tank/copy", &send_resumed(&sender, &token)).unwrap();
        for name in ["large", "sparse", "small", "folder/numbers", "embedded"] {
            let [ours, theirs] = [(&pool, "tank/copy"), (&sender, "tank/clone")]
                .map(|(pool, fs)| tail(&read_file(pool, fs, name)));
            assert!(ours == theirs, "part {part}: {name}");
        }
        pool.export().unwrap();
        drop(pool);
        assert_eq!(check_pool(&cut, "tank"), Vec::<String>::new(), "part {part}");
    }
}
