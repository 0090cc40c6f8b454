//! The tree of vdevs as a label, or the pool's own list, describes it.
//!
//! Learnt from: `zdb -l` and `zdb -C` of the fixtures. Proved by: `golden_label`.

use units::{Guid, ObjectId, Txg, VdevId};

use crate::nvlist::Nvlist;
use crate::{Error, Result};

/// The type of a vdev.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum VdevKind {
    /// The root: all top-level vdevs.
    Root,
    /// A disk or a partition.
    Disk,
    /// A file.
    File,
    /// Copies.
    Mirror,
    /// Rows with parity over all children.
    Raidz,
    /// The same with parity groups and spares spread over all children.
    Draid,
    /// A device and the one that takes its place.
    Replacing,
    /// A device and the spare that stands in for it.
    Spare,
    /// A removed vdev: its blocks were moved.
    Indirect,
    /// A removed log: nothing points into it.
    Hole,
    /// A missing vdev, of which only the existence is known.
    Missing,
    /// A spare that is a share of every child of a draid.
    DraidSpare,
    /// A read cache.
    Cache,
    /// A kind of a newer version.
    Unknown(String),
}

impl VdevKind {
    const NAMES: [(Self, &'static str); 13] = [
        (Self::Root, "root"),
        (Self::Disk, "disk"),
        (Self::File, "file"),
        (Self::Mirror, "mirror"),
        (Self::Raidz, "raidz"),
        (Self::Draid, "draid"),
        (Self::Replacing, "replacing"),
        (Self::Spare, "spare"),
        (Self::Indirect, "indirect"),
        (Self::Hole, "hole"),
        (Self::Missing, "missing"),
        (Self::DraidSpare, "dspare"),
        (Self::Cache, "l2cache"),
    ];

    /// From the name on disk.
    pub fn from_name(name: &str) -> Self {
        let known = Self::NAMES.into_iter().find(|row| row.1 == name);
        known.map_or_else(|| Self::Unknown(name.to_owned()), |row| row.0)
    }

    /// The name on disk.
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown(name) => name,
            known => Self::NAMES.iter().find(|row| row.0 == *known).map_or("", |row| row.1),
        }
    }

    /// Whether it is a device, of which labels and blocks can be read.
    pub const fn is_leaf(&self) -> bool {
        matches!(self, Self::Disk | Self::File | Self::DraidSpare | Self::Cache)
    }
}

impl std::fmt::Display for VdevKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The allocation class of a top-level vdev.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Bias {
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// A class of a newer version.
    Unknown(String),
}

impl Bias {
    /// From the name in a list.
    pub fn from_name(name: &str) -> Self {
        match name {
            "log" => Self::Log,
            "special" => Self::Special,
            "dedup" => Self::Dedup,
            _ => Self::Unknown(name.to_owned()),
        }
    }

    /// The name in a list, and in the top-level vdev's ZAP (`org.zfsonlinux:allocation_bias`).
    pub fn name(&self) -> &str {
        match self {
            Self::Log => "log",
            Self::Special => "special",
            Self::Dedup => "dedup",
            Self::Unknown(name) => name,
        }
    }

    /// From the number in the top-level vdev's ZAP (`org.zfsonlinux:allocation_bias`).
    pub fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Log),
            2 => Some(Self::Special),
            3 => Some(Self::Dedup),
            _ => Some(Self::Unknown(number.to_string())),
        }
    }
}

/// How a draid is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Draid {
    /// Data children of a group.
    pub data: u64,
    /// Distributed spares.
    pub spares: u64,
    /// Groups in a slice.
    pub groups: u64,
}

/// Where the blocks of a removed vdev went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Indirect {
    /// The mapping.
    pub mapping: ObjectId,
    /// When which part was copied.
    pub births: Option<ObjectId>,
    /// The vdev removed before this one (none: it was the first).
    pub previous: Option<VdevId>,
}

/// The marks of trouble on a vdev.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent marks on disk")]
pub struct VdevState {
    /// Taken offline by the administrator.
    pub offline: bool,
    /// Too many errors, or declared so.
    pub faulted: bool,
    /// Errors, but in use.
    pub degraded: bool,
    /// Its drive was removed.
    pub removed: bool,
    /// It was not there when the list was written.
    pub not_present: bool,
    /// The spare is to be detached once the resilver is done.
    pub unspare: bool,
    /// The resilver of this device was put off.
    pub resilver_deferred: bool,
    /// Why: "external" is the administrator's or a fault manager's word.
    pub reason: Option<String>,
}

