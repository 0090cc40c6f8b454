//! The program by which a client of NFSv4.0 is called (RFC 7530, sections 10.2.1 and 16.33).
//!
//! ```text
//! untested ── CB_NULL ──▶ up ── a call without a reply ──▶ down ── CB_NULL, after a minute ──▶ up
//! ```
//!
//! The server connects to an address that the client names, and only if it is the client's own: no client makes the server
//! connect to other machines. A connection lasts for one call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::rpc_client::{Outcome, call_for};
use crate::wire::status::Status;
use crate::wire::v4::{
    self, CALLBACK_VERSION, CB_COMPOUND, CB_NULL, CallbackOperation, parse_v40_results,
};
use crate::wire::xdr::{Reader, Writer};

/// The time that a client has to reply to CB_NULL.
const PROBE_TIME: Duration = Duration::from_secs(5);
/// The time until a client that did not reply is probed again.
const PROBE_INTERVAL: Duration = Duration::from_mins(1);
/// Probes at the same time. Clients beyond get no delegation until they open a file later.
const MAX_PROBES: usize = 16;

static PROBES: AtomicUsize = AtomicUsize::new(0);

/// The program of a client.
pub(super) struct CallbackProgram {
    /// None: the client cannot be called.
    target: Option<v4::CallbackProgram>,
    reach: Mutex<Reach>,
}

/// Whether the client replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Untested,
    Probing,
    Up,
    Down(Instant),
}

impl CallbackProgram {
    /// The program that a client at an address names.
    pub(super) fn new(target: Option<v4::CallbackProgram>, client: SocketAddr) -> Self {
        let is_own = |target: &v4::CallbackProgram| {
            let ip = target.address.ip().to_canonical();
            ip == client.ip().to_canonical() && target.address.port() != 0
        };
        Self { target: target.filter(is_own), reach: Mutex::new(Reach::Untested) }
    }

    /// Whether another one is called in the same way.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.target == other.target
    }

    /// Whether the client replies to calls. One that was not called yet is probed, for the next question.
    pub(super) fn is_up(self: &Arc<Self>) -> bool {
        self.probe();
        *self.reach.lock() == Reach::Up
    }

    /// Whether the client may reply to calls: it did, or was not called yet.
    pub(super) fn may_be_up(&self) -> bool {
        self.target.is_some() && !self.is_down()
    }

    /// Whether the client did not reply to the last call.
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.reach.lock(), Reach::Down(_))
    }

    /// Begins to find out whether the client replies, unless that is known. Does not wait.
    pub(super) fn probe(self: &Arc<Self>) {
        let mut reach = self.reach.lock();
        let is_due = match *reach {
            Reach::Untested => true,
            Reach::Down(since) => since.elapsed() >= PROBE_INTERVAL,
            Reach::Probing | Reach::Up => false,
        };
        if self.target.is_none() || !is_due {
            return;
        }
        if PROBES.fetch_add(1, SeqCst) >= MAX_PROBES {
            PROBES.fetch_sub(1, SeqCst);
            return;
        }
        let before = std::mem::replace(&mut *reach, Reach::Probing);
        drop(reach);
        let program = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nfs-probe".to_owned());
        let started = thread.spawn(move || {
            program.exchange(CB_NULL, &[], PROBE_TIME);
            PROBES.fetch_sub(1, SeqCst);
        });
        if started.is_err() {
            PROBES.fetch_sub(1, SeqCst);
            *self.reach.lock() = before;
        }
    }

    /// Calls the client. `parse` gets the status of the operation and the rest of its result. None: the client cannot be
    /// called, or does not answer.
    pub(super) fn call<T>(
        &self,
        operation: CallbackOperation<'_>,
        time: Duration,
        parse: impl FnOnce(Status, &mut Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut arguments = Writer::default();
        operation.write_v40(&mut arguments, self.target?.ident);
        let results = self.exchange(CB_COMPOUND, arguments.as_bytes(), time)?;
        let (status, mut rest) = parse_v40_results(&mut Reader::new(&results)).ok()?;
        parse(status, &mut rest)
    }

    /// Calls a procedure, and notes whether the client replies.
    fn exchange(&self, procedure: u32, arguments: &[u8], time: Duration) -> Option<Vec<u8>> {
        let v4::CallbackProgram { program, address, .. } = self.target?;
        let outcome = call_for(time, address, (program, CALLBACK_VERSION, procedure), arguments);
        let (reach, reply) = match outcome {
            Outcome::Reply(reply) => (Reach::Up, Some(reply)),
            Outcome::NotSent | Outcome::NoReply => (Reach::Down(Instant::now()), None),
        };
        *self.reach.lock() = reach;
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(address: &str, client: &str) -> CallbackProgram {
        let address = address.parse().unwrap();
        let target = v4::CallbackProgram { program: 0x4000_0000, address, ident: 1 };
        CallbackProgram::new(Some(target), client.parse().unwrap())
    }

    #[test]
    fn only_clients_own_addresses_are_called() {
        let rows = [
            ("192.0.2.1:900", "192.0.2.1:700", true),
            ("192.0.2.1:900", "[::ffff:192.0.2.1]:700", true),
            ("[2001:db8::1]:900", "[2001:db8::1]:700", true),
            ("192.0.2.2:900", "192.0.2.1:700", false),
            ("192.0.2.1:0", "192.0.2.1:700", false),
            ("0.0.0.0:0", "192.0.2.1:700", false),
        ];
        for (address, client, may_be_called) in rows {
            assert_eq!(program(address, client).may_be_up(), may_be_called, "{address} {client}");
        }
        assert!(!CallbackProgram::new(None, "192.0.2.1:700".parse().unwrap()).may_be_up());
    }
}
