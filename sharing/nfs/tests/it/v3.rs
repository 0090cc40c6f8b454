//! NFSv3 as a client sees it.

use nfs::wire::status::Status;
use nfs::wire::v3::SetAttributes;
use nfs::{ClientRule, Clients, Squash};

use crate::client::RpcClient;
use crate::served_pool::{ServedPool, local_rule};
use crate::v3_client::{FILE_SYNC, UNSTABLE, V3Client, remove_arguments, split_status};

fn mounted(served: &ServedPool) -> (V3Client, Vec<u8>) {
    let client = V3Client::mount(served.address(), "/tank").unwrap();
    let root = client.root.clone();
    (client, root)
}

#[test]
fn files_are_made_read_and_removed() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let file = client.create(&root, "file", 0o640).unwrap();
    assert_eq!(client.create(&root, "file", 0o640), Err(Status::EXIST));
    assert_eq!(client.attributes(&file).unwrap().mode, 0o640);
    let data: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[at as usize % 4]).collect();
    client.write(&file, 0, UNSTABLE, &data).unwrap();
    assert_eq!(client.read(&file, 0, 100_000).unwrap(), (data[..100_000].to_vec(), false));
    assert_eq!(client.read(&file, 100_000, 100_000).unwrap(), (data[100_000..].to_vec(), true));
    assert_eq!(client.read(&file, 150_000, 1 << 20).unwrap(), (data[150_000..].to_vec(), true));
    assert_eq!(client.read(&file, 300_000, 10).unwrap(), (Vec::new(), true));

    let dir = client.make_dir(&root, "dir", 0o755).unwrap();
    client.rename((&root, "file"), (&dir, "moved")).unwrap();
    assert_eq!(client.lookup(&root, "file"), Err(Status::NOENT));
    assert_eq!(client.lookup(&dir, "moved").unwrap(), file);
    assert_eq!(client.lookup(&dir, "..").unwrap(), root);
    client.link(&file, &root, "linked").unwrap();
    assert_eq!(client.attributes(&file).unwrap().nlink, 2);
    let link = client.symlink(&root, "link", "dir/moved").unwrap();
    assert_eq!(client.read_link(&link).unwrap(), b"dir/moved");
    assert_eq!(client.read_link(&file), Err(Status::INVAL));

    assert_eq!(client.remove(13, &root, "dir"), Err(Status::NOTEMPTY));
    assert_eq!(client.remove(12, &root, "dir"), Err(Status::ISDIR));
    client.remove(12, &dir, "moved").unwrap();
    client.remove(13, &root, "dir").unwrap();
    client.remove(12, &root, "linked").unwrap();
    // the server had the file open for reads and writes: its handle must be stale all the same
    assert_eq!(client.attributes(&file).map(drop), Err(Status::STALE));
    assert_eq!(client.attributes(&dir).map(drop), Err(Status::STALE));
}

#[test]
fn unstable_writes_are_answered_unstable() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let file = client.create(&root, "file", 0o644).unwrap();
    let first = client.write(&file, 0, UNSTABLE, b"unstable").unwrap();
    assert_eq!((first.count, first.stable), (8, UNSTABLE));
    let stable = client.write(&file, 8, FILE_SYNC, b"stable").unwrap();
    assert_eq!((stable.stable, stable.verifier), (FILE_SYNC, first.verifier));
    assert_eq!(client.commit(&file).unwrap(), first.verifier);
    let waits = served.server.status().log_wait;
    assert!(waits.waits >= 3 && waits.waiting == 0, "{waits:?}");
    served.pool.properties().set("tank", "sync", "always").unwrap();
    assert_eq!(client.write(&file, 0, UNSTABLE, b"always").unwrap().stable, FILE_SYNC);
}

#[test]
fn answered_changes_survive_power_cut() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let committed = client.create(&root, "committed", 0o644).unwrap();
    let unstable = client.write(&committed, 0, UNSTABLE, b"first").unwrap();
    client.commit(&committed).unwrap();
    let synced = client.create(&root, "synced", 0o644).unwrap();
    client.write(&synced, 0, FILE_SYNC, b"second").unwrap();
    let dir = client.make_dir(&root, "dir", 0o755).unwrap();
    client.create(&root, "removed", 0o644).unwrap();
    client.rename((&root, "removed"), (&dir, "renamed")).unwrap();
    client.remove(12, &dir, "renamed").unwrap();

    let after = served.restart_after_power_cut();
    let mut client = V3Client::mount(after.address(), "/tank").unwrap();
    assert_eq!(client.root, root);
    assert_eq!(client.read(&committed, 0, 100).unwrap().0, b"first");
    assert_eq!(client.read(&synced, 0, 100).unwrap().0, b"second");
    assert_eq!(client.lookup(&root, "removed"), Err(Status::NOENT));
    assert_eq!(client.lookup(&dir, "renamed"), Err(Status::NOENT));
    // a client with unstable writes learns that they may be lost
    let verifier = client.write(&committed, 0, UNSTABLE, b"x").unwrap().verifier;
    assert_ne!(verifier, unstable.verifier);
}

