//! Sessions: slots that carry out each request exactly once (RFC 5661, section 2.10.6), and the back channel by which the
//! server calls the client.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{
    Callback, CallbackAnswer, CallbackOperation, CallbackTarget, ChannelAttributes, Sequence,
    SessionId,
};
use crate::wire::xdr::Reader;

/// A session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The number of the client.
    pub(crate) client: u64,
    /// The limits of requests.
    pub(crate) fore_channel: ChannelAttributes,
    minor_version: u32,
    slots: Mutex<Vec<Slot>>,
    back_channel: Mutex<BackChannel>,
    /// The number of the next call, which the thread that calls the client has locked.
    next_call: Mutex<u32>,
}

/// How a session's client is called.
struct BackChannel {
    target: CallbackTarget,
    /// The connection that the client has bound for calls; none: the client wants no calls.
    connection: Option<Weak<Connection>>,
}

/// The parameters of a new session.
pub(crate) struct NewSession {
    pub(crate) fore_channel: ChannelAttributes,
    pub(crate) minor_version: u32,
    pub(crate) target: CallbackTarget,
    /// The connection for calls; none: the client wants no calls.
    pub(crate) connection: Option<Weak<Connection>>,
}

/// A slot.
#[derive(Default)]
struct Slot {
    /// The number of the last request.
    sequence: u32,
    is_busy: bool,
    /// The answer to the last request; none: it is not kept.
    answer: Option<Vec<u8>>,
}

/// The turn of a request in a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SlotAnswer {
    /// It is new: it must be finished.
    New,
    /// It was carried out, with this answer.
    Repeated(Vec<u8>),
}

impl Session {
    pub(crate) fn new(id: SessionId, client: u64, new: NewSession) -> Self {
        let NewSession { fore_channel, minor_version, target, connection } = new;
        let slots = (0..fore_channel.max_requests).map(|_| Slot::default()).collect();
        let back_channel = Mutex::new(BackChannel { target, connection });
        let (slots, next_call) = (Mutex::new(slots), Mutex::new(1));
        Self { id, client, fore_channel, minor_version, slots, back_channel, next_call }
    }

    /// Uses a connection for calls.
    pub(crate) fn bind_back_channel(&self, connection: &Arc<Connection>) {
        self.back_channel.lock().connection = Some(Arc::downgrade(connection));
    }

    /// Changes how the client is called.
    pub(crate) fn set_callback_target(&self, target: CallbackTarget) {
        self.back_channel.lock().target = target;
    }

    /// Whether the client can be called.
    pub(crate) fn has_back_channel(&self) -> bool {
        let connection = self.back_channel.lock().connection.as_ref().and_then(Weak::upgrade);
        connection.is_some_and(|connection| connection.is_open())
    }

    /// Whether the connection for calls is gone, and the client must bind another one.
    pub(crate) fn lacks_back_channel(&self) -> bool {
        let is_wanted = self.back_channel.lock().connection.is_some();
        is_wanted && !self.has_back_channel()
    }

    /// Calls the client, one call after the other. `parse` gets the status and the rest of the result. None: the client
    /// cannot be called, or does not answer.
    pub(super) fn call<T>(
        &self,
        operation: CallbackOperation<'_>,
        time: Duration,
        parse: impl FnOnce(Status, &mut Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        let (target, connection) = {
            let back = self.back_channel.lock();
            (back.target.clone(), back.connection.as_ref()?.upgrade()?)
        };
        let mut sequence = self.next_call.lock();
        let reply = connection.call(time, |writer, xid| {
            let (minor_version, session) = (self.minor_version, self.id);
            let call = Callback { minor_version, session, sequence: *sequence, operation };
            call.write(writer, xid, &target);
        })?;
        let answer = CallbackAnswer::parse(&reply).ok()??;
        // the client has carried out a call whose reply came too late: the number is used up
        let is_late = [Status::RETRY_UNCACHED_REP, Status::SEQ_FALSE_RETRY];
        if answer.sequence.is_ok() || is_late.contains(&answer.sequence) {
            *sequence = sequence.wrapping_add(1);
        }
        let (status, mut reader) = answer.result?;
        parse(status, &mut reader)
    }

    /// The highest slot.
    pub(crate) fn highest_slot(&self) -> u32 {
        self.fore_channel.max_requests - 1
    }

    /// Whether a request is being carried out.
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.lock().iter().any(|slot| slot.is_busy)
    }

