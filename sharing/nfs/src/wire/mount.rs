//! MOUNT v3 (RFC 1813, appendix I): the handle of an exported path, and the list of exports.

use super::status::Status;
use super::xdr::{Reader, Writer};
use super::{Error, Result};

/// The only version that the server has.
pub const VERSION: u32 = 3;
/// Bytes of the longest path.
const MAX_PATH: usize = 1024;
/// AUTH_SYS, the flavor that a mount may use.
const AUTH_SYS: u32 = 1;

/// A procedure with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Procedure<'a> {
    /// NULL: does nothing.
    Null,
    /// MNT: the handle of a path.
    Mount {
        /// The path.
        path: &'a [u8],
    },
    /// DUMP: the mounts of all clients. The server keeps no such list.
    Dump,
    /// UMNT: a client forgets a path.
    Unmount,
    /// UMNTALL: a client forgets all.
    UnmountAll,
    /// EXPORT: the list of exports.
    Exports,
}

impl<'a> Procedure<'a> {
    /// The procedure of a number; none if it does not exist.
    pub fn parse(number: u32, arguments: &'a [u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(arguments);
        Ok(Some(match number {
            0 => Self::Null,
            1 => Self::Mount { path: reader.opaque(MAX_PATH)? },
            2 => Self::Dump,
            3 => {
                reader.opaque(MAX_PATH)?;
                Self::Unmount
            }
            4 => Self::UnmountAll,
            5 => Self::Exports,
            _ => return Ok(None),
        }))
    }
}

/// The name that the protocol has for an error of MNT.
fn to_mount_status(status: Status) -> u32 {
    let known = [
        Status::PERM,
        Status::NOENT,
        Status::IO,
        Status::ACCESS,
        Status::NOTDIR,
        Status::INVAL,
        Status::NAMETOOLONG,
        Status::NOTSUPP,
    ];
    if known.contains(&status) { status.number() } else { Status::SERVERFAULT.number() }
}

/// Writes the result of MNT.
pub fn write_mounted(writer: &mut Writer, handle: std::result::Result<&[u8], Status>) {
    match handle {
        Ok(handle) => {
            writer.u32(0);
            writer.opaque(handle);
            writer.count(1);
            writer.u32(AUTH_SYS);
        }
        Err(status) => writer.u32(to_mount_status(status)),
    }
}

/// Writes the result of EXPORT: paths with the networks that may mount them.
pub fn write_exports<'a>(
    writer: &mut Writer,
    exports: impl Iterator<Item = (&'a str, Vec<String>)>,
) {
    for (path, networks) in exports {
        writer.bool(true);
        writer.opaque(path.as_bytes());
        for network in networks {
            writer.bool(true);
            writer.opaque(network.as_bytes());
        }
        writer.bool(false);
    }
    writer.bool(false);
}

/// Parses the handle of MNT's result, for clients.
pub fn parse_mounted(reader: &mut Reader<'_>) -> Result<std::result::Result<Vec<u8>, u32>> {
    match reader.u32()? {
        0 => {
            let handle = reader.opaque(super::MAX_HANDLE)?.to_vec();
            reader.list(16, Reader::u32)?;
            Ok(Ok(handle))
        }
        status @ 1..=10_006 => Ok(Err(status)),
        found => Err(Error::UnknownValue { found }),
    }
}
