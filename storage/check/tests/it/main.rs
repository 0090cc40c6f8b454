//! Pools by real OpenZFS, examined: sound ones, ones with damage, ones damaged here.

mod check;
mod encoded;
mod fixture_pools;
mod injected;
mod tables;