#[test]
fn repeated_requests_get_the_first_answer() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    client.create(&root, "file", 0o644).unwrap();
    let remove = remove_arguments(&root, "file");
    client.call(12, &remove).unwrap();
    // over a new connection, as after the old one broke
    let mut again = RpcClient { xid: client.rpc.xid, ..RpcClient::connect(served.address()) };
    split_status(&again.call_again((100_003, 3, 12), &remove)).unwrap();
    assert_eq!(client.call(12, &remove), Err(Status::NOENT));
}

#[test]
fn exclusive_creates_can_be_repeated() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let first = client.create_exclusive(&root, "file", [9; 8]).unwrap();
    assert_eq!(client.create_exclusive(&root, "file", [9; 8]).unwrap(), first);
    assert_eq!(client.create_exclusive(&root, "file", [8; 8]), Err(Status::EXIST));
}

#[test]
fn directory_cookies_survive_changes() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let dir = client.make_dir(&root, "dir", 0o755).unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("name-{number:03}")).collect();
    for name in &names {
        client.create(&dir, name, 0o644).unwrap();
    }
    for how in [(false, 1024), (true, 4096), (true, 1 << 20)] {
        let mut found = client.list(&dir, how);
        found.sort();
        assert_eq!(found, names, "{how:?}");
    }
    let (first, is_end) = client.list_part(&dir, 0, (false, 2048)).unwrap();
    assert!(!is_end);
    let shown: Vec<&str> = first.iter().skip(2).map(|(name, _)| name.as_str()).collect();
    for name in &shown {
        client.remove(12, &dir, name).unwrap();
    }
    client.create(&dir, "late", 0o644).unwrap();
    let (mut rest, mut cookie) = (Vec::new(), first.last().unwrap().1);
    loop {
        let (part, is_end) = client.list_part(&dir, cookie, (false, 2048)).unwrap();
        cookie = part.last().map_or(cookie, |(_, cookie)| *cookie);
        rest.extend(part.into_iter().map(|(name, _)| name));
        if is_end {
            break;
        }
    }
    rest.retain(|name| name != "late");
    rest.sort();
    let left: Vec<String> =
        names.iter().filter(|name| !shown.contains(&name.as_str())).cloned().collect();
    assert_eq!(rest, left);
    assert_eq!(client.list_part(&dir, 0, (false, 100)).map(drop), Err(Status::TOOSMALL));
}

#[test]
fn mount_path_leads_through_exports() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let child = client.lookup(&root, "child").unwrap();
    let direct = V3Client::mount(served.address(), "/tank/child").unwrap();
    assert_eq!(direct.root, child);
    let fsid = client.attributes(&root).unwrap().fsid;
    assert_ne!(client.attributes(&child).unwrap().fsid, fsid);
    assert!(client.list(&root, (true, 4096)).contains(&"child".to_owned()));
    assert_eq!(client.lookup(&child, "..").unwrap(), root);
    assert_eq!(client.remove(13, &root, "child"), Err(Status::NOTEMPTY));
    assert_eq!(client.rename((&root, "child"), (&root, "x")), Err(Status::EXIST));
    client.create(&child, "file", 0o644).unwrap();
    let crossing = client.rename((&child, "file"), (&root, "file"));
    assert_eq!(crossing, Err(Status::XDEV));

    let mut top = V3Client::mount(served.address(), "/").unwrap();
    let above = top.root.clone();
    assert_eq!(top.list(&above, (true, 4096)), ["tank"]);
    assert_eq!(top.lookup(&above, "tank").unwrap(), root);
    assert_eq!(top.create(&above, "file", 0o644), Err(Status::ROFS));
    let dir = client.make_dir(&root, "dir", 0o755).unwrap();
    let below = V3Client::mount(served.address(), "/tank/dir/").unwrap();
    assert_eq!(below.root, dir);
    assert_eq!(V3Client::mount(served.address(), "/nothing").map(|_| ()), Err(Status::ACCESS));
    assert_eq!(V3Client::mount(served.address(), "/tank/no").map(|_| ()), Err(Status::NOENT));
}

