//! Operations of clients and sessions.

use std::sync::Arc;

use super::compound::{Compound, HeldSlot, MAX_KEPT_ANSWER, Next};
use super::state::{Exchanged, NewSession, SlotAnswer};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{ChannelAttributes, CreateSession, ExchangeId, Sequence, SessionId, StateId};

/// EXCHANGE_ID: the client changes the record that it has.
const UPDATE_CONFIRMED: u32 = 0x4000_0000;
/// EXCHANGE_ID: the client has a confirmed record.
const CONFIRMED: u32 = 0x8000_0000;
/// EXCHANGE_ID: no part of pNFS.
const NON_PNFS: u32 = 0x1_0000;
/// The flags of EXCHANGE_ID that a client may set; those that minor version 2 adds.
const KNOWN_FLAGS: u32 = UPDATE_CONFIRMED | 0x7_0000 | 0x103;
const KNOWN_FLAGS_V42: u32 = 0x4;
/// The flags of CREATE_SESSION that a client may set.
const KNOWN_SESSION_FLAGS: u32 = 0x7;
/// CREATE_SESSION: the connection carries callbacks as well.
const CONNECTION_BACK_CHANNEL: u32 = 2;
/// BIND_CONN_TO_SESSION: the connection carries requests.
const FORE: u32 = 1;
/// BIND_CONN_TO_SESSION: the connection carries callbacks; with `FORE`, both.
const BACK: u32 = 2;
/// Bytes of the least request and response of a session.
const MIN_MESSAGE: u32 = 128;
/// Operations of a COMPOUND.
const MAX_OPERATIONS: u32 = 64;

