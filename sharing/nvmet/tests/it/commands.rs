//! Commands on a namespace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::Pool;
use lun::Reservations;
use nvmet::ServerOptions;

use crate::host::{BLOCK, COMPARE, Connect, Entry, FLUSH, Host, Queue, READ, WRITE, le16, le32};
use crate::served_pool::{ServedPool, open_namespace, options, wait_until};
use crate::volume_pool::SIZE;

const OUT_OF_RANGE: u16 = 0x080;
const INVALID_NAMESPACE: u16 = 0x00b;
const WRONG_LENGTH: u16 = 0x00f;
const COMPARE_FAILURE: u16 = 0x285;
const FAILED_FUSED: u16 = 0x009;
const MISSING_FUSED: u16 = 0x00a;
const FORCE_UNIT_ACCESS: u32 = 1 << 30;

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| seed.wrapping_add(u8::try_from(at % 251).expect("8 bits"))).collect()
}

#[test]
fn data_come_back_with_all_digests() {
    let served = ServedPool::start();
    for digests in 0..4 {
        let connect = Connect { host: digests + 1, ..Connect::default() };
        let mut host = Host::connect_with(served.address(), digests, connect);
        // in the capsule, and in PDUs of their own
        for (first, length) in [(0, BLOCK), (7, 16 << 10), (64, 256 << 10), (1000, 1 << 20)] {
            let data = pattern(digests, length);
            assert_eq!(host.io.write(first, &data).status, 0);
            let read = host.io.read(first, u16::try_from(length / BLOCK).unwrap());
            assert_eq!((read.status, read.data == data), (0, true), "{digests} {length}");
        }
    }
}

#[test]
fn data_are_aligned_as_hosts_want() {
    let served = ServedPool::start();
    let host = served.host();
    let mut io = Queue::open_aligned(served.address(), 3, 31);
    let connect = Connect { queue: 2, controller: host.controller, ..Connect::default() };
    assert_eq!(connect.run(&mut io).status, 0);
    let data = pattern(4, BLOCK);
    assert_eq!(io.write(0, &data).status, 0);
    io.submit(Entry::new(READ, 1).blocks(0, 1).data(BLOCK, false), &[]);
    let pdu = io.receive().unwrap();
    assert_eq!((pdu.kind, pdu.header[3], pdu.data), (7, 128, data));
}

#[test]
fn reads_without_flow_control_need_no_response() {
    let served = ServedPool::start();
    let connect = Connect { attributes: 4, ..Connect::default() };
    let mut host = Host::connect_with(served.address(), 3, connect);
    let id = host.io.submit(Entry::new(READ, 1).blocks(0, 1).data(BLOCK, false), &[]);
    let pdu = host.io.receive().unwrap();
    assert_eq!((pdu.kind, pdu.flags & 0x0c, le16(&pdu.header, 8)), (7, 0x0c, id));
    assert_eq!(host.io.run(Entry::new(FLUSH, 1)).status, 0);
}

#[test]
fn blocks_behind_the_end_are_refused() {
    let served = ServedPool::start();
    let mut host = served.host();
    let last = SIZE / 512 - 1;
    assert_eq!(host.io.read(last, 1).status, 0);
    assert_eq!(host.io.read(last, 2).status, OUT_OF_RANGE);
    assert_eq!(host.io.read(u64::MAX, 1).status, OUT_OF_RANGE);
    assert_eq!(host.io.write(last, &[0; 1024]).status, OUT_OF_RANGE);
    let short = Entry::new(READ, 1).blocks(0, 2);
    assert_eq!(host.io.run_for(short, BLOCK).status, WRONG_LENGTH);
    let unknown = Entry::new(READ, 2).blocks(0, 1);
    assert_eq!(host.io.run_for(unknown, BLOCK).status, INVALID_NAMESPACE);
    assert_eq!(host.io.run(Entry::new(0x7e, 1)).status, 0x001);
}

