//! SCSI commands over a session: data both ways, thin provisioning, modes, residuals.

use iscsi::UnitId;
use lun::{Durability, Reservations};

use crate::initiator::{Initiator, Pdu, read10, write10};
use crate::served_pool::{ServedPool, open_unit};
use crate::volume_pool::{SIZE, VOLUME};

/// Bytes that differ from block to block.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at / 512 + at) % 251).unwrap()).collect()
}

fn write_and_read(initiator: &mut Initiator, length: usize) {
    let data = pattern(length);
    let blocks = u16::try_from(length / 512).unwrap();
    initiator.write(&write10(0, 16, blocks), &data).good();
    assert!(initiator.read(&read10(16, blocks), length).good() == data);
}

#[test]
fn data_comes_immediately_or_for_r2ts() {
    let served = ServedPool::start();
    for (immediate, segment, keys) in [
        (8192, 8192, &[][..]),
        (0, 512, &[("ImmediateData", "No"), ("MaxBurstLength", "2048")]),
        (512, 1500, &[("MaxRecvDataSegmentLength", "700"), ("MaxBurstLength", "3000")]),
        (4096, 8192, &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]),
    ] {
        let mut initiator = served.initiator_with(1, keys);
        assert_eq!(initiator.digests, immediate == 4096);
        (initiator.immediate, initiator.segment) = (immediate, segment);
        for length in [512, 4096, 65_536, 300_032] {
            write_and_read(&mut initiator, length);
        }
    }
}

#[test]
fn unsolicited_data_is_taken() {
    let served = ServedPool::start();
    let mut initiator =
        served.initiator_with(1, &[("InitialR2T", "No"), ("FirstBurstLength", "4096")]);
    let data = pattern(8192);
    let command = initiator.command_pdu(0x21, &write10(0, 0, 16), 8192, &data[..1024]);
    initiator.send(&command);
    let tag = command.at(16);
    for (number, at) in [(0, 1024), (1, 2048)] {
        let flags = if number == 1 { 0x80 } else { 0 };
        let end = if number == 1 { 4096 } else { 2048 };
        let part = Pdu::new(0x05, flags, &data[at..end])
            .u32(16, tag)
            .u32(20, u32::MAX)
            .u32(36, number)
            .u32(40, u32::try_from(at).unwrap());
        initiator.send(&part);
    }
    initiator.answer(tag, &data).good();
    assert!(initiator.read(&read10(0, 16), 8192).good() == data);
}

#[test]
fn capacity_and_pages_describe_the_volume() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let capacity = initiator.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).good();
    let last = u32::try_from(SIZE / 512 - 1).unwrap();
    assert_eq!(capacity, [last.to_be_bytes(), 512_u32.to_be_bytes()].concat());
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let capacity = initiator.read(&cdb, 32).good();
    assert_eq!(capacity[13..15], [4, 0xc0], "16 blocks in a physical one; thin, zeros");
    let page =
        |initiator: &mut Initiator, page| initiator.read(&[0x12, 1, page, 1, 0, 0], 256).good();
    let serial = page(&mut initiator, 0x80);
    assert_eq!(serial[4..], *UnitId::new(&served.unit.guids).to_string().as_bytes());
    let names = page(&mut initiator, 0x83);
    assert_eq!(names[8..16], UnitId::new(&served.unit.guids).naa());
    let listed = page(&mut initiator, 0x00);
    for code in &listed[4..] {
        assert_eq!(page(&mut initiator, *code)[1], *code);
    }
    assert_eq!(initiator.read(&[0x12, 1, 0x99, 1, 0, 0], 256).check(), (5, 0x24, 0));
    let units = initiator.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256).good();
    assert_eq!(units, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    initiator.lun = 7;
    assert_eq!(initiator.read(&[0x12, 0, 0, 0, 96, 0], 96).good()[0], 0x7f);
    assert_eq!(initiator.read(&read10(0, 1), 512).check(), (5, 0x25, 0));
}

#[test]
fn residuals_are_counted() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    for (expected, residual, length) in
        [(1024, (0, 0), 1024), (1500, (2, 476), 1024), (700, (4, 324), 700), (0, (4, 1024), 0)]
    {
        let answer = initiator.read(&read10(0, 2), expected);
        assert_eq!((answer.status, answer.residual, answer.data.len()), (0, residual, length));
    }
    let answer = initiator.write(&write10(0, 0, 2), &[7; 1500]);
    assert_eq!((answer.status, answer.residual), (0, (2, 476)));
    // an initiator that has less data writes the whole blocks of it
    let answer = initiator.write(&write10(0, 8, 2), &[9; 700]);
    assert_eq!((answer.status, answer.residual), (0, (4, 324)));
    assert_eq!(initiator.read(&read10(9, 1), 512).good(), [0; 512]);
}

