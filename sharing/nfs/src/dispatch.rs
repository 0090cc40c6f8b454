//! From the record of a call to the record of its answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vfs::Waiter;

use crate::connection::Connection;
use crate::export::Caller;
use crate::nlm::Peer;
use crate::portmapper;
use crate::request::{ExportUsage, Request};
use crate::server::Shared;
use crate::status::Counters;
use crate::v3::{self, ReplayKey, Turn};
use crate::v4;
use crate::wire::rpc::{Call, CallError, PROGRAM_MOUNT, PROGRAM_NFS, write_accepted};
use crate::wire::xdr::Writer;
use crate::wire::{mount, nlm, nsm, portmap, v3 as wire_v3, v4 as wire_v4};

/// The outcome of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Response {
    /// The answer was written. `version` is that of the program.
    Send { version: u32 },
    /// There is no answer: an earlier request with the same number is being carried out.
    None,
    /// The record is no call: the connection is closed.
    Close,
}

/// Where a record came from.
pub(crate) struct Origin<'a> {
    pub(crate) address: SocketAddr,
    /// The address by which the client has reached this machine, if it is known.
    pub(crate) local: Option<IpAddr>,
    pub(crate) channel: Channel<'a>,
    pub(crate) usage: &'a ExportUsage,
    /// See [`Request::end_turn`].
    pub(crate) end_turn: &'a dyn Fn(),
}

/// The way by which a record came.
#[derive(Clone, Copy)]
pub(crate) enum Channel<'a> {
    Connection(&'a Arc<Connection>),
    Datagram(&'a dyn Waiter),
}

impl<'a> Channel<'a> {
    pub(crate) fn waiter(self) -> &'a dyn Waiter {
        match self {
            Self::Connection(connection) => &**connection,
            Self::Datagram(waiter) => waiter,
        }
    }

    pub(crate) fn connection(self) -> Option<&'a Arc<Connection>> {
        match self {
            Self::Connection(connection) => Some(connection),
            Self::Datagram(_) => None,
        }
    }
}

impl Origin<'_> {
    pub(crate) fn is_datagram(&self) -> bool {
        self.channel.connection().is_none()
    }

    fn peer(&self) -> Peer {
        let transport =
            if self.is_datagram() { portmap::Transport::Udp } else { portmap::Transport::Tcp };
        let server = self.local.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified());
        Peer { address: self.address, server, transport }
    }
}

/// Carries out a call, and writes its answer.
pub(crate) fn execute(
    shared: &Shared,
    origin: &Origin<'_>,
    record: &[u8],
    writer: &mut Writer,
    counters: &mut Counters,
) -> Response {
    let Ok((call, error)) = Call::parse(record) else { return Response::Close };
    counters.requests += 1;
    let start = writer.len();
    let caller = Caller { address: origin.address, credentials: call.credentials.clone() };
    let table = Arc::clone(&shared.core.table.read());
    let (core, state, caller) = (&shared.core, &shared.v4, &caller);
    let Origin { channel, usage, end_turn, .. } = *origin;
    let request = Request { core, state, caller, table, client: 0, channel, usage, end_turn };
    if !may_be_quick(&call) {
        end_turn();
    }
    let result = if let Some(error) = error {
        Err(error)
    } else {
        write_accepted(writer, call.xid);
        match call.program {
            PROGRAM_NFS if !origin.is_datagram() => run(shared, request, &call, writer, counters),
            _ => run_helper(shared, origin, &request, &call, writer).map(|()| true),
        }
    };
    match result {
        Ok(true) => {}
        Ok(false) => return Response::None,
        Err(error) => {
            writer.truncate(start);
            error.write(writer, call.xid);
        }
    }
    Response::Send { version: call.version }
}

/// Whether a call may be one that waits for nothing. It ends the turn itself when it does wait.
fn may_be_quick(call: &Call<'_>) -> bool {
    let is_read = (call.version, call.procedure) == (wire_v3::VERSION, wire_v3::READ);
    let is_compound = (call.version, call.procedure) == (wire_v4::VERSION, 1);
    call.program == PROGRAM_NFS && (is_read || is_compound)
}

