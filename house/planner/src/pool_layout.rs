//! A layout in zpool's own words, with counts instead of names: `raidz2 6 mirror 2 spare 1`.

use std::fmt;

use geometry::draid::DraidShape;
use geometry::{Draid, Layout, Raidz};
use units::Ashift;

use crate::Error;

/// The default number of data columns of a dRAID, if there are enough drives.
const DEFAULT_DRAID_DATA: u32 = 8;

/// The type of a group of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Each drive a vdev of its own.
    Stripe,
    /// All drives hold the same.
    Mirror,
    /// raidz with this many parities.
    Raidz(u32),
    /// dRAID.
    Draid {
        /// parity columns of a row
        parity: u32,
        /// data columns of a row
        data: u32,
        /// distributed spares
        spares: u32,
    },
    /// Hot spares.
    Spare,
}

/// Drives that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutGroup {
    /// Their type.
    pub kind: GroupKind,
    /// How many.
    pub width: usize,
}

impl LayoutGroup {
    /// A group; [`LayoutGroup::layout`] tells whether it is possible.
    pub fn new(kind: GroupKind, width: usize) -> Self {
        Self { kind, width }
    }

    /// How many of its drives may fail at once, whichever they are.
    pub fn tolerance(&self) -> usize {
        match self.kind {
            GroupKind::Stripe | GroupKind::Spare => 0,
            GroupKind::Mirror => self.width - 1,
            GroupKind::Raidz(parity) | GroupKind::Draid { parity, .. } => parity as usize,
        }
    }

    /// How the vdev lays out blocks.
    pub fn layout(&self, ashift: Ashift) -> Result<Layout, Error> {
        let refuse =
            |why: &str| Error::InvalidGroup { layout: self.to_string(), why: why.to_owned() };
        let width = u32::try_from(self.width).map_err(|_| refuse("too many drives"))?;
        match self.kind {
            GroupKind::Mirror if width < 2 => Err(refuse("a mirror has 2 drives or more")),
            GroupKind::Stripe | GroupKind::Spare | GroupKind::Mirror => Ok(Layout::Plain(ashift)),
            GroupKind::Raidz(parity) => Raidz::new(width, parity, ashift)
                .map(|raidz| Layout::Raidz(raidz.into()))
                .map_err(|error| refuse(&error.to_string())),
            GroupKind::Draid { parity, data, spares } => {
                let needed = u64::from(parity) + u64::from(data) + u64::from(spares);
                if needed > u64::from(width) {
                    return Err(refuse(&format!("it needs {needed} drives or more")));
                }
                Draid::new(DraidShape::with_fewest_groups(width, data, parity, spares), ashift)
                    .map(Layout::Draid)
                    .map_err(|error| refuse(&error.to_string()))
            }
        }
    }
}

impl fmt::Display for LayoutGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width;
        match self.kind {
            GroupKind::Stripe => write!(f, "stripe {width}"),
            GroupKind::Mirror => write!(f, "mirror {width}"),
            GroupKind::Raidz(parity) => write!(f, "raidz{parity} {width}"),
            GroupKind::Draid { parity, data, spares } => {
                write!(f, "draid{parity}:{data}d:{width}c:{spares}s")
            }
            GroupKind::Spare => write!(f, "spare {width}"),
        }
    }
}

/// A pool's groups of drives, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolLayout(pub Vec<LayoutGroup>);

impl PoolLayout {
    /// Reads a layout for `drives` drives. The last group may go without a count: it takes the
    /// drives that are left.
    pub fn parse(text: &str, drives: usize) -> Result<Self, Error> {
        let mut groups: Vec<LayoutGroup> = Vec::new();
        let mut tokens = text.split([',', ' ', '\t', '\n']).filter(|t| !t.is_empty()).peekable();
        while let Some(word) = tokens.next() {
            let draft = GroupToken::parse(word)?;
            let count = tokens.peek().and_then(|next| next.parse::<usize>().ok());
            if count.is_some() {
                tokens.next();
            }
            let used: usize = groups.iter().map(|group| group.width).sum();
            let wrong = || Error::InvalidLayout { word: word.to_owned() };
            let width = match (draft.children, count) {
                (Some(_), Some(_)) => return Err(wrong()),
                (Some(width), None) | (None, Some(width)) => width,
                (None, None) => drives.saturating_sub(used),
            };
            if width == 0 || width > crate::MAX_DRIVES {
                return Err(wrong());
            }
            groups.push(draft.into_group(width));
        }
        let wanted: usize = groups.iter().map(|group| group.width).sum();
        if groups.iter().all(|group| group.kind == GroupKind::Spare) {
            return Err(Error::OnlySpares);
        }
        if wanted != drives {
            return Err(Error::DriveCountMismatch { required: wanted, given: drives });
        }
        Ok(Self(groups))
    }
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{group}")?;
        }
        Ok(())
    }
}

