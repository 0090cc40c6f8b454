//! The records of a dataset in the pool, and access to its content.

use dsl::{Dataset, DatasetKind, SpaceByOwner};

use super::{Content, FileSystemReader, IntentLogSummary, ReadOptions, open_volume};
use crate::dataset::Property;
use crate::{Error, Event, RescuePool, Result};

/// Usage and quotas of users, groups and projects of a file system: rows of type, name, bytes,
/// quota, objects, object quota, as `zfs userspace -Hpn` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerSpace {
    /// By user.
    pub user: Vec<[String; 6]>,
    /// By group.
    pub group: Vec<[String; 6]>,
    /// By project.
    pub project: Vec<[String; 6]>,
}

/// Why a dataset is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteKind {
    /// A receive into it was interrupted.
    Received,
    /// Its sender redacted blocks.
    Redacted,
}

impl IncompleteKind {
    /// Why it is not shown, in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Received => "half received",
            Self::Redacted => "redacted",
        }
    }

    pub(crate) fn from_dataset(dataset: &Dataset) -> dsl::Result<Option<Self>> {
        if dataset.is_inconsistent() {
            return Ok(Some(Self::Received));
        }
        Ok(dataset.is_redacted()?.then_some(Self::Redacted))
    }
}

/// The content of a dataset.
#[derive(Clone)]
pub enum DatasetContents {
    /// Files.
    FileSystem(FileSystemReader),
    /// A volume's content.
    Volume(Content),
    /// None: a bookmark.
    Empty,
    /// Parts of it are not there: OpenZFS does not mount it.
    Incomplete(IncompleteKind),
    /// Unreadable: it is locked, or damaged.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// A dataset, with all but its content.
#[derive(Clone)]
pub struct DatasetDetails {
    /// Its full name.
    pub name: String,
    /// "filesystem", "volume", "snapshot" or "bookmark".
    pub kind: String,
    /// All its properties.
    pub properties: Vec<Property>,
    /// Of a file system what its owners use.
    pub space: Option<OwnerSpace>,
    /// Of a snapshot the tags of its holds.
    pub holds: Vec<String>,
    /// Its content.
    pub contents: DatasetContents,
    /// Why parts of this are missing, if they are.
    pub errors: Vec<String>,
}

impl RescuePool {
    /// Whether a file system or volume is incomplete; none: it is complete.
    pub fn incomplete_kind(&self, name: &str) -> Result<Option<IncompleteKind>> {
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        IncompleteKind::from_dataset(&self.tree().find(name).map_err(failed)?).map_err(failed)
    }

    /// The options of opening a dataset, from its properties and the opening of the pool.
    fn read_options(&self, dataset: &Dataset) -> ReadOptions {
        let value = |name: &str| {
            let found = dataset.property(name).ok().flatten();
            found.map(|property| property.value).unwrap_or_default()
        };
        ReadOptions {
            replay_after: (!self.ignores_logs()).then(|| self.spa().txg()),
            posix_acls: value("acltype") == "posix",
            user_xattrs: value("xattr") != "off",
        }
    }

    /// Opens a file system or a snapshot of one by its full name.
    pub fn open_filesystem(&self, name: &str) -> Result<(FileSystemReader, IntentLogSummary)> {
        let dataset = self.find_dataset(name)?;
        FileSystemReader::open(&dataset, self.read_options(&dataset))
            .map_err(|why| self.open_error(&dataset, why))
    }

    /// Opens a volume or a snapshot of one by its full name.
    pub fn open_volume(&self, name: &str) -> Result<(Content, IntentLogSummary)> {
        let dataset = self.find_dataset(name)?;
        open_volume(&dataset, self.read_options(&dataset))
            .map_err(|why| self.open_error(&dataset, why))
    }

    fn open_error(&self, dataset: &Dataset, why: super::Error) -> Error {
        let name = dataset.name();
        if why.is_locked() {
            return self.locked_error(&name);
        }
        match why {
            super::Error::Dataset(why) => Error::from_dsl_error(&name, &why),
            super::Error::FileSystem(zpl::Error::NotFilesystem { .. }) => {
                Error::Usage { what: format!("'{name}' is a volume and holds no files") }
            }
            super::Error::Volume(zvol::Error::NotVolume { .. }) => {
                Error::Usage { what: format!("'{name}' holds files and is not a volume") }
            }
            why => Error::Unreadable { subject: format!("'{name}'"), why: why.to_string() },
        }
    }

    /// Bytes that a dataset references, before compression; 0 if unknown.
    pub fn logical_size(&self, name: &str) -> u64 {
        let Ok(dataset) = self.find_dataset(name) else { return 0 };
        let found = dataset.property("logicalreferenced").ok().flatten();
        found.and_then(|property| property.value.parse().ok()).unwrap_or(0)
    }

