//! The pool as a whole: what is committed is what is found; what is written stays sound.

mod away;
mod clones;
mod commit;
mod datasets;
mod dedup;
mod drives;
mod made;
mod meanwhile;
mod rewrite;
mod scan;
mod shrunk;
mod space;
mod spares;