#[test]
fn flush_and_fua_survive_a_power_cut() {
    for is_forced in [false, true] {
        let served = ServedPool::start();
        let mut host = served.host();
        let data = pattern(9, 8192);
        let write = Entry::new(WRITE, 1).blocks(16, 16);
        let force = if is_forced { FORCE_UNIT_ACCESS } else { 0 };
        let write = write.dword(12, 15 | force);
        assert_eq!(host.io.run_with(write, &data).status, 0);
        if !is_forced {
            assert_eq!(host.io.run(Entry::new(FLUSH, u32::MAX)).status, 0);
        }
        let pool = served.import_after_power_cut();
        let found = open_namespace(&pool, Reservations::default());
        let mut read = vec![0; 8192];
        found.lun.read(16 * 512, &mut read).unwrap();
        assert!(read == data, "forced: {is_forced}");
    }
}

#[test]
fn writes_are_durable_without_write_cache() {
    let served = ServedPool::start();
    let mut host = served.host();
    let feature = |number| Entry::new(0x0a, 0).dword(10, number);
    assert_eq!(host.admin.run(feature(6)).result, 1);
    assert_eq!(host.admin.run(Entry::new(0x09, 0).dword(10, 6)).status, 0);
    assert_eq!(host.admin.run(feature(6)).result, 0);
    assert_eq!(host.io.write(3, &pattern(5, BLOCK)).status, 0);
    let pool = served.import_after_power_cut();
    let mut read = vec![0; BLOCK];
    open_namespace(&pool, Reservations::default()).lun.read(3 * 512, &mut read).unwrap();
    assert_eq!(read, pattern(5, BLOCK));
}

#[test]
fn freed_and_zeroed_blocks_read_as_zeros() {
    let served = ServedPool::start();
    let mut host = served.host();
    assert_eq!(host.io.write(0, &pattern(1, 64 << 10)).status, 0);
    let range = |blocks: u32, first: u64| {
        [&[0; 4][..], &blocks.to_le_bytes(), &first.to_le_bytes()].concat()
    };
    let ranges = [range(16, 0), range(0, 5), range(16, 32)].concat();
    let deallocate = Entry::new(0x09, 1).dword(10, 2).dword(11, 4);
    assert_eq!(host.io.run_with(deallocate, &ranges).status, 0);
    assert_eq!(host.io.run(Entry::new(0x08, 1).blocks(70, 3)).status, 0);
    let read = host.io.read(0, 128).data;
    let is_zero = |block: usize| read[block * BLOCK..(block + 1) * BLOCK].iter().all(|b| *b == 0);
    let zeros: Vec<usize> = (0..128).filter(|block| is_zero(*block)).collect();
    let expected: Vec<usize> = (0..16).chain(32..48).chain(70..73).collect();
    assert_eq!(zeros, expected);
    // no range is freed if one is wrong
    let ranges = [range(16, 100), range(16, u64::MAX)].concat();
    let deallocate = Entry::new(0x09, 1).dword(10, 1).dword(11, 4);
    assert_eq!(host.io.run_with(deallocate, &ranges).status, OUT_OF_RANGE);
    assert_eq!(host.io.read(100, 16).data, pattern(1, 64 << 10)[100 * BLOCK..116 * BLOCK]);
}

#[test]
fn compare_finds_a_difference() {
    let served = ServedPool::start();
    let mut host = served.host();
    let data = pattern(3, 1024);
    host.io.write(10, &data);
    let compare = Entry::new(COMPARE, 1).blocks(10, 2);
    assert_eq!(host.io.run_with(compare, &data).status, 0);
    assert_eq!(host.io.run_with(compare, &pattern(4, 1024)).status, COMPARE_FAILURE);
    assert_eq!(host.io.run(Entry::new(0x0c, 1).blocks(10, 2)).status, 0, "verify");
}

/// Submits a fused pair. Returns the statuses of both.
fn run_pair(queue: &mut Queue, expected: &[u8], new: &[u8]) -> (u16, u16) {
    let count = u16::try_from(new.len() / BLOCK).unwrap();
    let in_capsule = new.len() <= 16 << 10;
    let entry = |opcode, place, data: &[u8]| {
        Entry::new(opcode, 1).blocks(40, count).fuse(place).data(data.len(), in_capsule)
    };
    let first = queue.submit(entry(COMPARE, 1, expected), if in_capsule { expected } else { &[] });
    let second = queue.submit(entry(WRITE, 2, new), if in_capsule { new } else { &[] });
    let mut statuses = (None, None);
    while statuses.0.is_none() || statuses.1.is_none() {
        let pdu = queue.receive().expect("a connection");
        if pdu.kind == 9 {
            let out = if le16(&pdu.header, 8) == first { expected } else { new };
            queue.send_data(&pdu.header, out);
            continue;
        }
        let status = Some(le16(&pdu.header, 22) >> 1 & 0x7ff);
        match le16(&pdu.header, 20) {
            id if id == first => statuses.0 = status,
            id if id == second => statuses.1 = status,
            id => panic!("command {id}"),
        }
    }
    (statuses.0.unwrap(), statuses.1.unwrap())
}

