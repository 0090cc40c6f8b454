//! Measures a server of NFSv4.2 with a client of its own, without a mount. `bench/nfs.sh` uses it.
//!
//! ```text
//! measure ADDRESS PATH write NAME MIB         writes a file in order, and commits it: MiB/s
//! measure ADDRESS PATH read NAME MIB          reads it in order: MiB/s
//! measure ADDRESS PATH sync NAME CLIENTS MS   4 KiB with FILE_SYNC, each client to a file of its own: writes/s
//! measure ADDRESS PATH create NAME CLIENTS MS creates and closes files: files/s
//! ```
//!
//! Transfers have eight requests of 512 KiB under way, each in a slot of one session.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nfs::wire::rpc::reply_xid;
use nfs::wire::v4::{StateId, op};

#[path = "../tests/it/client.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod client;
#[path = "../tests/it/v4_client.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod v4_client;

use v4_client::{BOTH, COMPOUND, Operations, Results, V4Client};

/// Bytes of a request.
const IO_BYTES: u32 = 512 << 10;
/// Slots of the session for transfers. Slot 0 has the other requests.
const SLOTS: u32 = 7;
const FILE_SYNC: u32 = 2;
const REQUESTS_PER_MIB: u32 = (1 << 20) / IO_BYTES;

/// A server, and the path of the directory that is measured.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    path: Vec<String>,
}

impl Target {
    fn connect(&self, name: &str) -> (V4Client, Vec<u8>) {
        // a name of its own for each run: the server would take it for a client that has restarted
        let name = format!("{name} {}", std::process::id());
        let mut client = V4Client::connect(self.address, &name);
        let parts: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let dir = client.handle(&parts).expect("the path exists");
        (client, dir)
    }
}

/// Requests of a session in several slots.
struct Pipeline<'a> {
    client: &'a mut V4Client,
    /// By slot the number of its last request.
    sequences: [u32; SLOTS as usize + 1],
    free: Vec<u32>,
    /// Used for each reply.
    reply: Vec<u8>,
    /// The requests under way: number of the call, and slot.
    under_way: Vec<(u32, u32)>,
}

impl<'a> Pipeline<'a> {
    fn new(client: &'a mut V4Client) -> Self {
        let sequences = [0; SLOTS as usize + 1];
        let free = (1..=SLOTS).collect();
        Self { client, sequences, free, reply: Vec::new(), under_way: Vec::new() }
    }

    fn send(&mut self, operations: &Operations) {
        if self.free.is_empty() {
            self.receive();
        }
        let slot = self.free.pop().expect("a slot is free");
        let sequence = &mut self.sequences[slot as usize];
        *sequence += 1;
        let mut all = Operations::default().add(op::SEQUENCE, |w| {
            w.fixed(&self.client.session);
            for number in [*sequence, slot, SLOTS, 0] {
                w.u32(number);
            }
        });
        all.count += operations.count;
        all.writer.append(operations.writer.as_bytes());
        self.client.rpc.xid += 1;
        let message = self.client.rpc.message(COMPOUND, &all.compound(2));
        self.client.rpc.send(&message);
        self.under_way.push((self.client.rpc.xid, slot));
    }

    fn receive(&mut self) {
        self.client.rpc.receive_into(&mut self.reply).expect("a reply");
        let xid = reply_xid(&self.reply).expect("a reply");
        let at = self.under_way.iter().position(|(of, _)| *of == xid).expect("a reply to a call");
        self.free.push(self.under_way.swap_remove(at).1);
        // the header of a reply that was accepted has 24 bytes; the status and the tag are behind it
        let begin = self.reply.get(24..).and_then(|rest| rest.get(..rest.len().min(64)));
        let results = Results::new(begin.expect("a reply with results").to_vec());
        assert!(results.status.is_ok(), "{:?}", results.status);
    }

    fn finish(mut self) {
        while !self.under_way.is_empty() {
            self.receive();
        }
    }
}

