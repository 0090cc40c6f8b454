//! Every property that users see, in the order in which `zfs get all` prints them.
//!
//! Learnt from: the manifests of the fixtures and OpenZFS 2.3's table. Proved by: the fixture
//! tests.

use super::index_words;

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
pub(super) enum ValueFormat {
    /// In decimal.
    Number,
    /// Hundredths, with a point.
    Ratio,
    /// In decimal; all ones is "none".
    Limit,
    /// A number that stands for one of these words; the first that fits is printed.
    Index(&'static [(&'static str, u64)]),
    /// As it is.
    Text,
}

/// The value of what is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DefaultValue {
    None,
    Number(u64),
    Text(&'static str),
}

pub(super) const FILESYSTEM: u8 = 1;
pub(super) const SNAPSHOT: u8 = 2;
pub(super) const VOLUME: u8 = 4;
pub(super) const BOOKMARK: u8 = 8;

/// A property.
#[derive(Debug)]
pub(super) struct PropertyDef {
    pub(super) name: &'static str,
    /// Which kinds of datasets have it.
    pub(super) dataset_kinds: u8,
    pub(super) attr: PropertyAttr,
    pub(super) format: ValueFormat,
    pub(super) default: DefaultValue,
}

impl PropertyDef {
    /// Whether directories below and snapshots have it too.
    pub(super) fn is_inheritable(&self) -> bool {
        self.attr == PropertyAttr::Inherit
    }
}

const fn property_def(
    name: &'static str,
    kinds: u8,
    flavor: PropertyAttr,
    form: ValueFormat,
    fallback: DefaultValue,
) -> PropertyDef {
    PropertyDef { name, dataset_kinds: kinds, attr: flavor, format: form, default: fallback }
}

pub(super) fn find_property(name: &str) -> Option<&'static PropertyDef> {
    PROPERTIES.iter().find(|row| row.name == name)
}