#[test]
fn ranges_outside_the_unit_are_refused() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let end = u32::try_from(SIZE / 512).unwrap();
    assert_eq!(initiator.read(&read10(end, 0), 0).status, 0);
    for cdb in [read10(end, 1), read10(end - 1, 2), read10(u32::MAX, 1)] {
        assert_eq!(initiator.read(&cdb, 1024).check(), (5, 0x21, 0));
    }
    // no R2T comes for data that would go nowhere
    assert_eq!(initiator.write(&write10(0, end - 1, 64), &vec![1; 32_768]).check(), (5, 0x21, 0));
    assert_eq!(initiator.read(&[0xff; 16], 0).check(), (5, 0x20, 0));
    let mut protected = read10(0, 1);
    protected[1] = 0x20;
    assert_eq!(initiator.read(&protected, 512).check(), (5, 0x24, 0));
}

#[test]
fn unmap_and_write_same_free_space() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    initiator.write(&write10(0, 0, 64), &vec![5; 32_768]).good();
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend([0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 18, 0, 0, 0, 0]);
    initiator.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).good();
    let read = initiator.read(&read10(0, 64), 32_768).good();
    let is_zeroed = |block: usize| (15..33).contains(&block);
    for (block, bytes) in read.chunks(512).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == if is_zeroed(block) { 0 } else { 5 }), "{block}");
    }
    let mut status = [0; 16];
    (status[0], status[1], status[13]) = (0x9e, 0x12, 56);
    let found = initiator.read(&status, 56).good();
    // one block of the volume mapped, one not, two mapped
    assert_eq!(found[8..21], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0]);
    assert_eq!(found[24..37], [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 16, 1]);
    let mut same = [0; 16];
    (same[0], same[13]) = (0x93, 40);
    initiator.write(&same, &[3; 512]).good();
    assert_eq!(initiator.read(&read10(0, 40), 20_480).good(), vec![3; 20_480]);
    (same[1], same[13]) = (9, 40);
    assert_eq!(initiator.read(&same, 0).status, 0, "zeros without data");
    assert_eq!(initiator.read(&read10(0, 40), 20_480).good(), vec![0; 20_480]);
    list[19] = 0xff;
    list[16] = 0xff;
    assert_eq!(initiator.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).check(), (5, 0x26, 0));
}

#[test]
fn compare_and_write_is_one_step() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 2);
    let data = [[0; 1024], [4; 1024]].concat();
    initiator.write(&cdb, &data).good();
    assert_eq!(initiator.write(&cdb, &data).check(), (0xe, 0x1d, 0));
    assert_eq!(initiator.read(&read10(0, 2), 1024).good(), [4; 1024]);
    assert_eq!(initiator.write(&cdb, &data[..1024]).check(), (5, 0x24, 0), "too little data");
}

/// EXTENDED COPY of blocks of one unit, by its NAA name.
fn copy_list(name: [u8; 8], (from, to): (u64, u64), blocks: u16) -> Vec<u8> {
    let mut list = vec![1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([0xe4, 0, 0, 0, 1, 3, 0, 8]);
    list.extend(name);
    list.extend([0; 14]);
    list.extend([2, 0]);
    list.extend([2, 0, 0, 24, 0, 0, 0, 0, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend(from.to_be_bytes());
    list.extend(to.to_be_bytes());
    list
}

#[test]
fn extended_copy_keeps_data_and_holes() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let name = UnitId::new(&served.unit.guids).naa();
    let data = pattern(65_536);
    initiator.write(&write10(0, 16, 128), &data).good();
    initiator.write(&write10(0, 2048, 160), &vec![7; 81_920]).good();
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, 76);
    initiator.write(&cdb, &copy_list(name, (0, 2048), 160)).good();
    let copied = initiator.read(&read10(2048, 160), 81_920).good();
    assert!(copied[8192..73_728] == data);
    assert!(copied[..8192].iter().chain(&copied[73_728..]).all(|byte| *byte == 0));
    // the state of the copy: done, one segment, in KiB
    let mut results = [0; 16];
    (results[0], results[2], results[13]) = (0x84, 1, 12);
    assert_eq!(initiator.read(&results, 12).good(), [0, 0, 0, 8, 1, 0, 1, 1, 0, 0, 0, 80]);
    results[2] = 9;
    assert_eq!(initiator.read(&results, 12).check(), (5, 0x24, 0), "no such list");
    for (list, sense) in [
        (copy_list([0x31; 8], (0, 2048), 1), (0xa, 0x0d, 0x02)),
        (copy_list(name, (0, 4095), 2), (0xa, 0, 0)),
        (copy_list(name, (0, 8), 16), (0xa, 0, 0)),
    ] {
        assert_eq!(initiator.write(&cdb, &list).check(), sense);
    }
    cdb[13] = 75;
    assert_eq!(initiator.write(&cdb, &copy_list(name, (0, 2048), 1)[..75]).check(), (5, 0x1a, 0));
}

#[test]
fn verify_compares_data_and_blocks() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let data = pattern(2048);
    initiator.write(&[0x2e, 2, 0, 0, 0, 0, 0, 0, 4, 0], &data).good();
    initiator.write(&[0x2f, 2, 0, 0, 0, 0, 0, 0, 4, 0], &data).good();
    let mut other = data.clone();
    other[1700] ^= 1;
    assert_eq!(initiator.write(&[0x2f, 2, 0, 0, 0, 0, 0, 0, 4, 0], &other).check(), (0xe, 0x1d, 0));
    initiator.write(&[0x2f, 6, 0, 0, 1, 0, 0, 0, 9, 0], &[0; 512]).good();
    assert_eq!(initiator.write(&[0x2f, 6, 0, 0, 0, 0, 0, 0, 2, 0], &[0; 512]).check().0, 0xe);
    assert_eq!(initiator.read(&[0x2f, 0, 0, 0, 0, 0, 0, 0, 9, 0], 0).status, 0);
}

