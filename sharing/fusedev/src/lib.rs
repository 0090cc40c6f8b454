//! The kernel's side of a mounted file system: its questions, and the ways they come.
//!
//! ```text
//! ask        what the kernel asks, read from its messages
//! answer     what it is told, as it wants it
//! init       the first message: what either side can do
//! mounting   /dev/fuse, laid over a folder
//! notice     what it is told unasked
//! special    numbers of special files
//! session    the threads that wait for questions; one more where none is left to wait
//! device     questions read from /dev/fuse: any kernel
//! ring       questions taken from io_uring, a queue for each processor: since Linux 6.14
//! clone      another way to the same /dev/fuse, so that threads need not share one
//! ```
//!
//! Of the two ways the second is three times as fast where questions are small: who asks and who
//! answers are on one processor, so that no other has to be woken. Both take the same way through
//! `ask`, the answers, and `answer`; tests compare them.
//!
//! `unsafe` exists in `ring` and `clone` only: what the kernel is given there are addresses.
#![deny(unsafe_code)]

mod answer;
mod ask;
mod clone;
mod device;
mod fields;
mod init;
mod mounting;
mod notice;
mod ring;
mod session;
mod special;

pub use answer::{Answer, Attributes, Figures, Moment, Opened, Page, Validity};
pub use ask::{Ask, SetWish, When};
pub use init::{Ability, LARGEST};
pub use mounting::{Mount, mount, remount};
pub use notice::Notices;
pub use session::{Answers, Asker, Out, serve};
pub use special::numbers;
