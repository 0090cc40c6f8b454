//! The open volumes of the shares of a block protocol.
//!
//! A volume is open once for all protocols (`lun::UnitTable`). A volume that was renamed stays open, so that its clients
//! notice nothing.

use api::{Protocol, pool_of};
use lun::{LunOptions, OpenUnit, UnitTable};

use super::{Share, ShareProblem};
use crate::pools::Pools;

/// The options of a block protocol.
pub(crate) trait VolumeOptions: Clone + PartialEq {
    /// The protocol.
    const PROTOCOL: Protocol;

    /// The part of them that the open volume has.
    fn lun_options(&self) -> LunOptions;
}

/// A share whose volume is open.
pub(crate) struct VolumeShare<O> {
    pub(crate) share: Share<O>,
    pub(crate) unit: OpenUnit,
}

/// The shares of a protocol whose volumes are open.
pub(crate) struct VolumeShares<O>(Vec<VolumeShare<O>>);

impl<O> Default for VolumeShares<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: VolumeOptions> VolumeShares<O> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &VolumeShare<O>> {
        self.0.iter()
    }

    /// Opens the volumes of these shares, and closes others. Adds the shares that cannot be served to `problems`.
    /// Returns whether anything changed.
    pub(crate) fn update(
        &mut self,
        (pools, units): (&Pools, &UnitTable),
        shares: &[Share<O>],
        problems: &mut Vec<ShareProblem>,
    ) -> bool {
        // units of the old list stay open until those of the new one are, and are found again in the table
        let before = std::mem::take(&mut self.0);
        for share in shares {
            let options = share.options.lun_options();
            let is_open = |known: &&VolumeShare<O>| {
                known.share.dataset == share.dataset
                    && known.share.options.lun_options() == options
                    // a volume of the same name may have taken its place
                    && !known.unit.is_gone()
            };
            let unit = match before.iter().find(is_open) {
                Some(known) => Ok(known.unit.clone()),
                None => open_unit(pools, units, &share.dataset, options),
            };
            match unit {
                Ok(unit) => self.0.push(VolumeShare { share: share.clone(), unit }),
                Err(why) => problems.push(share.problem(O::PROTOCOL, why)),
            }
        }
        before.len() != self.0.len()
            || before.iter().zip(&self.0).any(|(one, other)| !one.is_same(other))
    }

    /// The requests that wait for the intent log, by the dataset.
    pub(crate) fn log_waits(&self) -> Vec<(String, u64)> {
        self.0.iter().map(|open| (open.share.dataset.clone(), open.unit.lun.log_waits())).collect()
    }

    /// Closes the volumes of some datasets. Returns whether there were any.
    pub(crate) fn release(&mut self, datasets: &dyn Fn(&str) -> bool) -> bool {
        let count = self.0.len();
        self.0.retain(|open| !datasets(&open.share.dataset));
        count != self.0.len()
    }

    /// The first share of some datasets that clients use, with their number by `count`.
    pub(crate) fn find_used(
        &self,
        datasets: &dyn Fn(&str) -> bool,
        count: impl Fn(&Share<O>) -> usize,
    ) -> Option<(&Share<O>, usize)> {
        let counted = self.0.iter().map(|open| (&open.share, count(&open.share)));
        counted.into_iter().find(|(share, count)| *count > 0 && datasets(&share.dataset))
    }
}

impl<O: VolumeOptions> VolumeShare<O> {
    /// Whether clients see no difference. The source is the line in the file, which other shares change.
    fn is_same(&self, other: &Self) -> bool {
        self.unit.is_same(&other.unit)
            && (&self.share.dataset, &self.share.name, &self.share.options)
                == (&other.share.dataset, &other.share.name, &other.share.options)
    }
}

fn open_unit(
    pools: &Pools,
    units: &UnitTable,
    dataset: &str,
    options: LunOptions,
) -> Result<OpenUnit, String> {
    let pool = pools.pool(pool_of(dataset)).map_err(|why| why.to_string())?;
    units.open(&pool.handle, dataset, options).map_err(|why| why.to_string())
}