#[test]
fn fused_pairs_write_what_was_expected() {
    let served = ServedPool::start();
    let mut host = served.host();
    for length in [BLOCK, 64 << 10] {
        let (old, new) = (vec![0; length], pattern(7, length));
        host.io.write(40, &old);
        assert_eq!(run_pair(&mut host.io, &old, &new), (0, 0));
        assert_eq!(run_pair(&mut host.io, &old, &old), (COMPARE_FAILURE, FAILED_FUSED));
        let count = u16::try_from(length / BLOCK).unwrap();
        assert!(host.io.read(40, count).data == new);
    }
}

#[test]
fn half_a_fused_pair_fails() {
    let served = ServedPool::start();
    let mut host = served.host();
    let data = vec![0; BLOCK];
    let half = |opcode, place| Entry::new(opcode, 1).blocks(40, 1).fuse(place);
    assert_eq!(host.io.run_with(half(WRITE, 2), &data).status, MISSING_FUSED);
    let first = host.io.submit(half(COMPARE, 1).data(BLOCK, true), &data);
    let flush = host.io.submit(Entry::new(FLUSH, 1).data(0, false), &[]);
    assert_eq!(host.io.complete(first, &[]).status, MISSING_FUSED);
    assert_eq!(host.io.complete(flush, &[]).status, 0);
}

#[test]
fn copies_take_their_ranges_together() {
    let served = ServedPool::start();
    let mut host = served.host();
    let data = pattern(2, 64 << 10);
    host.io.write(0, &data);
    let range = |first: u64, count: u16| {
        let count = (count - 1).to_le_bytes();
        [&[0; 8][..], &first.to_le_bytes(), &count, &[0; 14]].concat()
    };
    let copy =
        |to: u64, ranges: u32| Entry::new(0x19, 1).put(40, &to.to_le_bytes()).dword(12, ranges - 1);
    let ranges = [range(100, 20), range(3, 30)].concat();
    assert_eq!(host.io.run_with(copy(1000, 2), &ranges).status, 0);
    let expected = [&data[100 * BLOCK..120 * BLOCK], &data[3 * BLOCK..33 * BLOCK]].concat();
    assert!(host.io.read(1000, 50).data == expected);
    assert_eq!(host.io.run_with(copy(10, 1), &range(3, 30)).status, 0x002, "overlapping");
    assert_eq!(host.io.run_with(copy(1 << 40, 1), &range(3, 30)).status, OUT_OF_RANGE);
    assert_eq!(host.io.run_with(copy(0, 17), &ranges).status, 0x183);
}

#[test]
fn many_commands_run_together() {
    let options = ServerOptions { max_write_bytes: 1 << 20, ..options() };
    let served = ServedPool::start_with(&options);
    let mut host = served.host();
    let data = |number: u16| pattern(u8::try_from(number).unwrap(), 64 << 10);
    let write = |number: u16| Entry::new(WRITE, 1).blocks(u64::from(number) * 128, 128);
    // more than the memory of the queue takes at once
    let first = host.io.submit(write(0).data(64 << 10, false), &[]);
    for number in 1..24 {
        host.io.submit(write(number).data(64 << 10, false), &[]);
    }
    let mut done = 0;
    while done < 24 {
        let pdu = host.io.receive().unwrap();
        match pdu.kind {
            9 => {
                let number = le16(&pdu.header, 8) - first;
                host.io.send_data(&pdu.header, &data(number));
            }
            5 => {
                assert_eq!(le16(&pdu.header, 22), 0);
                done += 1;
            }
            _ => panic!("{pdu:?}"),
        }
    }
    for number in 0..24 {
        assert!(host.io.read(u64::from(number) * 128, 128).data == data(number));
    }
}

