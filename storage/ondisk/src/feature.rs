//! Pool versions and feature flags, and which of them reading needs.
