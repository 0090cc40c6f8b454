//! Single requests: errors, holes, flags, and what a flush covers.

use std::sync::Arc;

use lun::{Lun, LunOptions, Nexus, ReservationKey, ReservationType, SnapshotLun};
use nbd::Export;

use crate::client::{
    BLOCK_STATUS, CACHE, DF, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, TRIM, WRITE_ZEROES,
};
use crate::served_pool::{self, ServedPool};
use crate::volume_pool::{SIZE, VOLUME};

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;

#[test]
fn failed_requests_have_errors_of_the_protocol() {
    let limit = 1 << 20;
    let options = nbd::ServerOptions { max_request_bytes: limit, ..served_pool::options() };
    let served = ServedPool::start_with(&options, LunOptions::default());
    let mut client = served.client();
    assert_eq!(client.request((READ, 0), 1, 512).error, EINVAL);
    assert_eq!(client.request((READ, 0), SIZE, 512).error, EINVAL);
    assert_eq!(client.request((READ, 0), u64::MAX - 511, 512).error, EINVAL);
    assert_eq!(client.request((READ, FAST_ZERO), 0, 512).error, EINVAL);
    assert_eq!(client.request((READ, 0), 0, (1 << 20) + 512).error, EOVERFLOW);
    assert_eq!(client.write(0, 0, &vec![1; limit + 512]).error, EINVAL);
    assert_eq!(client.write(0, 1, &[1; 512]).error, EINVAL);
    assert_eq!(client.write(0, SIZE - 512, &[1; 1024]).error, ENOSPC);
    assert_eq!(client.request((WRITE_ZEROES, 0), SIZE, 512).error, ENOSPC);
    assert_eq!(client.request((WRITE_ZEROES, NO_HOLE), SIZE, u32::MAX - 511).error, ENOSPC);
    assert_eq!(client.request((TRIM, 0), SIZE, 512).error, EINVAL);
    assert_eq!(client.request((TRIM, 0), u64::MAX - 511, 512).error, EINVAL);
    assert_eq!(client.request((CACHE, 0), SIZE, 512).error, EINVAL);
    assert_eq!(client.request((BLOCK_STATUS, 0), SIZE - 512, 1024).error, EINVAL);
    assert_eq!(client.request((BLOCK_STATUS, 0), 0, 0).error, EINVAL);
    let unknown = client.request((77, 0), 0, 0);
    assert_eq!((unknown.error, &unknown.message[..]), (EINVAL, "unknown command"));
    // nothing was written, and the connection continues
    assert_eq!(client.request((READ, 0), 0, 1024).data(0), [0; 1024]);
    assert_eq!(client.request((READ, 0), 0, 0).error, 0);
    assert_eq!(client.write(0, 0, &[]).error, 0);
    let simple = served.simple_client().request((READ, 0), 1, 512);
    assert_eq!((simple.error, simple.content.len()), (EINVAL, 0));
}

#[test]
fn read_only_exports_refuse_changes() {
    let unit = LunOptions { read_only: true, ..LunOptions::default() };
    let served = ServedPool::start_with(&served_pool::options(), unit);
    let mut client = served.client();
    assert_eq!(client.write(0, 0, &[1; 512]).error, EPERM);
    assert_eq!(client.request((TRIM, 0), 0, 8192).error, EPERM);
    assert_eq!(client.request((WRITE_ZEROES, 0), 0, 8192).error, EPERM);
    assert_eq!(client.request((FLUSH, 0), 0, 0).error, 0);
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
}

#[test]
fn snapshots_are_read_only_exports() {
    let served = ServedPool::start();
    let mut writer = served.client();
    assert_eq!(writer.write(0, 8192, &[1; 8192]).error, 0);
    let name = format!("{VOLUME}@past");
    served.pool.snapshots().create(std::slice::from_ref(&name)).unwrap();
    assert_eq!(writer.write(0, 8192, &[2; 8192]).error, 0);
    let past = SnapshotLun::open(&served.pool, &name, LunOptions::default()).unwrap();
    let networks = served_pool::loopback();
    let (name, description, unit) = ("disk".to_owned(), String::new(), Arc::new(past));
    served.server.set_exports(vec![Export { name, description, networks, unit }]).unwrap();
    let mut client = served.client();
    assert_eq!(client.flags & 2, 2, "read-only");
    assert_eq!(client.request((READ, 0), 8192, 8192).data(8192), [1; 8192]);
    assert_eq!(
        client.request((BLOCK_STATUS, 0), 0, 24576).extents,
        [(8192, 3), (8192, 0), (8192, 3)]
    );
    assert_eq!(client.write(0, 0, &[1; 512]).error, EPERM);
}

#[test]
fn zeros_are_read_as_holes() {
    let served = ServedPool::start();
    let mut client = served.client();
    assert_eq!(client.write(0, 8192, &[7; 8192]).error, 0);
    let reply = client.request((READ, 0), 4096, 16384);
    let pieces = [(4096, Err(4096)), (8192, Ok(vec![7; 8192])), (16384, Err(4096))];
    assert_eq!(reply.content, pieces);
    let whole = client.request((READ, DF), 4096, 16384);
    assert_eq!(whole.content.len(), 1);
    assert!(whole.content[0].1.is_ok() && whole.data(4096) == reply.data(4096));
}

