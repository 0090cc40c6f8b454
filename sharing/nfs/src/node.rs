//! The files and pseudo directories that handles name.
//!
//! ```text
//! offset  size  field
//!      0     8  magic     "nfs-path"
//!      8    16  id        the first bytes of BLAKE3 of the path
//! ```
//!
//! This is the handle of a pseudo directory. Handles of files are those of `vfs`, with 48 bytes.

use std::sync::Arc;

use posix::Ino;
use vfs::{FileHandle, HandleError};

use crate::export::{Admission, PseudoId, ServedExport, pseudo_id};
use crate::wire::status::Status;

/// A file or directory that a request is about.
#[derive(Clone)]
pub(crate) enum Node {
    /// A pseudo directory with its path.
    Pseudo(String),
    File(FileNode),
}

/// A file of an export, with the rights that the caller has in the export.
#[derive(Clone)]
pub(crate) struct FileNode {
    pub(crate) export: Arc<ServedExport>,
    pub(crate) ino: Ino,
    pub(crate) handle: FileHandle,
    pub(crate) admission: Admission,
}

const PSEUDO_MAGIC: &[u8; 8] = b"nfs-path";

/// The bytes of the handle of a pseudo directory.
pub(crate) fn pseudo_handle(path: &str) -> Vec<u8> {
    [&PSEUDO_MAGIC[..], &pseudo_id(path)].concat()
}

/// The pseudo directory that a handle names; none: it is a handle of a file, or malformed.
pub(crate) fn parse_pseudo_handle(handle: &[u8]) -> Option<PseudoId> {
    handle.strip_prefix(PSEUDO_MAGIC)?.try_into().ok()
}

impl Node {
    /// The file of an export, to read it or its attributes. A pseudo directory is none.
    pub(crate) fn file(&self) -> Result<&FileNode, Status> {
        match self {
            Self::File(file) => Ok(file),
            Self::Pseudo(_) => Err(Status::ISDIR),
        }
    }

    /// The file of an export, if the rules of the export let the caller change it.
    pub(crate) fn writable(&self) -> Result<&FileNode, Status> {
        match self {
            Self::File(file) if file.admission.is_writable => Ok(file),
            Self::File(_) | Self::Pseudo(_) => Err(Status::ROFS),
        }
    }
}

impl FileNode {
    /// A file of the same export.
    pub(crate) fn sibling(&self, ino: Ino) -> Result<Self, Status> {
        let handle = self.export.filesystem.handle(ino)?;
        Ok(Self { ino, handle, ..self.clone() })
    }

    /// Whether it is the topmost directory of its export.
    pub(crate) fn is_export_root(&self) -> bool {
        self.ino == self.export.root
    }
}

impl From<HandleError> for Status {
    fn from(_: HandleError) -> Self {
        Self::BADHANDLE
    }
}
