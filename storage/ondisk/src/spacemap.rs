//! Space maps: what was allocated and freed, as a log.
