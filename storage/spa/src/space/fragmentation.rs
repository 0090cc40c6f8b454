//! How broken up free space is: a figure from 0 (in long ranges) to 100 (in sectors).
//!
//! Each metaslab's map counts its free ranges by the power of two of their size; each size has a
//! figure, and a metaslab's is the mean over its free bytes. A vdev's is the mean of those of its
//! metaslabs, by what is free in them; that of a class the mean of its vdevs', by their size.
//!
//! Learnt from: `metaslab.c` of OpenZFS 2.3.2. Proved by: `free_space_is_as_broken_up_as_zdb_says`.

use metaslab::Class;
use units::VdevId;

use super::load::Space;
use super::map::header;
use crate::Error;

/// What free ranges of a size are taken for: of 512 bytes, of 1 KiB, of 2 KiB, and so on.
const FIGURES: [u64; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];
/// log2 of the least size.
const LEAST: usize = 9;

impl Space {
    /// Of a class as a whole; none if that is not known.
    pub fn fragmentation(&self, class: Class) -> Result<Option<u64>, Error> {
        let (mut sum, mut size) = (0_u128, 0_u128);
        for vdev in self.allocator.vdevs_in_class(class) {
            let Some(figure) = self.fragmentation_of(vdev)? else { return Ok(None) };
            let metaslabs = self.allocator.metaslab_usage(vdev)?;
            let all: u64 = metaslabs.iter().map(|(_, usage)| usage.capacity).sum();
            sum += u128::from(figure) * u128::from(all);
            size += u128::from(all);
        }
        Ok(mean(sum, size))
    }

    /// Of a top-level vdev; none if that is not known of half of its metaslabs.
    pub fn fragmentation_of(&self, vdev: VdevId) -> Result<Option<u64>, Error> {
        let Some(top) = self.maps.tops.lock().get(&vdev).cloned() else { return Ok(None) };
        let shift = usize::try_from(top.shift).unwrap_or(LEAST);
        let metaslabs = self.allocator.metaslab_usage(vdev)?;
        let (mut sum, mut free, mut known) = (0_u128, 0_u128, 0);
        for (at, usage) in &metaslabs {
            let map = top.slabs.get(*at).and_then(|slab| slab.map);
            let object = map.map(|map| self.maps.on_disk(map)).transpose()?.flatten();
            let figure = match object {
                // nothing was ever allocated there
                None => Some(0),
                Some(object) => header(&object)?.histogram.map(|counts| of_counts(&counts, shift)),
            };
            let Some(figure) = figure.filter(|_| self.histograms) else { continue };
            let sectors = u128::from(usage.capacity.saturating_sub(usage.allocated) >> LEAST);
            known += 1;
            sum += u128::from(figure) * sectors;
            free += sectors;
        }
        Ok(mean(sum, free).filter(|_| known >= metaslabs.len().div_ceil(2)))
    }
}

/// Of a metaslab with so many free ranges by size.
fn of_counts(counts: &[u64], shift: usize) -> u64 {
    let (mut sum, mut all) = (0_u128, 0_u128);
    for (at, count) in counts.iter().enumerate() {
        let place = shift.saturating_sub(LEAST).saturating_add(at).min(FIGURES.len() - 1);
        let size = u32::try_from(at.saturating_add(shift)).unwrap_or(u32::MAX);
        let bytes = u128::from(*count).checked_shl(size.min(63)).unwrap_or(0);
        sum = bytes.saturating_mul(u128::from(FIGURES[place])).saturating_add(sum);
        all = bytes.saturating_add(all);
    }
    mean(sum, all).unwrap_or(0)
}

/// None: of nothing.
fn mean(sum: u128, weight: u128) -> Option<u64> {
    u64::try_from(sum.checked_div(weight)?).ok()
}

#[cfg(test)]
mod tests {
    use super::of_counts;

    #[test]
    fn long_ranges_are_nothing_and_sectors_all() {
        let one = |at: usize| {
            let mut counts = [0; 32];
            counts[at] = 3;
            counts
        };
        assert_eq!(of_counts(&[0; 32], 12), 0, "it is full");
        assert_eq!((of_counts(&one(0), 9), of_counts(&one(0), 12)), (100, 93));
        assert_eq!((of_counts(&one(10), 12), of_counts(&one(31), 12)), (29, 0));
        let mut both = one(0);
        both[1] = 3;
        assert_eq!(of_counts(&both, 9), (100 + 2 * 99) / 3);
        assert!(of_counts(&[u64::MAX; 32], 63) <= 100, "what makes no sense does no harm");
    }
}
