//! The procedures of NFSv3 and MOUNT v3.
//!
//! ```text
//! files        attributes, access, reads, writes, commits
//! directories  names: lookup, create, remove, rename, link, listings
//! replay       the cache of answers to requests that must not be carried out twice
//! ```

mod directories;
pub(crate) mod files;
mod replay;

use posix::{NewInode, SetAttributes, SetTime};

use crate::attributes::{NodeAttributes, from_v3_time};
use crate::node::{FileNode, Node};
use crate::request::{Request, Result};
use crate::status::Counters;
use crate::wire::mount;
use crate::wire::status::Status;
use crate::wire::v3::{self, Attributes, Procedure};
use crate::wire::xdr::Writer;

pub(crate) use replay::{ReplayCache, ReplayKey, Turn};

/// The default mode of a new file.
const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIR_MODE: u32 = 0o755;

/// A request of NFSv3 that is being answered.
pub(crate) struct Exchange<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) writer: &'a mut Writer,
    pub(crate) counters: &'a mut Counters,
}

/// Carries out a procedure, and writes its result.
pub(crate) fn execute(
    request: &Request<'_>,
    procedure: &Procedure<'_>,
    writer: &mut Writer,
    counters: &mut Counters,
) {
    let start = writer.len();
    let mut exchange = Exchange { request, writer, counters };
    if let Err(status) = exchange.run(procedure) {
        writer.truncate(start);
        writer.u32(to_v3_status(status).number());
        write_failure(request, procedure, writer);
    }
}

/// The status that NFSv3 has for an error.
fn to_v3_status(status: Status) -> Status {
    match status {
        // another client has the file open and denies it to others: it may close it soon
        Status::SHARE_DENIED => Status::DELAY,
        Status::OPENMODE => Status::ACCESS,
        Status::BADNAME | Status::BADCHAR => Status::INVAL,
        status if status.number() <= Status::STALE.number() => status,
        status
            if (Status::BADHANDLE.number()..=Status::DELAY.number()).contains(&status.number()) =>
        {
            status
        }
        _ => Status::SERVERFAULT,
    }
}

/// Writes the body after the status of a failure: attributes that are not known. A client whose
/// lookup failed gets those of the directory, so that it need not look up again as long as they are
/// the same.
fn write_failure(request: &Request<'_>, procedure: &Procedure<'_>, writer: &mut Writer) {
    let absent = match procedure {
        Procedure::Lookup(at) => {
            let dir = request.resolve(at.dir).and_then(|dir| request.attributes(&dir)).ok();
            return Attributes::write_optional(dir.map(NodeAttributes::to_v3).as_ref(), writer);
        }
        Procedure::Null | Procedure::GetAttributes { .. } => 0,
        Procedure::Access { .. }
        | Procedure::ReadLink { .. }
        | Procedure::Read { .. }
        | Procedure::ReadDir(_)
        | Procedure::FsStat { .. }
        | Procedure::FsInfo { .. }
        | Procedure::PathConf { .. } => 1,
        Procedure::SetAttributes { .. }
        | Procedure::Write { .. }
        | Procedure::Create { .. }
        | Procedure::MakeDir { .. }
        | Procedure::Symlink { .. }
        | Procedure::MakeNode { .. }
        | Procedure::Remove(_)
        | Procedure::RemoveDir(_)
        | Procedure::Commit { .. } => 2,
        Procedure::Link { .. } => 3,
        Procedure::Rename { .. } => 4,
    };
    (0..absent).for_each(|_| writer.bool(false));
}

