//! Fuzz targets: a function of bytes for every parser, [`TARGETS`].
//!
//! For any bytes a target must not panic, hang, or use memory out of proportion to its input.
//! `fuzz/` has a program for each of them, for `make fuzz`; this crate's tests run each on some
//! thousands of mutations of blocks that OpenZFS wrote, from a seed, in every `make test`.
#![forbid(unsafe_code)]

mod backups;
mod objects;
mod pools;
mod protocols;
mod send;
mod streams;
mod tables;

pub use backups::repository;
pub use objects::{acl, blkptr, dnode, objset, sa, znode};
pub use pools::{gang, history, indirect, l2arc, label, nvlist, spacemap, uberblock};
pub use protocols::{iscsi, nbd, nfs, nvme};
pub use send::send_stream;
pub use streams::{gzip, lz4, lzjb, zle, zstd};
pub use tables::{bookmark, bpobj, brt, dataset, ddt, dir, fatzap, leaf, microzap, zil};

use ondisk::{Order, Reader};

/// A name and the function that is fed with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target; `fuzz/fuzz_targets` has a file for each, of the same name.
pub const TARGETS: &[Target] = &[
    ("acl", acl),
    ("blkptr", blkptr),
    ("bookmark", bookmark),
    ("bpobj", bpobj),
    ("brt", brt),
    ("dataset", dataset),
    ("ddt", ddt),
    ("dir", dir),
    ("dnode", dnode),
    ("fatzap", fatzap),
    ("gang", gang),
    ("gzip", gzip),
    ("history", history),
    ("indirect", indirect),
    ("iscsi", iscsi),
    ("l2arc", l2arc),
    ("label", label),
    ("leaf", leaf),
    ("lz4", lz4),
    ("lzjb", lzjb),
    ("microzap", microzap),
    ("nbd", nbd),
    ("nfs", nfs),
    ("nvlist", nvlist),
    ("nvme", nvme),
    ("objset", objset),
    ("repository", repository),
    ("sa", sa),
    ("send_stream", send_stream),
    ("spacemap", spacemap),
    ("uberblock", uberblock),
    ("zil", zil),
    ("zle", zle),
    ("znode", znode),
    ("zstd", zstd),
];

/// Both orders: garbage in one may be a structure in the other.
const BYTE_ORDERS: [Order; 2] = [Order::Little, Order::Big];

/// Reads one structure after the other until one fails or nothing is left.
fn read_structures<T>(
    data: &[u8],
    order: Order,
    read: impl Fn(&mut Reader<'_>) -> ondisk::Result<T>,
) {
    let mut reader = Reader::new("fuzzed", data, order);
    let mut at = usize::MAX;
    while reader.remaining() > 0 && reader.position() != at {
        at = reader.position();
        if read(&mut reader).is_err() {
            break;
        }
    }
}
