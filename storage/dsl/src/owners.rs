//! Space and objects of users, groups and projects in a file system, and their quotas.
//!
//! Three tables of the object set hold the usage: an owner's number leads to bytes, and
//! `obj-` with the number to objects. Six tables named by the master node hold the quotas. The
//! keys are the owners' numbers in hexadecimal, with a domain's index in the upper half.

use std::collections::BTreeMap;

use dmu::{Objset, SpecialObject};
use ondisk::Reader;
use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::nvlist::Nvlist;
use ondisk::objset::Kind;
use units::ObjectId;
use zap::Zap;

use crate::{Dataset, Error, Result};

/// The kind of an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum OwnerKind {
    /// A user of POSIX.
    PosixUser,
    /// A user of a domain.
    SmbUser,
    /// A group of POSIX.
    PosixGroup,
    /// A group of a domain.
    SmbGroup,
    /// A project.
    Project,
}

impl OwnerKind {
    /// The words that the field's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PosixUser => "POSIX User",
            Self::SmbUser => "SMB User",
            Self::PosixGroup => "POSIX Group",
            Self::SmbGroup => "SMB Group",
            Self::Project => "Project",
        }
    }
}

/// The usage of one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerUsage {
    /// The kind of the owner.
    pub kind: OwnerKind,
    /// The number; of an owner of a domain, the domain and the number.
    pub name: String,
    /// Bytes used; `None` where nothing is known of the owner's bytes.
    pub used: Option<u64>,
    /// Bytes that may be used; 0: no limit.
    pub quota: Option<u64>,
    /// Objects used; `None` where the file system does not count them, or knows of none and of no
    /// limit of this owner.
    pub objects: Option<u64>,
    /// Objects that may be used; 0: no limit.
    pub object_quota: Option<u64>,
}

impl OwnerUsage {
    /// None if no usage is recorded, for example for an owner with an object quota where objects
    /// are not counted.
    fn new(
        kind: OwnerKind,
        name: String,
        counts: OwnerCounts,
        counts_objects: bool,
    ) -> Option<Self> {
        let (used, quota) = used_and_quota(counts.used, counts.quota);
        let (objects, object_quota) = if counts_objects {
            used_and_quota(counts.objects, counts.object_quota)
        } else {
            (None, None)
        };
        used.or(objects)?;
        Some(Self { kind, name, used, quota, objects, object_quota })
    }

    /// The row as `zfs userspace -Hpn -o type,name,used,quota,objused,objquota` prints it.
    pub fn columns(&self) -> [String; 6] {
        let or_dash = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        [
            self.kind.name().to_owned(),
            self.name.clone(),
            or_dash(self.used),
            or_dash(self.quota),
            or_dash(self.objects),
            or_dash(self.object_quota),
        ]
    }
}

/// The usage of all owners of a file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceByOwner {
    /// By user.
    pub users: Vec<OwnerUsage>,
    /// By group.
    pub groups: Vec<OwnerUsage>,
    /// By project.
    pub projects: Vec<OwnerUsage>,
}

/// The records of one owner.
#[derive(Default, Clone, Copy)]
struct OwnerCounts {
    used: Option<u64>,
    quota: Option<u64>,
    objects: Option<u64>,
    object_quota: Option<u64>,
}

/// Usage and quota: if one is known, the other is at least 0.
fn used_and_quota(used: Option<u64>, quota: Option<u64>) -> (Option<u64>, Option<u64>) {
    (used.or(quota.map(|_| 0)), quota.or(used.map(|_| 0)))
}

/// A domain's index and a number in it.
type OwnerId = (u32, u32);

impl SpaceByOwner {
    /// Of a file system's content.
    pub fn read(objset: &Objset) -> Result<Self> {
        use OwnerKind::{PosixGroup, PosixUser, Project, SmbGroup, SmbUser};
        let flags = objset.header().flags;
        if !flags.space_accounted() {
            return Ok(Self::default());
        }
        let master = Zap::open(objset.object(ObjectId::new(1))?)?;
        let domains = FuidDomains::read(objset, &master)?;
        let count_objects = flags.objects_accounted();
        let rows = |special, [quota, object_quota]: [&str; 2], posix, smb, projects: bool| {
            let mut all = BTreeMap::new();
            add_used(objset, special, &mut all)?;
            add_quota(objset, &master, quota, &mut all, |counts| &mut counts.quota)?;
            add_quota(objset, &master, object_quota, &mut all, |counts| &mut counts.object_quota)?;
            let row = |(owner, counts): (OwnerId, OwnerCounts)| {
                let (domain, number) = owner;
                let (kind, name) = match domains.domain_name(domain).filter(|_| !projects) {
                    Some(domain) => (smb, format!("{domain}-{number}")),
                    None if projects => {
                        (posix, ((u64::from(domain) << 32) | u64::from(number)).to_string())
                    }
                    None => (posix, number.to_string()),
                };
                OwnerUsage::new(kind, name, counts, count_objects || projects)
            };
            Ok::<_, Error>(all.into_iter().filter_map(row).collect::<Vec<_>>())
        };
        let users = ["userquota@", "userobjquota@"];
        let groups = ["groupquota@", "groupobjquota@"];
        let projects = ["projectquota@", "projectobjquota@"];
        Ok(Self {
            users: rows(SpecialObject::UserUsed, users, PosixUser, SmbUser, false)?,
            groups: rows(SpecialObject::GroupUsed, groups, PosixGroup, SmbGroup, false)?,
            projects: if flags.projects_accounted() {
                rows(SpecialObject::ProjectUsed, projects, Project, Project, true)?
            } else {
                Vec::new()
            },
        })
    }
}

