//! OPEN, OPEN_DOWNGRADE, CLOSE, and byte-range locks.

use std::ops::Range;

use posix::access::OpenMode;
use posix::{FileType, NewInode};
use vfs::{Access, Context, CreateMode, LockKind, OpenFile};

use super::attributes::to_set_attributes;
use super::compound::Compound;
use super::delegations::OpenDelegation;
use super::files::{ACCESS_READ, ACCESS_WRITE};
use super::names::check_name;
use super::state::{LockRequest, LockResult, NewOpen};
use crate::node::{FileNode, Node};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{Bitmap, Locker, OpenClaim, OpenCreate, SetAttributes, StateId, attr};

/// The bits of the access that is shared; those above say which delegation the client would like.
const SHARE_BITS: u32 = 3;
/// The bits that a client may set.
const KNOWN_ACCESS_BITS: u32 = SHARE_BITS | 0x3_ff00;
/// The result of OPEN: the client must confirm its owner by OPEN_CONFIRM.
const CONFIRM: u32 = 2;
/// The result of OPEN: locks are as in POSIX.
const LOCK_TYPE_POSIX: u32 = 4;
/// Kinds of locks: 1 read, 2 write; with 2 added the client would wait.
const READ_LOCK: u32 = 1;
const WRITE_LOCK: u32 = 2;
const DEFAULT_MODE: u32 = 0o644;

/// The arguments of OPEN.
pub(super) struct OpenRequest<'a> {
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) owner: &'a [u8],
    pub(super) create: OpenCreate,
    pub(super) claim: OpenClaim<'a>,
    /// The owner is unknown, and confirms the open by OPEN_CONFIRM (NFSv4.0).
    pub(super) needs_confirm: bool,
}

/// A file that OPEN has found or made.
struct Opening {
    node: FileNode,
    /// The open file, if the file is new.
    file: Option<OpenFile>,
    /// The directory with its change attribute before.
    dir: Option<(Node, u64)>,
    /// The attributes that were set.
    set: Bitmap,
    /// Whether the file exists and loses its content, once it is known that nobody denies that.
    truncates: bool,
}

/// The access of an OPEN, and the access that it denies to others.
#[derive(Clone, Copy)]
struct Share {
    access: u32,
    deny: u32,
}

impl Share {
    fn new(access: u32, deny: u32, minor_version: u32) -> Result<Self> {
        let share = Self { access: access & SHARE_BITS, deny };
        let known = if minor_version == 0 { SHARE_BITS } else { KNOWN_ACCESS_BITS };
        let is_known = access & !known == 0 && deny & !SHARE_BITS == 0;
        if is_known && share.access != 0 { Ok(share) } else { Err(Status::INVAL) }
    }

    fn mode(self) -> OpenMode {
        let (read, write) = (self.access & ACCESS_READ != 0, self.access & ACCESS_WRITE != 0);
        OpenMode { read, write, ..OpenMode::default() }
    }

    fn denied(self) -> Access {
        let rows = [(ACCESS_READ, Access::READ), (ACCESS_WRITE, Access::WRITE)];
        let denied = rows.iter().filter(|(bit, _)| self.deny & bit != 0);
        denied.fold(Access::NONE, |all, (_, access)| all.union(*access))
    }

    fn union(self, access: u32, deny: u32) -> Self {
        Self { access: self.access | access, deny: self.deny | deny }
    }
}

