//! Acknowledged commits survive a power cut.

mod commits;
mod test_pool;
