//! COMPOUND: the operations of a request, one after the other, until one fails.

use std::sync::Arc;
use units::MinusOrZero as _;

use super::opens::OpenRequest;
use super::state::{Session, StateTable};
use crate::node::Node;
use crate::request::{Request, Result};
use crate::status::Counters;
use crate::wire::rpc::CallError;
use crate::wire::status::Status;
use crate::wire::v4::{self, Compound as Header, MINOR_VERSIONS, Operation, StateId, op};
use crate::wire::xdr::{Reader, Writer};

/// A request that is being carried out.
pub(super) struct Compound<'a> {
    pub(super) state: &'a StateTable,
    pub(super) request: Request<'a>,
    pub(super) writer: &'a mut Writer,
    pub(super) counters: &'a mut Counters,
    pub(super) minor_version: u32,
    /// Bytes of the arguments.
    pub(super) request_len: usize,
    /// The number of operations.
    pub(super) count: usize,
    /// Where the result begins in the writer.
    pub(super) start: usize,
    /// The current file, with the state that the last operation returned.
    pub(super) current: Option<Node>,
    pub(super) current_state: Option<StateId>,
    pub(super) saved: Option<Node>,
    pub(super) saved_state: Option<StateId>,
    pub(super) slot: Option<HeldSlot>,
}

/// The slot that a request is in.
pub(super) struct HeldSlot {
    pub(super) session: Arc<Session>,
    pub(super) slot: u32,
    pub(super) is_cached: bool,
}

/// How a request goes on after an operation.
pub(super) enum Next {
    /// With the next operation.
    Continue,
    /// It was carried out before: this is its result.
    Repeated(Vec<u8>),
}

/// Operations that a session does without. Each must be alone in its request then.
const WITHOUT_SESSION: [u32; 5] = [
    op::EXCHANGE_ID,
    op::CREATE_SESSION,
    op::DESTROY_SESSION,
    op::BIND_CONN_TO_SESSION,
    op::DESTROY_CLIENTID,
];
/// Operations that wait for nothing. READ ends the turn itself unless its data is in memory.
const WITHOUT_WAIT: [u32; 3] = [op::SEQUENCE, op::PUTFH, op::READ];
/// Operations of a COMPOUND of NFSv4.0. Sessions have a limit of their own.
const MAX_OPERATIONS_V40: usize = 256;
/// Bytes of the largest answer that is kept for a repetition, without the header of RPC.
pub(super) const MAX_KEPT_ANSWER: usize = 8 << 10;

/// Carries out a COMPOUND, and writes its result.
pub(crate) fn execute(
    state: &StateTable,
    request: Request<'_>,
    arguments: &[u8],
    writer: &mut Writer,
    counters: &mut Counters,
) -> std::result::Result<(), CallError> {
    let mut reader = Reader::new(arguments);
    let header = Header::parse(&mut reader).map_err(|_| CallError::GarbageArguments)?;
    let mut compound = Compound {
        state,
        request,
        start: writer.len(),
        writer,
        counters,
        minor_version: header.minor_version,
        request_len: arguments.len(),
        count: header.count,
        current: None,
        current_state: None,
        saved: None,
        saved_state: None,
        slot: None,
    };
    compound.run(&header, &mut reader);
    Ok(())
}

