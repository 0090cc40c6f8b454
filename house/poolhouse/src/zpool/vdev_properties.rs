//! Properties of vdevs as `zpool get` shows them.

use engine::pool::PoolProperty;
use units::human_bytes;

use super::vdevs;

/// Words for vdevs that are no names of devices.
const VDEV_WORDS: [&str; 3] = ["root", "root-0", "all-vdevs"];
/// Numbers that `zpool get` shows in short form.
const COUNTS: [&str; 11] = [
    "asize",
    "psize",
    "size",
    "free",
    "allocated",
    "bootsize",
    "read_errors",
    "write_errors",
    "checksum_errors",
    "initialize_errors",
    "slow_ios",
];

/// A vdev of the command line, with the whole path of a device.
pub(super) fn resolve(word: &str) -> String {
    if VDEV_WORDS.contains(&word) { word.to_owned() } else { vdevs::resolve_vdev(word) }
}

/// A property with its value as `zpool get` shows it; `is_exact`: as a plain number.
pub(super) fn format(property: PoolProperty, is_exact: bool) -> PoolProperty {
    let PoolProperty { name, value, source } = property;
    let is_count =
        COUNTS.contains(&&*name) || ["_ops", "_bytes"].iter().any(|unit| name.ends_with(unit));
    let value = match value.parse::<u64>() {
        Ok(_) if is_exact => value,
        Ok(share) if matches!(&*name, "capacity" | "fragmentation") => format!("{share}%"),
        Ok(count) if is_count => human_bytes(count),
        _ => value,
    };
    PoolProperty { name, value, source }
}

#[cfg(test)]
mod tests {
    use engine::pool::PoolProperty;

    use super::format;

    #[test]
    fn vdev_numbers_have_short_forms() {
        let shown = |name: &str, value: &str, is_exact| {
            let (name, value) = (name.to_owned(), value.to_owned());
            format(PoolProperty { name, value, source: "-".to_owned() }, is_exact).value
        };
        assert_eq!(shown("capacity", "12", false), "12%");
        assert_eq!(shown("read_bytes", "1536", false), "1.50K");
        assert_eq!(shown("read_bytes", "1536", true), "1536");
        assert_eq!(shown("guid", "15360000000", false), "15360000000");
        assert_eq!(shown("expandsize", "-", false), "-");
    }
}