#[test]
fn fua_flush_and_no_cache_survive_power_cut() {
    for (mode, flags, flushes) in [(4, 0x08, false), (4, 0, true), (0, 0, false)] {
        let served = ServedPool::start();
        let mut initiator = served.initiator();
        // MODE SELECT(6): the caching page with a write cache, or without
        let mut list = vec![0, 0, 0, 0, 0x08, 0x12, mode];
        list.resize(24, 0);
        initiator.write(&[0x15, 0x10, 0, 0, 24, 0], &list).good();
        let page = initiator.read(&[0x1a, 8, 8, 0, 255, 0], 255).good();
        assert_eq!(page[6], mode);
        initiator.write(&write10(flags, 0, 16), &[6; 8192]).good();
        if flushes {
            assert_eq!(initiator.read(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).status, 0);
        }
        let after = served.import_after_power_cut();
        let unit = open_unit(&after, Reservations::default()).lun;
        let mut found = vec![0; 8192];
        unit.read(0, &mut found).unwrap();
        assert_eq!(found, [6; 8192], "{mode} {flags} {flushes}");
    }
}

#[test]
fn cached_writes_may_be_lost() {
    // the counterpart of the test above, which could not fail otherwise
    let served = ServedPool::start();
    served.initiator().write(&write10(0, 0, 16), &[6; 8192]).good();
    let after = served.import_after_power_cut();
    let mut found = vec![0; 8192];
    open_unit(&after, Reservations::default()).lun.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 8192]);
}

#[test]
fn write_protection_by_mode_select() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.initiator(), served.initiator_with(2, &[]));
    let mut list = vec![0, 0, 0, 0, 0x0a, 0x0a, 0x20, 0x10, 0x08, 0, 0, 0, 0xff, 0xff, 0, 0];
    one.write(&[0x15, 0x10, 0, 0, 16, 0], &list).good();
    assert_eq!(other.attentions(), [(0x2a, 0x01)], "mode parameters changed");
    assert_eq!(other.write(&write10(0, 0, 1), &[1; 512]).check(), (7, 0x27, 0));
    list[8] = 0;
    one.write(&[0x15, 0x10, 0, 0, 16, 0], &list).good();
    list[7] = 0;
    assert_eq!(
        one.write(&[0x15, 0x10, 0, 0, 16, 0], &list).check(),
        (5, 0x26, 0),
        "not changeable"
    );
    assert_eq!(one.write(&[0x15, 0x10, 0, 0, 9, 0], &list[..9]).check(), (5, 0x1a, 0));
    served.unit.lun.write(0, &[2; 512], Durability::Cached).unwrap();
    assert_eq!(one.read(&read10(0, 1), 512).good(), [2; 512]);
}

#[test]
fn opcodes_are_reported() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let all = initiator.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], 4096).good();
    let one = initiator.read(&[0xa3, 0x0c, 1, 0x89, 0, 0, 0, 0, 0x10, 0, 0, 0], 4096).good();
    assert_eq!(one[..5], [0, 3, 0, 16, 0x89]);
    let none = initiator.read(&[0xa3, 0x0c, 1, 0x48, 0, 0, 0, 0, 0x10, 0, 0, 0], 4096).good();
    assert_eq!(none[1], 1, "SANITIZE is not supported");
    for known in all[4..].chunks(8) {
        // each command in the table is one that is carried out
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (known[0], known[3]);
        let answer = initiator.read(&cdb, 0);
        assert_ne!(answer.sense, (5, 0x20, 0), "{known:?}");
    }
}

