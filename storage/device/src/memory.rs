//! A device in memory, for tests and simulations.

use crate::{Device, Error};

/// Bytes in memory.
#[derive(Debug, Clone)]
pub struct Memory {
    name: String,
    bytes: Vec<u8>,
}

impl Memory {
    /// A device that holds `bytes`.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), bytes }
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size(), offset, into.len())?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(from) = self.bytes.get(start..start.saturating_add(into.len())) {
            into.copy_from_slice(from);
        }
        Ok(())
    }
}