impl Compound<'_> {
    pub(super) fn exchange_id(&mut self, request: &ExchangeId<'_>) -> Result<()> {
        let further = if self.minor_version < 2 { 0 } else { KNOWN_FLAGS_V42 };
        if request.flags & !(KNOWN_FLAGS | further) != 0 {
            return Err(Status::INVAL);
        }
        match request.state_protection {
            0 => {}
            // both need RPCSEC_GSS
            1 => return Err(Status::INVAL),
            _ => return Err(Status::ENCR_ALG_UNSUPP),
        }
        let is_update = request.flags & UPDATE_CONFIRMED != 0;
        let exchanged = self.state.exchange_id(self.request.caller, request, is_update)?;
        let Exchanged { client, sequence, is_confirmed } = exchanged;
        self.writer.u64(client);
        self.writer.u32(sequence);
        self.writer.u32(NON_PNFS | if is_confirmed { CONFIRMED } else { 0 });
        // no state protection
        self.writer.u32(0);
        let server_id = self.request.core.server_id;
        // the same server at all addresses, and the same scope after a restart
        self.writer.u64(0);
        self.writer.opaque(&server_id);
        self.writer.opaque(&server_id);
        // the server does not tell its implementation
        self.writer.count(0);
        Ok(())
    }

    pub(super) fn create_session(&mut self, request: &CreateSession) -> Result<()> {
        let wanted = &request.fore_channel;
        if wanted.max_request_size < MIN_MESSAGE || wanted.max_response_size < MIN_MESSAGE {
            return Err(Status::TOOSMALL);
        }
        // limits of 0 say that the client wants no callbacks
        let back = request.back_channel.max_request_size;
        if (1..MIN_MESSAGE).contains(&back) {
            return Err(Status::TOOSMALL);
        }
        if request.flags & !KNOWN_SESSION_FLAGS != 0
            || wanted.max_operations == 0
            || wanted.max_requests == 0
        {
            return Err(Status::INVAL);
        }
        let options = &self.request.core.options;
        let to_u32 = |number: usize| u32::try_from(number).expect("a limit of 16 MiB");
        let most = to_u32(options.max_record_bytes());
        let limits = ChannelAttributes {
            header_pad_size: 0,
            max_request_size: wanted.max_request_size.min(most),
            max_response_size: wanted.max_response_size.min(most),
            max_response_size_cached: wanted.max_response_size_cached.min(to_u32(MAX_KEPT_ANSWER)),
            max_operations: wanted.max_operations.min(MAX_OPERATIONS),
            max_requests: wanted.max_requests.min(to_u32(options.max_slots)),
        };
        let has_callbacks = request.flags & CONNECTION_BACK_CHANNEL != 0 && back > 0;
        let connection = self.request.channel.connection().filter(|_| has_callbacks);
        let connection = connection.map(Arc::downgrade);
        let (target, minor_version) = (request.callback.clone(), self.minor_version);
        let new = NewSession { fore_channel: limits, minor_version, target, connection };
        let session = self.state.create_session(self.request.caller, request, new)?;
        self.writer.fixed(&session.id);
        self.writer.u32(request.sequence);
        // answers do not outlast the server
        self.writer.u32(if has_callbacks { CONNECTION_BACK_CHANNEL } else { 0 });
        session.fore_channel.write(self.writer);
        let back = ChannelAttributes { header_pad_size: 0, ..request.back_channel };
        back.write(self.writer);
        Ok(())
    }

    pub(super) fn sequence(&mut self, request: &Sequence) -> Result<Next> {
        let session = self.state.session(&request.session, self.request.caller.address)?;
        let limits = &session.fore_channel;
        let exceeds =
            |size: usize, limit: u32| usize::try_from(limit).is_ok_and(|limit| size > limit);
        if exceeds(self.request_len, limits.max_request_size) {
            return Err(Status::REQ_TOO_BIG);
        }
        if exceeds(self.count, limits.max_operations) {
            return Err(Status::TOO_MANY_OPS);
        }
        if request.slot > session.highest_slot() {
            return Err(Status::BADSLOT);
        }
        if request.highest_slot > session.highest_slot() {
            return Err(Status::BAD_HIGH_SLOT);
        }
        if let SlotAnswer::Repeated(answer) = session.begin(request)? {
            return Ok(Next::Repeated(answer));
        }
        self.request.client = session.client;
        self.writer.fixed(&session.id);
        for number in [request.number, request.slot, session.highest_slot()] {
            self.writer.u32(number);
        }
        self.writer.u32(session.highest_slot());
        self.writer.u32(self.state.sequence_flags(&session));
        let (slot, is_cached) = (request.slot, request.is_cached);
        self.slot = Some(HeldSlot { session, slot, is_cached });
        Ok(Next::Continue)
    }

    pub(super) fn destroy_session(&mut self, session: &SessionId) -> Result<()> {
        let own = self.slot.as_ref().map(|held| held.session.id);
        if own.as_ref() == Some(session) {
            // a session cannot carry what comes after its end: the client sends it by itself
            return Err(Status::NOT_ONLY_OP);
        }
        self.state.destroy_session(session)
    }

    pub(super) fn bind_connection(&mut self, session: &SessionId, direction: u32) -> Result<()> {
        let session = self.state.session(session, self.request.caller.address)?;
        if direction & BACK != 0
            && let Some(connection) = self.request.channel.connection()
        {
            session.bind_back_channel(connection);
        }
        // 7: the client would like both, and prefers callbacks
        self.writer.fixed(&session.id);
        self.writer.u32(direction & (FORE | BACK));
        // RDMA
        self.writer.bool(false);
        Ok(())
    }

    pub(super) fn reclaim_complete(&mut self, is_one_filesystem: bool) -> Result<()> {
        // file systems do not move between servers
        if is_one_filesystem { Ok(()) } else { self.state.reclaim_complete(self.request.client) }
    }

    pub(super) fn test_states(&mut self, states: &[StateId]) {
        self.writer.count(states.len());
        for state in states {
            let status = self.state.test_state(self.request.client, state);
            self.writer.u32(status.number());
        }
    }

    pub(super) fn free_state(&mut self, state: &StateId) -> Result<()> {
        let state = self.resolve_state(state)?;
        self.state.free_state(self.request.client, &state)
    }
}
