//! Accounting of space by owner in an imported pool's file systems.

use dmu::{DnodeChange, Objset};
use dsl::write::features;
use ondisk::dnode::Flags;
use ondisk::feature::Feature;
use ondisk::objset::Kind;
use spa::ActivePool;
use txg::Tx;
use zpl::AccountingMode;

use super::Environment;

/// The version of pools from which on there are accounts.
const SPA_VERSION_USERSPACE: u64 = 15;

/// Whether a pool has a feature, by its own objects: in their dirty state, for data that is synced
/// with them.
pub(super) fn has_feature(mos: &Objset, feature: &str) -> bool {
    let uses = |feature| features::refcount(mos, feature).ok().flatten();
    Feature::by_name(feature).and_then(uses).is_some()
}

/// Keeps account of the owners of files.
pub(super) struct ZplAccounting {
    counted: Option<AccountingMode>,
    environment: Environment,
}

impl ZplAccounting {
    /// As a pool's version and features allow.
    pub(super) fn new(active: &ActivePool, world: &Environment) -> Self {
        let mos = active.mos();
        let (objects, projects) =
            (has_feature(mos, "userobj_accounting"), has_feature(mos, "project_quota"));
        let counting = AccountingMode { objects, projects };
        let counted = (active.config().version >= SPA_VERSION_USERSPACE).then_some(counting);
        Self { counted, environment: world.clone() }
    }

    /// The flags of a new file system.
    pub(super) fn objset_flags(&self) -> ondisk::objset::Flags {
        self.counted.map_or_else(Default::default, AccountingMode::objset_flags)
    }
}

impl spa::OwnerAccounting for ZplAccounting {
    fn accounting_flags(&self, objset: &Objset) -> Flags {
        let files = objset.header().kind == Kind::Filesystem;
        self.counted
            .filter(|_| files && !objset.is_raw())
            .map_or_else(Flags::default, AccountingMode::dnode_flags)
    }

    fn update_usage(
        &self,
        objset: &Objset,
        tx: &Tx,
        changed: &[DnodeChange],
    ) -> Result<(), spa::Error> {
        let Some(counting) = self.counted.filter(|_| objset.accounted_flags() != Flags::default())
        else {
            return Ok(());
        };
        zpl::update_accounting(objset, tx, changed, counting, &mut || self.environment.random_u64())
            .map_err(|error| spa::Error::Content { why: error.to_string() })
    }
}
