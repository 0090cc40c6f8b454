//! The operations of NFSv4.0 that differ from those of later versions: clients without sessions, and owners that number
//! their requests (RFC 7530).

use super::compound::{Compound, Next};
use super::opens::{OpenRequest, to_kind_of_lock};
use super::state::{OwnerResult, OwnerTurn, SeqOwner};
use crate::request::Result;
use crate::wire::status::Status;
use crate::wire::v4::{
    Compound as Header, Locker, NewState, OpenClaim, OpenOwner, Operation, SetClientId, StateId, op,
};
use crate::wire::xdr::Reader;

/// Whether a COMPOUND must not be carried out twice, although its client has no session that sees to it. Requests of
/// owners are safe by their numbers.
pub(crate) fn is_non_idempotent(arguments: &[u8]) -> bool {
    let mut reader = Reader::new(arguments);
    let Ok(header) = Header::parse(&mut reader) else { return false };
    if header.minor_version != 0 {
        return false;
    }
    for _ in 0..header.count {
        match Operation::parse(&mut reader, 0, arguments.len()) {
            Ok((op::CREATE | op::LINK | op::REMOVE | op::RENAME | op::SETATTR, _)) => return true,
            Ok((_, Ok(_))) => {}
            // the COMPOUND ends here
            Ok((_, Err(_))) | Err(_) => return false,
        }
    }
    false
}

