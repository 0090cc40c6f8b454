//! Sets of features that a pool is kept to, so that other systems can import it: what
//! `compatibility=` names (zpool-features(7)).
//!
//! A set is a file: names of features between spaces, commas or line ends, and comments from # on.
//! Names without a path are searched in the system's folders, and then among the built-in
//! sets, so that a machine without OpenZFS has those of its releases, too.
//!
//! Learnt from: zpool-features(7), and the sets that OpenZFS 2.3.2 comes with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ondisk::feature::{FEATURES, Feature};

use crate::{Error, Result};

/// The folders of sets: those of the administrator, and those of packages.
const DIRECTORIES: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// The largest file of a set, in bytes.
const MAX_FILE_SIZE: u64 = 16 << 10;

/// A set that is known without a file.
struct FeatureSet {
    names: &'static [&'static str],
    /// The set that it extends; empty: none.
    base: &'static str,
    /// Its additional features, in the form of a file.
    added: &'static str,
}

const fn feature_set(
    names: &'static [&'static str],
    from: &'static str,
    more: &'static str,
) -> FeatureSet {
    FeatureSet { names, base: from, added: more }
}

#[rustfmt::skip]
const FEATURE_SETS: [FeatureSet; 17] = [
    feature_set(&["zol-0.6.1"], "", "async_destroy empty_bpobj lz4_compress"),
    feature_set(&["zol-0.6.4"], "zol-0.6.1",
        "bookmarks embedded_data enabled_txg extensible_dataset hole_birth spacemap_histogram"),
    feature_set(&["zol-0.6.5", "compat-2018", "2018"], "zol-0.6.4", "filesystem_limits large_blocks"),
    feature_set(&["freenas-9.10.2"], "zol-0.6.5", "multi_vdev_crash_dump"),
    feature_set(&["freebsd-11.0", "freebsd-11.1", "freenas-11.0", "freenas-11.1",
        "compat-2019", "compat-2020", "2019", "2020"], "freenas-9.10.2", "sha512 skein"),
    feature_set(&["freebsd-11.2", "freenas-11.2"], "freebsd-11.0",
        "device_removal obsolete_counts zpool_checkpoint"),
    feature_set(&["freebsd-11.3", "freebsd-11.4", "freebsd-12.0", "freebsd-12.1", "freebsd-12.2",
        "freebsd-12.3", "freebsd-12.4", "freenas-11.3", "compat-2021", "2021"],
        "freebsd-11.2", "spacemap_v2"),
    feature_set(&["openzfsonosx-1.7.0"], "freebsd-11.0", "edonr"),
    feature_set(&["openzfsonosx-1.8.1"], "freebsd-11.3", "edonr"),
    feature_set(&["zol-0.7", "ubuntu-18.04"], "openzfsonosx-1.7.0", "large_dnode userobj_accounting"),
    feature_set(&["zol-0.8", "ubuntu-20.04", "openzfsonosx-1.9.3", "openzfsonosx-1.9.4"],
        "openzfsonosx-1.8.1", "allocation_classes bookmark_v2 encryption large_dnode project_quota \
        resilver_defer userobj_accounting"),
    feature_set(&["openzfs-2.0-linux"], "zol-0.8", "bookmark_written device_rebuild livelist \
        log_spacemap redacted_datasets redaction_bookmarks zstd_compress"),
    feature_set(&["openzfs-2.1-linux", "ubuntu-22.04"], "openzfs-2.0-linux", "draid"),
    feature_set(&["openzfs-2.2", "openzfs-2.2-linux", "openzfs-2.2-freebsd"], "openzfs-2.1-linux",
        "blake3 block_cloning head_errlog vdev_zaps_v2 zilsaxattr"),
    feature_set(&["openzfs-2.3", "openzfs-2.3-linux", "openzfs-2.3-freebsd"], "openzfs-2.2",
        "fast_dedup large_microzap longname raidz_expansion redaction_list_spill"),
    feature_set(&["grub2-2.06"], "", "allocation_classes async_destroy block_cloning device_rebuild \
        embedded_data empty_bpobj enabled_txg hole_birth log_spacemap lz4_compress resilver_defer \
        spacemap_histogram spacemap_v2 zpool_checkpoint"),
    feature_set(&["grub2", "grub2-2.12"], "grub2-2.06", "bookmarks extensible_dataset \
        filesystem_limits large_blocks livelist project_quota userobj_accounting zilsaxattr"),
];

/// FreeBSD's OpenZFS had no edonr before 2.2, and otherwise what Linux's had.
const WITHOUT_EDONR: [(&[&str], &str); 2] = [
    (&["openzfs-2.0-freebsd", "truenas-12.0"], "openzfs-2.0-linux"),
    (&["openzfs-2.1-freebsd", "freebsd-13.0", "freebsd-13.1", "freebsd-13.2"], "openzfs-2.1-linux"),
];

/// The features allowed by a value of the property: `off`, `legacy`, or sets with
/// commas between them, of which only the common features are allowed. None: any.
pub(super) fn allowed_features(sets: &str) -> Result<Option<Vec<&'static Feature>>> {
    match sets {
        "" | "off" => return Ok(None),
        "legacy" => return Ok(Some(Vec::new())),
        _ => (),
    }
    let mut common: Vec<&Feature> = FEATURES.iter().collect();
    for name in sets.split(',') {
        let set = load_set(name).map_err(|why| Error::Usage {
            what: format!("compatibility={sets}: the set '{name}' {why}"),
        })?;
        common.retain(|feature| set.contains(feature.name));
    }
    Ok(Some(common))
}

