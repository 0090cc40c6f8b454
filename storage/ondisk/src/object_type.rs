//! The type of an object or a bonus buffer.
//!
//! Types below 54 are an enumeration. From 0x80 on ("new types") the byte describes the
//! content: bit 7 set, bit 6 metadata, bit 5 encrypted in encrypted datasets, bits 0-4 the
//! byte order of its fields ([`Content`]).
//!
//! Learnt from: `zdb -dddd` of the fixtures. Proved by: the fixture tests, which refuse a block
//! whose type is not the one its dnode names.

/// The type byte of a dnode, of its bonus buffer, or of a block pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ObjectType(pub u8);

/// The fields of an object's bytes: a pool of a machine with the other byte order needs them
/// swapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// Bytes as they are.
    Bytes,
    /// 16-bit numbers.
    Words16,
    /// 32-bit numbers.
    Words32,
    /// 64-bit numbers.
    Words64,
    /// A name table, which knows its own structure.
    Zap,
    /// An array of dnodes.
    Dnodes,
    /// An object set.
    Objset,
    /// A legacy znode in a bonus buffer.
    Znode,
    /// An ACL of the first version.
    OldAcl,
    /// An ACL.
    Acl,
}

macro_rules! types {
    ($($name:ident = $number:literal, $content:ident, $metadata:literal, $encrypted:literal,
        $words:literal;)*) => {
        impl ObjectType {
            $(#[doc = $words] pub const $name: Self = Self($number);)*
        }

        /// (content, metadata, encrypted, name) of each enumerated type.
        const TABLE: &[(Content, bool, bool, &str)] =
            &[$((Content::$content, $metadata, $encrypted, $words),)*];
    };
}

types! {
    NONE = 0, Bytes, true, false, "unallocated";
    OBJECT_DIRECTORY = 1, Zap, true, false, "object directory";
    OBJECT_ARRAY = 2, Words64, true, false, "object array";
    PACKED_NVLIST = 3, Bytes, true, false, "packed nvlist";
    PACKED_NVLIST_SIZE = 4, Words64, true, false, "packed nvlist size";
    BPOBJ = 5, Words64, true, false, "bpobj";
    BPOBJ_HEADER = 6, Words64, true, false, "bpobj header";
    SPACE_MAP_HEADER = 7, Words64, true, false, "SPA space map header";
    SPACE_MAP = 8, Words64, true, false, "SPA space map";
    INTENT_LOG = 9, Words64, true, true, "ZIL intent log";
    DNODE = 10, Dnodes, true, true, "DMU dnode";
    OBJSET = 11, Objset, true, false, "DMU objset";
    DSL_DIR = 12, Words64, true, false, "DSL directory";
    DSL_DIR_CHILD_MAP = 13, Zap, true, false, "DSL directory child map";
    DSL_DATASET_SNAP_MAP = 14, Zap, true, false, "DSL dataset snap map";
    DSL_PROPS = 15, Zap, true, false, "DSL props";
    DSL_DATASET = 16, Words64, true, false, "DSL dataset";
    ZNODE = 17, Znode, true, false, "ZFS znode";
    OLD_ACL = 18, OldAcl, true, true, "ZFS V0 ACL";
    PLAIN_FILE = 19, Bytes, false, true, "ZFS plain file";
    DIRECTORY = 20, Zap, true, true, "ZFS directory";
    MASTER_NODE = 21, Zap, true, false, "ZFS master node";
    UNLINKED_SET = 22, Zap, true, true, "ZFS delete queue";
    ZVOL = 23, Bytes, false, true, "zvol object";
    ZVOL_PROP = 24, Zap, true, false, "zvol prop";
    PLAIN_OTHER = 25, Bytes, false, true, "other uint8[]";
    UINT64_OTHER = 26, Words64, false, true, "other uint64[]";
    ZAP_OTHER = 27, Zap, true, false, "other ZAP";
    ERROR_LOG = 28, Zap, true, false, "persistent error log";
    SPA_HISTORY = 29, Bytes, true, false, "SPA history";
    SPA_HISTORY_OFFSETS = 30, Words64, true, false, "SPA history offsets";
    POOL_PROPS = 31, Zap, true, false, "Pool properties";
    DSL_PERMS = 32, Zap, true, false, "DSL permissions";
    ACL = 33, Acl, true, true, "ZFS ACL";
    SYSACL = 34, Bytes, true, true, "ZFS SYSACL";
    FUID = 35, Bytes, true, true, "FUID table";
    FUID_SIZE = 36, Words64, true, false, "FUID table size";
    NEXT_CLONES = 37, Zap, true, false, "DSL dataset next clones";
    SCAN_QUEUE = 38, Zap, true, false, "scan work queue";
    USED = 39, Zap, true, true, "ZFS user/group/project used";
    QUOTA = 40, Zap, true, true, "ZFS user/group/project quota";
    USERREFS = 41, Zap, true, false, "snapshot refcount tags";
    DDT_ZAP = 42, Zap, true, false, "DDT ZAP algorithm";
    DDT_STATS = 43, Zap, true, false, "DDT statistics";
    SA = 44, Bytes, true, true, "System attributes";
    SA_MASTER_NODE = 45, Zap, true, true, "SA master node";
    SA_ATTR_REGISTRATION = 46, Zap, true, true, "SA attr registration";
    SA_ATTR_LAYOUTS = 47, Zap, true, true, "SA attr layouts";
    SCAN_XLATE = 48, Zap, true, false, "scan translations";
    DEDUP = 49, Bytes, false, true, "deduplicated block";
    DEADLIST = 50, Zap, true, false, "DSL deadlist map";
    DEADLIST_HEADER = 51, Words64, true, false, "DSL deadlist map hdr";
    DSL_CLONES = 52, Zap, true, false, "DSL dir clones";
    BPOBJ_SUBOBJ = 53, Words64, true, false, "bpobj subobj";
}

impl ObjectType {
    const NEW_TYPE_BIT: u8 = 0x80;

    fn row(self) -> Option<&'static (Content, bool, bool, &'static str)> {
        TABLE.get(usize::from(self.0))
    }

    /// Whether the format knows this type.
    pub fn is_known(self) -> bool {
        self.row().is_some() || (self.0 & Self::NEW_TYPE_BIT != 0 && self.0 & 0x1f <= 9)
    }

    /// How its bytes are ordered.
    pub fn content(self) -> Content {
        if let Some((content, ..)) = self.row() {
            return *content;
        }
        match self.0 & 0x1f {
            1 => Content::Words16,
            2 => Content::Words32,
            3 => Content::Words64,
            4 => Content::Zap,
            5 => Content::Dnodes,
            6 => Content::Objset,
            7 => Content::Znode,
            8 => Content::OldAcl,
            9 => Content::Acl,
            _ => Content::Bytes,
        }
    }

    /// Whether it counts as metadata (which has more copies than data).
    pub fn is_metadata(self) -> bool {
        self.row().map_or(self.0 & 0x40 != 0, |row| row.1)
    }

    /// Whether blocks of it are ciphered in an encrypted dataset; the others are authenticated.
    pub fn is_encrypted(self) -> bool {
        self.row().map_or(self.0 & 0x20 != 0, |row| row.2)
    }

    /// The name that the field's tools print.
    pub fn name(self) -> &'static str {
        match (self.row(), self.content(), self.is_metadata()) {
            (Some(row), ..) => row.3,
            (None, Content::Zap, _) => "zap",
            (None, Content::Words64, true) => "uint64 metadata",
            (None, Content::Words64, false) => "uint64 data",
            (None, Content::Bytes, true) => "uint8 metadata",
            (None, Content::Bytes, false) => "uint8 data",
            _ => "other",
        }
    }
}

impl std::fmt::Display for ObjectType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, ObjectType};

    #[test]
    fn enumerated_types_are_indexed_by_number() {
        assert_eq!(super::TABLE.len(), 54);
        assert_eq!(ObjectType(53), ObjectType::BPOBJ_SUBOBJ);
        assert_eq!(ObjectType::BPOBJ_SUBOBJ.name(), "bpobj subobj");
        assert!(ObjectType::DIRECTORY.is_encrypted() && ObjectType::DIRECTORY.is_metadata());
    }

    #[test]
    fn new_types_describe_themselves() {
        let zap_metadata = ObjectType(0x80 | 0x40 | 4);
        assert_eq!(zap_metadata.content(), Content::Zap);
        assert!(zap_metadata.is_metadata() && !zap_metadata.is_encrypted());
        assert!(ObjectType(0x80 | 0x20 | 3).is_encrypted());
        assert!(!ObjectType(54).is_known() && !ObjectType(0x9f).is_known());
    }
}
