//! Object set: a tree of objects with its intent log and its MACs.
