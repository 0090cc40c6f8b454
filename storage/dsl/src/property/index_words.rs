//! The words that stand for numbers in properties.

/// Words and their numbers; of two with one number the first is printed.
type IndexWords = &'static [(&'static str, u64)];

pub(super) const ON_OFF: IndexWords = &[("off", 0), ("on", 1)];
pub(super) const YES_NO: IndexWords = &[("no", 0), ("yes", 1)];
pub(super) const REDUNDANT_METADATA: IndexWords =
    &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
pub(super) const SYNC: IndexWords = &[("standard", 0), ("always", 1), ("disabled", 2)];
#[rustfmt::skip] // a table
pub(super) const CHECKSUM: IndexWords = &[
    ("on", 1), ("off", 2), ("fletcher2", 6), ("fletcher4", 7), ("sha256", 8), ("noparity", 10),
    ("sha512", 11), ("skein", 12), ("edonr", 13), ("blake3", 14),
];
#[rustfmt::skip] // a table
pub(super) const DEDUP: IndexWords = &[
    ("on", 1), ("off", 2), ("verify", 257), ("sha256", 8), ("sha256,verify", 264), ("sha512", 11),
    ("sha512,verify", 267), ("skein", 12), ("skein,verify", 268), ("edonr,verify", 269),
    ("blake3", 14), ("blake3,verify", 270),
];
#[rustfmt::skip] // a table
/// A level of zstd stands above the method, from bit 7 on; the fast ones continue from 103.
pub(super) const COMPRESSION: IndexWords = &[
    ("on", 1), ("off", 2), ("lzjb", 3), ("gzip", 10), ("gzip-1", 5), ("gzip-2", 6), ("gzip-3", 7),
    ("gzip-4", 8), ("gzip-5", 9), ("gzip-6", 10), ("gzip-7", 11), ("gzip-8", 12), ("gzip-9", 13),
    ("zle", 14), ("lz4", 15), ("zstd", 16), ("zstd-fast", 13200), ("zstd-1", 144),
    ("zstd-2", 272), ("zstd-3", 400), ("zstd-4", 528), ("zstd-5", 656), ("zstd-6", 784),
    ("zstd-7", 912), ("zstd-8", 1040), ("zstd-9", 1168), ("zstd-10", 1296), ("zstd-11", 1424),
    ("zstd-12", 1552), ("zstd-13", 1680), ("zstd-14", 1808), ("zstd-15", 1936), ("zstd-16", 2064),
    ("zstd-17", 2192), ("zstd-18", 2320), ("zstd-19", 2448), ("zstd-fast-1", 13200),
    ("zstd-fast-2", 13328), ("zstd-fast-3", 13456), ("zstd-fast-4", 13584),
    ("zstd-fast-5", 13712), ("zstd-fast-6", 13840), ("zstd-fast-7", 13968),
    ("zstd-fast-8", 14096), ("zstd-fast-9", 14224), ("zstd-fast-10", 14352),
    ("zstd-fast-20", 14480), ("zstd-fast-30", 14608), ("zstd-fast-40", 14736),
    ("zstd-fast-50", 14864), ("zstd-fast-60", 14992), ("zstd-fast-70", 15120),
    ("zstd-fast-80", 15248), ("zstd-fast-90", 15376), ("zstd-fast-100", 15504),
    ("zstd-fast-500", 15632), ("zstd-fast-1000", 15760),
];
pub(super) const SNAPDIR: IndexWords = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
pub(super) const SNAPDEV: IndexWords = &[("hidden", 0), ("visible", 1)];
pub(super) const ACLMODE: IndexWords =
    &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
/// The last three are words of earlier releases.
pub(super) const ACLTYPE: IndexWords =
    &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
/// `secure` is a word of earlier releases.
pub(super) const ACLINHERIT: IndexWords = &[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
];
pub(super) const COPIES: IndexWords = &[("1", 1), ("2", 2), ("3", 3)];
pub(super) const CACHE: IndexWords = &[("none", 0), ("metadata", 1), ("all", 2)];
pub(super) const LOGBIAS: IndexWords = &[("latency", 0), ("throughput", 1)];
pub(super) const XATTR: IndexWords = &[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)];
pub(super) const DNODESIZE: IndexWords = &[
    ("legacy", 0),
    ("auto", 1),
    ("1k", 1024),
    ("2k", 2048),
    ("4k", 4096),
    ("8k", 8192),
    ("16k", 16384),
];
pub(super) const VOLMODE: IndexWords =
    &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
pub(super) const DIRECT: IndexWords = &[("disabled", 0), ("standard", 1), ("always", 2)];
pub(super) const VERSION: IndexWords =
    &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
pub(super) const CANMOUNT: IndexWords = &[("off", 0), ("on", 1), ("noauto", 2)];
pub(super) const KEYSTATUS: IndexWords = &[("none", 0), ("unavailable", 1), ("available", 2)];
pub(super) const NORMALIZATION: IndexWords =
    &[("none", 0), ("formD", 16), ("formKC", 96), ("formC", 80), ("formKD", 32)];
pub(super) const CASE_SENSITIVITY: IndexWords =
    &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
pub(super) const KEYFORMAT: IndexWords = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
pub(super) const ENCRYPTION: IndexWords = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];
