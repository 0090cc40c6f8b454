//! NFSv4.2: files and names as a client sees them.

use nfs::wire::status::Status;
use nfs::wire::v4::{Bitmap, StateId, attr, op};
use nfs::wire::xdr::Reader;

use crate::served_pool::ServedPool;
use crate::v4_client::{BOTH, Operations, READ, V4Client, WRITE};

fn connected(served: &ServedPool) -> (V4Client, Vec<u8>) {
    let mut client = V4Client::connect(served.address(), "one");
    let root = client.handle(&["tank"]).unwrap();
    (client, root)
}

/// The names of a directory, with their inode numbers and those of the mounts on them.
fn list(client: &mut V4Client, dir: &[u8]) -> Vec<(String, u64, u64)> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let operations = Operations::at(dir).add(op::READDIR, |w| {
            w.u64(cookie);
            w.u64(0);
            w.u32(4096);
            w.u32(4096);
            Bitmap::of(&[attr::FILEID, attr::MOUNTED_ON_FILEID]).write(w);
        });
        let mut results = client.run(&operations);
        results.skip(op::PUTFH).unwrap();
        let is_end = results.next(op::READDIR, |r| {
            r.u64().unwrap();
            while r.bool().unwrap() {
                cookie = r.u64().unwrap();
                assert!(cookie > 2);
                let name = String::from_utf8(r.opaque(255).unwrap().to_vec()).unwrap();
                Bitmap::parse(r).unwrap();
                let values = r.opaque(100).unwrap();
                let mut values = Reader::new(values);
                all.push((name, values.u64().unwrap(), values.u64().unwrap()));
            }
            r.bool().unwrap()
        });
        if is_end.unwrap() {
            return all;
        }
    }
}

#[test]
fn files_are_opened_written_and_read() {
    let served = ServedPool::start();
    let (mut client, root) = connected(&served);
    assert_eq!(client.open(&root, "file", (READ, 0), false).map(drop), Err(Status::NOENT));
    let (state, file) = client.open(&root, "file", (BOTH, 0), true).unwrap();
    let data: Vec<u8> = (0..100_000_u32).map(|at| at.to_be_bytes()[3]).collect();
    assert_eq!(client.write(&file, &state, 0, &data), Ok(100_000));
    assert_eq!(client.read(&file, &state, 0, 60_000).unwrap(), (false, data[..60_000].to_vec()));
    assert_eq!(
        client.read(&file, &state, 60_000, 60_000).unwrap(),
        (true, data[60_000..].to_vec())
    );
    client.close(&file, &state).unwrap();
    assert_eq!(client.close(&file, &state), Err(Status::BAD_STATEID));
    assert_eq!(client.write(&file, &state, 0, b"x"), Err(Status::BAD_STATEID));
    // without a state the request is checked as an open would be
    assert_eq!(client.read(&file, &StateId::ANONYMOUS, 0, 4).unwrap().1, data[..4]);

    let (reading, _) = client.open(&root, "file", (READ, 0), false).unwrap();
    assert_eq!(client.write(&file, &reading, 0, b"x"), Err(Status::OPENMODE));
    let (both, _) = client.open(&root, "file", (WRITE, 0), false).unwrap();
    assert_eq!((both.other, both.seqid), (reading.other, reading.seqid + 1));
    assert_eq!(client.write(&file, &both, 0, b"x"), Ok(1));
    assert_eq!(client.read(&file, &reading, 0, 1), Err(Status::OLD_STATEID));
    let downgrade = Operations::at(&file).add(op::OPEN_DOWNGRADE, |w| {
        both.write(w);
        (0..3).for_each(|at| w.u32([0, READ, 0][at]));
    });
    let mut results = client.run(&downgrade);
    results.skip(op::PUTFH).unwrap();
    let narrow = results.next(op::OPEN_DOWNGRADE, |r| StateId::parse(r).unwrap()).unwrap();
    assert_eq!(client.write(&file, &narrow, 0, b"y"), Err(Status::OPENMODE));
    assert_eq!(client.read(&file, &narrow, 0, 1).unwrap().1, b"x");
    client.close(&file, &narrow).unwrap();
    assert_eq!(served.server.status().clients[0].opens, 0);
}