/// The names of the features of a set.
fn load_set(name: &str) -> std::result::Result<BTreeSet<String>, String> {
    if name.starts_with('/') {
        return read_set(Path::new(name), true);
    }
    if name.is_empty() || name.contains('/') {
        return Err("is neither a name nor an absolute path".to_owned());
    }
    for (folder, strict) in DIRECTORIES.into_iter().zip([true, false]) {
        let path = PathBuf::from(folder).join(name);
        if path.exists() {
            return read_set(&path, strict);
        }
    }
    let known = built_in_set(name);
    known.ok_or_else(|| format!("is not known, and not in {}", DIRECTORIES.join(" or ")))
}

/// Reads a set; `strict`: all that it names must be known here.
fn read_set(path: &Path, strict: bool) -> std::result::Result<BTreeSet<String>, String> {
    let unread = |error: std::io::Error| format!("cannot be read from {}: {error}", path.display());
    let facts = std::fs::metadata(path).map_err(unread)?;
    if !facts.is_file() || facts.len() == 0 || facts.len() > MAX_FILE_SIZE {
        return Err(format!("({}) is not a file of 1 to {MAX_FILE_SIZE} bytes", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let set = parse_words(&text)
        .ok_or_else(|| format!("({}) does not end its last line", path.display()))?;
    let strange = set.iter().find(|name| strict && Feature::by_name(name).is_none());
    match strange {
        Some(name) => {
            Err(format!("({}) names '{name}', and no such feature is known", path.display()))
        }
        None => Ok(set),
    }
}

/// The words of a file; none: its last line has no end, so that something may be missing.
fn parse_words(text: &str) -> Option<BTreeSet<String>> {
    let lines = text.ends_with('\n').then(|| text.lines())?;
    let said = lines.map(|line| line.split('#').next().unwrap_or_default());
    let words = said.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','));
    Some(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// A set that is known without a file.
fn built_in_set(name: &str) -> Option<BTreeSet<String>> {
    if let Some((_, like)) = WITHOUT_EDONR.iter().find(|(names, _)| names.contains(&name)) {
        let mut set = built_in_set(like)?;
        set.remove("edonr");
        return Some(set);
    }
    let mut set = BTreeSet::new();
    let mut next = name;
    while !next.is_empty() {
        let release = FEATURE_SETS.iter().find(|release| release.names.contains(&next))?;
        set.extend(release.added.split_whitespace().map(str::to_owned));
        next = release.base;
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::{FEATURE_SETS, WITHOUT_EDONR, allowed_features, built_in_set, parse_words};
    use ondisk::feature::Feature;

    fn set_names() -> Vec<&'static str> {
        let releases = FEATURE_SETS.iter().flat_map(|release| release.names);
        releases.chain(WITHOUT_EDONR.iter().flat_map(|(names, _)| *names)).copied().collect()
    }

    #[test]
    fn built_in_sets_equal_those_of_openzfs() {
        let mut seen = 0;
        for name in set_names() {
            let set = built_in_set(name).unwrap();
            for feature in &set {
                assert!(Feature::by_name(feature).is_some(), "{name}: {feature}");
            }
            let path = std::path::Path::new("/usr/share/zfs/compatibility.d").join(name);
            let Ok(text) = std::fs::read_to_string(path) else { continue };
            seen += 1;
            assert_eq!(parse_words(&text).unwrap(), set, "{name}");
        }
        eprintln!("{seen} of {} sets are on this machine as well", set_names().len());
        assert_eq!(built_in_set("zol-0.6.1").unwrap().len(), 3);
        assert_eq!(built_in_set("openzfs-2.0-freebsd").unwrap().len(), 32);
        assert_eq!(built_in_set("grub2").unwrap().len(), 22);
    }

    #[test]
    fn what_all_sets_have_is_allowed() {
        let count =
            |sets: &str| allowed_features(sets).map(|set| set.map(|features| features.len()));
        assert_eq!(count("off").unwrap(), None);
        assert_eq!(count("legacy").unwrap(), Some(0));
        assert_eq!(count("zol-0.7").unwrap(), Some(17));
        // grub2 has no edonr, sha512, skein, large_dnode, multi_vdev_crash_dump
        assert_eq!(count("grub2,zol-0.7").unwrap(), Some(12));
        for wrong in ["nothing", "zol-0.7,", "../zol-0.7", "/nowhere/at/all", "/"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_name_features() {
        let folder = std::env::temp_dir().join(format!("poolhouse-sets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("own");
        let asked = |text: &str| {
            std::fs::write(&path, text).unwrap();
            allowed_features(&path.display().to_string())
                .map(|set| set.unwrap().iter().map(|feature| feature.name).collect::<Vec<_>>())
        };
        assert_eq!(asked("# ours\nlz4_compress,draid # both\n").unwrap().len(), 2);
        assert!(asked("lz4_compress").is_err(), "its last line has no end");
        assert!(asked("").is_err());
        assert!(asked(&"#\n".repeat(9000)).is_err());
        let strange = asked("lz4_compress magic\n").unwrap_err().to_string();
        assert!(strange.contains("'magic'"), "{strange}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
