//! Numbers with names: txg, object, level, sizes, sectors; honest arithmetic; and dates.
//!
//! Every number that comes from a disk lives in a type of its own, so that a txg is never added to
//! an offset and an object id is never handed over where a dataset id belongs. There is no
//! `From<u64>`: a number gets its name where it is read, by `Name::new`, and loses it by `get`.
#![forbid(unsafe_code)]

mod address;
mod arithmetic;
mod calendar;
mod number;
mod size;
mod zbookmark;

pub use address::{Ashift, MetaslabId, Sectors, VdevId};
pub use arithmetic::{MinusOrZero, narrow, to_u64, to_usize};
pub use calendar::civil_date;
pub use number::{BlockId, Guid, Level, ObjectId, ObjsetId, Txg};
pub use size::{human_bytes, human_space, parse_binary, parse_bytes};
pub use zbookmark::Zbookmark;