#[test]
fn compounds_stop_at_the_first_error() {
    let served = ServedPool::start();
    let (mut client, root) = connected(&served);
    let operations = Operations::at(&root).lookup("missing").get_handle();
    let mut results = client.run(&operations);
    assert_eq!(results.status, Status::NOENT);
    results.skip(op::PUTFH).unwrap();
    assert_eq!(results.skip(op::LOOKUP), Err(Status::NOENT));
    for (name, status) in [("..", Status::BADNAME), ("", Status::INVAL), ("a/b", Status::BADNAME)] {
        let mut results = client.run(&Operations::at(&root).lookup(name));
        results.skip(op::PUTFH).unwrap();
        assert_eq!(results.skip(op::LOOKUP), Err(status), "{name}");
    }
    let mut results = client.run(&Operations::default().get_handle());
    assert_eq!(results.skip(op::GETFH), Err(Status::NOFILEHANDLE));
    let mut results = client.run(&Operations::default().add(2, |_| {}));
    assert_eq!(results.skip(op::ILLEGAL), Err(Status::OP_ILLEGAL));
    let mut results = client.run(&Operations::default().add(op::FIRST + 4, |_| {}));
    assert_eq!(results.skip(op::FIRST + 4), Err(Status::NOTSUPP));
}

#[test]
fn names_and_crossings_are_listed() {
    let served = ServedPool::start();
    let (mut client, root) = connected(&served);
    for number in 0..100 {
        client.open(&root, &format!("file-{number:02}"), (WRITE, 0), true).unwrap();
    }
    let mut names = list(&mut client, &root);
    names.sort();
    assert_eq!(names.len(), 101);
    let (name, fileid, mounted_on) = &names[0];
    // the child's root has another number than the directory that it hides
    assert!(name == "child" && fileid != mounted_on);
    assert!(names[1..].iter().all(|(_, fileid, mounted_on)| fileid == mounted_on));
    let child = client.handle(&["tank", "child"]).unwrap();
    let wanted = Operations::at(&child).attributes(&[attr::MOUNTED_ON_FILEID]);
    let mut results = client.run(&wanted);
    results.skip(op::PUTFH).unwrap();
    let shown = results.next(op::GETATTR, |r| {
        Bitmap::parse(r).unwrap();
        Reader::new(r.opaque(100).unwrap()).u64().unwrap()
    });
    assert_eq!(shown, Ok(*mounted_on));
    let top = client.handle(&[]).unwrap();
    assert_eq!(list(&mut client, &top).len(), 1);
    let up = Operations::at(&child).add(op::LOOKUPP, |_| {}).get_handle();
    let mut results = client.run(&up);
    results.skip(op::PUTFH).unwrap();
    results.skip(op::LOOKUPP).unwrap();
    assert_eq!(results.next(op::GETFH, |r| r.opaque(128).unwrap().to_vec()), Ok(root));
}

#[test]
fn change_attribute_differs_after_changes() {
    let served = ServedPool::start();
    let (mut client, root) = connected(&served);
    let change = |client: &mut V4Client, handle: &[u8]| {
        let mut results = client.run(&Operations::at(handle).attributes(&[attr::CHANGE]));
        results.skip(op::PUTFH).unwrap();
        let read = results.next(op::GETATTR, |r| {
            Bitmap::parse(r).unwrap();
            Reader::new(r.opaque(8).unwrap()).u64().unwrap()
        });
        read.unwrap()
    };
    let (state, file) = client.open(&root, "file", (WRITE, 0), true).unwrap();
    let mut seen = vec![change(&mut client, &file)];
    for at in 0..10 {
        client.write(&file, &state, at, b"x").unwrap();
        seen.push(change(&mut client, &file));
    }
    seen.dedup();
    assert_eq!(seen.len(), 11);
    let before = change(&mut client, &root);
    client.open(&root, "other", (WRITE, 0), true).unwrap();
    assert_ne!(change(&mut client, &root), before);
}

