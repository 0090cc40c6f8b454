//! Dedup tables (old, and new with logs) and the block cloning table.
