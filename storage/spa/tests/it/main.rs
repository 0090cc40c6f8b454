//! The pool as a whole: what is committed is what is found; what is written stays sound.

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
