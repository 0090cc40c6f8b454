//! Histories of requests on two connections, compared with a model.

use lun::Lun;
use proptest::prelude::*;

use crate::client::{
    BLOCK_STATUS, CACHE, Client, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, TRIM, WRITE_ZEROES,
};
use crate::served_pool::ServedPool;
use crate::volume_pool::{SIZE, VOLUME_BLOCK};

const BLOCK: u64 = 512;
const ENOTSUP: u32 = 95;
/// Requests that run at the same time, each in its own part of the volume.
const LANES: u64 = 4;
const LANE_BLOCKS: u64 = SIZE / BLOCK / LANES;

#[derive(Clone, Debug)]
enum Op {
    Write { fill: u8, flags: u16 },
    Zero { flags: u16 },
    Trim { flags: u16 },
    Flush,
    Read,
    Cache,
    Status { flags: u16 },
}

/// An operation on a range of one lane, in blocks.
#[derive(Clone, Debug)]
struct Step {
    op: Op,
    block: u64,
    count: u64,
}

fn any_op() -> impl Strategy<Value = Op> {
    let fua = prop_oneof![5 => Just(0), 1 => Just(FUA)];
    let zero = prop_oneof![Just(0), Just(NO_HOLE), Just(FAST_ZERO), Just(FUA)];
    prop_oneof![
        4 => (any::<u8>(), fua.clone()).prop_map(|(fill, flags)| Op::Write { fill, flags }),
        2 => zero.prop_map(|flags| Op::Zero { flags }),
        2 => fua.prop_map(|flags| Op::Trim { flags }),
        1 => Just(Op::Flush),
        2 => Just(Op::Read),
        1 => Just(Op::Cache),
        1 => prop_oneof![Just(0), Just(REQ_ONE)].prop_map(|flags| Op::Status { flags }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    (any_op(), 0..LANE_BLOCKS, 1..200_u64).prop_map(|(op, block, count)| Step {
        op,
        block,
        count: count.min(LANE_BLOCKS - block),
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn send(client: &mut Client, step: &Step, start: u64) -> u64 {
    let length = u32::try_from(step.count * BLOCK).unwrap();
    match step.op {
        Op::Write { fill, flags } => client.send_write(flags, start, &content(fill, length)),
        Op::Zero { flags } => client.send((WRITE_ZEROES, flags), start, length),
        Op::Trim { flags } => client.send((TRIM, flags), start, length),
        Op::Flush => client.send((FLUSH, 0), 0, 0),
        Op::Read => client.send((READ, 0), start, length),
        Op::Cache => client.send((CACHE, 0), start, length),
        Op::Status { flags } => client.send((BLOCK_STATUS, flags), start, length),
    }
}

fn content(fill: u8, length: u32) -> Vec<u8> {
    (0..length).map(|at| fill.wrapping_add(u8::try_from(at / 512 % 5).unwrap())).collect()
}

/// Compares the reply with the model, and applies the step to the model.
fn receive(client: &mut Client, (cookie, step, start): (u64, &Step, u64), model: &mut [u8]) {
    let reply = client.reply(cookie);
    let range = index(start)..index(start + step.count * BLOCK);
    if step.op_may_be_refused() && reply.error == ENOTSUP {
        return;
    }
    assert_eq!(reply.error, 0, "{step:?}: {}", reply.message);
    let block = u64::from(VOLUME_BLOCK);
    match step.op {
        Op::Write { fill, .. } => {
            let length = u32::try_from(range.len()).unwrap();
            model[range].copy_from_slice(&content(fill, length));
        }
        Op::Zero { .. } => model[range].fill(0),
        Op::Trim { .. } => {
            let whole = start.div_ceil(block) * block..(start + step.count * BLOCK) / block * block;
            if whole.start < whole.end {
                model[index(whole.start)..index(whole.end)].fill(0);
            }
        }
        Op::Read => assert!(reply.data(start) == model[range], "{step:?}"),
        Op::Flush | Op::Cache => {}
        Op::Status { flags } => {
            assert!(flags == 0 || reply.extents.len() == 1);
            check_extents(&reply.extents, start, model);
        }
    }
}

/// Extents that are not mapped must be zeros. Returns their end.
fn check_extents(extents: &[(u32, u32)], start: u64, model: &[u8]) -> u64 {
    let mut at = start;
    for (length, state) in extents {
        let end = at + u64::from(*length);
        assert!(*length > 0 && [0, 3].contains(state));
        let bytes = &model[index(at)..index(end)];
        assert!(*state == 0 || bytes.iter().all(|byte| *byte == 0));
        at = end;
    }
    assert!(at > start);
    at
}

impl Step {
    fn op_may_be_refused(&self) -> bool {
        matches!(self.op, Op::Zero { flags: FAST_ZERO }) && self.count < 32
    }
}

fn check_all(served: &ServedPool, model: &[u8]) {
    let length = u32::try_from(SIZE).unwrap();
    let (mut structured, mut simple) = (served.client(), served.simple_client());
    assert!(structured.request((READ, 0), 0, length).data(0) == model);
    assert!(simple.request((READ, 0), 0, length).data(0) == model);
    let mut bytes = vec![0; model.len()];
    served.unit.read(0, &mut bytes).unwrap();
    assert!(bytes == model);
    let mut at = 0;
    while at < SIZE {
        let left = u32::try_from(SIZE - at).unwrap();
        at = check_extents(&structured.request((BLOCK_STATUS, 0), at, left).extents, at, model);
    }
    assert_eq!(at, SIZE);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn concurrent_requests_match_a_model(
        rounds in proptest::collection::vec(proptest::collection::vec(any_step(), 4), 1..12),
    ) {
        let served = ServedPool::start();
        let mut model = vec![0; index(SIZE)];
        // the structured client has block status, the simple one does not
        let mut clients = [served.client(), served.client()];
        for steps in &rounds {
            let mut sent = Vec::new();
            for ((lane, step), which) in (0..).zip(steps).zip([0, 1, 0, 1]) {
                let start = (lane * LANE_BLOCKS + step.block) * BLOCK;
                sent.push((which, (send(&mut clients[which], step, start), step, start)));
            }
            for (which, sent) in sent {
                receive(&mut clients[which], sent, &mut model);
            }
        }
        check_all(&served, &model);
        drop(served.server);
        served.pool.export().unwrap();
    }
}
