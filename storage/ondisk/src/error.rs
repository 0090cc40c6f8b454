//! Errors of parsing a structure.

/// Why bytes are not the structure that they were taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the structure does.
    #[error("{structure}: {need} bytes wanted at offset {at}, but the block ends at {have}")]
    Short {
        /// The structure.
        structure: &'static str,
        /// Where in it, in bytes.
        at: usize,
        /// How many bytes were wanted there.
        need: usize,
        /// How many bytes there are in all.
        have: usize,
    },
    /// Bytes follow where the format has none.
    #[error("{structure}: {extra} bytes follow its end")]
    Trailing {
        /// The structure.
        structure: &'static str,
        /// How many.
        extra: usize,
    },
    /// A field breaks a rule of the format (Corrupt).
    #[error("{structure}: {rule} (found {found:#x} at offset {at})")]
    Rule {
        /// The structure.
        structure: &'static str,
        /// Where in it, in bytes.
        at: usize,
        /// The rule, as words.
        rule: &'static str,
        /// The bytes or the value that were found instead.
        found: u64,
    },
    /// A value that a newer version may know (Unsupported).
    #[error("{structure}: {field} {found} is not known to this version")]
    Unknown {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
        /// The value of the field.
        found: u64,
    },
}