    /// The names of the file systems just below a dataset, by name.
    pub fn child_filesystems(&self, name: &str) -> Vec<String> {
        let inside = format!("{}/", self.full_name(name));
        let heads = self.tree().heads().filter_map(std::result::Result::ok);
        let names = heads.filter(|head| matches!(head.kind(), Ok(DatasetKind::Filesystem)));
        let below = names
            .map(|head| head.name())
            .filter(|name| name.strip_prefix(&inside).is_some_and(|rest| !rest.contains('/')));
        below.collect()
    }

    /// Calls `visit` with `target` and, with `children`, its descendants, each file system or
    /// volume followed by its snapshots and bookmarks, until it returns false.
    pub fn visit_details(
        &self,
        target: &str,
        children: bool,
        visit: &mut dyn FnMut(std::result::Result<DatasetDetails, Event>) -> bool,
    ) -> Result<()> {
        let target = self.full_name(target);
        let wanted = self.find_dataset(&target)?;
        if wanted.short_name().is_some() {
            visit(Ok(self.read_details(&wanted)));
            return Ok(());
        }
        for dataset in self.tree().datasets() {
            let shown = match dataset {
                Ok(dataset) => {
                    let name = dataset.name();
                    let below = match name.strip_prefix(&target) {
                        Some("") => true,
                        Some(rest) if children => rest.starts_with(['/', '@', '#']),
                        Some(rest) => rest.starts_with(['@', '#']),
                        None => false,
                    };
                    if !below {
                        continue;
                    }
                    Ok(self.read_details(&dataset))
                }
                Err(why) => {
                    Err(Event::UnreadableDataset { dataset: target.clone(), why: why.to_string() })
                }
            };
            if !visit(shown) {
                break;
            }
        }
        Ok(())
    }

    fn read_details(&self, dataset: &Dataset) -> DatasetDetails {
        let mut troubles = Vec::new();
        let kind = dataset.kind();
        let properties = dataset.properties().unwrap_or_else(|why| {
            troubles.push(format!("its properties cannot be read: {why}"));
            Vec::new()
        });
        let plain = |found: dsl::Property| Property {
            name: found.name,
            value: found.value,
            source: found.source.to_string(),
            received: found.received,
        };
        let properties: Vec<Property> = properties.into_iter().map(plain).collect();
        let holds = dataset.holds().unwrap_or_else(|why| {
            troubles.push(format!("its holds cannot be read: {why}"));
            Vec::new()
        });
        let held = self.open_contents(dataset, &mut troubles);
        let space = match (&kind, &held) {
            (Ok(DatasetKind::Filesystem), DatasetContents::FileSystem(files)) => {
                Some(read_owner_space(files, &mut troubles))
            }
            (Ok(DatasetKind::Filesystem), _) => Some(OwnerSpace::default()),
            _ => None,
        };
        DatasetDetails {
            name: dataset.name(),
            kind: kind.map_or("unknown", DatasetKind::name).to_owned(),
            properties,
            space,
            holds: holds.into_iter().map(|hold| hold.tag).collect(),
            contents: held,
            errors: troubles,
        }
    }

    fn open_contents(&self, dataset: &Dataset, troubles: &mut Vec<String>) -> DatasetContents {
        if matches!(dataset.kind(), Ok(DatasetKind::Bookmark)) {
            return DatasetContents::Empty;
        }
        let kind = match dataset.objset_kind() {
            Ok(kind) => kind,
            Err(dsl::Error::NoContent { .. }) => return DatasetContents::Empty,
            Err(why) => return DatasetContents::Unreadable { why: why.to_string() },
        };
        match IncompleteKind::from_dataset(dataset) {
            Ok(None) => (),
            Ok(Some(part)) => return DatasetContents::Incomplete(part),
            Err(why) => return DatasetContents::Unreadable { why: why.to_string() },
        }
        let look = self.read_options(dataset);
        let opened = match kind {
            ondisk::objset::Kind::Volume => open_volume(dataset, look)
                .map(|(content, log)| (DatasetContents::Volume(content), log)),
            ondisk::objset::Kind::Filesystem => FileSystemReader::open(dataset, look)
                .map(|(files, log)| (DatasetContents::FileSystem(files), log)),
            _ => return DatasetContents::Empty,
        };
        match opened {
            Ok((held, log)) => {
                troubles.extend(log.error);
                held
            }
            Err(why) => {
                DatasetContents::Unreadable { why: self.open_error(dataset, why).to_string() }
            }
        }
    }
}

fn read_owner_space(files: &FileSystemReader, troubles: &mut Vec<String>) -> OwnerSpace {
    let owners = SpaceByOwner::read(files.fs.objset()).unwrap_or_else(|why| {
        troubles.push(format!("what its owners use cannot be read: {why}"));
        SpaceByOwner::default()
    });
    let rows = |rows: &[dsl::OwnerUsage]| rows.iter().map(dsl::OwnerUsage::columns).collect();
    OwnerSpace {
        user: rows(&owners.users),
        group: rows(&owners.groups),
        project: rows(&owners.projects),
    }
}
