//! Kernels for `x86_64`, each behind a constructor that checks the processor's features first.
#![expect(unsafe_code, reason = "vector loads and stores take pointers")]

pub(crate) mod avx2;
pub(crate) mod avx512;