#[test]
fn reads_come_back_in_a_row() {
    let served = ServedPool::start();
    for digests in ["None", "CRC32C"] {
        let keys = [
            ("HeaderDigest", digests),
            ("DataDigest", digests),
            ("MaxRecvDataSegmentLength", "4096"),
        ];
        let mut initiator = served.initiator_with(1, &keys);
        let data: Vec<u8> =
            (0..512 * 512_u32).map(|at| (at / 512 % 251 + 1).to_be_bytes()[3]).collect();
        initiator.write(&write10(0, 0, 512), &data).good();
        // short ones are answered from memory, and long ones by other threads
        let ranges: Vec<(u32, u16)> =
            (0..100).map(|number| (number * 3, if number % 9 == 4 { 200 } else { 17 })).collect();
        let tags: Vec<u32> = ranges
            .iter()
            .map(|(first, count)| {
                initiator.send_read(&read10(*first, *count), usize::from(*count) * 512)
            })
            .collect();
        // each command has its own data, in whatever order the answers come
        let mut found = vec![Vec::<u8>::new(); tags.len()];
        let mut left = tags.len();
        while left > 0 {
            let pdu = initiator.receive().expect("an answer");
            assert_eq!(pdu.opcode(), 0x25, "data");
            let index = tags.iter().position(|tag| *tag == pdu.at(16)).expect("a tag of ours");
            assert_eq!(usize::try_from(pdu.at(40)), Ok(found[index].len()), "data come in order");
            found[index].extend(&pdu.data);
            // the last PDU has the status
            left -= usize::from(pdu.header[1] & 1);
        }
        for ((first, count), found) in ranges.into_iter().zip(found) {
            let start = usize::try_from(first).unwrap() * 512;
            assert!(found == data[start..start + usize::from(count) * 512], "{first} {count}");
        }
        let status = served.server.status();
        let counters = status.sessions.last().expect("a session").counters;
        assert_eq!(counters.errors, 1, "the unit attention after the login alone");
    }
}

#[test]
fn initiators_read_the_space_threshold() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    served.pool.properties().set(VOLUME, "volsize", &(1_u64 << 30).to_string()).unwrap();
    assert_eq!(initiator.attentions(), [(0x2a, 0x09)], "capacity data has changed");
    served.server.set_space_warning(25);
    assert_eq!(
        initiator.read(&[0x12, 1, 0xb2, 1, 0, 0], 256).good()[4],
        11,
        "counts are of 2048 blocks"
    );
    let threshold = initiator.read(&[0x1a, 8, 0x1c, 2, 255, 0], 255).good();
    assert_eq!(threshold[4..8], [0x5c, 2, 0, 20]);
    assert_eq!(threshold[20..], [0x80, 1, 0, 0, 0, 0, 1, 0], "256 MiB, a quarter");
    // it is among all pages and subpages
    let all = initiator.read(&[0x1a, 8, 0x3f, 0xff, 255, 0], 255).good();
    assert!(all.ends_with(&threshold[4..]));
    assert!(!initiator.read(&[0x1a, 8, 0x3f, 0, 255, 0], 255).good().contains(&0x5c));
    let changeable = initiator.read(&[0x1a, 8, 0x5c, 2, 255, 0], 255).good();
    assert_eq!(changeable[8..], [0; 20], "nothing of it can be changed");
    let log = |page: u8| [0x4d, 0, 0x40 | page, 0, 0, 0, 0, 0, 255, 0];
    assert_eq!(initiator.read(&log(0), 255).good(), [0, 0, 0, 2, 0, 0x0c]);
    let space = initiator.read(&log(0x0c), 255).good();
    let available = u32::from_be_bytes(*space[8..].first_chunk().unwrap());
    assert!((1..=128).contains(&available), "{available} MiB of a pool of 128 MiB");
    assert_eq!((&space[4..8], space[12]), (&[0, 1, 3, 8][..], 2), "available, shared");
    assert_eq!((&space[16..20], space[24]), (&[0, 2, 3, 8][..], 1), "used, of the unit alone");
    assert_eq!(initiator.read(&log(0x0d), 255).check(), (5, 0x24, 0));
    // the pool has less than a quarter, and the warning comes with the next write
    initiator.write(&write10(0, 0, 1), &[2; 512]).good();
}
