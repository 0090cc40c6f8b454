//! What a pool records of a dataset besides its content, and the way to that content.

use dsl::{Dataset, Kind, Owners};

use super::{Content, Files, Log, Look, open_volume};
use crate::dataset::Property;
use crate::{Error, Event, Pool, Result};

/// What users, groups and projects use and may use of a file system: rows of type, name, bytes,
/// quota, objects, object quota, as `zfs userspace -Hpn` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// By user.
    pub user: Vec<[String; 6]>,
    /// By group.
    pub group: Vec<[String; 6]>,
    /// By project.
    pub project: Vec<[String; 6]>,
}

/// Why a dataset is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    /// A receive into it was broken off.
    Received,
    /// Its sender left blocks out.
    Redacted,
}

impl Partial {
    /// Why it is not shown, in words.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Received => "half received",
            Self::Redacted => "redacted",
        }
    }

    pub(crate) fn of(dataset: &Dataset) -> dsl::Result<Option<Self>> {
        if dataset.is_inconsistent() {
            return Ok(Some(Self::Received));
        }
        Ok(dataset.is_redacted()?.then_some(Self::Redacted))
    }
}

/// What a dataset holds.
#[derive(Clone)]
pub enum Held {
    /// Files.
    Files(Files),
    /// A volume's content.
    Volume(Content),
    /// Nothing: a bookmark.
    Nothing,
    /// Parts of it are not there: OpenZFS does not mount it.
    Partial(Partial),
    /// Nothing that can be read: it is locked, or damaged.
    Closed {
        /// Why.
        why: String,
    },
}

/// A dataset, with all but its content.
#[derive(Clone)]
pub struct Record {
    /// Its full name.
    pub name: String,
    /// "filesystem", "volume", "snapshot" or "bookmark".
    pub kind: String,
    /// All its properties.
    pub properties: Vec<Property>,
    /// Of a file system what its owners use.
    pub space: Option<Space>,
    /// Of a snapshot the tags of its holds.
    pub holds: Vec<String>,
    /// What it holds.
    pub held: Held,
    /// Why parts of this are missing, if they are.
    pub troubles: Vec<String>,
}

impl Pool {
    /// Whether a file system or volume is there in part only; none: it is whole.
    pub fn partial(&self, name: &str) -> Result<Option<Partial>> {
        let failed = |error: dsl::Error| Error::of_dataset(name, &error);
        Partial::of(&self.tree().find(name).map_err(failed)?).map_err(failed)
    }

    /// How a dataset is looked at: as its own properties and those of the pool's opening say.
    fn look(&self, dataset: &Dataset) -> Look {
        let value = |name: &str| {
            let found = dataset.property(name).ok().flatten();
            found.map(|property| property.value).unwrap_or_default()
        };
        Look {
            log: (!self.leaves_out_logs()).then(|| self.spa().txg()),
            posix_acls: value("acltype") == "posix",
            user_xattrs: value("xattr") != "off",
        }
    }

    /// Opens a file system or a snapshot of one by its full name.
    pub fn files(&self, name: &str) -> Result<(Files, Log)> {
        let dataset = self.find(name)?;
        Files::open(&dataset, self.look(&dataset)).map_err(|why| self.closed(&dataset, why))
    }

    /// Opens a volume or a snapshot of one by its full name.
    pub fn volume(&self, name: &str) -> Result<(Content, Log)> {
        let dataset = self.find(name)?;
        open_volume(&dataset, self.look(&dataset)).map_err(|why| self.closed(&dataset, why))
    }

    fn closed(&self, dataset: &Dataset, why: super::Error) -> Error {
        let name = dataset.name();
        if why.is_locked() {
            return self.locked(&name);
        }
        match why {
            super::Error::Dataset(why) => Error::of_dataset(&name, &why),
            super::Error::Files(zpl::Error::NotFiles { .. }) => {
                Error::Usage { what: format!("'{name}' is a volume and holds no files") }
            }
            super::Error::Volume(zvol::Error::NotVolume { .. }) => {
                Error::Usage { what: format!("'{name}' holds files and is no volume") }
            }
            why => Error::Unreadable { subject: format!("'{name}'"), why: why.to_string() },
        }
    }

