//! Every property that users see, in the order in which `zfs get all` prints them.
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

/// The default value.
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
    PROPERTIES.iter().chain(HIDDEN_PROPERTIES).find(|row| row.name == name)
}

/// Kinds of datasets that share a property.
const FILES: u8 = FILESYSTEM | SNAPSHOT;
const HEAD: u8 = FILESYSTEM | VOLUME;
const DATASET: u8 = HEAD | SNAPSHOT;
const ANY: u8 = DATASET | BOOKMARK;

/// Properties that are shown only on request by name. OpenZFS's tests use them.
static HIDDEN_PROPERTIES: &[PropertyDef] =
    &[property_def("inconsistent", DATASET, ReadOnly, Format::Number, DefaultValue::Number(0))];

#[rustfmt::skip] // a table
pub(super) static PROPERTIES: &[PropertyDef] = &[
    property_def("type", ANY, ReadOnly, Format::Text, DefaultValue::None),
    property_def("creation", ANY, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("used", DATASET, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("available", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("referenced", ANY, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("compressratio", ANY, ReadOnly, Format::Ratio, DefaultValue::Number(0)),
    property_def("mounted", FILESYSTEM, ReadOnly, Format::Index(words::YES_NO), DefaultValue::Number(0)),
    property_def("origin", HEAD, ReadOnly, Format::Text, DefaultValue::None),
    property_def("quota", FILESYSTEM, Default, Format::Number, DefaultValue::Number(0)),
    property_def("reservation", HEAD, Default, Format::Number, DefaultValue::Number(0)),
    property_def("volsize", SNAPSHOT | VOLUME, Default, Format::Number, DefaultValue::Number(0)),
    property_def("volblocksize", VOLUME, OneTime, Format::Number, DefaultValue::Number(16384)),
    property_def("recordsize", FILESYSTEM, Inherit, Format::Number, DefaultValue::Number(131072)),
    property_def("mountpoint", FILESYSTEM, Inherit, Format::Text, DefaultValue::Text("/")),
    property_def("sharenfs", FILESYSTEM, Inherit, Format::Text, DefaultValue::Text("off")),
    property_def("checksum", HEAD, Inherit, Format::Index(words::CHECKSUM), DefaultValue::Number(1)),
    property_def("compression", HEAD, Inherit, Format::Index(words::COMPRESSION), DefaultValue::Number(1)),
    property_def("atime", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("devices", FILES, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("exec", FILES, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("setuid", FILES, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("readonly", HEAD, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("zoned", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("snapdir", FILESYSTEM, Inherit, Format::Index(words::SNAPDIR), DefaultValue::Number(0)),
    property_def("aclmode", FILESYSTEM, Inherit, Format::Index(words::ACLMODE), DefaultValue::Number(0)),
    property_def("aclinherit", FILESYSTEM, Inherit, Format::Index(words::ACLINHERIT), DefaultValue::Number(4)),
    property_def("createtxg", ANY, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("canmount", FILESYSTEM, Default, Format::Index(words::CANMOUNT), DefaultValue::Number(1)),
    property_def("xattr", FILES, Inherit, Format::Index(words::XATTR), DefaultValue::Number(2)),
    property_def("copies", HEAD, Inherit, Format::Index(words::COPIES), DefaultValue::Number(1)),
    property_def("version", FILES, Default, Format::Index(words::VERSION), DefaultValue::Number(0)),
    property_def("utf8only", FILES, OneTime, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("normalization", FILES, OneTime, Format::Index(words::NORMALIZATION), DefaultValue::Number(0)),
    property_def("casesensitivity", FILES, OneTime, Format::Index(words::CASE_SENSITIVITY), DefaultValue::Number(0)),
    property_def("vscan", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("nbmand", FILES, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("sharesmb", FILESYSTEM, Inherit, Format::Text, DefaultValue::Text("off")),
    property_def("refquota", FILESYSTEM, Default, Format::Number, DefaultValue::Number(0)),
    property_def("refreservation", HEAD, Default, Format::Number, DefaultValue::Number(0)),
    property_def("guid", ANY, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("primarycache", DATASET, Inherit, Format::Index(words::CACHE), DefaultValue::Number(2)),
    property_def("secondarycache", DATASET, Inherit, Format::Index(words::CACHE), DefaultValue::Number(2)),
    property_def("usedbysnapshots", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("usedbydataset", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("usedbychildren", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("usedbyrefreservation", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("defer_destroy", SNAPSHOT, ReadOnly, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
    property_def("userrefs", SNAPSHOT, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("logbias", HEAD, Inherit, Format::Index(words::LOGBIAS), DefaultValue::Number(0)),
    property_def("objsetid", DATASET, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("dedup", HEAD, Inherit, Format::Index(words::DEDUP), DefaultValue::Number(2)),
    property_def("mlslabel", DATASET, Inherit, Format::Text, DefaultValue::Text("none")),
    property_def("sync", HEAD, Inherit, Format::Index(words::SYNC), DefaultValue::Number(0)),
    property_def("dnodesize", FILESYSTEM, Inherit, Format::Index(words::DNODESIZE), DefaultValue::Number(0)),
    property_def("refcompressratio", DATASET, ReadOnly, Format::Ratio, DefaultValue::Number(0)),
    property_def("written", DATASET, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("clones", SNAPSHOT, ReadOnly, Format::Text, DefaultValue::None),
    property_def("logicalused", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("logicalreferenced", ANY, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("volmode", HEAD, Inherit, Format::Index(words::VOLMODE), DefaultValue::Number(0)),
    property_def("filesystem_limit", FILESYSTEM, Default, Format::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapshot_limit", HEAD, Default, Format::Limit, DefaultValue::Number(u64::MAX)),
    property_def("filesystem_count", FILESYSTEM, ReadOnly, Format::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapshot_count", HEAD, ReadOnly, Format::Limit, DefaultValue::Number(u64::MAX)),
    property_def("snapdev", HEAD, Inherit, Format::Index(words::SNAPDEV), DefaultValue::Number(0)),
    property_def("acltype", FILES, Inherit, Format::Index(words::ACLTYPE), DefaultValue::Number(0)),
    property_def("context", DATASET, Default, Format::Text, DefaultValue::Text("none")),
    property_def("fscontext", DATASET, Default, Format::Text, DefaultValue::Text("none")),
    property_def("defcontext", DATASET, Default, Format::Text, DefaultValue::Text("none")),
    property_def("rootcontext", DATASET, Default, Format::Text, DefaultValue::Text("none")),
    property_def("relatime", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("redundant_metadata", HEAD, Inherit, Format::Index(words::REDUNDANT_METADATA), DefaultValue::Number(0)),
    property_def("overlay", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("receive_resume_token", HEAD, ReadOnly, Format::Text, DefaultValue::None),
    property_def("encryption", DATASET, OneTime, Format::Index(words::ENCRYPTION), DefaultValue::Number(2)),
    property_def("keylocation", HEAD, Default, Format::Text, DefaultValue::Text("none")),
    property_def("keyformat", HEAD, OneTimeDefault, Format::Index(words::KEYFORMAT), DefaultValue::Number(0)),
    property_def("pbkdf2iters", HEAD, OneTimeDefault, Format::Number, DefaultValue::Number(0)),
    property_def("encryptionroot", DATASET, ReadOnly, Format::Text, DefaultValue::None),
    property_def("keystatus", DATASET, ReadOnly, Format::Index(words::KEYSTATUS), DefaultValue::Number(0)),
    property_def("special_small_blocks", FILESYSTEM, Inherit, Format::Number, DefaultValue::Number(0)),
    property_def("redact_snaps", ANY, ReadOnly, Format::Text, DefaultValue::None),
    property_def("snapshots_changed", HEAD, ReadOnly, Format::Number, DefaultValue::Number(0)),
    property_def("prefetch", DATASET, Inherit, Format::Index(words::CACHE), DefaultValue::Number(2)),
    property_def("volthreading", VOLUME, Default, Format::Index(words::ON_OFF), DefaultValue::Number(1)),
    property_def("direct", FILESYSTEM, Inherit, Format::Index(words::DIRECT), DefaultValue::Number(1)),
    property_def("longname", FILESYSTEM, Inherit, Format::Index(words::ON_OFF), DefaultValue::Number(0)),
];
