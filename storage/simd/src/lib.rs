//! Vector kernels, each with its scalar twin.
//!
//! ```text
//! gf256      the field: tables and single elements
//! fletcher   ZFS's two running-sum checksums, whole or piece by piece
//! parity     RAID-Z parity: generate, rebuild
//! bytes      xor, all-zero test
//! backend    which kernels run: the best the processor has, or a forced one
//! arch       the kernels; `naive` is the specification, `scalar` the fallback
//! ```
//!
//! Callers see safe functions over slices. The processor's features are read once. A property test
//! runs every kernel against `naive` on every kind of length and alignment. `unsafe` exists in
//! `arch::x86_64` only.
#![deny(unsafe_code)]

mod arch;
pub mod backend;
pub mod bytes;
pub mod fletcher;
pub mod gf256;
mod matrix;
pub mod parity;

pub use backend::{Backend, backend};
pub use bytes::{is_zero, xor};
pub use fletcher::{Fletcher2, Fletcher4, fletcher2, fletcher4};
