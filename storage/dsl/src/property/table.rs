//! The registry of properties: every property that users see, in the order in which `zfs get all` prints them.
//!
//! A row says all there is to know of a property: where it applies, how it is written, the head of its
//! column, and what follows a change ([`Effects`]). Commands, daemon and engine ask it and keep no lists of their own.
//!
//! Learnt from: the manifests of the fixtures and OpenZFS 2.3's table. Proved by: the fixture
//! tests.

use super::index_words as words;
use PropertyAttr::{Default, Inherit, OneTime, OneTimeDefault, ReadOnly};
use ValueFormat as Format;

/// Where a property's value comes from, and whether it is inherited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PropertyAttr {
    /// Set by the user; directories below have it too.
    Inherit,
    /// Set by the user, for one directory.
    Default,
    /// A fact.
    ReadOnly,
    /// Chosen when the dataset was made.
    OneTime,
    /// The same, and it can be changed by other means.
    OneTimeDefault,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueFormat {
    /// In decimal.
    Number,
    /// Bytes of space: in decimal, or short with a unit, and a B where the number is small.
    Space,
    /// The same; 0 is "none".
    SpaceLimit,
    /// Other bytes: in decimal, or short with a unit.
    Bytes,
    /// Seconds since 1970.
    Date,
    /// Hundredths, with a point.
    Ratio,
    /// In decimal; all ones is "none".
    Limit,
    /// A number that stands for one of these words; the first that fits is printed.
    Index(&'static [(&'static str, u64)]),
    /// As it is.
    Text,
}

/// The default value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DefaultValue {
    None,
    Number(u64),
    Text(&'static str),
}

/// The set of parts of the system that follow the change of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effects(u8);

impl Effects {
    /// Only the stored value changes.
    pub const NONE: Self = Self(0);
    /// It decides where and how a file system is mounted.
    pub const MOUNT: Self = Self(1);
    /// Shares of files follow it.
    pub const SHARE: Self = Self(2);
    /// The devices of volumes follow it.
    pub const DEVICE: Self = Self(4);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all effects of another set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

pub(super) const FILESYSTEM: u8 = 1;
pub(super) const SNAPSHOT: u8 = 2;
pub(super) const VOLUME: u8 = 4;
pub(super) const BOOKMARK: u8 = 8;

/// A property.
#[derive(Debug)]
pub struct PropertyDef {
    pub(super) name: &'static str,
    /// The head of its column in small letters, if that is not its name. It is also a name of the property.
    column: Option<&'static str>,
    effects: Effects,
    /// The kinds of datasets that have it.
    pub(super) dataset_kinds: u8,
    pub(super) attr: PropertyAttr,
    pub(super) format: ValueFormat,
    pub(super) default: DefaultValue,
}

impl PropertyDef {
    /// Whether directories below and snapshots inherit it.
    pub(super) fn is_inheritable(&self) -> bool {
        self.attr == Inherit
    }

    /// Its full name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The head of its column, in small letters; zfs(8) takes it for a name, too.
    pub fn column(&self) -> &'static str {
        self.column.unwrap_or(self.name)
    }

    /// How its values are written.
    pub fn format(&self) -> ValueFormat {
        self.format
    }

    /// The parts of the system that follow a change.
    pub fn effects(&self) -> Effects {
        self.effects
    }

    const fn head(mut self, column: &'static str) -> Self {
        self.column = Some(column);
        self
    }

    const fn with(mut self, effects: Effects) -> Self {
        self.effects = self.effects.and(effects);
        self
    }
}

const fn property_def(
    name: &'static str,
    kinds: u8,
    flavor: PropertyAttr,
    form: ValueFormat,
    fallback: DefaultValue,
) -> PropertyDef {
    let (column, effects) = (None, Effects::NONE);
    PropertyDef {
        name,
        column,
        effects,
        dataset_kinds: kinds,
        attr: flavor,
        format: form,
        default: fallback,
    }
}

/// The property of a full name.
pub fn find_property(name: &str) -> Option<&'static PropertyDef> {
    PROPERTIES.iter().chain(HIDDEN_PROPERTIES).find(|row| row.name == name)
}

/// Kinds of datasets that share a property.
const FILES: u8 = FILESYSTEM | SNAPSHOT;
const HEAD: u8 = FILESYSTEM | VOLUME;
const DATASET: u8 = HEAD | SNAPSHOT;
const ANY: u8 = DATASET | BOOKMARK;

/// Properties that are shown only on request by name. OpenZFS's tests use them.
static HIDDEN_PROPERTIES: &[PropertyDef] =
    &[property_def("inconsistent", DATASET, ReadOnly, Format::Number, number(0))];

const NONE: DefaultValue = DefaultValue::None;

