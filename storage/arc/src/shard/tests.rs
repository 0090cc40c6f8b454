//! Tests of the replacement policy and of the limit.

use ondisk::Order;
use proptest::prelude::*;
use zio::{Block, Trimmed};

use super::{ENTRY_OVERHEAD, Shard, entry_size};
use crate::identity::BlockIdentity;
use crate::tests::pointer;

const BLOCK_SIZE: usize = 4096;
const LIMIT: usize = 100 * (BLOCK_SIZE + ENTRY_OVERHEAD);

fn block_identity(number: u64) -> BlockIdentity {
    BlockIdentity::from_pointer(&pointer(number * 8)).unwrap()
}

fn block(number: u64) -> Block {
    Block::new(vec![number.to_le_bytes()[0]; BLOCK_SIZE], Order::Little)
}

/// Reads as a cache does; returns whether it was a hit.
fn read_block(shard: &mut Shard, number: u64) -> bool {
    if let Some(found) = shard.lookup(block_identity(number)) {
        assert_eq!(found.begin()[0], number.to_le_bytes()[0]);
        return true;
    }
    shard.insert(block_identity(number), Trimmed::of(&block(number)), LIMIT);
    false
}

#[test]
fn single_pass_keeps_frequent_blocks() {
    let mut shard = Shard::default();
    for _ in 0..3 {
        for number in 1..=40 {
            read_block(&mut shard, number);
        }
    }
    for number in 1000..3000 {
        read_block(&mut shard, number);
    }
    let kept = (1..=40).filter(|number| shard.lookup(block_identity(*number)).is_some()).count();
    assert!(kept >= 30, "{kept} of 40 are kept");
}

#[test]
fn piecewise_reads_count_as_one() {
    let mut shard = Shard::default();
    for number in 0..2000 {
        for _ in 0..4 {
            read_block(&mut shard, number);
        }
    }
    assert_eq!(shard.mfu.bytes, 0);
}

#[test]
fn ghost_hits_grow_their_kind() {
    let mut shard = Shard::default();
    // frequent blocks fill the cache, then reads cycle over slightly more than the rest
    for _ in 0..4 {
        for number in 0..90 {
            read_block(&mut shard, number);
        }
    }
    let before = shard.mru_target;
    for _ in 0..20 {
        for number in 1000..1030 {
            read_block(&mut shard, number);
        }
    }
    assert!(shard.mru_target > before);
    let kept =
        (1000..1030).filter(|number| shard.lookup(block_identity(*number)).is_some()).count();
    assert_eq!(kept, 30);
}

proptest! {
    #[test]
    fn the_limit_holds_and_the_books_are_right(
        reads in proptest::collection::vec((0_u64..400, 1_usize..9), 1..2000)
    ) {
        let mut shard = Shard::default();
        for (number, sectors) in reads {
            if shard.lookup(block_identity(number)).is_none() {
                let bytes = vec![number.to_le_bytes()[0] & 1; sectors * BLOCK_SIZE];
                let block = Trimmed::of(&Block::new(bytes, Order::Little));
                shard.insert(block_identity(number), block, LIMIT);
            }
            prop_assert!(shard.bytes() <= LIMIT);
            let gone = [&shard.mru_ghost, &shard.mfu_ghost];
            prop_assert!(gone.iter().all(|list| list.bytes <= LIMIT / 2 + 16 * BLOCK_SIZE));
            let blocks = shard.entries.values().filter_map(|entry| entry.block.as_ref());
            let held: usize = blocks.map(|block| entry_size(block.begin().len())).sum();
            prop_assert_eq!(held, shard.bytes());
            let names = [&shard.mru, &shard.mfu, &shard.mru_ghost, &shard.mfu_ghost];
            prop_assert_eq!(names.iter().map(|list| list.order.len()).sum::<usize>(),
                shard.entries.len());
        }
    }
}
