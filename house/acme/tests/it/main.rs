//! The tests of the crate.

mod orders;
mod test_ca;