    /// Begins a request in its slot.
    pub(crate) fn begin(&self, request: &Sequence) -> Result<SlotAnswer> {
        let mut slots = self.slots.lock();
        let index = usize::try_from(request.slot).map_err(|_| Status::BADSLOT)?;
        let slot = slots.get_mut(index).ok_or(Status::BADSLOT)?;
        if request.number == slot.sequence {
            return match (&slot.answer, slot.is_busy) {
                // the answer to the first is on its way
                (_, true) => Err(Status::DELAY),
                (Some(answer), false) => Ok(SlotAnswer::Repeated(answer.clone())),
                (None, false) if slot.sequence == 0 => Err(Status::SEQ_MISORDERED),
                (None, false) => Err(Status::RETRY_UNCACHED_REP),
            };
        }
        if slot.is_busy || request.number != slot.sequence.wrapping_add(1) {
            return Err(Status::SEQ_MISORDERED);
        }
        *slot = Slot { sequence: request.number, is_busy: true, answer: None };
        Ok(SlotAnswer::New)
    }

    /// Ends a request. `answer` is kept for a repetition.
    pub(crate) fn finish(&self, slot: u32, answer: Option<Vec<u8>>) {
        let mut slots = self.slots.lock();
        let slot = usize::try_from(slot).ok().and_then(|index| slots.get_mut(index));
        let slot = slot.expect("a slot that began a request");
        slot.is_busy = false;
        slot.answer = answer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc::Credentials;

    #[test]
    fn slots_carry_out_each_request_once() {
        let limits = ChannelAttributes { max_requests: 2, ..ChannelAttributes::default() };
        let target = CallbackTarget { program: 0, credentials: Credentials::None };
        let (minor_version, connection) = (1, None);
        let new = NewSession { fore_channel: limits, minor_version, target, connection };
        let session = Session::new([1; 16], 7, new);
        let request = |slot, number| {
            let (session, highest_slot, is_cached) = ([1; 16], 1, true);
            Sequence { session, number, slot, highest_slot, is_cached }
        };
        assert_eq!(session.begin(&request(0, 0)), Err(Status::SEQ_MISORDERED));
        assert_eq!(session.begin(&request(0, 2)), Err(Status::SEQ_MISORDERED));
        assert_eq!(session.begin(&request(2, 1)), Err(Status::BADSLOT));
        assert_eq!(session.begin(&request(0, 1)), Ok(SlotAnswer::New));
        assert_eq!(session.begin(&request(0, 1)), Err(Status::DELAY));
        assert_eq!(session.begin(&request(0, 2)), Err(Status::SEQ_MISORDERED));
        assert!(session.is_busy());
        session.finish(0, Some(b"one".to_vec()));
        assert_eq!(session.begin(&request(0, 1)), Ok(SlotAnswer::Repeated(b"one".to_vec())));
        assert_eq!(session.begin(&request(0, 2)), Ok(SlotAnswer::New));
        session.finish(0, None);
        assert_eq!(session.begin(&request(0, 2)), Err(Status::RETRY_UNCACHED_REP));
        assert_eq!(session.begin(&request(0, 1)), Err(Status::SEQ_MISORDERED));
        assert_eq!(session.begin(&request(1, 1)), Ok(SlotAnswer::New));
        session.finish(1, None);
        assert!(!session.is_busy());
    }
}
