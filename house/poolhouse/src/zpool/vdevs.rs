//! The words for vdevs: `mirror a b raidz2 c d e f log g special mirror h i spare j`.

use std::path::{Path, PathBuf};

use api::{VdevLayout, VdevRole};

use crate::outcome::Failure;

pub(super) mod draid;

/// A top-level vdev.
pub(super) type VdevSpec = (VdevLayout, VdevRole, Vec<PathBuf>);

/// Where a device is looked for that is named without a path.
const DEVICE_DIRS: [&str; 4] = ["/dev", "/dev/disk/by-id", "/dev/disk/by-path", "/dev/mapper"];

enum Token {
    Layout(VdevLayout),
    Draid,
    Role(VdevRole),
    Drive,
}

/// The parsed words.
pub(super) fn parse_vdevs(words: &[String]) -> Result<Vec<VdevSpec>, Failure> {
    let (mut vdevs, mut role): (Vec<VdevSpec>, _) = (Vec::new(), VdevRole::Data);
    let mut seen = Vec::new();
    // the vdev that takes the next drives
    let mut open: Option<VdevLayout> = None;
    let mut draids = Vec::new();
    for word in words {
        let meaning = classify(word);
        let is_group = matches!(meaning, Token::Layout(_) | Token::Draid);
        if is_group && matches!(role, VdevRole::Spare | VdevRole::Cache) {
            // these are plain drives: later words are for data again
            role = VdevRole::Data;
        }
        match meaning {
            Token::Draid => {
                open = Some(VdevLayout::Single);
                draids.push((vdevs.len(), word));
                vdevs.push((VdevLayout::Single, role, Vec::new()));
            }
            Token::Role(next @ (VdevRole::Log | VdevRole::Cache | VdevRole::Spare))
                if seen.contains(&next) =>
            {
                return Err(Failure::usage(format!("'{word}' is given twice")));
            }
            Token::Role(next) => {
                seen.push(next);
                (role, open) = (next, None);
            }
            Token::Layout(group) => {
                vdevs.push((group, role, Vec::new()));
                open = Some(group);
            }
            Token::Drive => match vdevs.last_mut().filter(|_| open.is_some()) {
                Some((_, _, drives)) => drives.push(resolve_path(word)),
                None => vdevs.push((VdevLayout::Single, role, vec![resolve_path(word)])),
            },
        }
    }
    // a dRAID's default layout depends on its number of drives
    for (at, word) in draids {
        vdevs[at].0 = draid::parse_layout(word, vdevs[at].2.len())?;
    }
    vdevs.iter().try_for_each(check_vdev)?;
    Ok(vdevs)
}

fn classify(word: &str) -> Token {
    match word {
        "mirror" => Token::Layout(VdevLayout::Mirror),
        "raidz" | "raidz1" => Token::Layout(VdevLayout::Raidz(1)),
        "raidz2" => Token::Layout(VdevLayout::Raidz(2)),
        "raidz3" => Token::Layout(VdevLayout::Raidz(3)),
        "log" => Token::Role(VdevRole::Log),
        "special" => Token::Role(VdevRole::Special),
        "dedup" => Token::Role(VdevRole::Dedup),
        "spare" => Token::Role(VdevRole::Spare),
        "cache" => Token::Role(VdevRole::Cache),
        _ if draid::is_draid(word) => Token::Draid,
        _ => Token::Drive,
    }
}

fn check_vdev((group, role, drives): &VdevSpec) -> Result<(), Failure> {
    let (least, name) = match group {
        VdevLayout::Single => (1, "a drive".to_owned()),
        VdevLayout::Mirror => (2, "mirror".to_owned()),
        VdevLayout::Raidz(parity) => {
            (usize::try_from(*parity).unwrap_or(0) + 1, format!("raidz{parity}"))
        }
        VdevLayout::Draid { parity, .. } => {
            (usize::try_from(*parity).unwrap_or(0) + 1, format!("draid{parity}"))
        }
    };
    if *role == VdevRole::Log && matches!(group, VdevLayout::Raidz(_) | VdevLayout::Draid { .. }) {
        return Err(Failure::usage("a log is one drive or a mirror, and no raidz"));
    }
    if drives.len() < least {
        return Err(Failure::usage(format!(
            "invalid vdev specification: {name} requires at least {least} devices"
        )));
    }
    Ok(())
}

/// A drive by guid, or by its path.
pub(super) fn resolve_drive(drive: &str) -> String {
    let is_guid = drive.parse::<u64>().is_ok();
    if is_guid { drive.to_owned() } else { resolve_path(drive).display().to_string() }
}

/// A top-level vdev by its name in `zpool status`, or a drive.
pub(super) fn resolve_vdev(word: &str) -> String {
    let is_name = word.rsplit_once('-').is_some_and(|(kind, id)| {
        ["mirror", "raidz", "draid", "indirect"].iter().any(|known| kind.starts_with(known))
            && id.parse::<u32>().is_ok()
    });
    if is_name { word.to_owned() } else { resolve_drive(word) }
}

/// Where a drive is: a path, or the name of a device.
pub(super) fn resolve_path(word: &str) -> PathBuf {
    let path = Path::new(word);
    if is_distributed_spare(word) && !path.exists() {
        return path.to_owned();
    }
    if !word.contains('/') && !path.exists() {
        let named = DEVICE_DIRS.iter().map(|folder| Path::new(folder).join(word));
        if let Some(found) = named.into_iter().find(|path| path.exists()) {
            return found;
        }
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether a word is the name of a distributed spare, such as `draid2-0-1`.
fn is_distributed_spare(word: &str) -> bool {
    let mut parts = word.strip_prefix("draid").into_iter().flat_map(|rest| rest.split('-'));
    parts.clone().count() == 3 && parts.all(|part| part.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use api::{VdevLayout, VdevRole};

    use super::parse_vdevs;

    fn parse(text: &str) -> Result<Vec<super::VdevSpec>, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        parse_vdevs(&words).map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn words_are_vdevs() {
        let found = parse("mirror /a /b raidz2 /c /d /e log /f /g special mirror /h /i").unwrap();
        let shapes: Vec<_> = found.iter().map(|vdev| (vdev.0, vdev.1, vdev.2.len())).collect();
        assert_eq!(
            shapes,
            [
                (VdevLayout::Mirror, VdevRole::Data, 2),
                (VdevLayout::Raidz(2), VdevRole::Data, 3),
                (VdevLayout::Single, VdevRole::Log, 1),
                (VdevLayout::Single, VdevRole::Log, 1),
                (VdevLayout::Mirror, VdevRole::Special, 2),
            ]
        );
        assert_eq!(parse("/a /b").unwrap().len(), 2);
        let found = parse("draid:1s /a /b /c /d spare /e cache /f").unwrap();
        let draid = VdevLayout::Draid { parity: 1, data: 2, spares: 1 };
        let shapes: Vec<_> = found.iter().map(|vdev| (vdev.0, vdev.1, vdev.2.len())).collect();
        let single = |role| (VdevLayout::Single, role, 1);
        assert_eq!(
            shapes,
            [(draid, VdevRole::Data, 4), single(VdevRole::Spare), single(VdevRole::Cache)]
        );
    }

    #[test]
    fn invalid_vdevs_are_refused() {
        for (text, why) in [
            ("mirror /a", "requires at least 2 devices"),
            ("raidz3 /a /b /c", "requires at least 4 devices"),
            ("/a log raidz /b /c", "no raidz"),
            ("/a spare /b cache /c spare /d", "'spare' is given twice"),
            ("draid2:4d:11c:1s /a", "1 drives are named"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