const fn number(value: u64) -> DefaultValue {
    DefaultValue::Number(value)
}

const fn text(value: &'static str) -> DefaultValue {
    DefaultValue::Text(value)
}

const MOUNT: Effects = Effects::MOUNT;
const SHARE: Effects = Effects::SHARE;
const DEVICE: Effects = Effects::DEVICE;
const EVERYWHERE: Effects = MOUNT.and(SHARE).and(DEVICE);

/// The properties, in the order of `zfs get all`.
#[rustfmt::skip] // a table
pub static PROPERTIES: &[PropertyDef] = &[
    property_def("type", ANY, ReadOnly, Format::Text, NONE),
    property_def("creation", ANY, ReadOnly, Format::Date, number(0)),
    property_def("used", DATASET, ReadOnly, Format::Space, number(0)),
    property_def("available", HEAD, ReadOnly, Format::Space, number(0)).head("avail"),
    property_def("referenced", ANY, ReadOnly, Format::Space, number(0)).head("refer"),
    property_def("compressratio", ANY, ReadOnly, Format::Ratio, number(0)).head("ratio"),
    property_def("mounted", FILESYSTEM, ReadOnly, Format::Index(words::YES_NO), number(0)),
    property_def("origin", HEAD, ReadOnly, Format::Text, NONE),
    property_def("quota", FILESYSTEM, Default, Format::SpaceLimit, number(0)).with(SHARE),
    property_def("reservation", HEAD, Default, Format::SpaceLimit, number(0)).head("reserv"),
    property_def("volsize", SNAPSHOT | VOLUME, Default, Format::Bytes, number(0)).with(DEVICE),
    property_def("volblocksize", VOLUME, OneTime, Format::Bytes, number(16384)).head("volblock"),
    property_def("recordsize", FILESYSTEM, Inherit, Format::Bytes, number(131072)).head("recsize"),
    property_def("mountpoint", FILESYSTEM, Inherit, Format::Text, text("/")).with(MOUNT).with(SHARE),
    property_def("sharenfs", FILESYSTEM, Inherit, Format::Text, text("off")).with(SHARE),
    property_def("checksum", HEAD, Inherit, Format::Index(words::CHECKSUM), number(1)),
    property_def("compression", HEAD, Inherit, Format::Index(words::COMPRESSION), number(1)).head("compress"),
    property_def("atime", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(1)).with(MOUNT),
    property_def("devices", FILES, Inherit, Format::Index(words::ON_OFF), number(1)).with(MOUNT),
    property_def("exec", FILES, Inherit, Format::Index(words::ON_OFF), number(1)).with(MOUNT),
    property_def("setuid", FILES, Inherit, Format::Index(words::ON_OFF), number(1)).with(MOUNT),
    property_def("readonly", HEAD, Inherit, Format::Index(words::ON_OFF), number(0)).head("rdonly").with(EVERYWHERE),
    property_def("zoned", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(0)),
    property_def("snapdir", FILESYSTEM, Inherit, Format::Index(words::SNAPDIR), number(0)).with(SHARE),
    property_def("aclmode", FILESYSTEM, Inherit, Format::Index(words::ACLMODE), number(0)),
    property_def("aclinherit", FILESYSTEM, Inherit, Format::Index(words::ACLINHERIT), number(4)),
    property_def("createtxg", ANY, ReadOnly, Format::Number, number(0)),
    property_def("canmount", FILESYSTEM, Default, Format::Index(words::CANMOUNT), number(1)).with(MOUNT).with(SHARE),
    property_def("xattr", FILES, Inherit, Format::Index(words::XATTR), number(2)),
    property_def("copies", HEAD, Inherit, Format::Index(words::COPIES), number(1)),
    property_def("version", FILES, Default, Format::Index(words::VERSION), number(0)),
    property_def("utf8only", FILES, OneTime, Format::Index(words::ON_OFF), number(0)),
    property_def("normalization", FILES, OneTime, Format::Index(words::NORMALIZATION), number(0)),
    property_def("casesensitivity", FILES, OneTime, Format::Index(words::CASE_SENSITIVITY), number(0)).head("case"),
    property_def("vscan", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(0)),
    property_def("nbmand", FILES, Inherit, Format::Index(words::ON_OFF), number(0)),
    property_def("sharesmb", FILESYSTEM, Inherit, Format::Text, text("off")).with(SHARE),
    property_def("refquota", FILESYSTEM, Default, Format::SpaceLimit, number(0)).with(SHARE),
    property_def("refreservation", HEAD, Default, Format::SpaceLimit, number(0)).head("refreserv"),
    property_def("guid", ANY, ReadOnly, Format::Number, number(0)),
    property_def("primarycache", DATASET, Inherit, Format::Index(words::CACHE), number(2)),
    property_def("secondarycache", DATASET, Inherit, Format::Index(words::CACHE), number(2)),
    property_def("usedbysnapshots", HEAD, ReadOnly, Format::Space, number(0)).head("usedsnap"),
    property_def("usedbydataset", HEAD, ReadOnly, Format::Space, number(0)).head("usedds"),
    property_def("usedbychildren", HEAD, ReadOnly, Format::Space, number(0)).head("usedchild"),
    property_def("usedbyrefreservation", HEAD, ReadOnly, Format::Space, number(0)).head("usedrefreserv"),
    property_def("defer_destroy", SNAPSHOT, ReadOnly, Format::Index(words::ON_OFF), number(0)),
    property_def("userrefs", SNAPSHOT, ReadOnly, Format::Number, number(0)),
    property_def("logbias", HEAD, Inherit, Format::Index(words::LOGBIAS), number(0)),
    property_def("objsetid", DATASET, ReadOnly, Format::Number, number(0)),
    property_def("dedup", HEAD, Inherit, Format::Index(words::DEDUP), number(2)),
    property_def("mlslabel", DATASET, Inherit, Format::Text, text("none")),
    property_def("sync", HEAD, Inherit, Format::Index(words::SYNC), number(0)),
    property_def("dnodesize", FILESYSTEM, Inherit, Format::Index(words::DNODESIZE), number(0)).head("dnsize"),
    property_def("refcompressratio", DATASET, ReadOnly, Format::Ratio, number(0)).head("refratio"),
    property_def("written", DATASET, ReadOnly, Format::Bytes, number(0)),
    property_def("clones", SNAPSHOT, ReadOnly, Format::Text, NONE),
    property_def("logicalused", HEAD, ReadOnly, Format::Bytes, number(0)).head("lused"),
    property_def("logicalreferenced", ANY, ReadOnly, Format::Bytes, number(0)).head("lrefer"),
    property_def("volmode", HEAD, Inherit, Format::Index(words::VOLMODE), number(0)).with(DEVICE),
    property_def("filesystem_limit", FILESYSTEM, Default, Format::Limit, number(u64::MAX)).head("fslimit"),
    property_def("snapshot_limit", HEAD, Default, Format::Limit, number(u64::MAX)).head("sslimit"),
    property_def("filesystem_count", FILESYSTEM, ReadOnly, Format::Limit, number(u64::MAX)).head("fscount"),
    property_def("snapshot_count", HEAD, ReadOnly, Format::Limit, number(u64::MAX)).head("sscount"),
    property_def("snapdev", HEAD, Inherit, Format::Index(words::SNAPDEV), number(0)).with(DEVICE),
    property_def("acltype", FILES, Inherit, Format::Index(words::ACLTYPE), number(0)).with(SHARE),
    property_def("context", DATASET, Default, Format::Text, text("none")),
    property_def("fscontext", DATASET, Default, Format::Text, text("none")),
    property_def("defcontext", DATASET, Default, Format::Text, text("none")),
    property_def("rootcontext", DATASET, Default, Format::Text, text("none")),
    property_def("relatime", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(1)),
    property_def("redundant_metadata", HEAD, Inherit, Format::Index(words::REDUNDANT_METADATA), number(0)).head("redund_md"),
    property_def("overlay", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(1)).with(MOUNT),
    property_def("receive_resume_token", HEAD, ReadOnly, Format::Text, NONE).head("resumetok"),
    property_def("encryption", DATASET, OneTime, Format::Index(words::ENCRYPTION), number(2)),
    property_def("keylocation", HEAD, Default, Format::Text, text("none")),
    property_def("keyformat", HEAD, OneTimeDefault, Format::Index(words::KEYFORMAT), number(0)),
    property_def("pbkdf2iters", HEAD, OneTimeDefault, Format::Number, number(0)),
    property_def("encryptionroot", DATASET, ReadOnly, Format::Text, NONE).head("encroot"),
    property_def("keystatus", DATASET, ReadOnly, Format::Index(words::KEYSTATUS), number(0)),
    property_def("special_small_blocks", FILESYSTEM, Inherit, Format::Bytes, number(0)),
    property_def("redact_snaps", ANY, ReadOnly, Format::Text, NONE).head("rsnaps"),
    property_def("snapshots_changed", HEAD, ReadOnly, Format::Date, number(0)),
    property_def("prefetch", DATASET, Inherit, Format::Index(words::CACHE), number(2)),
    property_def("volthreading", VOLUME, Default, Format::Index(words::ON_OFF), number(1)),
    property_def("direct", FILESYSTEM, Inherit, Format::Index(words::DIRECT), number(1)),
    property_def("longname", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), number(0)),
];
