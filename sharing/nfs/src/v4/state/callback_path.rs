//! The ways by which a client is called: its sessions, or the program of a client of NFSv4.0.

use std::sync::Arc;
use std::time::Duration;

use super::callback_program::CallbackProgram;
use super::clients::Client;
use super::{Session, StateTable, Tables};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{CachedAttributes, CallbackOperation, StateId};
use crate::wire::xdr::Reader;

/// A way by which a client is called.
pub(super) enum CallbackPath {
    /// A session.
    Session(Arc<Session>),
    /// The program of a client of NFSv4.0.
    Program(Arc<CallbackProgram>),
}

impl CallbackPath {
    /// Calls the client to return a delegation. Returns its answer; none: it cannot be called, or does not answer.
    pub(super) fn recall(&self, state: &StateId, handle: &[u8], time: Duration) -> Option<Status> {
        let operation = CallbackOperation::Recall { state: *state, handle };
        self.call(operation, time, |status, _| Some(status))
    }

    /// Asks the client for the attributes of a file that it may have changed in its cache. None: it cannot be called, or
    /// does not answer.
    pub(super) fn cached_attributes(
        &self,
        handle: &[u8],
        time: Duration,
    ) -> Option<CachedAttributes> {
        let operation = CallbackOperation::GetAttributes { handle };
        self.call(operation, time, |status, reader| {
            if status.is_ok() { CachedAttributes::parse(reader).ok() } else { None }
        })
    }

    fn call<T>(
        &self,
        operation: CallbackOperation<'_>,
        time: Duration,
        parse: impl FnOnce(Status, &mut Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Session(session) => session.call(operation, time, parse),
            Self::Program(program) => program.call(operation, time, parse),
        }
    }
}

impl Tables {
    /// The ways by which a client is called.
    pub(super) fn callback_paths(&self, client: &Client) -> Vec<CallbackPath> {
        let sessions = client.sessions.iter().filter_map(|id| self.sessions.get(id));
        let sessions = sessions.map(|session| CallbackPath::Session(Arc::clone(session)));
        let program = client.callback_program();
        sessions.chain(program.map(|it| CallbackPath::Program(Arc::clone(it)))).collect()
    }
}

impl StateTable {
    /// Whether a client of NFSv4.0 replies to calls.
    pub(crate) fn can_call(&self, client: u64) -> bool {
        let tables = self.lock();
        let program = tables.client(client).ok().and_then(Client::callback_program);
        program.is_some_and(CallbackProgram::is_up)
    }

    /// Whether a client of NFSv4.0 that has just come back may reply to calls.
    pub(crate) fn may_call(&self, client: u64) -> bool {
        let tables = self.lock();
        let program = tables.client(client).ok().and_then(Client::callback_program);
        program.is_some_and(|program| program.may_be_up())
    }

    /// RENEW tells a client of NFSv4.0 that the server cannot recall its delegations.
    pub(crate) fn check_callback_path(&self, client: u64) -> Result<()> {
        let tables = self.lock();
        let client = tables.client(client)?;
        let is_down = client.callback_program().is_some_and(|program| program.is_down());
        if is_down && !client.delegations.is_empty() {
            return Err(Status::CB_PATH_DOWN);
        }
        Ok(())
    }
}
