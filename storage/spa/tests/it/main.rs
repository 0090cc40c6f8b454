//! The pool as a whole: what is committed is what is found.

mod clones;
mod commit;