impl Compound<'_> {
    pub(super) fn open(&mut self, request: OpenRequest<'_>) -> Result<()> {
        let OpenRequest { access, deny, owner, create, claim, needs_confirm } = request;
        let share = Share::new(access, deny, self.minor_version)?;
        let is_reclaim = matches!(claim, OpenClaim::Reclaim(_));
        self.state.check_open(self.request.client, is_reclaim)?;
        let mut opening = match claim {
            OpenClaim::Name(name) => self.find_to_open(name, create, share)?,
            OpenClaim::Delegated(state, name) => {
                let opening = self.find_to_open(name, OpenCreate::No, share)?;
                self.check_delegation(&state, &opening.node)?;
                opening
            }
            OpenClaim::PreviousDelegation => return Err(Status::NOTSUPP),
            _ if create != OpenCreate::No => return Err(Status::INVAL),
            OpenClaim::Reclaim(_) | OpenClaim::Current | OpenClaim::DelegatedCurrent(_) => {
                let node = self.current()?.file()?.clone();
                if let OpenClaim::DelegatedCurrent(state) = &claim {
                    self.check_delegation(state, &node)?;
                }
                Opening { node, file: None, dir: None, set: Bitmap::EMPTY, truncates: false }
            }
        };
        let state = self.enter((owner, needs_confirm), share, &mut opening)?;
        let Opening { node, dir, set, .. } = opening;
        state.write(self.writer);
        if let Some((dir, before)) = dir {
            self.write_change(before, &dir)?;
        } else {
            self.writer.bool(false);
            self.writer.u64(0);
            self.writer.u64(0);
        }
        self.writer.u32(LOCK_TYPE_POSIX | if needs_confirm { CONFIRM } else { 0 });
        set.write(self.writer);
        let delegation = match claim {
            OpenClaim::Reclaim(kind) => self.reclaim_delegation(&node, kind)?,
            OpenClaim::Name(_) | OpenClaim::Current if !needs_confirm => {
                self.delegate(&node, access)?
            }
            _ => OpenDelegation::None,
        };
        self.write_delegation(delegation);
        self.set_current(Node::File(node));
        self.set_current_state(state);
        Ok(())
    }

    /// Checks that the client has a delegation of a file.
    fn check_delegation(&self, state: &StateId, node: &FileNode) -> Result<()> {
        let access = self.state.delegated_access(self.request.client, state, &node.handle)?;
        access.map(drop).ok_or(Status::BAD_STATEID)
    }

    /// The file of a name, made if the request says so.
    fn find_to_open(&self, name: &[u8], create: OpenCreate, share: Share) -> Result<Opening> {
        let dir = self.current_dir()?.clone();
        check_name(name)?;
        let before = self.request.attributes(&dir)?.change;
        let (set, mode) = match create {
            OpenCreate::No => (SetAttributes::default(), None),
            OpenCreate::Unchecked(set) => (set, Some(CreateMode::OpenExisting)),
            OpenCreate::Guarded(set) => (set, Some(CreateMode::Exclusive)),
            OpenCreate::Exclusive(create) => {
                (create.set, Some(CreateMode::Verified(create.verifier)))
            }
        };
        if mode.is_none_or(|mode| mode == CreateMode::OpenExisting) {
            match self.request.lookup(&dir, name) {
                Ok(found) => {
                    let node = self.regular(&found)?.clone();
                    if set.size == Some(0) {
                        found.writable()?;
                    }
                    let truncates = set.size == Some(0);
                    let (set, dir) = (size_only(&set), Some((dir, before)));
                    return Ok(Opening { node, file: None, dir, set, truncates });
                }
                Err(Status::NOENT) if mode.is_some() => {}
                Err(status) => return Err(status),
            }
        }
        let mode = mode.ok_or(Status::NOENT)?;
        let opening = self.create_to_open((dir.writable()?, name), &set, mode, share)?;
        Ok(Opening { dir: Some((dir, before)), ..opening })
    }

    fn create_to_open(
        &self,
        (dir, name): (&FileNode, &[u8]),
        set: &SetAttributes,
        mode: CreateMode,
        share: Share,
    ) -> Result<Opening> {
        let later = to_set_attributes(set)?;
        let umask = set.umask.unwrap_or(0);
        let new =
            NewInode { mode: later.mode.unwrap_or(DEFAULT_MODE), umask, ..NewInode::default() };
        let open = (share.mode(), share.denied());
        let (node, opened) = self.request.create_file((dir, name), &new, mode, open)?;
        if opened.attributes.kind != FileType::File {
            return Err(Status::EXIST);
        }
        // another client may have been faster
        let truncates = !opened.is_new && set.size == Some(0);
        let mut done = if opened.is_new { set.set } else { size_only(set) };
        if opened.is_new {
            let later = posix::SetAttributes { mode: None, ..later };
            self.request.finish_create(dir, &node, &later)?;
            self.set_acl(&node, set)?;
        }
        if matches!(mode, CreateMode::Verified(_)) {
            // the client sets the times, which hold the verifier
            done = done.union(&Bitmap::of(&[attr::TIME_ACCESS, attr::TIME_MODIFY]));
        }
        Ok(Opening { node, file: Some(opened.file), dir: None, set: done, truncates })
    }

    /// Enters the open of an owner: a new one, or one more of a file that the owner has open.
    fn enter(
        &self,
        (owner, needs_confirm): (&[u8], bool),
        share: Share,
        opening: &mut Opening,
    ) -> Result<StateId> {
        let Opening { node, file, truncates, .. } = opening;
        let node = &*node;
        if share.access & ACCESS_WRITE != 0 && !node.admission.is_writable {
            return Err(Status::ROFS);
        }
        self.regular(&Node::File(node.clone()))?;
        let client = self.request.client;
        loop {
            let shared = (share.access, share.deny);
            if let Some(target) = self.state.find_open(client, owner, &node.handle) {
                // an owner's second open heeds what its first one denies, as those of others do
                if share.access & target.deny != 0 || share.deny & target.access != 0 {
                    return Err(Status::SHARE_DENIED);
                }
                let all = share.union(target.access, target.deny);
                let context = Context { deny: all.denied(), ..self.request.context(node) };
                // a file that the same request has made is open already: its open need not stay
                drop(file.take());
                let mut open = target.file.write();
                node.export.filesystem.change_open(&context, &mut open, all.mode())?;
                drop(open);
                self.truncate_if(*truncates, node)?;
                return self.state.enter_widened(client, owner, &node.handle, shared);
            }
            let opened = match file.take() {
                Some(file) => file,
                None => self.open_file(node, share)?,
            };
            self.truncate_if(std::mem::take(truncates), node)?;
            let Share { access, deny } = share;
            let (node, is_confirmed) = (node.clone(), !needs_confirm);
            let uid = node.admission.credentials.uid;
            let new =
                NewOpen { client, owner, uid, node, file: opened, access, deny, is_confirmed };
            if let Some(state) = self.state.enter_open(new)? {
                return Ok(state);
            }
        }
    }

    /// An open of a file that exists sets no attribute but the size 0.
    fn truncate_if(&self, truncates: bool, node: &FileNode) -> Result<()> {
        let size = posix::SetAttributes { size: Some(0), ..Default::default() };
        if truncates { self.request.set_attributes(node, &size) } else { Ok(()) }
    }

    /// Opens a file. A caller that may execute a program may read it.
    fn open_file(&self, node: &FileNode, share: Share) -> Result<OpenFile> {
        let fs = &node.export.filesystem;
        let context = Context { deny: share.denied(), ..self.request.context(node) };
        match fs.open(&context, node.ino, share.mode()) {
            Err(vfs::Error::AccessDenied) if share.access == ACCESS_READ => {
                let execute = OpenMode { execute: true, ..OpenMode::default() };
                Ok(fs.open(&context, node.ino, execute)?)
            }
            opened => Ok(opened?),
        }
    }

    pub(super) fn downgrade(&mut self, state: &StateId, share: (u32, u32)) -> Result<()> {
        let state = self.resolve_state(state)?;
        let share = Share::new(share.0, share.1, self.minor_version)?;
        let (client, narrow) = (self.request.client, (share.access, share.deny));
        let (node, target) = self.state.check_downgrade(client, &state, narrow)?;
        let context = Context { deny: share.denied(), ..self.request.context(&node) };
        let mut open = target.file.write();
        node.export.filesystem.change_open(&context, &mut open, share.mode())?;
        drop(open);
        let state = self.state.enter_downgraded(client, &state, narrow)?;
        state.write(self.writer);
        self.set_current_state(state);
        Ok(())
    }

    pub(super) fn close(&mut self, state: &StateId) -> Result<()> {
        let state = self.resolve_state(state)?;
        let file = self.current()?.file()?.handle;
        self.state.close(self.request.client, &state, &file)?;
        // an ID that names no state
        StateId { seqid: u32::MAX, other: [0; 12] }.write(self.writer);
        self.current_state = None;
        Ok(())
    }

    pub(super) fn lock(
        &mut self,
        (kind, is_reclaim): (u32, bool),
        range: (u64, u64),
        locker: &Locker<'_>,
    ) -> Result<()> {
        let node = self.current()?.clone();
        let node = self.regular(&node)?;
        let (range, kind) = (to_range(range)?, to_kind_of_lock(kind)?);
        let locker = match locker {
            Locker::New(new) => {
                let mut new = *new;
                new.open = self.resolve_state(&new.open)?;
                Locker::New(new)
            }
            Locker::Existing(state, seqid) => Locker::Existing(self.resolve_state(state)?, *seqid),
        };
        let client = self.request.client;
        let request = LockRequest { client, node, range, kind, is_reclaim };
        let result = self.state.lock_bytes(&request, &locker)?;
        if let LockResult::Granted(state) = &result {
            state.write(self.writer);
            self.set_current_state(*state);
        }
        self.write_denied(&result)
    }

    pub(super) fn test_lock(&mut self, kind: u32, range: (u64, u64), owner: &[u8]) -> Result<()> {
        let node = self.current()?.clone();
        let node = self.regular(&node)?;
        let (range, kind) = (to_range(range)?, to_kind_of_lock(kind)?);
        let (client, is_reclaim) = (self.request.client, false);
        let request = LockRequest { client, node, range, kind, is_reclaim };
        let result = self.state.test_lock(&request, owner)?;
        self.write_denied(&result)
    }

    /// Writes the lock in the way, and fails, if there is one.
    fn write_denied(&mut self, result: &LockResult) -> Result<()> {
        let LockResult::Denied { range, kind, client, owner } = result else { return Ok(()) };
        self.writer.u64(range.start);
        let is_to_end = range.end == u64::MAX;
        self.writer.u64(if is_to_end { u64::MAX } else { range.end - range.start });
        self.writer.u32(match kind {
            LockKind::Shared => READ_LOCK,
            LockKind::Exclusive => WRITE_LOCK,
        });
        self.writer.u64(*client);
        self.writer.opaque(owner);
        Err(Status::DENIED)
    }

    pub(super) fn unlock(&mut self, state: &StateId, range: (u64, u64)) -> Result<()> {
        let node = self.current()?.clone();
        let (file, range) = (node.file()?, to_range(range)?);
        let state = self.resolve_state(state)?;
        let state = self.state.unlock_bytes((self.request.client, file), &state, &range)?;
        state.write(self.writer);
        self.set_current_state(state);
        Ok(())
    }
}

/// The attributes that an OPEN sets on a file that exists.
fn size_only(set: &SetAttributes) -> Bitmap {
    set.set.intersection(&Bitmap::of(&[attr::SIZE]))
}

/// The bytes of a lock; a length of all ones means the end of the file, wherever that is.
fn to_range((offset, length): (u64, u64)) -> Result<Range<u64>> {
    match length {
        0 => Err(Status::INVAL),
        u64::MAX => Ok(offset..u64::MAX),
        length => Ok(offset..offset.checked_add(length).ok_or(Status::INVAL)?),
    }
}

/// The kind of a lock. A client that would wait asks again.
pub(super) fn to_kind_of_lock(kind: u32) -> Result<LockKind> {
    match kind {
        READ_LOCK | 3 => Ok(LockKind::Shared),
        WRITE_LOCK | 4 => Ok(LockKind::Exclusive),
        _ => Err(Status::INVAL),
    }
}