/// A group's word, of which the count may come after it.
struct GroupToken {
    kind: GroupKind,
    /// Whether the number of a dRAID's data columns is still to be chosen.
    is_data_default: bool,
    children: Option<usize>,
}

impl GroupToken {
    fn parse(word: &str) -> Result<Self, Error> {
        let lower = word.to_ascii_lowercase();
        let wrong = || Error::InvalidLayout { word: word.to_owned() };
        let kind = match lower.as_str() {
            "stripe" => GroupKind::Stripe,
            "mirror" => GroupKind::Mirror,
            "raidz" | "raidz1" => GroupKind::Raidz(1),
            "raidz2" => GroupKind::Raidz(2),
            "raidz3" => GroupKind::Raidz(3),
            "spare" | "spares" => GroupKind::Spare,
            draid => return Self::parse_draid(draid).ok_or_else(wrong),
        };
        Ok(Self { kind, is_data_default: false, children: None })
    }

    /// Reads `draid2:8d:24c:1s`, where each part but the first may be missing.
    fn parse_draid(word: &str) -> Option<Self> {
        let mut parts = word.split(':');
        let parity = match parts.next()?.strip_prefix("draid")? {
            "" => 1,
            digits => digits.parse().ok()?,
        };
        let (mut data, mut children, mut spares) = (None, None, 0);
        for part in parts {
            let (digits, letter) = part.split_at_checked(part.len().checked_sub(1)?)?;
            match letter {
                "d" => data = Some(digits.parse::<u32>().ok().filter(|d| *d > 0)?),
                "c" => children = Some(digits.parse().ok()?),
                "s" => spares = digits.parse().ok().filter(|s| *s <= 100)?,
                _ => return None,
            }
        }
        let kind = GroupKind::Draid { parity, data: data.unwrap_or(DEFAULT_DRAID_DATA), spares };
        Some(Self { kind, is_data_default: data.is_none(), children })
    }

    fn into_group(self, width: usize) -> LayoutGroup {
        let kind = match self.kind {
            GroupKind::Draid { parity, data, spares } if self.is_data_default => {
                let taken = (parity as usize).saturating_add(spares as usize);
                let left = u32::try_from(width.saturating_sub(taken)).unwrap_or(data);
                GroupKind::Draid { parity, data: data.min(left).max(1), spares }
            }
            kind => kind,
        };
        LayoutGroup { kind, width }
    }
}

#[cfg(test)]
mod tests {
    use super::{GroupKind, PoolLayout};
    use units::Ashift;

    #[test]
    fn layouts_parse_and_print_in_zpool_syntax() {
        for (text, drives, again) in [
            ("stripe 6", 6, "stripe 6"),
            ("mirror 2 mirror 2", 4, "mirror 2 mirror 2"),
            ("raidz 3,raidz2 18 raidz3", 29, "raidz1 3 raidz2 18 raidz3 8"),
            ("draid2:8d:24c:1s", 24, "draid2:8d:24c:1s"),
            ("draid2:6d:24c", 24, "draid2:6d:24c:0s"),
            ("draid:1s 12", 12, "draid1:8d:12c:1s"),
            ("draid2", 6, "draid2:4d:6c:0s"),
            ("raidz2 6 spare 1", 7, "raidz2 6 spare 1"),
        ] {
            assert_eq!(
                PoolLayout::parse(text, drives).map(|w| w.to_string()),
                Ok(again.to_owned())
            );
        }
    }

    #[test]
    fn invalid_layouts_are_refused() {
        for (text, drives) in [
            ("", 1),
            ("raidz4 8", 8),
            ("6", 6),
            ("mirror 2 mirror 2", 5),
            ("draid2:0d:24c", 24),
            ("draid2:8x:24c", 24),
            ("draid2:8d:24c 24", 24),
            ("spare 2", 2),
            ("raidz2 0", 0),
            ("draid2:", 4),
            ("draidé", 4),
        ] {
            assert!(PoolLayout::parse(text, drives).is_err(), "{text}");
        }
    }

    #[test]
    fn impossible_groups_are_refused() {
        let ashift = Ashift::new(12).unwrap();
        for text in ["mirror 1", "raidz2 2", "draid2:8d:6c:0s", "draid9:8d:24c"] {
            let drives = PoolLayout::parse(text, 1).map_or_else(
                |error| match error {
                    crate::Error::DriveCountMismatch { required: wanted, .. } => wanted,
                    other => panic!("{other}"),
                },
                |_| 1,
            );
            let words = PoolLayout::parse(text, drives).unwrap();
            assert!(words.0[0].layout(ashift).is_err(), "{text}");
        }
        assert_eq!(PoolLayout::parse("raidz3 8", 8).unwrap().0[0].tolerance(), 3);
        assert_eq!(PoolLayout::parse("mirror 3", 3).unwrap().0[0].kind, GroupKind::Mirror);
    }
}
