//! Streams of a file system as it is now, without a snapshot.

use engine::pool::{Pool, ReceiveRequest, SendRequest};

use crate::backup::noise;
use crate::streams::{close_and_check, create_pool};
use crate::test_pool::{read_file, write_file};

fn send(pool: &Pool, request: &SendRequest) -> Result<Vec<u8>, engine::Error> {
    let mut stream = Vec::new();
    pool.streams().send(request, &mut stream).map(|_| stream)
}

fn of_head(base: Option<&str>) -> SendRequest {
    let (snapshot, base) = ("tank/from".to_owned(), base.map(str::to_owned));
    SendRequest { snapshot, base, ..SendRequest::default() }
}

fn receive(pool: &Pool, target: &str, stream: &[u8]) -> Result<String, engine::Error> {
    let target = target.to_owned();
    let request = ReceiveRequest { target, resumable: true, ..ReceiveRequest::default() };
    pool.streams().receive(&request, &mut &*stream).map(|received| received.snapshot)
}

#[test]
fn head_is_sent_and_resumed_without_snapshot() {
    let (sender, sent) = create_pool("headsend");
    let (pool, folder) = create_pool("headreceive");
    let new = engine::pool::NewDataset { name: "tank/from".to_owned(), ..Default::default() };
    sender.datasets().create_filesystem(&new).unwrap();
    write_file(&sender, "tank/from", "first", &noise(1, 600_000));
    sender.snapshots().create(&["tank/from@base".to_owned()]).unwrap();
    // it is in no snapshot, and not synced yet
    write_file(&sender, "tank/from", "second", &noise(2, 900_000));
    let whole = send(&sender, &of_head(None)).unwrap();
    receive(&pool, "tank/copy", &whole[..700_000]).unwrap_err();
    let token = pool.streams().resume_token("tank/copy").unwrap().expect("a token");
    let resumed = SendRequest { resume: Some(token), ..SendRequest::default() };
    let rest = send(&sender, &resumed).unwrap();
    assert!(rest.len() < whole.len() - 300_000, "{} of {}", rest.len(), whole.len());
    assert_eq!(receive(&pool, "tank/copy", &rest).unwrap(), "tank/copy@--head--");
    // an increment to the head
    let request = SendRequest { snapshot: "tank/from@base".to_owned(), ..SendRequest::default() };
    receive(&pool, "tank/again", &send(&sender, &request).unwrap()).unwrap();
    let increment = send(&sender, &of_head(Some("tank/from@base"))).unwrap();
    assert_eq!(receive(&pool, "tank/again", &increment).unwrap(), "tank/again@--head--");
    for copy in ["tank/copy", "tank/again"] {
        assert!(read_file(&pool, copy, "first") == noise(1, 600_000), "{copy}");
        assert!(read_file(&pool, copy, "second") == noise(2, 900_000), "{copy}");
    }
    close_and_check(pool, &folder);
    close_and_check(sender, &sent);
}

#[test]
fn stream_of_trees_needs_a_snapshot() {
    let (pool, _folder) = create_pool("headtree");
    let tree = SendRequest { snapshot: "tank".to_owned(), replicate: true, ..Default::default() };
    let why = send(&pool, &tree).unwrap_err().to_string();
    assert!(why.contains("needs a snapshot"), "{why}");
}