#[rustfmt::skip] // a table
pub(super) static PROPERTIES: &[PropertyDef] = &[
    property_def("type", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("creation", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("used", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("available", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("referenced", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("compressratio", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Ratio, DefaultValue::Number(0)),
    property_def("mounted", FILESYSTEM, PropertyAttr::ReadOnly, ValueFormat::Index(index_words::YES_NO), DefaultValue::Number(0)),
    property_def("origin", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("quota", FILESYSTEM, PropertyAttr::Default, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("reservation", FILESYSTEM | VOLUME, PropertyAttr::Default, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("volsize", SNAPSHOT | VOLUME, PropertyAttr::Default, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("volblocksize", VOLUME, PropertyAttr::OneTime, ValueFormat::Number, DefaultValue::Number(16384)),
    property_def("recordsize", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Number, DefaultValue::Number(131072)),
    property_def("mountpoint", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Text, DefaultValue::Text("/")),
    property_def("sharenfs", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Text, DefaultValue::Text("off")),
    property_def("checksum", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::CHECKSUM), DefaultValue::Number(1)),
    property_def("compression", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::COMPRESSION), DefaultValue::Number(1)),
    property_def("atime", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("devices", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("exec", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("setuid", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("readonly", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("zoned", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("snapdir", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::SNAPDIR), DefaultValue::Number(0)),
    property_def("aclmode", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ACLMODE), DefaultValue::Number(0)),
    property_def("aclinherit", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ACLINHERIT), DefaultValue::Number(4)),
    property_def("createtxg", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("canmount", FILESYSTEM, PropertyAttr::Default, ValueFormat::Index(index_words::CANMOUNT), DefaultValue::Number(1)),
    property_def("xattr", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::XATTR), DefaultValue::Number(2)),
    property_def("copies", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::COPIES), DefaultValue::Number(1)),
    property_def("version", FILESYSTEM | SNAPSHOT, PropertyAttr::Default, ValueFormat::Index(index_words::VERSION), DefaultValue::Number(0)),
    property_def("utf8only", FILESYSTEM | SNAPSHOT, PropertyAttr::OneTime, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("normalization", FILESYSTEM | SNAPSHOT, PropertyAttr::OneTime, ValueFormat::Index(index_words::NORMALIZATION), DefaultValue::Number(0)),
    property_def("casesensitivity", FILESYSTEM | SNAPSHOT, PropertyAttr::OneTime, ValueFormat::Index(index_words::CASE_SENSITIVITY), DefaultValue::Number(0)),
    property_def("vscan", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("nbmand", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("sharesmb", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Text, DefaultValue::Text("off")),
    property_def("refquota", FILESYSTEM, PropertyAttr::Default, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("refreservation", FILESYSTEM | VOLUME, PropertyAttr::Default, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("guid", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("primarycache", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::CACHE), DefaultValue::Number(2)),
    property_def("secondarycache", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::CACHE), DefaultValue::Number(2)),
    property_def("usedbysnapshots", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("usedbydataset", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("usedbychildren", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("usedbyrefreservation", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("defer_destroy", SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
    property_def("userrefs", SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("logbias", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::LOGBIAS), DefaultValue::Number(0)),
    property_def("objsetid", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("dedup", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::DEDUP), DefaultValue::Number(2)),
    property_def("mlslabel", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("sync", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::SYNC), DefaultValue::Number(0)),
    property_def("dnodesize", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::DNODESIZE), DefaultValue::Number(0)),
    property_def("refcompressratio", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Ratio, DefaultValue::Number(0)),
    property_def("written", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("clones", SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("logicalused", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("logicalreferenced", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("volmode", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::VOLMODE), DefaultValue::Number(0)),
    property_def("filesystem_limit", FILESYSTEM, PropertyAttr::Default, ValueFormat::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapshot_limit", FILESYSTEM | VOLUME, PropertyAttr::Default, ValueFormat::Limit, DefaultValue::Number(u64::MAX)),
    property_def("filesystem_count", FILESYSTEM, PropertyAttr::ReadOnly, ValueFormat::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapshot_count", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapdev", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::SNAPDEV), DefaultValue::Number(0)),
    property_def("acltype", FILESYSTEM | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::ACLTYPE), DefaultValue::Number(0)),
    property_def("context", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Default, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("fscontext", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Default, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("defcontext", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Default, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("rootcontext", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Default, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("relatime", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("redundant_metadata", FILESYSTEM | VOLUME, PropertyAttr::Inherit, ValueFormat::Index(index_words::REDUNDANT_METADATA), DefaultValue::Number(0)),
    property_def("overlay", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("receive_resume_token", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("encryption", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::OneTime, ValueFormat::Index(index_words::ENCRYPTION), DefaultValue::Number(2)),
    property_def("keylocation", FILESYSTEM | VOLUME, PropertyAttr::Default, ValueFormat::Text, DefaultValue::Text("none")),
    property_def("keyformat", FILESYSTEM | VOLUME, PropertyAttr::OneTimeDefault, ValueFormat::Index(index_words::KEYFORMAT), DefaultValue::Number(0)),
    property_def("pbkdf2iters", FILESYSTEM | VOLUME, PropertyAttr::OneTimeDefault, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("encryptionroot", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("keystatus", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::ReadOnly, ValueFormat::Index(index_words::KEYSTATUS), DefaultValue::Number(0)),
    property_def("special_small_blocks", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("redact_snaps", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, PropertyAttr::ReadOnly, ValueFormat::Text, DefaultValue::None),
    property_def("snapshots_changed", FILESYSTEM | VOLUME, PropertyAttr::ReadOnly, ValueFormat::Number, DefaultValue::Number(0)),
    property_def("prefetch", FILESYSTEM | VOLUME | SNAPSHOT, PropertyAttr::Inherit, ValueFormat::Index(index_words::CACHE), DefaultValue::Number(2)),
    property_def("volthreading", VOLUME, PropertyAttr::Default, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(1)),
    property_def("direct", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::DIRECT), DefaultValue::Number(1)),
    property_def("longname", FILESYSTEM, PropertyAttr::Inherit, ValueFormat::Index(index_words::ON_OFF), DefaultValue::Number(0)),
];