impl Exchange<'_> {
    fn run(&mut self, procedure: &Procedure<'_>) -> Result<()> {
        match *procedure {
            Procedure::Null => Ok(()),
            Procedure::GetAttributes { file } => self.get_attributes(file),
            Procedure::SetAttributes { file, set, guard } => self.set_attributes(file, &set, guard),
            Procedure::Lookup(at) => self.lookup(at),
            Procedure::Access { file, wanted } => self.access(file, wanted),
            Procedure::ReadLink { file } => self.read_link(file),
            Procedure::Read { file, offset, count } => self.read(file, offset, count),
            Procedure::Write { file, offset, stable, data } => {
                self.write(file, offset, stable, data)
            }
            Procedure::Create { at, how } => self.create(at, how),
            Procedure::MakeDir { at, set } => self.make_dir(at, &set),
            Procedure::Symlink { at, set, target } => self.symlink(at, &set, target),
            Procedure::MakeNode { at, node } => self.make_node(at, &node),
            Procedure::Remove(at) => self.remove(at, crate::names::RemoveKind::NotDirectory),
            Procedure::RemoveDir(at) => self.remove(at, crate::names::RemoveKind::Directory),
            Procedure::Rename { from, to } => self.rename(from, to),
            Procedure::Link { file, at } => self.link(file, at),
            Procedure::ReadDir(list) => self.read_dir(&list),
            Procedure::FsStat { file } => self.fs_stat(file),
            Procedure::FsInfo { file } => self.fs_info(file),
            Procedure::PathConf { file } => self.path_conf(file),
            Procedure::Commit { file } => self.commit(file),
        }
    }

    /// Writes attributes as they are now. A file may be gone by now.
    fn write_attributes(&mut self, node: &Node) {
        let attributes = self.request.attributes(node).ok().map(NodeAttributes::to_v3);
        Attributes::write_optional(attributes.as_ref(), self.writer);
    }

    /// Writes the attributes of a file before and after a change.
    fn write_change(&mut self, before: Option<&Attributes>, file: &FileNode) {
        let after = self.v3_attributes(file);
        Attributes::write_change(before, after.as_ref(), self.writer);
    }

    fn v3_attributes(&self, file: &FileNode) -> Option<Attributes> {
        self.request.file_attributes(file).ok().map(NodeAttributes::to_v3)
    }
}

/// The attributes to set, in the form of NFSv3.
fn to_set_attributes(set: &v3::SetAttributes) -> SetAttributes {
    let time = |time| match time {
        v3::SetTime::Keep => None,
        v3::SetTime::Now => Some(SetTime::Now),
        v3::SetTime::At(time) => Some(SetTime::At(from_v3_time(time))),
    };
    SetAttributes {
        mode: set.mode.map(|mode| mode & posix::mode::PERMISSIONS),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: time(set.atime),
        mtime: time(set.mtime),
        ..SetAttributes::default()
    }
}

/// A new file with the mode that a client wants, and the attributes that are set afterwards.
fn new_inode(set: &v3::SetAttributes, default_mode: u32) -> (NewInode<'static>, SetAttributes) {
    let all = to_set_attributes(set);
    let mode = all.mode.unwrap_or(default_mode);
    let new = NewInode { mode, umask: 0, ..NewInode::default() };
    (new, SetAttributes { mode: None, ..all })
}

/// Carries out a procedure of MOUNT v3, and writes its result.
pub(crate) fn execute_mount(
    request: &Request<'_>,
    procedure: &mount::Procedure<'_>,
    writer: &mut Writer,
) {
    match procedure {
        mount::Procedure::Null | mount::Procedure::Unmount | mount::Procedure::UnmountAll => {}
        mount::Procedure::Mount { path } => {
            let handle = find_mount(request, path);
            mount::write_mounted(writer, handle.as_deref().map_err(|status| *status));
        }
        // no client relies on a list of mounts, which no server can keep right
        mount::Procedure::Dump => writer.bool(false),
        mount::Procedure::Exports => {
            let address = request.caller.address;
            let visible = request.table.exports().filter(|export| export.admits(address));
            let rows = visible.map(|export| {
                let networks = export.rules.iter().map(|rule| rule.rule.clients.to_string());
                (export.path.as_str(), networks.collect())
            });
            mount::write_exports(writer, rows);
        }
    }
}

/// The handle of a path: of an export, of a pseudo directory, or of a directory below an export.
fn find_mount(request: &Request<'_>, path: &[u8]) -> Result<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let mut node = request.root()?;
    for part in parts {
        node = match request.lookup(&node, part) {
            // a client learns of exports that it may use, and of no others
            Err(Status::NOENT) if matches!(node, Node::Pseudo(_)) => return Err(Status::ACCESS),
            found => found?,
        };
    }
    if request.attributes(&node)?.stat.kind.is_directory() {
        request.handle(&node)
    } else {
        Err(Status::NOTDIR)
    }
}
