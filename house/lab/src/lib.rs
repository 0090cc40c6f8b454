//! Measures file systems, drives, networks and ways to copy, and compares the results.
//!
//! ```text
//! path          measures a folder: any file system or mount
//! array         measures drives in several layouts
//! disk          measures drives, alone and together
//! copy          measures ways to copy
//! net           measures the network between two machines
//! workload      the operations, under names that all results share
//! target        the interface of measured objects; scratch_dir: a folder as a target
//! timed_run     one run on a target with bytes
//! test_data     data that cannot be compressed or deduplicated
//! tally         the runs so far
//! statistics    mean, confidence, and significance
//! histogram     latencies
//! progress      progress, time left, stopping
//! bench_result  a result, as it is stored
//! compare       results side by side; html_report, plot, formatting: as a page, as pictures, as text
//! run_quality   findings from figures, in sentences; bottleneck: compared with a plan
//! machine, drive_info, mount, system   the kernel's facts about the subject
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