impl Dataset {
    /// The usage of its owners. Like OpenZFS's tools, it is empty for a redacted dataset, whose
    /// accounting is that of its origin, and for datasets other than file systems.
    pub fn space_by_owner(&self) -> Result<SpaceByOwner> {
        let redacted =
            self.zap_field(DatasetPhys::REDACTED_SNAPS)?.is_some_and(|it| it.count() > 0);
        if redacted || self.objset_kind()? != Kind::Filesystem {
            return Ok(SpaceByOwner::default());
        }
        SpaceByOwner::read(&self.open_objset()?)
    }
}

fn parse_owner(name: &[u8]) -> Option<OwnerId> {
    let digits = std::str::from_utf8(name).ok()?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    let low = u32::try_from(number & 0xffff_ffff).ok()?;
    Some((u32::try_from(number >> 32).ok()?, low))
}

fn add_used(
    objset: &Objset,
    which: SpecialObject,
    all: &mut BTreeMap<OwnerId, OwnerCounts>,
) -> Result<()> {
    let Some(object) = objset.special_object(which) else { return Ok(()) };
    for entry in Zap::open(object)?.entries() {
        let entry = entry?;
        let (name, objects) = match entry.name.strip_prefix(b"obj-") {
            Some(name) => (name, true),
            None => (&entry.name[..], false),
        };
        let (Some(owner), Some(count)) = (parse_owner(name), entry.value.u64()) else { continue };
        let counts: &mut OwnerCounts = all.entry(owner).or_default();
        *(if objects { &mut counts.objects } else { &mut counts.used }) = Some(count);
    }
    Ok(())
}

fn add_quota(
    objset: &Objset,
    master: &Zap,
    name: &str,
    all: &mut BTreeMap<OwnerId, OwnerCounts>,
    field: impl Fn(&mut OwnerCounts) -> &mut Option<u64>,
) -> Result<()> {
    let Some(id) = master.lookup_u64(name.as_bytes())?.filter(|id| *id != 0) else {
        return Ok(());
    };
    for entry in Zap::open(objset.object(ObjectId::new(id))?)?.entries() {
        let entry = entry?;
        let (Some(owner), Some(limit)) = (parse_owner(&entry.name), entry.value.u64()) else {
            continue;
        };
        *field(all.entry(owner).or_default()) = Some(limit);
    }
    Ok(())
}

/// The domains that owners' numbers refer to.
struct FuidDomains(Vec<(u64, String)>);

/// No table of domains is longer.
const MAX_TABLE_SIZE: u64 = 16 << 20;

impl FuidDomains {
    fn read(objset: &Objset, master: &Zap) -> Result<Self> {
        let Some(id) = master.lookup_u64(b"FUID")?.filter(|id| *id != 0) else {
            return Ok(Self(Vec::new()));
        };
        let id = ObjectId::new(id);
        let broken = |error| Error::Corrupt { object: id, why: error };
        let object = objset.object(id)?;
        let mut size = Reader::new("domain table's size", object.bonus(), object.bonus_order());
        let size = size.u64().map_err(broken)?.min(MAX_TABLE_SIZE);
        let mut bytes = vec![0; units::to_usize(size)];
        object.read(0, &mut bytes)?;
        let list = Nvlist::decode(&bytes).map_err(broken)?;
        let domain =
            |row: &Nvlist| Some((row.u64("fuid_idx")?, row.str("fuid_domain")?.to_owned()));
        Ok(Self(list.nvlists("fuid_nvlist").iter().filter_map(domain).collect()))
    }

    fn domain_name(&self, index: u32) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == u64::from(index));
        found.filter(|_| index != 0).map(|(_, name)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnerCounts, OwnerKind, OwnerUsage};

    fn cells(counts: OwnerCounts, counts_objects: bool) -> [String; 4] {
        let row = OwnerUsage::new(OwnerKind::PosixUser, "1001".to_owned(), counts, counts_objects);
        let [_, _, cells @ ..] = row.unwrap().columns();
        cells
    }

    /// The form in which OpenZFS shows a user with a quota and no usage.
    #[test]
    fn unknown_usage_is_a_dash() {
        let limited = OwnerCounts { quota: Some(20_971_520), ..OwnerCounts::default() };
        assert_eq!(cells(limited, true), ["0", "20971520", "-", "-"]);
        let used = OwnerCounts { used: Some(512), objects: Some(1), ..OwnerCounts::default() };
        assert_eq!(cells(used, true), ["512", "0", "1", "0"]);
        assert_eq!(cells(used, false), ["512", "0", "-", "-"]);
    }

    /// As in a pool of OpenZFS without `userobj_accounting`.
    #[test]
    fn quota_of_uncounted_objects_gives_no_row() {
        let counts = OwnerCounts { object_quota: Some(300), ..OwnerCounts::default() };
        let row = |counted| OwnerUsage::new(OwnerKind::PosixGroup, "7".to_owned(), counts, counted);
        assert_eq!(row(false), None);
        assert_eq!(row(true).unwrap().columns()[2..], ["-", "-", "0", "300"]);
    }
}
