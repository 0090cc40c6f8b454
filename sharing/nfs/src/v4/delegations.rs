//! Delegations: what OPEN gives, DELEGRETURN, and the back channel by which the server recalls them.

use super::compound::Compound;
use super::state::DelegationRequest;
use crate::node::FileNode;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{CallbackTarget, StateId};

/// The bits of OPEN's access that say which delegation the client would like.
const WANT_BITS: u32 = 0xff00;
const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;
const WANT_ANY: u32 = 0x300;
const WANT_NONE: u32 = 0x400;
const WANT_CANCEL: u32 = 0x500;
/// Accesses of an open.
const READ: u32 = 1;
const WRITE: u32 = 2;
/// Why there is no delegation.
const NOT_WANTED: u32 = 0;
const CONTENTION: u32 = 1;
const CANCELLED: u32 = 7;
/// The limit of a write delegation: bytes of the file.
const LIMIT_BY_SIZE: u32 = 1;

/// The delegation that an OPEN gives (`open_delegation4`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenDelegation {
    None,
    Read(StateId),
    Write(StateId),
    /// The client has asked for one, and gets none for a reason.
    Refused(u32),
}

impl Compound<'_> {
    /// The delegation of a file that was opened. A client that does not say what it wants gets a read delegation, since
    /// to return one costs it nothing. A client of NFSv4.0 has no way to say that it wants a write delegation.
    pub(super) fn delegate(&self, node: &FileNode, access: u32) -> Result<OpenDelegation> {
        if self.minor_version == 0 {
            let may = self.state.can_call(self.request.client);
            return self.grant(node, access & WRITE != 0, (may, true));
        }
        let (want, access) = (access & WANT_BITS, access & (READ | WRITE));
        let is_write = match (want, access) {
            (WANT_NONE, _) => return Ok(OpenDelegation::Refused(NOT_WANTED)),
            (WANT_CANCEL, _) => return Ok(OpenDelegation::Refused(CANCELLED)),
            (0 | WANT_READ | WANT_ANY, READ) => false,
            (WANT_WRITE | WANT_ANY, access) if access & WRITE != 0 => true,
            (0, _) => return Ok(OpenDelegation::None),
            _ => return Ok(OpenDelegation::Refused(CONTENTION)),
        };
        self.grant(node, is_write, (self.has_back_channel(), want == 0))
    }

    fn has_back_channel(&self) -> bool {
        self.slot.as_ref().is_some_and(|held| held.session.has_back_channel())
    }

    /// The delegation that a client gets back after a restart of the server: 0 none, 1 read, 2 write.
    pub(super) fn reclaim_delegation(&self, node: &FileNode, kind: u32) -> Result<OpenDelegation> {
        match kind {
            1 | 2 => {
                // a client of NFSv4.0 that has just come back may not have been probed yet
                let may = match self.minor_version {
                    0 => self.state.may_call(self.request.client),
                    _ => self.has_back_channel(),
                };
                self.grant(node, kind == 2, (may, true))
            }
            _ => Ok(OpenDelegation::None),
        }
    }

    /// Grants a delegation to a client that can be called.
    fn grant(
        &self,
        node: &FileNode,
        is_write: bool,
        (has_path, is_silent): (bool, bool),
    ) -> Result<OpenDelegation> {
        let may = has_path && (!is_write || node.admission.is_writable);
        let handle = node.handle.encode(&self.request.core.handle_key)?.to_vec();
        let request = DelegationRequest { node, handle, is_write };
        let context = self.request.context(node);
        let granted = if may { self.state.grant_delegation(&context, request) } else { None };
        Ok(match granted {
            Some(state) if is_write => OpenDelegation::Write(state),
            Some(state) => OpenDelegation::Read(state),
            None if is_silent => OpenDelegation::None,
            None => OpenDelegation::Refused(CONTENTION),
        })
    }

    pub(super) fn write_delegation(&mut self, delegation: OpenDelegation) {
        let writer = &mut *self.writer;
        match delegation {
            OpenDelegation::None => writer.u32(0),
            OpenDelegation::Read(state) | OpenDelegation::Write(state) => {
                let is_write = matches!(delegation, OpenDelegation::Write(_));
                writer.u32(if is_write { 2 } else { 1 });
                state.write(writer);
                // it is not recalled already
                writer.bool(false);
                if is_write {
                    writer.u32(LIMIT_BY_SIZE);
                    writer.u64(u64::MAX);
                }
                // an entry that allows nobody anything: the client asks by ACCESS
                for number in [0, 0, 0] {
                    writer.u32(number);
                }
                writer.count(0);
            }
            OpenDelegation::Refused(why) => {
                writer.u32(3);
                writer.u32(why);
                if why == CONTENTION {
                    // the server does not tell when the file is free
                    writer.bool(false);
                }
            }
        }
    }

    pub(super) fn return_delegation(&mut self, state: &StateId) -> Result<()> {
        let state = self.resolve_state(state)?;
        let file = self.current()?.file()?.handle;
        self.state.return_delegation(self.request.client, &state, &file)
    }

    /// BACKCHANNEL_CTL.
    pub(super) fn control_back_channel(&mut self, target: CallbackTarget) -> Result<()> {
        let held = self.slot.as_ref().ok_or(Status::OP_NOT_IN_SESSION)?;
        held.session.set_callback_target(target);
        Ok(())
    }
}