    /// Bytes that a dataset refers to, before compression; 0 where that cannot be told.
    pub fn logical_size(&self, name: &str) -> u64 {
        let Ok(dataset) = self.find(name) else { return 0 };
        let found = dataset.property("logicalreferenced").ok().flatten();
        found.and_then(|property| property.value.parse().ok()).unwrap_or(0)
    }

    /// The names of the file systems just below a dataset, by name.
    pub fn children(&self, name: &str) -> Vec<String> {
        let inside = format!("{}/", self.full_name(name));
        let heads = self.tree().heads().filter_map(std::result::Result::ok);
        let names = heads.filter(|head| matches!(head.kind(), Ok(Kind::Filesystem)));
        let below = names
            .map(|head| head.name())
            .filter(|name| name.strip_prefix(&inside).is_some_and(|rest| !rest.contains('/')));
        below.collect()
    }

    /// Shows `target` and, with `children`, all below it to `visit`, each file system or volume
    /// followed by its snapshots and bookmarks, until it says false.
    pub fn records(
        &self,
        target: &str,
        children: bool,
        visit: &mut dyn FnMut(std::result::Result<Record, Event>) -> bool,
    ) -> Result<()> {
        let target = self.full_name(target);
        let wanted = self.find(&target)?;
        if wanted.part().is_some() {
            visit(Ok(self.record(&wanted)));
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
                    Ok(self.record(&dataset))
                }
                Err(why) => Err(Event::Dataset { dataset: target.clone(), why: why.to_string() }),
            };
            if !visit(shown) {
                break;
            }
        }
        Ok(())
    }

    fn record(&self, dataset: &Dataset) -> Record {
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
        };
        let properties: Vec<Property> = properties.into_iter().map(plain).collect();
        let holds = dataset.holds().unwrap_or_else(|why| {
            troubles.push(format!("its holds cannot be read: {why}"));
            Vec::new()
        });
        let held = self.held(dataset, &mut troubles);
        let space = match (&kind, &held) {
            (Ok(Kind::Filesystem), Held::Files(files)) => Some(space(files, &mut troubles)),
            (Ok(Kind::Filesystem), _) => Some(Space::default()),
            _ => None,
        };
        Record {
            name: dataset.name(),
            kind: kind.map_or("unknown", Kind::name).to_owned(),
            properties,
            space,
            holds: holds.into_iter().map(|hold| hold.tag).collect(),
            held,
            troubles,
        }
    }

    fn held(&self, dataset: &Dataset, troubles: &mut Vec<String>) -> Held {
        if matches!(dataset.kind(), Ok(Kind::Bookmark)) {
            return Held::Nothing;
        }
        let kind = match dataset.content_kind() {
            Ok(kind) => kind,
            Err(dsl::Error::NoContent { .. }) => return Held::Nothing,
            Err(why) => return Held::Closed { why: why.to_string() },
        };
        match Partial::of(dataset) {
            Ok(None) => (),
            Ok(Some(part)) => return Held::Partial(part),
            Err(why) => return Held::Closed { why: why.to_string() },
        }
        let look = self.look(dataset);
        let opened = match kind {
            ondisk::objset::Kind::Volume => {
                open_volume(dataset, look).map(|(content, log)| (Held::Volume(content), log))
            }
            ondisk::objset::Kind::Filesystem => {
                Files::open(dataset, look).map(|(files, log)| (Held::Files(files), log))
            }
            _ => return Held::Nothing,
        };
        match opened {
            Ok((held, log)) => {
                troubles.extend(log.trouble);
                held
            }
            Err(why) => Held::Closed { why: self.closed(dataset, why).to_string() },
        }
    }
}

fn space(files: &Files, troubles: &mut Vec<String>) -> Space {
    let owners = Owners::read(files.fs.objset()).unwrap_or_else(|why| {
        troubles.push(format!("what its owners use cannot be read: {why}"));
        Owners::default()
    });
    let rows = |rows: &[dsl::OwnerRow]| rows.iter().map(dsl::OwnerRow::cells).collect();
    Space {
        user: rows(&owners.users),
        group: rows(&owners.groups),
        project: rows(&owners.projects),
    }
}
