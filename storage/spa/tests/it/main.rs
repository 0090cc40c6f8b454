//! The pool as a whole: a committed txg is found again; written pools are sound.

mod assertions;
mod clones;
mod commit;
mod concurrent;
mod create;
mod datasets;
mod dedup;
mod dtl;
mod rewrite;
mod scan;
mod shrunk;
mod space;
mod spares;
mod test_pool;
