//! Blocks that change after their checksums were judged: valid in every way but what they say.

use std::sync::Arc;

use ondisk::{Blkptr, ObjectType};
use units::{ObjsetId, Place};
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

/// Types worth a mutant of their own.
const TYPES: [ObjectType; 12] = [
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
    /// One block of so many changes.
    sparsity: u64,
    /// Changed blocks cannot be read instead.
    fails: bool,
    /// The lies begin only when the pool is open.
    pub late: bool,
}

impl Plan {
    /// The plan of a number.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::of(&[seed, 0x686f_7374]);
        let scope = match random.below(8) {
            0 => Scope::Pool,
            1 | 2 => Scope::Datasets,
            3 => Scope::All,
            4 => Scope::Indirect,
            5 => Scope::Logs,
            _ => Scope::Type(random.pick(&TYPES)),
        };
        let sparsity = random.pick(&[1, 2, 4, 8, 16, 32, 64]);
        Self { seed, scope, sparsity, fails: random.one_in(12), late: !random.one_in(3) }
    }

    fn covers(&self, pointer: &Blkptr, place: Place) -> bool {
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
pub struct Hostile {
    below: Arc<dyn Source>,
    plan: Plan,
}

impl Hostile {
    /// Lies about what comes from below.
    pub fn new(below: Arc<dyn Source>, plan: Plan) -> Self {
        Self { below, plan }
    }
}

impl Source for Hostile {
    fn read(&self, pointer: &Blkptr, place: Place, key: Option<&Key>) -> Result<Block, Error> {
        let block = self.below.read(pointer, place, key)?;
        let parts = [
            self.plan.seed,
            place.objset.get(),
            place.object.get(),
            u64::from(place.level.get()),
            place.block.get(),
        ];
        let mut random = Random::of(&parts);
        if !self.plan.covers(pointer, place) || !random.one_in(self.plan.sparsity) {
            return Ok(block);
        }
        if self.plan.fails {
            return Err(Error::Unreadable { place, faults: Vec::new() });
        }
        let mut bytes = block.to_vec();
        for _ in 0..=random.below(3) {
            damage(&mut bytes, &mut random);
        }
        Ok(Block::new(bytes, block.order()))
    }
}
