//! The choice of kernels.
//!
//! The processor's features are read once, at first use. Tests and benches force a backend by
//! calling the methods of [`Backend`] instead of the free functions.

use std::sync::OnceLock;

use crate::arch::{Kernels, naive::Naive, scalar::Scalar};

/// A set of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// The specification: one byte at a time, straight from the definitions.
    Naive,
    /// Portable code, eight bytes at a time.
    Scalar,
    /// `x86_64` with AVX2: 32 bytes, byte shuffles multiply.
    Avx2,
    /// `x86_64` with AVX-512 F, BW and GFNI: 64 bytes, bit matrices multiply.
    Avx512,
}

impl Backend {
    /// Every backend, slowest first.
    pub const ALL: [Self; 4] = [Self::Naive, Self::Scalar, Self::Avx2, Self::Avx512];

    /// Whether this processor can run it.
    pub fn is_available(self) -> bool {
        self.find().is_some()
    }

    /// The fastest one this processor can run.
    pub fn best() -> Self {
        static BEST: OnceLock<Backend> = OnceLock::new();
        *BEST.get_or_init(|| {
            let best = Self::ALL.into_iter().rev().find(|backend| backend.is_available());
            best.unwrap_or(Self::Scalar)
        })
    }

    /// Its name, as the bench prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512+gfni",
        }
    }

    /// The kernels; the portable ones if the processor cannot run the requested ones.
    pub(crate) fn kernels(self) -> &'static dyn Kernels {
        self.find().unwrap_or(&Scalar)
    }

    #[cfg(target_arch = "x86_64")]
    fn find(self) -> Option<&'static dyn Kernels> {
        use crate::arch::x86_64::{avx2::Avx2, avx512::Avx512};
        match self {
            Self::Naive => Some(&Naive),
            Self::Scalar => Some(&Scalar),
            Self::Avx2 => Avx2::detect().map(|kernels| kernels as _),
            Self::Avx512 => Avx512::detect().map(|kernels| kernels as _),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find(self) -> Option<&'static dyn Kernels> {
        match self {
            Self::Naive => Some(&Naive),
            Self::Scalar => Some(&Scalar),
            Self::Avx2 | Self::Avx512 => None,
        }
    }
}

/// The name of the kernels in use.
pub fn backend() -> &'static str {
    Backend::best().name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_backend_is_the_fastest_available() {
        assert!(Backend::Naive.is_available() && Backend::Scalar.is_available());
        let best = Backend::best();
        assert!(best.is_available() && best >= Backend::Scalar);
        assert!(Backend::ALL.into_iter().all(|other| other <= best || !other.is_available()));
        assert_eq!(backend(), best.name());
    }
}