#[test]
fn directories_lead_to_exports_below_them() {
    let served = ServedPool::start();
    let mut exports = served.exports.clone();
    exports[1].path = "/tank/docs/old/photos".to_owned();
    served.server.set_exports(exports).unwrap();
    let (mut client, root) = mounted(&served);
    let photos = V3Client::mount(served.address(), "/tank/docs/old/photos").unwrap().root;
    client.create(&photos, "picture", 0o644).unwrap();
    // no such directory is stored yet
    let pseudo = client.lookup(&root, "docs").unwrap();
    assert_eq!(client.list(&pseudo, (true, 8192)), ["old"]);
    assert_eq!(client.make_dir(&root, "docs", 0o755), Err(Status::EXIST));
    let stored = client.make_dir(&root, "made", 0o755).unwrap();
    client.create(&stored, "letter", 0o644).unwrap();
    let fs = &served.exports[0].filesystem;
    let superuser = posix::Credentials::new(0, 0).with_all_capabilities();
    let context = vfs::Context::new(&superuser, vfs::DoorId::DAEMON);
    let rename = posix::RenameRequest {
        from_dir: fs.root().unwrap(),
        from_name: b"made",
        to_dir: fs.root().unwrap(),
        to_name: b"docs",
        mode: posix::RenameMode::Replace,
    };
    fs.rename(&context, &rename).unwrap();

    let docs = client.lookup(&root, "docs").unwrap();
    assert_eq!(docs, stored);
    for how in [(true, 8192), (false, 8192)] {
        assert_eq!(client.list(&root, how), ["docs"]);
        assert_eq!(client.list(&docs, how), ["letter", "old"]);
    }
    let old = client.lookup(&docs, "old").unwrap();
    assert_eq!(client.lookup(&old, "photos").unwrap(), photos);
    assert_eq!(client.lookup(&photos, "..").unwrap(), old);
    assert_eq!(client.lookup(&old, "..").unwrap(), docs);
    assert_eq!(client.lookup(&docs, "..").unwrap(), root);
    assert_eq!(V3Client::mount(served.address(), "/tank/docs").unwrap().root, docs);
    assert_eq!(client.remove(13, &docs, "old"), Err(Status::NOTEMPTY));
    client.rename((&docs, "letter"), (&root, "letter")).unwrap();
    // a name elsewhere that only looks like a crossing
    let other = client.make_dir(&root, "other", 0o755).unwrap();
    client.create(&other, "old", 0o644).unwrap();
    client.remove(12, &other, "old").unwrap();
}

#[test]
fn rules_squash_users_and_forbid_writes() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let private = client.create(&root, "private", 0o600).unwrap();
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    client.set_attributes(&root, &set).unwrap();
    let with_rules = |rules: Vec<ClientRule>| {
        let mut exports = served.exports.clone();
        for export in &mut exports {
            export.rules.clone_from(&rules);
        }
        served.server.set_exports(exports).unwrap();
    };
    with_rules(vec![ClientRule { squash: Squash::Root, anonymous: (99, 98), ..local_rule() }]);
    assert_eq!(client.read(&private, 0, 10).map(drop), Err(Status::ACCESS));
    let made = client.create(&root, "squashed", 0o600).unwrap();
    let attributes = client.attributes(&made).unwrap();
    assert_eq!((attributes.uid, attributes.gid), (99, 98));
    client.rpc.uid = 1000;
    let made = client.create(&root, "user", 0o400).unwrap();
    assert_eq!(client.attributes(&made).unwrap().uid, 1000);
    // the owner writes whatever the mode is: its program has the file open
    client.write(&made, 0, FILE_SYNC, b"data").unwrap();
    client.rpc.uid = 1001;
    assert_eq!(client.write(&made, 0, FILE_SYNC, b"data").map(drop), Err(Status::ACCESS));
    assert_eq!(client.access(&made, 0x3f), Ok(0));

    let read_only = ClientRule { is_writable: false, ..local_rule() };
    with_rules(vec![read_only]);
    client.rpc.uid = 0;
    assert_eq!(client.write(&made, 0, FILE_SYNC, b"data").map(drop), Err(Status::ROFS));
    assert_eq!(client.remove(12, &root, "user"), Err(Status::ROFS));
    assert_eq!(client.read(&made, 0, 10).unwrap().0, b"data");
    assert_eq!(client.access(&made, 0x3f), Ok(1));
    with_rules(vec![ClientRule { needs_reserved_port: true, ..local_rule() }]);
    assert_eq!(client.attributes(&made).map(drop), Err(Status::ACCESS));
    with_rules(vec![ClientRule::new("10.0.0.0/8".parse().unwrap())]);
    assert_eq!(client.attributes(&made).map(drop), Err(Status::ACCESS));
    assert_eq!(V3Client::mount(served.address(), "/tank").map(|_| ()), Err(Status::ACCESS));
}

