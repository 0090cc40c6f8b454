//! Reading streams: damage is found, and found before a record counts.

use send::{Error, StreamReader};

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::load("sent").dir.join(name)).unwrap()
}

/// Reads to the end; gives the number of records.
fn read_all(bytes: &[u8]) -> send::Result<usize> {
    let mut reader = StreamReader::new(bytes);
    let mut count = 0;
    while reader.next_record()?.is_some() {
        count += 1;
    }
    Ok(count)
}

#[test]
fn recorded_streams_are_read_whole() {
    let sent = fixtures::load("sent");
    for entry in std::fs::read_dir(&sent.dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "zstream") {
            let count = read_all(&std::fs::read(&path).unwrap());
            assert!(count.as_ref().is_ok_and(|count| *count > 3), "{}: {count:?}", path.display());
        }
    }
}

#[test]
fn damaged_streams_are_refused() {
    let whole = recorded("incremental.zstream");
    let step = whole.len() / 97;
    for at in (0..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(read_all(&bytes).is_err(), "byte {at} was changed");
    }
}

#[test]
fn cut_streams_are_refused() {
    let whole = recorded("incremental.zstream");
    for length in (1..whole.len()).step_by(whole.len() / 61) {
        let result = read_all(&whole[..length]);
        assert!(
            matches!(result, Err(Error::Truncated { .. } | Error::NotAStream)),
            "cut at {length}: {result:?}"
        );
    }
    assert!(matches!(read_all(b"hello"), Err(Error::NotAStream)));
    assert!(matches!(read_all(b""), Ok(0)));
}