fn write_operations(
    file: &[u8],
    state: &StateId,
    (offset, stable): (u64, u32),
    data: &[u8],
) -> Operations {
    Operations::at(file).add(op::WRITE, |w| {
        state.write(w);
        w.u64(offset);
        w.u32(stable);
        w.opaque(data);
    })
}

/// The bytes of one request, which cannot be compressed.
fn noise() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..IO_BYTES / 8).flat_map(|_| next()).collect()
}

fn transfer(target: &Target, name: &str, mib: u32, is_write: bool) -> f64 {
    let (mut client, dir) = target.connect("transfer");
    let (state, file) = client.open(&dir, name, (BOTH, 0), true).expect("the file opens");
    let data = noise();
    let begun = Instant::now();
    let mut pipeline = Pipeline::new(&mut client);
    for number in 0..mib * REQUESTS_PER_MIB {
        let offset = u64::from(number) * u64::from(IO_BYTES);
        pipeline.send(&if is_write {
            write_operations(&file, &state, (offset, 0), &data)
        } else {
            Operations::at(&file).add(op::READ, |w| {
                state.write(w);
                w.u64(offset);
                w.u32(IO_BYTES);
            })
        });
    }
    pipeline.finish();
    if is_write {
        let commit = Operations::at(&file).add(op::COMMIT, |w| {
            w.u64(0);
            w.u32(0);
        });
        assert!(client.run(&commit).status.is_ok());
    }
    let rate = f64::from(mib) / begun.elapsed().as_secs_f64();
    client.close(&file, &state).expect("the file closes");
    rate
}

/// Runs clients side by side for a time. Each calls `work` again and again. Returns the calls in a second.
fn side_by_side(
    (clients, time): (u32, Duration),
    start: impl Fn(u32) -> Box<dyn FnMut(u32)> + Sync,
) -> f64 {
    let ready = std::sync::Barrier::new(clients as usize);
    let counts: Vec<u32> = thread::scope(|scope| {
        let run = |number| {
            let (start, ready) = (&start, &ready);
            scope.spawn(move || {
                let mut work = start(number);
                ready.wait();
                let (begun, mut count) = (Instant::now(), 0);
                while begun.elapsed() < time {
                    work(count);
                    count += 1;
                }
                count
            })
        };
        let threads: Vec<_> = (0..clients).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no failure")).collect()
    });
    f64::from(counts.iter().sum::<u32>()) / time.as_secs_f64()
}

fn sync_writes(target: &Target, name: &str, load: (u32, Duration)) -> f64 {
    side_by_side(load, |number| {
        let (mut client, dir) = target.connect(&format!("sync {number}"));
        let opened = client.open(&dir, &format!("{name}-{number}"), (BOTH, 0), true);
        let (state, file) = opened.expect("the file opens");
        let data = [7; 4096];
        Box::new(move |count| {
            let offset = u64::from(count % 4096 * 4096);
            let operations = write_operations(&file, &state, (offset, FILE_SYNC), &data);
            assert!(client.run(&operations).status.is_ok());
        })
    })
}

fn creates(target: &Target, name: &str, load: (u32, Duration)) -> f64 {
    side_by_side(load, |number| {
        let (mut client, dir) = target.connect(&format!("create {number}"));
        let name = format!("{name}-{}-{number}", std::process::id());
        Box::new(move |count| {
            let opened = client.open(&dir, &format!("{name}-{count}"), (BOTH, 0), true);
            let (state, file) = opened.expect("the file is made");
            client.close(&file, &state).expect("the file closes");
        })
    })
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u32 { words[at].parse().expect("a number") };
    let path = words[1].split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let target = Target { address: words[0].parse().expect("ADDRESS:PORT"), path };
    let load = || (number(4), Duration::from_millis(u64::from(number(5))));
    let rate = match words[2].as_str() {
        "write" => transfer(&target, &words[3], number(4), true),
        "read" => transfer(&target, &words[3], number(4), false),
        "sync" => sync_writes(&target, &words[3], load()),
        "create" => creates(&target, &words[3], load()),
        other => panic!("{other}: write, read, sync or create"),
    };
    println!("{rate:.1}");
}
