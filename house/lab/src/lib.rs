//! Measures file systems, drives, networks and ways to copy, and compares what came out.
//!
//! ```text
//! file        what is in it
//! path        a folder: any file system or mount
//! array       drives in several layouts
//! disk        drives, alone and together
//! copy        ways to copy
//! net         the network between two machines
//! workload    what is done to it, under names that all results share
//! store       what can be measured by the workloads; folder: a folder as such a place
//! timed       one run on something with bytes
//! content     data that nothing can compress or find twice
//! tally       runs as they come in
//! statistics  mean, confidence, and change against noise
//! histogram   how long operations took
//! course      progress, time left, stopping
//! record      a result, as it is kept
//! compare     results side by side; page, plot, present: as a page, as pictures, as text
//! verdict     what follows from figures, in sentences; bottleneck: against what was planned
//! machine, drive, mount, system   what the kernel knows of what is measured
//! ```
//!
//! What users fall for is impossible unless they ask for it: data that can be compressed, reads that
//! caches answer, runs that are too short, a single run.
#![forbid(unsafe_code)]

pub mod array;
pub mod bottleneck;
pub mod compare;
mod content;
pub mod copy;
pub mod course;
pub mod disk;
mod drive;
mod error;
mod folder;
mod histogram;
mod machine;
mod mount;
pub mod net;
mod number;
pub mod page;
pub mod path;
pub mod plot;
pub mod present;
pub mod record;
pub mod statistics;
mod store;
mod system;
mod tally;
mod timed;
mod verdict;
pub mod workload;

pub use drive::DriveFacts;
pub use error::Error;
pub use folder::left_over;
pub use histogram::Latency;
pub use machine::Machine;
pub use mount::Mount;
pub use path::Heading;
pub use record::Record;
pub use system::System;
