//! Mutants of whole pools: nothing on a disk may make us panic, hang, take memory without bound,
//! or give a file's content wrongly.
//!
//! There are two kinds ([`Family`]). *Images*: bytes of the devices are changed, and devices
//! truncated, swapped, removed or mixed with another pool's ([`image`]). Content that is then shown
//! without an error must be the pool's real content. *Hostile* content: the devices are intact, but
//! blocks change on their way up, after their checksums were verified ([`hostile`]), as an attacker
//! with a hex editor can arrange. Then there is no right content to compare with, and only panics,
//! time and memory count.
//!
//! [`run::run_mutants`] makes mutants by number and examines each with [`contents::read_contents`]. Fixture, family
//! and number together are all that is needed to make a mutant again.
#![forbid(unsafe_code)]

pub mod contents;
pub mod hostile;
pub mod image;
pub mod overlay;
pub mod random;
pub mod run;

/// The kind of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Bytes on devices change, and so do devices.
    Image,
    /// Blocks change after they were verified.
    Hostile,
}

impl Family {
    /// As it is written on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Hostile => "hostile",
        }
    }

    /// The other way round.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Image, Self::Hostile].into_iter().find(|family| family.name() == name)
    }
}
