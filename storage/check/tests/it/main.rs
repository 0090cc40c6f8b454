//! Pools by real OpenZFS, examined: sound ones, ones with damage, ones damaged here.

mod encoded;
mod examine;
mod fixture_pools;
mod injected;
mod tables;