/// Returns whether there is an answer.
fn run(
    shared: &Shared,
    request: Request<'_>,
    call: &Call<'_>,
    writer: &mut Writer,
    counters: &mut Counters,
) -> Result<bool, CallError> {
    match (call.program, call.version) {
        (PROGRAM_NFS, wire_v3::VERSION) => run_v3(shared, &request, call, writer, counters),
        (PROGRAM_NFS, wire_v4::VERSION) => match call.procedure {
            0 => Ok(true),
            1 if v4::is_non_idempotent(call.arguments) => {
                run_once(shared, request.caller.address, call, writer, |writer| {
                    v4::execute(&shared.v4, request, call.arguments, writer, counters)
                })
            }
            1 => v4::execute(&shared.v4, request, call.arguments, writer, counters).map(|()| true),
            _ => Err(CallError::NoProcedure),
        },
        (PROGRAM_NFS, _) => {
            Err(CallError::VersionMismatch { low: wire_v3::VERSION, high: wire_v4::VERSION })
        }
        _ => Err(CallError::NoProgram),
    }
}

/// Carries out a call to one of the helpers of NFSv3, which always have an answer.
fn run_helper(
    shared: &Shared,
    origin: &Origin<'_>,
    request: &Request<'_>,
    call: &Call<'_>,
    writer: &mut Writer,
) -> Result<(), CallError> {
    let (number, arguments) = (call.procedure, call.arguments);
    match (call.program, call.version) {
        (PROGRAM_MOUNT, mount::VERSION) => {
            let procedure = known(mount::Procedure::parse(number, arguments))?;
            v3::execute_mount(request, &procedure, writer);
            return Ok(());
        }
        (PROGRAM_MOUNT, _) => {
            return Err(CallError::VersionMismatch { low: mount::VERSION, high: mount::VERSION });
        }
        _ => {}
    }
    // others than clients learn nothing
    if !request.table.admits(origin.address) {
        return Err(CallError::NoProgram);
    }
    let only = |version| CallError::VersionMismatch { low: version, high: version };
    match (call.program, call.version) {
        (nlm::PROGRAM, nlm::VERSION) => {
            let procedure = known(nlm::Procedure::parse(number, arguments))?;
            shared.nlm.execute(request, &origin.peer(), &procedure, writer);
            Ok(())
        }
        (nlm::PROGRAM, _) => Err(only(nlm::VERSION)),
        (nsm::PROGRAM, nsm::VERSION) => {
            let procedure = known(nsm::Procedure::parse(number, arguments))?;
            shared.nlm.execute_monitor(origin.address.ip(), &procedure, writer);
            Ok(())
        }
        (nsm::PROGRAM, _) => Err(only(nsm::VERSION)),
        (portmap::PROGRAM, version @ 2..=4) => {
            let procedure = known(portmap::Procedure::parse(version, number, arguments))?;
            portmapper::execute(shared, origin, (version, procedure), writer)
        }
        (portmap::PROGRAM, _) => {
            let (low, high) = portmap::VERSIONS;
            Err(CallError::VersionMismatch { low, high })
        }
        _ => Err(CallError::NoProgram),
    }
}

/// A procedure that was parsed and exists.
fn known<T>(parsed: crate::wire::Result<Option<T>>) -> Result<T, CallError> {
    parsed.map_err(|_| CallError::GarbageArguments)?.ok_or(CallError::NoProcedure)
}

fn run_v3(
    shared: &Shared,
    request: &Request<'_>,
    call: &Call<'_>,
    writer: &mut Writer,
    counters: &mut Counters,
) -> Result<bool, CallError> {
    let most = shared.core.options.max_io_bytes;
    let parsed = wire_v3::Procedure::parse(call.procedure, call.arguments, most);
    let procedure = parsed.map_err(|_| CallError::GarbageArguments)?;
    let procedure = procedure.ok_or(CallError::NoProcedure)?;
    if !procedure.is_non_idempotent() {
        v3::execute(request, &procedure, writer, counters);
        return Ok(true);
    }
    run_once(shared, request.caller.address, call, writer, |writer| {
        v3::execute(request, &procedure, writer, counters);
        Ok(())
    })
}

/// Carries out a request, or sends the answer to the same request from before. Returns whether there is an answer.
fn run_once(
    shared: &Shared,
    client: SocketAddr,
    call: &Call<'_>,
    writer: &mut Writer,
    work: impl FnOnce(&mut Writer) -> Result<(), CallError>,
) -> Result<bool, CallError> {
    let key = ReplayKey::new(client, call.xid, call.arguments);
    match shared.replays.begin(key) {
        Turn::Answered(answer) => writer.append(&answer),
        Turn::InProgress => return Ok(false),
        Turn::New => {
            let start = writer.len();
            work(writer)?;
            let answer = writer.as_bytes().get(start..).expect("a writer that has grown");
            shared.replays.finish(key, answer);
        }
    }
    Ok(true)
}