/// A vdev and those below it.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts on disk")]
pub struct VdevConfig {
    /// Its type.
    pub kind: VdevKind,
    /// Its index in its parent.
    pub id: VdevId,
    /// Its guid; 0 for holes.
    pub guid: Guid,
    /// The path by which its device was opened.
    pub path: Option<String>,
    /// The device by its own name.
    pub devid: Option<String>,
    /// The device by its place in the machine.
    pub phys_path: Option<String>,
    /// The path of the enclosure's slot.
    pub enclosure_path: Option<String>,
    /// Whether the pool has all of the disk (and partitioned it itself).
    pub whole_disk: Option<bool>,
    /// Bytes for data, on top-level vdevs. For raidz and draid the children's sum.
    pub asize: Option<u64>,
    /// log2 of the smallest write.
    pub ashift: Option<u64>,
    /// The object with the space maps' numbers, on top-level vdevs; 0 before the first is made.
    pub metaslab_array: Option<ObjectId>,
    /// log2 of the bytes of a metaslab.
    pub metaslab_shift: Option<u64>,
    /// Parity devices of a raidz or draid: 1 to 3.
    pub nparity: Option<u64>,
    /// Whether it is part of the intent log.
    pub is_log: bool,
    /// Whether it is a spare in use.
    pub is_spare: bool,
    /// Whether it is a hole in a label's tree.
    pub is_hole: bool,
    /// Whether nothing new is put there.
    pub non_allocating: bool,
    /// Whether its removal has begun.
    pub removing: bool,
    /// Its allocation class.
    pub bias: Option<Bias>,
    /// The txg in which it was added.
    pub create_txg: Option<Txg>,
    /// When the drives of the vdev were last made larger, in seconds since 1970.
    pub expansion_time: Option<u64>,
    /// The txg up to which a resilver knows it.
    pub resilver_txg: Option<Txg>,
    /// The same of a sequential rebuild.
    pub rebuild_txg: Option<Txg>,
    /// The space map of txgs that it missed.
    pub dtl: Option<ObjectId>,
    /// Marks of trouble.
    pub state: VdevState,
    /// Whether a raidz is being widened.
    pub raidz_expanding: bool,
    /// The txgs in which a raidz was widened, one child each.
    pub raidz_expand_txgs: Vec<Txg>,
    /// How a draid is built.
    pub draid: Option<Draid>,
    /// Where the blocks of a removed vdev went (also while it is being removed).
    pub indirect: Option<Indirect>,
    /// The ZAP of the root.
    pub root_zap: Option<ObjectId>,
    /// The ZAP of a top-level vdev.
    pub top_zap: Option<ObjectId>,
    /// The ZAP of a device.
    pub leaf_zap: Option<ObjectId>,
    /// The draid that a distributed spare is part of.
    pub top_guid: Option<Guid>,
    /// Which of that draid's spares it is.
    pub spare_id: Option<u64>,
    /// The device's guid before a split.
    pub original_guid: Option<Guid>,
    /// The vdevs below.
    pub children: Vec<Self>,
}

impl VdevConfig {
    /// A vdev of which only the type is known.
    pub fn new(kind: VdevKind) -> Self {
        let mut list = Nvlist::new();
        list.push("type", crate::nvlist::Value::Str(kind.name().as_bytes().to_vec()));
        let mut found = Self::parse(&list).unwrap_or_else(|_| unreachable!("it has a type"));
        found.kind = kind;
        found
    }

