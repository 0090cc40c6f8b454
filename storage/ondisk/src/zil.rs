//! Intent log blocks and their records.
