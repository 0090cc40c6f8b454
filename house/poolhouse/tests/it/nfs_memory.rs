//! Threads and memory of a daemon with a thousand NFS clients that are connected and silent.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::shares::free_port;
use crate::test_nas::TestNas;
use crate::v3_client::{UNSTABLE, V3Client};
use crate::v4_client::{BOTH, V4Client};

const CLIENTS_OF_A_VERSION: usize = 500;
/// The memory that the daemon may use, and the same in KiB.
const LIMIT: (&str, u64) = ("512M", 512 << 10);
/// Threads that the daemon may have besides those that it had before. Its runtime keeps some for a while.
const THREADS: u64 = 16;

/// A number in the daemon's status: `Threads`, or `VmRSS` in KiB.
fn status_number(nas: &TestNas, field: &str) -> u64 {
    let log = nas.read_log();
    let pid = log.lines().filter_map(|line| line.split(" as process ").nth(1)).next_back().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:"))).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A client of each version of the protocol, with a file open.
fn connect(address: SocketAddr, number: usize) -> (V3Client, V4Client) {
    let v3 = V3Client::mount(address, "/tank").unwrap();
    let mut v4 = V4Client::connect(address, &format!("client {number}"));
    let root = v4.handle(&["tank"]).unwrap();
    v4.open(&root, "file", (BOTH, 0), true).unwrap();
    (v3, v4)
}

/// Requests with much data, each of which takes buffers.
fn use_clients(clients: &mut [(V3Client, V4Client)]) {
    let data = vec![7; 256 << 10];
    for (v3, v4) in clients {
        let root = v3.root.clone();
        let file = v3.lookup(&root, "file").unwrap();
        v3.write(&file, 0, UNSTABLE, &data).unwrap();
        assert_eq!(v3.read(&file, 0, 256 << 10).unwrap().0.len(), data.len());
        v4.handle(&["tank", "file"]).unwrap();
        let message = v3.rpc.message((100_003, 3, 0), &[]);
        // more than one thread of a connection
        for _ in 0..8 {
            v3.rpc.send(&message);
        }
        for _ in 0..8 {
            v3.rpc.receive();
        }
    }
}

#[test]
fn silent_nfs_clients_stay_within_memory_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let nas = TestNas::new("nfs-memory", 1);
    let words = ["serve", "--background", "--memory", LIMIT.0, "--state"];
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    let streams = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = streams.args(words).arg(nas.state_dir()).spawn().unwrap();
    nas.wait_until(|| nas.read_log().contains("listening on"));
    nas.create_pool("-m none tank", 1);
    let port = free_port();
    nas.run_ok("share add nfs tank -o path=/tank -o squash=none");
    nas.run_ok(&format!("config set nfs.listen {port}"));
    nas.run_ok("share status");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // what the first clients take stays
    let mut clients: Vec<_> = (0..4).map(|number| connect(address, number)).collect();
    use_clients(&mut clients);
    let before = (status_number(&nas, "Threads"), status_number(&nas, "VmRSS"));
    clients.extend((4..CLIENTS_OF_A_VERSION).map(|number| connect(address, number)));
    for _ in 0..2 {
        use_clients(&mut clients);
        nas.wait_until(|| status_number(&nas, "Threads") <= before.0 + THREADS);
        nas.wait_until(|| status_number(&nas, "VmRSS") <= LIMIT.1);
        let (count, memory) = (2 * clients.len(), status_number(&nas, "VmRSS"));
        eprintln!("{count} silent clients: {} KiB before, {memory} KiB now", before.1);
    }
    nas.run_ok("zpool export -f tank");
    nas.run_ok("serve --stop");
    daemon.wait().unwrap();
}
