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
//! The usual mistakes need an explicit request: compressible data, reads from caches, runs that are
//! too short, a single run.
#![forbid(unsafe_code)]

pub mod array;
pub mod bench_result;
pub mod bottleneck;
pub mod compare;
pub mod copy;
pub mod disk;
mod drive_info;
mod error;
pub mod formatting;
mod histogram;
pub mod html_report;
mod machine;
mod mount;
pub mod net;
mod number;
pub mod path;
pub mod plot;
pub mod progress;
mod run_quality;
mod scratch_dir;
pub mod statistics;
mod system;
mod tally;
mod target;
mod test_data;
mod timed_run;
pub mod workload;

pub use bench_result::BenchResult;
pub use drive_info::DriveInfo;
pub use error::Error;
pub use histogram::Latency;
pub use machine::Machine;
pub use mount::Mount;
pub use path::Heading;
pub use scratch_dir::leftover_dirs;
pub use system::System;
