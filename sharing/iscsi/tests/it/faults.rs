//! Numbers out of order, lost data, aborts and resets, and a suspended pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::pool::Pool;

use crate::commands::pattern;
use crate::initiator::{NO_TAG, Pdu, read10, write10};
use crate::served_pool::{ServedPool, wait_until};

#[test]
fn pings_are_echoed() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let ping = Pdu::new(0x40, 0x80, b"ping").u32(16, 5).u32(20, NO_TAG).u32(24, initiator.cmd_sn);
    initiator.send(&ping);
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), answer.at(16), &answer.data[..]), (0x20, 5, &b"ping"[..]));
    // an answer to a ping of the target is not answered
    initiator.send(&ping.clone().u32(16, NO_TAG));
    assert!(initiator.attentions().is_empty());
}

#[test]
fn commands_outside_the_window_are_ignored() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let max = |pdu: &Pdu| pdu.at(32);
    let ping = Pdu::new(0x40, 0x80, &[]).u32(16, 5).u32(20, NO_TAG).u32(24, initiator.cmd_sn);
    initiator.send(&ping);
    let window = initiator.receive().unwrap();
    assert_eq!(max(&window), initiator.cmd_sn + 127);
    for number in [initiator.cmd_sn - 1, max(&window) + 1] {
        let mut command = initiator.command_pdu(0x80, &[0; 6], 0, &[]);
        initiator.cmd_sn -= 1;
        command = command.u32(24, number);
        initiator.send(&command);
    }
    // the next answer is that of the next ping
    initiator.send(&ping.u32(16, 6));
    assert_eq!(initiator.receive().unwrap().at(16), 6);
    assert!(initiator.attentions().is_empty());
}

#[test]
fn repeated_and_lost_data_fail_the_command() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    initiator.write(&write10(0, 0, 32), &[1; 16_384]).good();
    initiator.immediate = 0;
    for numbers in [[0, 0], [1, 0], [27, 28], [u32::MAX, 1]] {
        let tag = initiator.send_write(&write10(0, 0, 32), &[9; 16_384]);
        let r2t = initiator.receive().unwrap();
        assert_eq!((r2t.opcode(), r2t.at(44)), (0x31, 16_384));
        for (index, number) in numbers.into_iter().enumerate() {
            let part = initiator.data_out(&r2t, number, index * 8192, &[9; 8192]);
            initiator.send(&part.put(1, &[if index == 1 { 0x80 } else { 0 }]));
        }
        assert_eq!(initiator.answer(tag, &[]).check(), (0xb, 0x47, 0x05));
    }
    assert!(initiator.read(&read10(0, 32), 16_384).good() == [1; 16_384], "nothing was written");
}

#[test]
fn wrong_data_digests_fail_the_command() {
    let served = ServedPool::start();
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let mut initiator = served.initiator_with(1, &keys);
    initiator.immediate = 0;
    let tag = initiator.send_write(&write10(0, 0, 16), &[9; 8192]);
    let r2t = initiator.receive().unwrap();
    let part = initiator.data_out(&r2t, 0, 0, &[9; 8192]);
    let digest = iscsi::wire::digest(&[&part.header]);
    let bytes = [&part.header[..], &digest, &part.data, &[1, 2, 3, 4]].concat();
    std::io::Write::write_all(&mut initiator.stream, &bytes).unwrap();
    assert_eq!(initiator.answer(tag, &[]).check(), (0xb, 0x47, 0x05));
    assert!(initiator.attentions().is_empty(), "the session goes on");
    // after a wrong header digest nothing can be believed
    let command = initiator.command_pdu(0x80, &[0; 6], 0, &[]);
    let bytes = [&command.header[..], &[1, 2, 3, 4]].concat();
    std::io::Write::write_all(&mut initiator.stream, &bytes).unwrap();
    assert!(initiator.is_closed());
}

#[test]
fn tasks_that_wait_for_data_are_aborted() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    initiator.immediate = 0;
    let tag = initiator.send_write(&write10(0, 0, 16), &[9; 8192]);
    let r2t = initiator.receive().unwrap();
    assert_eq!(initiator.manage(1, tag), 0);
    assert_eq!(initiator.manage(1, tag), 1, "no such task");
    // data that was on its way goes nowhere
    initiator.send_solicited(&r2t, &[9; 8192]);
    assert_eq!(initiator.read(&read10(0, 16), 8192).good(), [0; 8192]);
    initiator.send_write(&write10(0, 0, 16), &[9; 8192]);
    initiator.receive().unwrap();
    assert_eq!(initiator.manage(2, NO_TAG), 0);
    assert_eq!(initiator.manage(3, NO_TAG), 5, "no auto contingent allegiance");
    initiator.lun = 9;
    assert_eq!(initiator.manage(2, NO_TAG), 2);
    initiator.lun = 0;
    assert!(initiator.attentions().is_empty());
    assert_eq!(served.server.status().sessions[0].in_flight, 0);
}