#[test]
fn host_names_in_rules_admit_clients() {
    let served = ServedPool::start();
    let export_to = |name: &str| {
        let mut export = served.exports[0].clone();
        let clients = Clients::Host(name.to_owned());
        export.rules = vec![ClientRule { clients, ..local_rule() }];
        served.server.set_exports(vec![export]).unwrap();
    };
    let mount = || V3Client::mount(served.address(), "/tank").map(drop);
    export_to("host.invalid");
    assert_eq!(mount(), Err(Status::ACCESS));
    export_to("localhost");
    assert_eq!(mount(), Ok(()));
}

#[test]
fn patterns_of_names_admit_clients() {
    let served = ServedPool::start();
    // the address of this machine's loopback has the name localhost, which leads to it
    for (pattern, is_admitted) in [("*.example", false), ("local*", true), ("?ocalhost", true)] {
        let clients = Clients::Pattern(pattern.to_owned());
        let mut export = served.exports[0].clone();
        export.rules = vec![ClientRule { clients, ..local_rule() }];
        served.server.set_exports(vec![export]).unwrap();
        let mounted = V3Client::mount(served.address(), "/tank");
        assert_eq!(mounted.is_ok(), is_admitted, "{pattern}");
    }
}

#[test]
fn long_reads_match_a_model() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let file = client.create(&root, "file", 0o644).unwrap();
    let mut model: Vec<u8> = (0..700_001_u32).map(|at| (at % 251 + 1).to_be_bytes()[3]).collect();
    client.write(&file, 0, UNSTABLE, &model[..200_000]).unwrap();
    client.write(&file, 400_000, UNSTABLE, &model[400_000..]).unwrap();
    model[200_000..400_000].fill(0);
    for is_synced in [false, true] {
        if is_synced {
            served.pool.sync().unwrap();
        }
        for number in 0..60_u32 {
            let (offset, count) = (number * 12_345 % 720_000, 16_384 + number * 9_001);
            let begin = usize::try_from(offset).unwrap().min(model.len());
            let end = begin.saturating_add(usize::try_from(count).unwrap()).min(model.len());
            let (bytes, is_end) = client.read(&file, offset.into(), count).unwrap();
            // a server may return less than was requested
            let wanted = &model[begin..end];
            assert!(bytes == wanted, "{offset} {count}: {} bytes", bytes.len());
            assert_eq!(is_end, end == model.len());
        }
    }
}

#[test]
fn requests_may_be_sent_before_replies_are_read() {
    const SIZE: u32 = 1 << 20;
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let file = client.create(&root, "file", 0o644).unwrap();
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 512 % 251 + 1).to_be_bytes()[3]).collect();
    client.write(&file, 0, UNSTABLE, &data).unwrap();
    // more than the buffers of the sockets hold, in both directions, and fewer than the threads of a connection
    for _ in 0..8 {
        client.send_read(&file, 0, SIZE);
    }
    for _ in 0..6 {
        client.send_write(&file, 0, &data);
    }
    for _ in 0..14 {
        let reply = client.receive();
        assert!(reply.len() < 1000 || reply.windows(4096).any(|part| part == &data[..4096]));
    }
}

#[test]
fn snapshots_are_read_below_zfs() {
    let served = ServedPool::start();
    let (mut client, root) = mounted(&served);
    let file = client.create(&root, "file", 0o644).unwrap();
    client.write(&file, 0, FILE_SYNC, b"before").unwrap();
    served.pool.snapshots().create(&["tank@one".to_owned()]).unwrap();
    client.write(&file, 0, FILE_SYNC, b"behind").unwrap();
    let dirs = [".zfs", "snapshot", "one", "file"];
    let old = dirs.iter().fold(root, |dir, name| client.lookup(&dir, name).unwrap());
    assert_eq!(client.read(&old, 0, 10).unwrap().0, b"before");
    assert_eq!(client.write(&old, 0, FILE_SYNC, b"x").map(drop), Err(Status::ROFS));
    let (now, then) = (client.attributes(&file).unwrap(), client.attributes(&old).unwrap());
    assert_eq!(now.fileid, then.fileid);
    assert_ne!(now.fsid, then.fsid);
}