impl Compound<'_> {
    fn run(&mut self, header: &Header<'_>, reader: &mut Reader<'_>) {
        let status = self.writer.placeholder();
        self.writer.opaque(header.tag);
        let done = self.writer.placeholder();
        if !MINOR_VERSIONS.contains(&header.minor_version) {
            return self.writer.set(status, Status::MINOR_VERS_MISMATCH.number());
        }
        let (mut result, mut count) = (Status::OK, 0);
        while result.is_ok() && count < header.count {
            let max_data = self.request.core.options.max_io_bytes;
            let parsed = Operation::parse(reader, header.minor_version, max_data);
            let (number, operation) = match parsed {
                Ok((number, operation)) => (number, operation.map_err(Status::from)),
                Err(error) => (op::ILLEGAL, Err(Status::from(error))),
            };
            if !WITHOUT_WAIT.contains(&number) {
                (self.request.end_turn)();
            }
            match self.run_operation(count, number, operation) {
                Ok(Next::Repeated(answer)) => {
                    self.writer.truncate(self.start);
                    return self.writer.append(&answer);
                }
                Ok(Next::Continue) => {}
                Err(failed) => result = failed,
            }
            count += 1;
        }
        self.writer.set(done, u32::try_from(count).expect("a message below 4 GiB"));
        self.writer.set(status, result.number());
        self.finish_slot();
    }

    /// Carries out an operation and writes its result.
    fn run_operation(
        &mut self,
        index: usize,
        number: u32,
        operation: Result<Operation<'_>>,
    ) -> Result<Next> {
        self.writer.u32(number);
        let status = self.writer.placeholder();
        let body = self.writer.len();
        let result = self.check_position(index, number).and_then(|()| {
            let operation = operation?;
            let next = if self.minor_version == 0 {
                self.dispatch_v40(operation)?
            } else {
                self.dispatch(operation)?
            };
            self.check_response_size()?;
            Ok(next)
        });
        let result = result.map_err(|failed| match failed {
            // a status of later versions
            Status::WRONG_TYPE if self.minor_version == 0 && number == op::OPEN => Status::SYMLINK,
            Status::WRONG_TYPE if self.minor_version == 0 => Status::INVAL,
            failed => failed,
        });
        if let Err(failed) = result {
            // a lock that is denied tells the one in the way
            if failed != Status::DENIED {
                self.writer.truncate(body);
            }
            if number == op::SETATTR {
                // no attribute was set
                self.writer.count(0);
            }
            if number == op::SETCLIENTID && failed == Status::CLID_INUSE {
                // the network and address of the other client, which is no business of this one
                self.writer.count(0);
                self.writer.count(0);
            }
            self.writer.set(status, failed.number());
        }
        result
    }

    fn check_position(&self, index: usize, number: u32) -> Result<()> {
        match (index, number) {
            (index, _) if self.minor_version == 0 && index >= MAX_OPERATIONS_V40 => {
                Err(Status::RESOURCE)
            }
            _ if self.minor_version == 0 => Ok(()),
            (0, op::SEQUENCE | op::ILLEGAL) => Ok(()),
            (_, op::SEQUENCE) => Err(Status::SEQUENCE_POS),
            (0, number) if !WITHOUT_SESSION.contains(&number) => Err(Status::OP_NOT_IN_SESSION),
            (0, _) if self.count > 1 => Err(Status::NOT_ONLY_OP),
            _ => Ok(()),
        }
    }

    fn check_response_size(&self) -> Result<()> {
        let Some(held) = &self.slot else { return Ok(()) };
        let limits = &held.session.fore_channel;
        let size = self.writer.message_len_from(self.start);
        let exceeds = |limit: u32| usize::try_from(limit).is_ok_and(|limit| size > limit);
        if exceeds(limits.max_response_size) {
            return Err(Status::REP_TOO_BIG);
        }
        if held.is_cached && exceeds(limits.max_response_size_cached) {
            return Err(Status::REP_TOO_BIG_TO_CACHE);
        }
        Ok(())
    }

    /// Bytes that the result may still have.
    pub(super) fn room(&self) -> usize {
        let limits = self.slot.as_ref().map(|held| &held.session.fore_channel);
        let without_session = match self.minor_version {
            0 => self.request.core.options.max_record_bytes(),
            _ => MAX_KEPT_ANSWER,
        };
        let most = limits.map_or(without_session, |limits| {
            usize::try_from(limits.max_response_size).expect("a 64-bit system")
        });
        // the header of the operation may have taken the last of it
        most.minus_or_zero(self.writer.message_len_from(self.start))
    }

    /// Keeps the result for a repetition, and frees the slot.
    fn finish_slot(&mut self) {
        let Some(held) = self.slot.take() else { return };
        let answer = self.writer.as_bytes().get(self.start..).unwrap_or_default();
        // the answer to a request that must be kept has no external data
        let length = self.writer.message_len_from(self.start);
        let is_kept = held.is_cached || length <= MAX_KEPT_ANSWER / 16;
        held.session.finish(held.slot, is_kept.then(|| answer.to_vec()));
    }

    pub(super) fn dispatch(&mut self, operation: Operation<'_>) -> Result<Next> {
        match operation {
            Operation::Sequence(sequence) => return self.sequence(&sequence),
            Operation::Unsupported => Err(Status::NOTSUPP),
            Operation::Illegal => Err(Status::OP_ILLEGAL),
            Operation::PutHandle { handle } => self.put_handle(handle),
            Operation::PutRootHandle => self.put_root(),
            Operation::GetHandle => self.get_handle(),
            Operation::SaveHandle => self.save_handle(),
            Operation::RestoreHandle => self.restore_handle(),
            Operation::Lookup { name } => self.lookup(name),
            Operation::LookupParent => self.lookup_parent(),
            Operation::SecurityInfo { name } => self.security_info(name),
            Operation::SecurityInfoNoName { is_of_parent } => {
                self.security_info_no_name(is_of_parent)
            }
            Operation::GetAttributes { wanted } => self.get_attributes(&wanted),
            Operation::SetAttributes { state, set } => self.set_attributes(&state, &set),
            Operation::Verify { is_equal, wanted, values } => {
                self.verify(is_equal, &wanted, values)
            }
            Operation::Access { wanted } => self.access(wanted),
            Operation::ReadLink => self.read_link(),
            Operation::Read { state, offset, count } => self.read(&state, offset, count),
            Operation::Write { state, offset, stable, data } => {
                self.write(&state, offset, stable, data)
            }
            Operation::Commit => self.commit(),
            Operation::ReadDir { cookie, max_bytes, wanted } => {
                self.read_dir(cookie, max_bytes, &wanted)
            }
            Operation::Create { kind, name, set } => self.create(&kind, name, &set),
            Operation::Remove { name } => self.remove(name),
            Operation::Rename { from, to } => self.rename(from, to),
            Operation::Link { name } => self.link(name),
            other => self.dispatch_state(other),
        }
        .map(|()| Next::Continue)
    }

    fn dispatch_state(&mut self, operation: Operation<'_>) -> Result<()> {
        match operation {
            Operation::Open { access, deny, owner, create, claim, .. } => {
                let (owner, needs_confirm) = (owner.id, false);
                self.open(OpenRequest { access, deny, owner, create, claim, needs_confirm })
            }
            Operation::OpenDowngrade { state, access, deny, .. } => {
                self.downgrade(&state, (access, deny))
            }
            Operation::Close { state, .. } => self.close(&state),
            Operation::Lock { kind, is_reclaim, range, locker } => {
                self.lock((kind, is_reclaim), range, &locker)
            }
            Operation::TestLock { kind, range, owner } => self.test_lock(kind, range, owner.id),
            Operation::Unlock { state, range, .. } => self.unlock(&state, range),
            Operation::ExchangeId(request) => self.exchange_id(&request),
            Operation::CreateSession(request) => self.create_session(&request),
            Operation::DestroySession { session } => self.destroy_session(&session),
            Operation::DestroyClient { client_id } => self.state.destroy_client(client_id),
            Operation::ReturnDelegation { state } => self.return_delegation(&state),
            Operation::ControlBackChannel(target) => self.control_back_channel(target),
            Operation::BindConnection { session, direction } => {
                self.bind_connection(&session, direction)
            }
            Operation::ReclaimComplete { is_one_filesystem } => {
                self.reclaim_complete(is_one_filesystem)
            }
            Operation::TestStates { states } => {
                self.test_states(&states);
                Ok(())
            }
            Operation::FreeState { state } => self.free_state(&state),
            Operation::ReadPlus { state, offset, count } => self.read_plus(&state, offset, count),
            Operation::Seek { state, offset, what } => self.seek(&state, offset, what),
            Operation::Allocate { state, range } => self.allocate(&state, range),
            Operation::Deallocate { state, range } => self.deallocate(&state, range),
            Operation::Copy { states, offsets, count, is_between_servers } => {
                self.copy(&states, offsets, (count, is_between_servers))
            }
            Operation::Clone { states, offsets, count } => self.clone(&states, offsets, count),
            Operation::IoAdvise { .. } => {
                // the server makes no use of advice
                v4::Bitmap::EMPTY.write(self.writer);
                Ok(())
            }
            Operation::GetXattr { name } => self.get_xattr(name),
            Operation::SetXattr { how, name, value } => self.set_xattr(how, name, value),
            Operation::ListXattrs { cookie, max_bytes } => self.list_xattrs(cookie, max_bytes),
            Operation::RemoveXattr { name } => self.remove_xattr(name),
            _ => Err(Status::SERVERFAULT),
        }
    }

    /// The current file.
    pub(super) fn current(&self) -> Result<&Node> {
        self.current.as_ref().ok_or(Status::NOFILEHANDLE)
    }

    /// The saved file.
    pub(super) fn saved(&self) -> Result<&Node> {
        self.saved.as_ref().ok_or(Status::NOFILEHANDLE)
    }

    /// The state that a request means, which may be that of an earlier operation.
    pub(super) fn resolve_state(&self, state: &StateId) -> Result<StateId> {
        if *state == StateId::CURRENT && self.minor_version > 0 {
            self.current_state.ok_or(Status::BAD_STATEID)
        } else {
            Ok(*state)
        }
    }

    /// Writes the change attributes of a directory before and after a change (`change_info4`). Others may have changed
    /// it as well between the two.
    pub(super) fn write_change(&mut self, before: u64, dir: &Node) -> Result<()> {
        let after = self.request.attributes(dir)?.change;
        self.writer.bool(false);
        self.writer.u64(before);
        self.writer.u64(after);
        Ok(())
    }
}
