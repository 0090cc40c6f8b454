//! What was promised is there after a power cut.

mod commits;
mod test_pool;
