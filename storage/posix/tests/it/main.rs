//! Tests of the access rules against the kernel.
mod kernel;
