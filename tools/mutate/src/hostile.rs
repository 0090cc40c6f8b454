//! Blocks that change after their checksums were verified: valid except for their content.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ondisk::{Blkptr, ObjectType};
use units::{ObjsetId, Zbookmark};
use zio::{Block, Error, Key, Source};

use crate::random::{Random, damage};

/// Which blocks a mutant changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Of the pool's own object set.
    Pool,
    /// Of datasets.
    Datasets,
    /// Of both.
    All,
    /// Of one type, wherever it is.
    Type(ObjectType),
    /// Indirect blocks.
    Indirect,
    /// Intent logs.
    Logs,
}

/// Types with mutants of their own.
const TARGET_TYPES: [ObjectType; 12] = [
    ObjectType::DNODE,
    ObjectType::OBJSET,
    ObjectType::OBJECT_DIRECTORY,
    ObjectType::DIRECTORY,
    ObjectType::MASTER_NODE,
    ObjectType::SPACE_MAP,
    ObjectType::PACKED_NVLIST,
    ObjectType::SA_ATTR_LAYOUTS,
    ObjectType::SA_ATTR_REGISTRATION,
    ObjectType::SA,
    ObjectType::DSL_DIR_CHILD_MAP,
    ObjectType::DSL_PROPS,
];

/// How a mutant of this kind is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    scope: Scope,
    /// One of this many blocks changes.
    sparsity: u64,
    /// Changed blocks cannot be read instead.
    is_unreadable: bool,
    /// Changed blocks are other blocks of their kind instead, whole and in the wrong place.
    swaps_blocks: bool,
    /// The lies begin only when the pool is open.
    pub starts_after_open: bool,
}

impl Plan {
    /// The plan of a number.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::from_parts(&[seed, 0x686f_7374]);
        let scope = match random.next_below(8) {
            0 => Scope::Pool,
            1 | 2 => Scope::Datasets,
            3 => Scope::All,
            4 => Scope::Indirect,
            5 => Scope::Logs,
            _ => Scope::Type(random.pick(&TARGET_TYPES)),
        };
        let sparsity = random.pick(&[1, 2, 4, 8, 16, 32, 64]);
        let (is_unreadable, swaps_blocks) = (random.one_in(12), random.one_in(5));
        Self {
            seed,
            scope,
            sparsity,
            is_unreadable,
            swaps_blocks,
            starts_after_open: !random.one_in(3),
        }
    }

    fn covers(&self, pointer: &Blkptr, place: Zbookmark) -> bool {
        let kind = pointer.kind();
        let indirect = pointer.level().get() > 0;
        let content = !indirect && !kind.is_metadata() && kind != ObjectType::INTENT_LOG;
        let of_pool = place.objset == ObjsetId::MOS;
        !content
            && match self.scope {
                Scope::Pool => of_pool,
                Scope::Datasets => !of_pool,
                Scope::All => true,
                Scope::Type(one) => kind == one,
                Scope::Indirect => indirect,
                Scope::Logs => kind == ObjectType::INTENT_LOG,
            }
    }
}

/// A source that lies by a plan: always the same of the same block.
pub struct HostileSource {
    inner: Arc<dyn Source>,
    plan: Plan,
    /// Some of the read blocks, by their key.
    samples: Mutex<HashMap<BlockClass, Vec<Block>>>,
}

/// The properties that distinguish mismatched blocks: type, level and size.
type BlockClass = (ObjectType, u8, usize);

/// Blocks of one kind that are kept.
const MAX_SAMPLES: usize = 16;

impl HostileSource {
    /// A source of changed blocks.
    pub fn new(inner: Arc<dyn Source>, plan: Plan) -> Self {
        Self { inner, plan, samples: Mutex::default() }
    }

    /// Another block that looks the same from outside, if one was read before.
    fn similar_block(&self, pointer: &Blkptr, block: &Block, random: &mut Random) -> Option<Block> {
        let looks = (pointer.kind(), pointer.level().get(), block.len());
        let mut seen = self.samples.lock().ok()?;
        let kept = seen.entry(looks).or_default();
        let found = (!kept.is_empty()).then(|| kept[random.next_index(kept.len())].clone());
        if kept.len() < MAX_SAMPLES {
            kept.push(block.clone());
        }
        found
    }
}

impl Source for HostileSource {
    fn read(&self, pointer: &Blkptr, place: Zbookmark, key: Option<&Key>) -> Result<Block, Error> {
        let block = self.inner.read(pointer, place, key)?;
        let parts = [
            self.plan.seed,
            place.objset.get(),
            place.object.get(),
            u64::from(place.level.get()),
            place.block.get(),
        ];
        let mut random = Random::from_parts(&parts);
        if !self.plan.covers(pointer, place) {
            return Ok(block);
        }
        let another = if self.plan.swaps_blocks {
            self.similar_block(pointer, &block, &mut random)
        } else {
            None
        };
        if !random.one_in(self.plan.sparsity) {
            return Ok(block);
        }
        if self.plan.is_unreadable {
            return Err(Error::Unreadable { zbookmark: place, faults: Vec::new() });
        }
        if self.plan.swaps_blocks {
            return Ok(another.unwrap_or(block));
        }
        let mut bytes = block.to_vec();
        for _ in 0..=random.next_below(3) {
            damage(&mut bytes, &mut random);
        }
        Ok(Block::new(bytes, block.order()))
    }
}
