//! Clients of NFSv4.0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW (RFC 7530, sections 16.29, 16.33, 16.34).
//!
//! ```text
//! SETCLIENTID from a client that is      SETCLIENTID_CONFIRM then
//! unknown, or known by another verifier  makes it known, in place of its predecessor
//! known by this verifier                 changes the program by which the client is called
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use super::callback_program::CallbackProgram;
use super::clients::{Client, Principal};
use super::{Removed, StateTable, Tables};
use crate::export::Caller;
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{SetClientId, Verifier};

/// The confirmation of an NFSv4.0 client, which has no sessions.
pub(super) struct Confirmation {
    /// The number that makes the client known.
    verifier: Verifier,
    /// The program by which the client is called.
    program: Arc<CallbackProgram>,
    /// The number and the program of an update that was not confirmed yet.
    update: Option<(Verifier, Arc<CallbackProgram>)>,
}

impl Confirmation {
    pub(super) fn program(&self) -> &Arc<CallbackProgram> {
        &self.program
    }
}

impl StateTable {
    /// SETCLIENTID. Returns the client's number, and the number by which it confirms itself.
    pub(crate) fn set_client_id(
        &self,
        caller: &Caller,
        request: &SetClientId<'_>,
    ) -> Result<(u64, Verifier)> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let principal = Principal::new(&caller.credentials);
        let verifier = tables.next_number().to_be_bytes();
        let program = Arc::new(CallbackProgram::new(request.callback, caller.address));
        let confirmed = tables.by_owner.get(request.owner.id).and_then(|records| records.confirmed);
        let confirmed =
            confirmed.filter(|number| !tables.remove_if_given_way(*number, &mut removed));
        if let Some(number) = confirmed {
            let known = tables.client_mut(number)?;
            let is_same_start = known.verifier == request.owner.verifier;
            if known.principal != principal {
                if known.has_state() {
                    return Err(Status::CLID_INUSE);
                }
                tables.remove_client(number, &mut removed);
            } else if let Some(confirmation) = &mut known.confirmation
                && is_same_start
            {
                // a program that does not change stays tested
                let is_same = confirmation.program.is_same(&program);
                let program = if is_same { Arc::clone(&confirmation.program) } else { program };
                confirmation.update = Some((verifier, program));
                return Ok((number, verifier));
            }
        }
        let mut client = Client::new(&request.owner, principal, caller.address);
        client.confirmation = Some(Confirmation { verifier, program, update: None });
        let number = self.enter_unconfirmed(&mut tables, client, &mut removed)?;
        Ok((number, verifier))
    }

    /// SETCLIENTID_CONFIRM.
    pub(crate) fn confirm_client_id(
        &self,
        caller: &Caller,
        number: u64,
        verifier: Verifier,
    ) -> Result<()> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let client = tables.clients.get_mut(&number).ok_or(Status::STALE_CLIENTID)?;
        let is_same_user = client.principal == Principal::new(&caller.credentials);
        let confirmation = client.confirmation.as_mut().ok_or(Status::STALE_CLIENTID)?;
        let is_update = confirmation.update.as_ref().is_some_and(|(number, _)| *number == verifier);
        if !is_update && confirmation.verifier != verifier {
            return Err(Status::STALE_CLIENTID);
        }
        if !is_same_user {
            return Err(Status::CLID_INUSE);
        }
        if let Some((verifier, program)) = confirmation.update.take_if(|_| is_update) {
            (confirmation.verifier, confirmation.program) = (verifier, program);
        }
        let program = Arc::clone(&confirmation.program);
        client.renew(caller.address);
        tables.confirm(number, &mut removed)?;
        program.probe();
        Ok(())
    }

    /// The client of a request is alive.
    pub(crate) fn renew_client(&self, number: u64, address: SocketAddr) -> Result<()> {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let is_of_this_start = number >> 32 == u64::from(self.boot);
        let unknown = if is_of_this_start { Status::EXPIRED } else { Status::STALE_CLIENTID };
        tables.confirmed_v40(number).ok_or(unknown)?;
        tables.renew(number, address, &mut removed)
    }
}

impl Tables {
    fn confirmed_v40(&self, number: u64) -> Option<&Client> {
        self.clients.get(&number).filter(|client| client.is_confirmed && client.is_minor0())
    }
}