impl Compound<'_> {
    /// Carries out an operation of NFSv4.0.
    pub(super) fn dispatch_v40(&mut self, operation: Operation<'_>) -> Result<Next> {
        match operation {
            Operation::SetClientId(request) => self.set_client_id(&request),
            Operation::ConfirmClientId { client_id, confirm } => {
                self.state.confirm_client_id(self.request.caller, client_id, confirm)
            }
            Operation::Renew { client_id } => {
                self.bind_client(client_id)?;
                self.state.check_callback_path(client_id)
            }
            Operation::Open { seqid, access, deny, owner, create, claim } => {
                self.bind_client(owner.client_id)?;
                let owner = owner.id;
                let needs_confirm = true;
                self.open_v40(
                    seqid,
                    OpenRequest { access, deny, owner, create, claim, needs_confirm },
                )
            }
            Operation::OpenConfirm { state, seqid } => self.confirm_open(&state, seqid),
            Operation::OpenDowngrade { state, seqid, access, deny } => {
                let downgrade = (op::OPEN_DOWNGRADE, seqid);
                self.change_open(&state, downgrade, |this| this.downgrade(&state, (access, deny)))
            }
            Operation::Close { seqid, state } => {
                self.change_open(&state, (op::CLOSE, seqid), |this| this.close(&state))
            }
            Operation::Lock { kind, is_reclaim, range, locker } => {
                to_kind_of_lock(kind)?;
                let how = (kind, is_reclaim);
                match &locker {
                    Locker::New(new) => self.lock_as_new_owner(how, range, new),
                    Locker::Existing(state, seqid) => {
                        let (client, owner) = self.state.owner_of_lock(state)?;
                        self.request.client = client;
                        self.in_turn(&owner, (op::LOCK, *seqid), |this, _| {
                            this.state.client_of_state(state, this.request.caller.address)?;
                            this.lock(how, range, &locker)
                        })
                    }
                }
            }
            Operation::Unlock { seqid, state, range } => {
                let (client, owner) = self.state.owner_of_lock(&state)?;
                self.request.client = client;
                self.in_turn(&owner, (op::LOCKU, seqid), |this, _| {
                    this.state.client_of_state(&state, this.request.caller.address)?;
                    this.unlock(&state, range)
                })
            }
            Operation::TestLock { kind, range, owner } => {
                self.bind_client(owner.client_id)?;
                self.test_lock(kind, range, owner.id)
            }
            Operation::ReleaseLockOwner { owner: OpenOwner { client_id, id } } => {
                self.bind_client(client_id)?;
                self.state.release_lock_owner(client_id, id)
            }
            Operation::Read { state, .. }
            | Operation::Write { state, .. }
            | Operation::ReturnDelegation { state }
            | Operation::SetAttributes { state, .. } => {
                self.bind_state(&state)?;
                return self.dispatch(operation);
            }
            other => return self.dispatch(other),
        }
        .map(|()| Next::Continue)
    }

    /// The operations that follow are those of a client, which is alive.
    fn bind_client(&mut self, client: u64) -> Result<()> {
        self.state.renew_client(client, self.request.caller.address)?;
        self.request.client = client;
        Ok(())
    }

    /// The operations that follow are those of the client of a state, if any.
    fn bind_state(&mut self, state: &StateId) -> Result<()> {
        if [StateId::ANONYMOUS, StateId::BYPASS].contains(state) {
            return Ok(());
        }
        self.request.client = self.state.client_of_state(state, self.request.caller.address)?;
        Ok(())
    }

    fn set_client_id(&mut self, request: &SetClientId<'_>) -> Result<()> {
        let (client, confirm) = self.state.set_client_id(self.request.caller, request)?;
        self.writer.u64(client);
        self.writer.fixed(&confirm);
        Ok(())
    }

    /// Carries out a request of an owner in its turn, or sends the result of the first one again.
    fn in_turn(
        &mut self,
        owner: &SeqOwner,
        (operation, seqid): (u32, u32),
        work: impl FnOnce(&mut Self, &mut OwnerTurn) -> Result<()>,
    ) -> Result<()> {
        let mut turn = owner.lock();
        if let Some(repeated) = turn.begin(operation, seqid)? {
            return self.repeat(&repeated);
        }
        if let Some(closed) = turn.closed.take() {
            self.state.forget_closed(closed);
        }
        let start = self.writer.len();
        let result = work(self, &mut turn);
        let status = result.err().unwrap_or(Status::OK);
        let body = self.writer.as_bytes().get(start..).expect("a writer that has grown");
        let is_opened = operation == op::OPEN && result.is_ok();
        let current = self.current.as_ref().filter(|_| is_opened);
        let current = current.map(|node| self.request.handle(node)).transpose()?;
        turn.finish(operation, seqid, OwnerResult { status, body: body.to_vec(), current });
        result
    }

    /// Sends the result of a request of an owner again.
    fn repeat(&mut self, result: &OwnerResult) -> Result<()> {
        self.writer.append(&result.body);
        if let Some(handle) = &result.current {
            let node = self.request.resolve(handle)?;
            self.set_current(node);
        }
        if result.status.is_ok() { Ok(()) } else { Err(result.status) }
    }

    fn open_v40(&mut self, seqid: u32, request: OpenRequest<'_>) -> Result<()> {
        self.current()?;
        let (client, name) = (self.request.client, request.owner);
        let owner = self.state.open_owner(client, name)?;
        let mut turn = owner.lock();
        if turn.is_replaced_by(seqid) {
            self.state.remove_unconfirmed_opens(client, name);
            turn.restart();
        }
        drop(turn);
        self.in_turn(&owner, (op::OPEN, seqid), |this, turn| {
            // what was open before the restart was confirmed then
            let is_reclaim = matches!(request.claim, OpenClaim::Reclaim(_));
            let needs_confirm = !turn.is_confirmed && !is_reclaim;
            this.open(OpenRequest { needs_confirm, ..request })?;
            turn.is_confirmed = !needs_confirm;
            Ok(())
        })
    }

    fn confirm_open(&mut self, state: &StateId, seqid: u32) -> Result<()> {
        let file = self.current()?.file()?.handle;
        let (client, _, owner) = self.state.owner_of_open(state)?;
        self.request.client = client;
        self.in_turn(&owner, (op::OPEN_CONFIRM, seqid), |this, turn| {
            this.state.confirm_open(state, &file)?.write(this.writer);
            turn.is_confirmed = true;
            Ok(())
        })
    }

    /// OPEN_DOWNGRADE and CLOSE.
    fn change_open(
        &mut self,
        state: &StateId,
        request: (u32, u32),
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.current()?;
        let (client, name, owner) = self.state.owner_of_open(state)?;
        self.request.client = client;
        self.in_turn(&owner, request, |this, turn| {
            this.state.client_of_state(state, this.request.caller.address)?;
            work(this)?;
            if request.0 == op::CLOSE {
                turn.closed = Some(this.state.remember_closed(state, client, &name)?);
            }
            Ok(())
        })
    }

    /// LOCK of an owner that has not locked the file by this open before: both owners number the request.
    fn lock_as_new_owner(
        &mut self,
        how: (u32, bool),
        range: (u64, u64),
        new: &NewState<'_>,
    ) -> Result<()> {
        let (client, _, open_owner) = self.state.owner_of_open(&new.open)?;
        if new.owner.client_id != client {
            self.bind_client(new.owner.client_id)?;
            return Err(Status::BAD_STATEID);
        }
        self.request.client = client;
        self.in_turn(&open_owner, (op::LOCK, new.open_seqid), |this, _| {
            this.state.client_of_state(&new.open, this.request.caller.address)?;
            let owner = this.state.lock_owner(client, new.owner.id)?;
            let mut turn = owner.lock();
            if turn.begin(op::LOCK, new.lock_seqid)?.is_some() {
                return Err(Status::BAD_SEQID);
            }
            let result = this.lock(how, range, &Locker::New(*new));
            let status = result.err().unwrap_or(Status::OK);
            // the sequence number of the open-owner shows a repetition
            let kept = OwnerResult { status, body: Vec::new(), current: None };
            turn.finish(op::LOCK, new.lock_seqid, kept);
            drop(turn);
            this.state.forget_unused_lock_owner(client, new.owner.id);
            result
        })
    }
}
