//! Datasets: file systems, volumes, snapshots, clones, properties.
#![forbid(unsafe_code)]
