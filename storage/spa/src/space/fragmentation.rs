//! How broken up free space is: a figure from 0 (in long ranges) to 100 (in sectors).
//!
//! Each metaslab's map counts its free ranges by the power of two of their size. Each size has a
//! fragmentation figure; a metaslab's is the mean over its free bytes. A vdev's is the mean of its
//! metaslabs', weighted by free bytes; that of a class the mean of its vdevs', weighted by size.
//!
//! Learnt from: `metaslab.c` of OpenZFS 2.3.2. Proved by: `fragmentation_equals_that_of_zdb`.

use metaslab::Class;
use units::{MinusOrZero, VdevId};

use super::load::PoolSpace;
use super::map::read_header;
use crate::Error;

/// The fragmentation of free ranges by size: of 512 bytes, of 1 KiB, of 2 KiB, and so on.
const FRAGMENTATION_TABLE: [u64; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];
/// log2 of the least size.
const MIN_SHIFT: usize = 9;

impl PoolSpace {
    /// Of a class as a whole; none if unknown.
    pub fn class_fragmentation(&self, class: Class) -> Result<Option<u64>, Error> {
        let (mut sum, mut size) = (0_u128, 0_u128);
        for vdev in self.allocator.vdevs_in_class(class) {
            let Some(figure) = self.vdev_fragmentation(vdev)? else { return Ok(None) };
            let metaslabs = self.allocator.metaslab_usage(vdev)?;
            let all: u64 = metaslabs.iter().map(|(_, usage)| usage.capacity).sum();
            sum += u128::from(figure) * u128::from(all);
            size += u128::from(all);
        }
        Ok(weighted_mean(sum, size))
    }

    /// Of a top-level vdev; none if that is not known of half of its metaslabs.
    pub fn vdev_fragmentation(&self, vdev: VdevId) -> Result<Option<u64>, Error> {
        let Some(top) = self.maps.vdevs.lock().get(&vdev).cloned() else { return Ok(None) };
        let shift = units::to_usize(top.ashift);
        let metaslabs = self.allocator.metaslab_usage(vdev)?;
        let (mut sum, mut free, mut known) = (0_u128, 0_u128, 0);
        for (at, usage) in &metaslabs {
            let map = top.metaslabs.get(*at).and_then(|slab| slab.space_map);
            let object = map.map(|map| self.maps.synced_object(map)).transpose()?.flatten();
            let figure = match object {
                // nothing was ever allocated there
                None => Some(0),
                Some(object) => read_header(&object)?
                    .histogram
                    .map(|counts| histogram_fragmentation(&counts, shift)),
            };
            let Some(figure) = figure.filter(|_| self.has_histograms) else { continue };
            let sectors = u128::from(usage.capacity.minus_or_zero(usage.allocated) >> MIN_SHIFT);
            known += 1;
            sum += u128::from(figure) * sectors;
            free += sectors;
        }
        Ok(weighted_mean(sum, free).filter(|_| known >= metaslabs.len().div_ceil(2)))
    }
}

/// Of a metaslab with these numbers of free ranges by size.
fn histogram_fragmentation(counts: &[u64], shift: usize) -> u64 {
    let (mut sum, mut all) = (0_u128, 0_u128);
    for (at, count) in counts.iter().enumerate() {
        let place = (shift.minus_or_zero(MIN_SHIFT) + at).min(FRAGMENTATION_TABLE.len() - 1);
        let size = units::narrow::<u32>(at + shift);
        // no metaslab is larger than 2^48 bytes: the sums of any counts fit 128 bits
        let bytes = u128::from(*count) << size.min(48);
        sum += bytes * u128::from(FRAGMENTATION_TABLE[place]);
        all += bytes;
    }
    weighted_mean(sum, all).unwrap_or(0)
}

/// None: of nothing.
fn weighted_mean(sum: u128, weight: u128) -> Option<u64> {
    u64::try_from(sum.checked_div(weight)?).ok()
}

#[cfg(test)]
mod tests {
    use super::histogram_fragmentation;

    #[test]
    fn long_ranges_are_nothing_and_sectors_all() {
        let one = |at: usize| {
            let mut counts = [0; 32];
            counts[at] = 3;
            counts
        };
        assert_eq!(histogram_fragmentation(&[0; 32], 12), 0, "it is full");
        assert_eq!(
            (histogram_fragmentation(&one(0), 9), histogram_fragmentation(&one(0), 12)),
            (100, 93)
        );
        assert_eq!(
            (histogram_fragmentation(&one(10), 12), histogram_fragmentation(&one(31), 12)),
            (29, 0)
        );
        let mut both = one(0);
        both[1] = 3;
        assert_eq!(histogram_fragmentation(&both, 9), (100 + 2 * 99) / 3);
        assert!(
            histogram_fragmentation(&[u64::MAX; 32], 63) <= 100,
            "what makes no sense does no harm"
        );
    }
}