    /// From a list; as deep as the list, which is bounded.
    pub fn parse(list: &Nvlist) -> Result<Self> {
        let object = |name| list.u64(name).filter(|number| *number != 0).map(ObjectId::new);
        let guid = |name| list.u64(name).map(Guid::new);
        let txg = |name| list.u64(name).map(Txg::new);
        let mark = |name| list.u64(name).is_some_and(|value| value != 0);
        let children: Result<Vec<_>> = list.nvlists("children").iter().map(Self::parse).collect();
        let txgs = list.u64s("raidz_expand_txgs").unwrap_or(&[]);
        Ok(Self {
            kind: VdevKind::from_name(&list.text("type").ok_or(MISSING_TYPE)?),
            id: index(list.u64("id").unwrap_or(0))?,
            guid: Guid::new(list.u64("guid").unwrap_or(0)),
            path: list.text("path"),
            devid: list.text("devid"),
            phys_path: list.text("phys_path"),
            enclosure_path: list.text("vdev_enc_sysfs_path"),
            whole_disk: list.u64("whole_disk").map(|value| value != 0),
            asize: list.u64("asize"),
            ashift: list.u64("ashift"),
            metaslab_array: object("metaslab_array"),
            metaslab_shift: list.u64("metaslab_shift"),
            nparity: list.u64("nparity"),
            is_log: mark("is_log"),
            is_spare: mark("is_spare"),
            is_hole: mark("is_hole"),
            non_allocating: mark("non_allocating"),
            removing: mark("removing"),
            bias: list.text("alloc_bias").map(|name| Bias::from_name(&name)),
            create_txg: txg("create_txg"),
            expansion_time: list.u64("expansion_time"),
            resilver_txg: txg("resilver_txg"),
            rebuild_txg: txg("rebuild_txg"),
            dtl: object("DTL"),
            state: VdevState::parse(list),
            raidz_expanding: list.flag("raidz_expanding"),
            raidz_expand_txgs: txgs.iter().copied().map(Txg::new).collect(),
            draid: Draid::parse(list),
            indirect: Indirect::parse(list)?,
            root_zap: object("com.klarasystems:vdev_zap_root"),
            top_zap: object("com.delphix:vdev_zap_top"),
            leaf_zap: object("com.delphix:vdev_zap_leaf"),
            top_guid: guid("top_guid"),
            spare_id: list.u64("spareid"),
            original_guid: guid("orig_guid"),
            children: children?,
        })
    }

    /// This vdev and all below it, parents first.
    pub fn walk(&self) -> impl Iterator<Item = &Self> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            let next = open.pop()?;
            open.extend(next.children.iter().rev());
            Some(next)
        })
    }

    /// The devices of it.
    pub fn leaves(&self) -> impl Iterator<Item = &Self> {
        self.walk().filter(|vdev| vdev.kind.is_leaf())
    }
}

impl VdevState {
    fn parse(list: &Nvlist) -> Self {
        let mark = |name| list.u64(name).is_some_and(|value| value != 0);
        Self {
            offline: mark("offline"),
            faulted: mark("faulted"),
            degraded: mark("degraded"),
            removed: mark("removed"),
            not_present: mark("not_present"),
            unspare: mark("unspare"),
            resilver_deferred: list.flag("com.datto:resilver_defer"),
            reason: list.text("aux_state"),
        }
    }
}

impl Draid {
    fn parse(list: &Nvlist) -> Option<Self> {
        Some(Self {
            data: list.u64("draid_ndata")?,
            spares: list.u64("draid_nspares")?,
            groups: list.u64("draid_ngroups")?,
        })
    }
}

impl Indirect {
    fn parse(list: &Nvlist) -> Result<Option<Self>> {
        let object = |name| list.u64(name).filter(|number| *number != 0).map(ObjectId::new);
        let Some(mapping) = object("com.delphix:indirect_object") else { return Ok(None) };
        let previous = list.u64("com.delphix:prev_indirect_vdev").filter(|id| *id != u64::MAX);
        Ok(Some(Self {
            mapping,
            births: object("com.delphix:indirect_births"),
            previous: previous.map(index).transpose()?,
        }))
    }
}

const MISSING_TYPE: Error =
    Error::Rule { structure: "vdev configuration", at: 0, rule: "a vdev has a type", found: 0 };

/// DVAs have 24 bits for it.
fn index(number: u64) -> Result<VdevId> {
    match u32::try_from(number) {
        Ok(small) if small < 1 << 24 => Ok(VdevId::new(small)),
        _ => Err(Error::Rule {
            structure: "vdev configuration",
            at: 0,
            rule: "a vdev's index fits 24 bits",
            found: number,
        }),
    }
}
