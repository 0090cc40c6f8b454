//! Compares the path of a device with the path in a label.
//!
//! Copies of one image carry the same label; the path in it tells which of them was in the pool.

use std::path::Path;

/// The number of trailing components that two paths have in common; `usize::MAX` where both lead to the
/// same file or device, also through links such as those of `/dev/disk/by-id`.
pub fn path_match_score(remembered: &Path, found: &Path) -> usize {
    if is_same_file(remembered, found) {
        return usize::MAX;
    }
    let both = remembered.components().rev().zip(found.components().rev());
    both.take_while(|(one, other)| one == other).count()
}

/// Whether two paths lead to the same file or device.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|path| Some(path) == real(other))
}

#[cfg(test)]
mod tests {
    use super::path_match_score;
    use std::path::Path;

    #[test]
    fn more_trailing_components_fit_better() {
        let fit = |found| path_match_score(Path::new("/pool/a/d0"), Path::new(found));
        assert_eq!(fit("/pool/a/d0"), usize::MAX);
        assert_eq!(fit("/copy/a/d0"), 2);
        assert_eq!(fit("/pool/b/d0"), 1);
        assert_eq!(fit("/pool/a/d0.bak"), 0);
    }

    #[test]
    fn a_link_to_the_device_is_the_device() {
        let null = Path::new("/proc/self/../self/exe");
        let exe = std::env::current_exe().expect("a path");
        assert_eq!(path_match_score(null, &exe), usize::MAX);
    }
}
