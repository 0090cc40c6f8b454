//! Plain streams that are received encrypted, and the properties of a key that a stream does not permit.

use engine::pool::{
    NewDataset, Pool, ReceiveProperties, ReceiveRequest, SendRequest, StreamInput, UserSecret,
};
use engine::{Error, KeyState};

use crate::streams::{close_and_check, create_pool};
use crate::test_pool::{TempDir, environment, read_file};

const SECRET: &[u8] = b"correct horse battery staple";
/// Of a dataset with a key of its own.
const OWN_KEY: [(&str, &str); 4] = [
    ("encryption", "on"),
    ("keyformat", "passphrase"),
    ("keylocation", "file:///root/key"),
    ("pbkdf2iters", "100000"),
];

fn recorded(fixture: &str, name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load(fixture).dir.join(name)).unwrap()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn receive_with(
    pool: &Pool,
    target: &str,
    stream: &[u8],
    (set, excluded): (&[(&str, &str)], &[&str]),
) -> Result<(), Error> {
    let request = ReceiveRequest {
        target: target.to_owned(),
        properties: ReceiveProperties {
            set: pairs(set),
            excluded: excluded.iter().map(|name| (*name).to_owned()).collect(),
            ..ReceiveProperties::default()
        },
        secret: (!set.is_empty()).then(|| UserSecret::new(SECRET.to_vec())),
        ..ReceiveRequest::default()
    };
    pool.streams().receive(&request, &mut &*stream).map(drop)
}

fn import(folder: &TempDir) -> Pool {
    engine::pool::import(&[folder.path().to_owned()], "tank", false, &environment()).unwrap()
}

fn key_states(pool: &Pool) -> Vec<(String, KeyState, String)> {
    let roots = pool.keys().encryption_roots().unwrap();
    roots.into_iter().map(|root| (root.name, root.state, root.location)).collect()
}

#[test]
fn plain_stream_is_received_with_a_key() {
    let (pool, folder) = create_pool("receivekey");
    let full = recorded("sent", "full.zstream");
    receive_with(&pool, "tank/copy", &full, (&OWN_KEY, &[])).unwrap();
    // an increment needs nothing said, and lands encrypted
    let increment = recorded("sent", "incremental.zstream");
    receive_with(&pool, "tank/copy", &increment, (&[], &["encryption"])).unwrap();
    let content = read_file(&pool, "tank/copy", "folder/numbers");
    assert!(!content.is_empty());
    pool.export().unwrap();
    drop(pool);
    let pool = import(&folder);
    let root = |state| ("tank/copy".to_owned(), state, "file:///root/key".to_owned());
    assert_eq!(key_states(&pool), [root(KeyState::Locked)]);
    assert!(matches!(pool.datasets().filesystem("tank/copy"), Err(Error::Locked { .. })));
    pool.keys().load("tank/copy", SECRET).unwrap();
    assert!(read_file(&pool, "tank/copy", "folder/numbers") == content);
    close_and_check(pool, &folder);
}

#[test]
fn excluded_encryption_is_that_of_the_parent() {
    let (pool, folder) = create_pool("receivechild");
    let new = NewDataset { name: "tank/secret".to_owned(), properties: pairs(&OWN_KEY) };
    pool.datasets().create_filesystem_with(&new, Some(SECRET)).unwrap();
    let full = recorded("sent", "full.zstream");
    receive_with(&pool, "tank/secret/copy", &full, (&[], &["encryption"])).unwrap();
    let root = pool.keys().encryption_root("tank/secret/copy").unwrap();
    assert_eq!(root.as_deref(), Some("tank/secret"));
    assert!(!read_file(&pool, "tank/secret/copy", "folder/numbers").is_empty());
    close_and_check(pool, &folder);
}

#[test]
fn keys_that_a_stream_decides_are_refused() {
    let (pool, folder) = create_pool("receivefixed");
    let raw = recorded("sent-raw", "raw.zstream");
    let (full, increment) =
        (recorded("sent", "full.zstream"), recorded("sent", "incremental.zstream"));
    for name in ["encryption", "keyformat", "pbkdf2iters"] {
        let why = receive_with(&pool, "tank/raw", &raw, (&[], &[name])).unwrap_err().to_string();
        assert!(why.contains("cannot be set or excluded for raw streams"), "{name}: {why}");
    }
    let why = receive_with(&pool, "tank/raw", &raw, (&OWN_KEY, &[])).unwrap_err().to_string();
    assert!(why.contains("cannot be set or excluded for raw streams"), "{why}");
    // without its format a key cannot be made, and nothing is left of the receive
    let why = receive_with(&pool, "tank/copy", &full, (&OWN_KEY[..1], &[])).unwrap_err();
    assert!(why.to_string().contains("Keyformat required"), "{why}");
    receive_with(&pool, "tank/copy", &full, (&[], &[])).unwrap();
    let why = receive_with(&pool, "tank/copy", &increment, (&OWN_KEY, &[])).unwrap_err();
    assert!(why.to_string().contains("cannot be set for incremental streams"), "{why}");
    receive_with(&pool, "tank/copy", &increment, (&[], &[])).unwrap();
    close_and_check(pool, &folder);
}

#[test]
fn stream_ends_where_a_key_is_missing() {
    let (pool, folder) = create_pool("missingkey");
    let plain = NewDataset { name: "tank/a".to_owned(), ..NewDataset::default() };
    pool.datasets().create_filesystem(&plain).unwrap();
    let secret = NewDataset { name: "tank/a/secret".to_owned(), properties: pairs(&OWN_KEY) };
    pool.datasets().create_filesystem_with(&secret, Some(SECRET)).unwrap();
    let both = ["tank/a@one", "tank/a/secret@one"].map(str::to_owned);
    pool.snapshots().create(&both).unwrap();
    pool.keys().unload("tank/a/secret").unwrap();
    let request = SendRequest {
        snapshot: "tank/a@one".to_owned(),
        replicate: true,
        ..SendRequest::default()
    };
    let mut stream = Vec::new();
    let why = pool.streams().send(&request, &mut stream).unwrap_err().to_string();
    assert!(why.contains("source key must be loaded"), "{why}");
    // the first file system is received, and the stream is whole
    let mut input = &stream[..];
    let mut input = StreamInput::open(&mut input).unwrap();
    let first = input.next_snapshot().unwrap().expect("a snapshot");
    assert_eq!(first.name, "tank/a@one");
    input.skip_snapshot().unwrap();
    assert_eq!(input.next_snapshot().unwrap(), None);
    close_and_check(pool, &folder);
}
