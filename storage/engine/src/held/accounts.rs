//! Who owns how much of a held pool's file systems.

use dmu::{Changed, Objset};
use dsl::write::features;
use ondisk::dnode::Flags;
use ondisk::feature::Feature;
use ondisk::objset::Kind;
use spa::Owned;
use txg::Tx;
use zpl::Counting;

use super::World;

/// The version of pools from which on there are accounts.
const FIRST_VERSION: u64 = 15;

/// Whether a pool has a feature, by its own objects: as they are being changed, if it is asked for what
/// is written with them.
pub(super) fn has(mos: &Objset, feature: &str) -> bool {
    let uses = |feature| features::uses(mos, feature).ok().flatten();
    Feature::by_name(feature).and_then(uses).is_some()
}

/// Keeps account of the owners of files.
pub(super) struct Accountant {
    counting: Option<Counting>,
    world: World,
}

impl Accountant {
    /// As a pool's version and features allow.
    pub(super) fn of(owned: &Owned, world: &World) -> Self {
        let mos = owned.mos();
        let (objects, projects) = (has(mos, "userobj_accounting"), has(mos, "project_quota"));
        let counting = Counting { objects, projects };
        let counting = (owned.config().version >= FIRST_VERSION).then_some(counting);
        Self { counting, world: world.clone() }
    }

    /// The flags of a new file system.
    pub(super) fn flags(&self) -> ondisk::objset::Flags {
        self.counting.map_or_else(Default::default, Counting::of_whole)
    }
}

impl spa::Accounts for Accountant {
    fn marks(&self, objset: &Objset) -> Flags {
        let files = objset.header().kind == Kind::Filesystem;
        self.counting.filter(|_| files).map_or_else(Flags::default, Counting::of_files)
    }

    fn account(&self, objset: &Objset, tx: &Tx, changed: &[Changed]) -> Result<(), spa::Error> {
        let Some(counting) = self.counting.filter(|_| objset.accounted() != Flags::default())
        else {
            return Ok(());
        };
        zpl::account(objset, tx, changed, counting, &mut || self.world.number())
            .map_err(|why| spa::Error::Content { why: why.to_string() })
    }
}