#[test]
fn resets_notify_all_sessions() {
    let served = ServedPool::start();
    let (mut one, mut other) = (served.initiator(), served.initiator_with(2, &[]));
    assert_eq!(one.manage(5, NO_TAG), 0);
    assert_eq!((one.attentions(), other.attentions()), (vec![(0x29, 0x03)], vec![(0x29, 0x03)]));
    assert_eq!(other.manage(6, NO_TAG), 0);
    assert_eq!(one.attentions(), [(0x29, 0x03)]);
    assert_eq!(other.manage(7, NO_TAG), 0);
    assert!(one.is_closed() && other.is_closed(), "a cold reset ends all sessions");
}

#[test]
fn ordered_tasks_wait_for_older_ones() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    initiator.immediate = 0;
    let older = initiator.send_write(&write10(0, 0, 16), &[1; 8192]);
    let r2t = initiator.receive().unwrap();
    // an ordered read, and a simple one behind it
    let ordered = initiator.command_pdu(0xc2, &read10(0, 1), 512, &[]);
    let younger = initiator.command_pdu(0xc1, &read10(1, 1), 512, &[]);
    initiator.send(&ordered);
    initiator.send(&younger);
    initiator.send_solicited(&r2t, &[1; 8192]);
    assert_eq!(initiator.answer(older, &[]).status, 0);
    assert_eq!(initiator.answer(ordered.at(16), &[]).good(), [1; 512]);
    assert_eq!(initiator.answer(younger.at(16), &[]).good(), [1; 512]);
}

#[test]
fn many_large_writes_keep_to_the_memory() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    initiator.immediate = 0;
    initiator.segment = 65_536;
    let data = pattern(1 << 20);
    // 64 MiB are announced, of which the target takes 16 at once
    let tags: Vec<u32> = (0..64_u32)
        .map(|number| initiator.send_write(&write10(0, number % 2 * 2048, 2048), &data))
        .collect();
    let (mut asked, mut done) = (Vec::new(), 0);
    let mut answered_at_first_r2ts = None;
    while done < tags.len() {
        let pdu = initiator.receive().unwrap();
        match pdu.opcode() {
            0x31 => {
                asked.push(pdu);
                if asked.len() == 16 {
                    answered_at_first_r2ts.get_or_insert(done);
                }
            }
            0x21 => {
                assert_eq!(pdu.header[3], 0);
                done += 1;
            }
            _ => panic!("{pdu:?}"),
        }
        let has_filled = answered_at_first_r2ts.is_some();
        if has_filled && let Some(r2t) = asked.pop() {
            initiator.send_solicited(&r2t, &data);
        }
    }
    assert_eq!(answered_at_first_r2ts, Some(0));
    assert!(initiator.read(&read10(0, 2048), 1 << 20).good() == data);
}

/// Has work done while a thread writes txgs, without which a pool is not suspended but closed.
fn with_sync_thread(pool: &Pool, work: impl FnOnce()) {
    struct CloseOnDrop<'a>(&'a AtomicBool, &'a Pool);
    impl Drop for CloseOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            // a suspended pool would wait forever
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
        let in_flight =
            || served.server.status().sessions.iter().map(|session| session.in_flight).sum::<u64>();
        let mut initiator = served.initiator();
        suspend();
        // more than there are threads
        let tags: Vec<u32> = (0..20)
            .map(|lba| initiator.send_write(&write10(8, lba * 16, 16), &[1; 8192]))
            .collect();
        wait_until("the writes", || in_flight() == 20);
        // pings and aborts are answered meanwhile
        let ping = Pdu::new(0x40, 0x80, &[]).u32(16, 5).u32(20, NO_TAG).u32(24, initiator.cmd_sn);
        initiator.send(&ping);
        assert_eq!(initiator.receive().unwrap().at(16), 5);
        assert_eq!(initiator.manage(1, tags[3]), 0);
        resume();
        let mut answered: Vec<u32> =
            (0..19).map(|_| initiator.receive().unwrap()).map(|pdu| pdu.at(16)).collect();
        answered.sort_unstable();
        assert_eq!(
            answered,
            tags.iter().copied().filter(|tag| *tag != tags[3]).collect::<Vec<_>>()
        );
        // with failmode=continue, and at the end of the server, the initiator gets an error
        served.pool.properties().set_pool("failmode", "continue").unwrap();
        suspend();
        assert_eq!(initiator.write(&write10(8, 0, 16), &[3; 8192]).check(), (2, 4, 3));
        resume();
        served.pool.properties().set_pool("failmode", "wait").unwrap();
        suspend();
        initiator.send_write(&write10(8, 0, 16), &[3; 8192]);
        wait_until("a write", || in_flight() == 1);
        assert_eq!(served.server.stop(), 0);
        resume();
    });
}