#[test]
fn holes_clones_and_xattrs_work() {
    let served = ServedPool::start();
    let (mut client, root) = connected(&served);
    let (source, from) = client.open(&root, "source", (BOTH, 0), true).unwrap();
    client.write(&from, &source, 1 << 20, b"data").unwrap();
    let seek = |client: &mut V4Client, what| {
        let operations = Operations::at(&from).add(op::SEEK, |w| {
            source.write(w);
            w.u64(0);
            w.u32(what);
        });
        let mut results = client.run(&operations);
        results.skip(op::PUTFH).unwrap();
        results.next(op::SEEK, |r| (r.bool().unwrap(), r.u64().unwrap())).unwrap()
    };
    assert_eq!(seek(&mut client, 0), (false, 1 << 20));
    assert_eq!(seek(&mut client, 1), (false, 0));
    let part = |client: &mut V4Client, offset: u64, count| {
        let operations = Operations::at(&from).add(op::READ_PLUS, |w| {
            source.write(w);
            w.u64(offset);
            w.u32(count);
        });
        let mut results = client.run(&operations);
        results.skip(op::PUTFH).unwrap();
        results.next(op::READ_PLUS, read_part).unwrap()
    };
    let hole = |is_end, offset, length| (is_end, Some(Part::Hole(offset, length)));
    assert_eq!(part(&mut client, 0, u32::MAX), hole(false, 0, 1 << 20));
    assert_eq!(part(&mut client, 9, 100), hole(false, 9, 100));
    let data = |offset, data: &[u8]| (true, Some(Part::Data(offset, data.to_vec())));
    assert_eq!(part(&mut client, 1 << 20, 4096), data(1 << 20, b"data"));
    assert_eq!(part(&mut client, (1 << 20) + 2, 4096), data((1 << 20) + 2, b"ta"));
    assert_eq!(part(&mut client, (1 << 20) + 4, 4096), (true, None));
    let (target, to) = client.open(&root, "target", (BOTH, 0), true).unwrap();
    let operations = Operations::at(&from)
        .add(op::SAVEFH, |_| {})
        .add(op::PUTFH, |w| w.opaque(&to))
        .add(op::CLONE, |w| {
            source.write(w);
            target.write(w);
            (0..3).for_each(|_| w.u64(0));
        });
    let mut results = client.run(&operations);
    for number in [op::PUTFH, op::SAVEFH, op::PUTFH, op::CLONE] {
        results.skip(number).unwrap();
    }
    assert_eq!(client.read(&to, &target, (1 << 20) - 2, 10).unwrap(), (true, b"\0\0data".to_vec()));

    let set = Operations::at(&to).add(op::SETXATTR, |w| {
        w.u32(1);
        w.opaque(b"colour");
        w.opaque(b"red");
    });
    let mut results = client.run(&set);
    results.skip(op::PUTFH).unwrap();
    results.skip(op::SETXATTR).unwrap();
    assert_eq!(client.run(&set).status, Status::EXIST);
    let get = |name: &'static [u8]| Operations::at(&to).add(op::GETXATTR, |w| w.opaque(name));
    let mut results = client.run(&get(b"colour"));
    results.skip(op::PUTFH).unwrap();
    assert_eq!(results.next(op::GETXATTR, |r| r.opaque(9).unwrap().to_vec()), Ok(b"red".to_vec()));
    assert_eq!(client.run(&get(b"size")).status, Status::NOXATTR);
}

/// A part of a file as READ_PLUS returns it: where it begins, and its length or its bytes.
#[derive(PartialEq, Eq, Debug)]
enum Part {
    Hole(u64, u64),
    Data(u64, Vec<u8>),
}

fn read_part(r: &mut Reader<'_>) -> (bool, Option<Part>) {
    let (is_end, parts) = (r.bool().unwrap(), r.u32().unwrap());
    let part = (parts == 1).then(|| match (r.u32().unwrap(), r.u64().unwrap()) {
        (0, offset) => Part::Data(offset, r.opaque(1 << 20).unwrap().to_vec()),
        (_, offset) => Part::Hole(offset, r.u64().unwrap()),
    });
    (is_end, part)
}