#[test]
fn block_status_tells_mapped_ranges() {
    let served = ServedPool::start();
    let mut client = served.client();
    assert_eq!(client.write(0, 8192, &[7; 16384]).error, 0);
    let rest = u32::try_from(SIZE).unwrap() - 24576;
    let all = client.request((BLOCK_STATUS, 0), 0, u32::try_from(SIZE).unwrap());
    assert_eq!(all.extents, [(8192, 3), (16384, 0), (rest, 3)]);
    let one = client.request((BLOCK_STATUS, REQ_ONE), 8192, 4096);
    assert_eq!(one.extents, [(4096, 0)]);
    assert_eq!(client.request((TRIM, FUA), 8192, 16384).error, 0);
    let all = client.request((BLOCK_STATUS, 0), 0, u32::try_from(SIZE).unwrap());
    assert_eq!(all.extents, [(u32::try_from(SIZE).unwrap(), 3)]);
}

#[test]
fn fast_zeroes_are_refused_unless_fast() {
    let served = ServedPool::start();
    let mut client = served.client();
    assert_eq!(client.write(0, 0, &vec![7; 32768]).error, 0);
    // no whole block of the volume, or data is wanted
    assert_eq!(client.request((WRITE_ZEROES, FAST_ZERO), 512, 8192).error, ENOTSUP);
    assert_eq!(client.request((WRITE_ZEROES, FAST_ZERO | NO_HOLE), 0, 8192).error, ENOTSUP);
    assert_eq!(client.request((READ, 0), 0, 32768).data(0), vec![7; 32768]);
    assert_eq!(client.request((WRITE_ZEROES, FAST_ZERO), 512, 16384).error, 0);
    assert_eq!(client.request((WRITE_ZEROES, NO_HOLE | FUA), 16896, 8192).error, 0);
    let expected = [vec![7; 512], vec![0; 24576], vec![7; 7680]].concat();
    assert!(client.request((READ, 0), 0, 32768).data(0) == expected);
}

#[test]
fn reservations_of_other_initiators_are_respected() {
    let served = ServedPool::start();
    let mut client = served.client();
    let (nexus, key) = (Nexus(b"iqn.node".to_vec()), ReservationKey(7));
    let reservations = served.unit.reservations();
    reservations.register(&nexus, None, key, None).unwrap();
    reservations.reserve(&nexus, key, ReservationType::WriteExclusive).unwrap();
    assert_eq!(client.write(0, 0, &[1; 512]).error, EPERM);
    assert_eq!(client.request((WRITE_ZEROES, 0), 0, 8192).error, EPERM);
    assert_eq!(client.request((READ, 0), 0, 512).data(0), [0; 512]);
    reservations.release(&nexus, key, ReservationType::WriteExclusive).unwrap();
    assert_eq!(client.write(0, 0, &[1; 512]).error, 0);
}

#[test]
fn flush_covers_other_connections_after_power_cut() {
    let served = ServedPool::start();
    let (mut writer, mut other) = (served.client(), served.client());
    assert_eq!(writer.write(0, 0, &[1; 8192]).error, 0);
    assert_eq!(other.write(0, 8192, &[2; 8192]).error, 0);
    assert_eq!(other.request((FLUSH, 0), 0, 0).error, 0);
    assert_eq!(writer.write(FUA, 16384, &[3; 512]).error, 0);
    assert_eq!(writer.request((WRITE_ZEROES, FUA), 8192, 512).error, 0);
    let after = served.import_after_power_cut();
    let mut found = vec![9; 16896];
    served_pool::open_unit(&after, LunOptions::default()).read(0, &mut found).unwrap();
    let expected = [vec![1; 8192], vec![0; 512], vec![2; 7680], vec![3; 512]].concat();
    assert!(found == expected);
}

#[test]
fn reads_in_a_row_have_their_data() {
    let served = ServedPool::start();
    for mut client in [served.client(), served.simple_client()] {
        let data: Vec<u8> =
            (0..600 * 512_u32).map(|at| (at / 512 % 251 + 1).to_be_bytes()[3]).collect();
        assert_eq!(client.write(0, 0, &data).error, 0);
        // short ones are answered from memory by the thread that reads, many with one system call
        let ranges: Vec<(u64, u32)> = (0..60)
            .map(|number| (number * 1536, if number % 9 == 4 { 200 * 512 } else { 9216 }))
            .collect();
        let cookies: Vec<u64> = ranges
            .iter()
            .map(|(offset, length)| client.send((READ, 0), *offset, *length))
            .collect();
        for ((offset, length), cookie) in ranges.into_iter().zip(cookies) {
            let start = usize::try_from(offset).unwrap();
            let reply = client.reply(cookie);
            assert_eq!(reply.error, 0);
            let wanted = &data[start..start + usize::try_from(length).unwrap()];
            assert!(reply.data(offset) == wanted, "{offset} {length}");
        }
    }
}

#[test]
fn requests_may_be_sent_before_replies_are_read() {
    const SIZE: u32 = 2 << 20;
    let served = ServedPool::start();
    let mut client = served.client();
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 512 % 251 + 1).to_be_bytes()[3]).collect();
    assert_eq!(client.write(0, 0, &data).error, 0);
    // more than the buffers of the sockets hold, in both directions, and fewer than the threads of a connection
    let reads: Vec<u64> = (0..8).map(|_| client.send((READ, 0), 0, SIZE)).collect();
    let writes: Vec<u64> = (0..4).map(|_| client.send_write(0, 0, &data)).collect();
    for cookie in reads {
        assert!(client.reply(cookie).data(0) == data);
    }
    for cookie in writes {
        assert_eq!(client.reply(cookie).error, 0);
    }
}
