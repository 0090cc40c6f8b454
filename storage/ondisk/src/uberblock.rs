//! Uberblock: the root of one transaction group.