#[test]
fn reads_in_a_row_have_their_data() {
    let served = ServedPool::start();
    let mut host = served.host();
    for block in 0..16 {
        let seed = u8::try_from(block).unwrap() + 1;
        assert_eq!(host.io.write(block * 16, &pattern(seed, 8192)).status, 0);
    }
    let read = |number: u64| {
        // short ones are answered from memory by the thread that reads, and long ones by others
        let blocks = if number % 9 == 4 { 240 } else { 16 };
        let entry = Entry::new(READ, 1).blocks(number % 16, blocks);
        entry.data(usize::from(blocks) * 512, false)
    };
    let whole: Vec<u8> = (0..16_u8).flat_map(|seed| pattern(seed + 1, 8192)).collect();
    let ids: Vec<u16> = (0..24).map(|number| host.io.submit(read(number), &[])).collect();
    let index = |id: u16| ids.iter().position(|known| *known == id).expect("a command of ours");
    let (mut found, mut left) = (vec![Vec::new(); ids.len()], ids.len());
    while left > 0 {
        let pdu = host.io.receive().expect("a connection");
        if pdu.kind == 7 {
            found[index(le16(&pdu.header, 8))].extend(pdu.data);
        } else {
            assert_eq!((pdu.kind, le16(&pdu.header, 22) >> 1), (5, 0), "{pdu:?}");
            assert!(!found[index(le16(&pdu.header, 20))].is_empty(), "the data come first");
            left -= 1;
        }
    }
    for (number, found) in found.into_iter().enumerate() {
        let start = number % 16 * 512;
        let length = if number % 9 == 4 { 240 * 512 } else { 8192 };
        assert!(found == whole[start..start + length], "command {number}");
    }
}

/// Has work done while a thread writes txgs, without which a pool is not suspended but closed.
fn with_sync_thread(pool: &Pool, work: impl FnOnce()) {
    struct CloseOnDrop<'a>(&'a AtomicBool, &'a Pool);
    impl Drop for CloseOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // a suspended pool would wait for ever
            let _ = self.1.close();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.background().run_txg_sync(Duration::from_millis(20), &stop));
        let _close = CloseOnDrop(&stop, pool);
        wait_until("the sync thread", || pool.background().has_sync_thread());
        work();
    });
}

#[test]
fn commands_wait_for_a_suspended_pool() {
    let served = ServedPool::start();
    with_sync_thread(&served.pool, || {
        let suspend = || {
            served.fail_drive(true);
            assert!(served.pool.sync().is_err());
            assert_eq!(served.pool.status().state, "SUSPENDED");
        };
        let resume = || {
            served.fail_drive(false);
            served.pool.clear_errors(None).unwrap();
        };
        let mut host = served.host();
        suspend();
        let data = pattern(1, 8192);
        let write = Entry::new(WRITE, 1).blocks(16, 16).data(8192, true);
        let id = host.io.submit(write, &data);
        wait_until("the write", || served.server.status().controllers[0].in_flight == 1);
        // the admin queue is answered meanwhile
        assert_eq!(host.admin.run(Entry::new(0x18, 0)).status, 0);
        resume();
        assert_eq!(host.io.complete(id, &[]).status, 0);
        // with failmode=continue the host is told, and with wait the end of the server ends the command
        served.pool.properties().set_pool("failmode", "continue").unwrap();
        suspend();
        assert_eq!(host.io.write(16, &data).status, 0x082);
        resume();
        served.pool.properties().set_pool("failmode", "wait").unwrap();
        suspend();
        host.io.submit(write, &data);
        wait_until("the write", || served.server.status().controllers[0].in_flight == 1);
        assert_eq!(served.server.stop(), 0);
        resume();
    });
}

#[test]
fn sizes_are_those_of_the_volume() {
    let served = ServedPool::start();
    let mut host = served.host();
    let page = host.identify(0, 1).data;
    assert_eq!(u64::from(le32(&page, 0)), SIZE / 512);
    assert_eq!(page[130], 9);
    // volblocksize is 8 KiB
    assert_eq!((le16(&page, 64), le16(&page, 68)), (15, 15));
    assert!(host.identify(0, 2).data.iter().all(|byte| *byte == 0));
}
