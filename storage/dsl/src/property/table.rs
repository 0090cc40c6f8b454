//! Every property that users see, in the order in which `zfs get all` prints them.
//!
//! Learnt from: the manifests of the fixtures and OpenZFS 2.3's table. Proved by: the fixture
//! tests.

use super::names;

/// Where a property's value comes from, and whether it is inherited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flavor {
    /// Set by the user; directories below have it too.
    Inherit,
    /// Set by the user, for one directory.
    Default,
    /// A fact.
    ReadOnly,
    /// Chosen when the dataset was made.
    Once,
    /// The same, and it can be changed by other means.
    OnceDefault,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
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
pub(super) enum Fallback {
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
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Which kinds of datasets have it.
    pub(super) kinds: u8,
    pub(super) flavor: Flavor,
    pub(super) form: Form,
    pub(super) fallback: Fallback,
}

impl Row {
    /// Whether directories below and snapshots have it too.
    pub(super) fn is_inherited(&self) -> bool {
        self.flavor == Flavor::Inherit
    }
}

const fn row(name: &'static str, kinds: u8, flavor: Flavor, form: Form, fallback: Fallback) -> Row {
    Row { name, kinds, flavor, form, fallback }
}

pub(super) fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

#[rustfmt::skip] // a table
pub(super) static TABLE: &[Row] = &[
    row("type", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("creation", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("used", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("available", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("referenced", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("compressratio", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Ratio, Fallback::Number(0)),
    row("mounted", FILESYSTEM, Flavor::ReadOnly, Form::Index(names::YES_NO), Fallback::Number(0)),
    row("origin", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("quota", FILESYSTEM, Flavor::Default, Form::Number, Fallback::Number(0)),
    row("reservation", FILESYSTEM | VOLUME, Flavor::Default, Form::Number, Fallback::Number(0)),
    row("volsize", SNAPSHOT | VOLUME, Flavor::Default, Form::Number, Fallback::Number(0)),
    row("volblocksize", VOLUME, Flavor::Once, Form::Number, Fallback::Number(16384)),
    row("recordsize", FILESYSTEM, Flavor::Inherit, Form::Number, Fallback::Number(131072)),
    row("mountpoint", FILESYSTEM, Flavor::Inherit, Form::Text, Fallback::Text("/")),
    row("sharenfs", FILESYSTEM, Flavor::Inherit, Form::Text, Fallback::Text("off")),
    row("checksum", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::CHECKSUM), Fallback::Number(1)),
    row("compression", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::COMPRESSION), Fallback::Number(1)),
    row("atime", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("devices", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("exec", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("setuid", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("readonly", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("zoned", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("snapdir", FILESYSTEM, Flavor::Inherit, Form::Index(names::SNAPDIR), Fallback::Number(0)),
    row("aclmode", FILESYSTEM, Flavor::Inherit, Form::Index(names::ACLMODE), Fallback::Number(0)),
    row("aclinherit", FILESYSTEM, Flavor::Inherit, Form::Index(names::ACLINHERIT), Fallback::Number(4)),
    row("createtxg", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("canmount", FILESYSTEM, Flavor::Default, Form::Index(names::CANMOUNT), Fallback::Number(1)),
    row("xattr", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::XATTR), Fallback::Number(2)),
    row("copies", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::COPIES), Fallback::Number(1)),
    row("version", FILESYSTEM | SNAPSHOT, Flavor::Default, Form::Index(names::VERSION), Fallback::Number(0)),
    row("utf8only", FILESYSTEM | SNAPSHOT, Flavor::Once, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("normalization", FILESYSTEM | SNAPSHOT, Flavor::Once, Form::Index(names::NORMALIZATION), Fallback::Number(0)),
    row("casesensitivity", FILESYSTEM | SNAPSHOT, Flavor::Once, Form::Index(names::CASE), Fallback::Number(0)),
    row("vscan", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("nbmand", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("sharesmb", FILESYSTEM, Flavor::Inherit, Form::Text, Fallback::Text("off")),
    row("refquota", FILESYSTEM, Flavor::Default, Form::Number, Fallback::Number(0)),
    row("refreservation", FILESYSTEM | VOLUME, Flavor::Default, Form::Number, Fallback::Number(0)),
    row("guid", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("primarycache", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Inherit, Form::Index(names::CACHE), Fallback::Number(2)),
    row("secondarycache", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Inherit, Form::Index(names::CACHE), Fallback::Number(2)),
    row("usedbysnapshots", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("usedbydataset", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("usedbychildren", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("usedbyrefreservation", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("defer_destroy", SNAPSHOT, Flavor::ReadOnly, Form::Index(names::SWITCH), Fallback::Number(0)),
    row("userrefs", SNAPSHOT, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("logbias", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::LOGBIAS), Fallback::Number(0)),
    row("objsetid", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("dedup", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::DEDUP), Fallback::Number(2)),
    row("mlslabel", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Inherit, Form::Text, Fallback::Text("none")),
    row("sync", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::SYNC), Fallback::Number(0)),
    row("dnodesize", FILESYSTEM, Flavor::Inherit, Form::Index(names::DNODESIZE), Fallback::Number(0)),
    row("refcompressratio", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Ratio, Fallback::Number(0)),
    row("written", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("clones", SNAPSHOT, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("logicalused", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("logicalreferenced", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("volmode", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::VOLMODE), Fallback::Number(0)),
    row("filesystem_limit", FILESYSTEM, Flavor::Default, Form::Limit, Fallback::Number(u64::MAX)),
    row("snapshot_limit", FILESYSTEM | VOLUME, Flavor::Default, Form::Limit, Fallback::Number(u64::MAX)),
    row("filesystem_count", FILESYSTEM, Flavor::ReadOnly, Form::Limit, Fallback::Number(u64::MAX)),
    row("snapshot_count", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Limit, Fallback::Number(u64::MAX)),
    row("snapdev", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::SNAPDEV), Fallback::Number(0)),
    row("acltype", FILESYSTEM | SNAPSHOT, Flavor::Inherit, Form::Index(names::ACLTYPE), Fallback::Number(0)),
    row("context", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Default, Form::Text, Fallback::Text("none")),
    row("fscontext", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Default, Form::Text, Fallback::Text("none")),
    row("defcontext", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Default, Form::Text, Fallback::Text("none")),
    row("rootcontext", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Default, Form::Text, Fallback::Text("none")),
    row("relatime", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("redundant_metadata", FILESYSTEM | VOLUME, Flavor::Inherit, Form::Index(names::REDUNDANT_METADATA), Fallback::Number(0)),
    row("overlay", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("receive_resume_token", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("encryption", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Once, Form::Index(names::ENCRYPTION), Fallback::Number(2)),
    row("keylocation", FILESYSTEM | VOLUME, Flavor::Default, Form::Text, Fallback::Text("none")),
    row("keyformat", FILESYSTEM | VOLUME, Flavor::OnceDefault, Form::Index(names::KEYFORMAT), Fallback::Number(0)),
    row("pbkdf2iters", FILESYSTEM | VOLUME, Flavor::OnceDefault, Form::Number, Fallback::Number(0)),
    row("encryptionroot", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("keystatus", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::ReadOnly, Form::Index(names::KEYSTATUS), Fallback::Number(0)),
    row("special_small_blocks", FILESYSTEM, Flavor::Inherit, Form::Number, Fallback::Number(0)),
    row("redact_snaps", FILESYSTEM | VOLUME | SNAPSHOT | BOOKMARK, Flavor::ReadOnly, Form::Text, Fallback::None),
    row("snapshots_changed", FILESYSTEM | VOLUME, Flavor::ReadOnly, Form::Number, Fallback::Number(0)),
    row("prefetch", FILESYSTEM | VOLUME | SNAPSHOT, Flavor::Inherit, Form::Index(names::CACHE), Fallback::Number(2)),
    row("volthreading", VOLUME, Flavor::Default, Form::Index(names::SWITCH), Fallback::Number(1)),
    row("direct", FILESYSTEM, Flavor::Inherit, Form::Index(names::DIRECT), Fallback::Number(1)),
    row("longname", FILESYSTEM, Flavor::Inherit, Form::Index(names::SWITCH), Fallback::Number(0)),
];
