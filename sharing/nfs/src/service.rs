//! The service of one connection: threads that take turns at reading requests.
//!
//! ```text
//! a request arrives     a thread carries it out. Before it waits, it ends its turn: another one, which is started if all
//!                       are busy, waits for the next request
//! a second of silence   the threads end one after the other, with their buffers
//! the last thread ends  `tcp::IdleConnections` watches the connection, and starts a thread for the next request
//! ```

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tcp::{ConnectionShare, Membership, Reserved};

use crate::connection::Connection;
use crate::dispatch::{self, Channel, Origin, Response};
use crate::server::Shared;
use crate::socket::{AwaitedRecord, Incoming};
use crate::status::Counters;
use crate::wire::rpc::reply_xid;
use crate::wire::xdr::Writer;

/// Bytes of a buffer that a thread keeps between requests.
const KEPT_BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a record that is read before its memory is reserved, so that a client that stalls in a small request holds
/// nothing that others need.
const SMALL_RECORD_BYTES: usize = 64 << 10;

/// The time that a client waits for a lookup of the host names in rules, if no rule fits its address.
const LOOKUP_WAIT: Duration = Duration::from_secs(3);
/// A client that is silent for this time has no thread.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// The service of one connection. The connection ends when this is dropped.
pub(crate) struct Service {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    /// Locked by the thread that reads a request.
    turn: Mutex<Turn>,
    share: ConnectionShare,
    threads: AtomicUsize,
    /// Threads that read a request, or wait for their turn.
    idle_threads: AtomicUsize,
    /// Dropped last: who waits for the end of a connection finds the memory and the file systems free.
    _membership: Membership<Connection>,
}

/// The receiving side.
#[derive(Default)]
struct Turn {
    /// None: no thread reads, so that no memory is kept for that.
    incoming: Option<Incoming>,
    /// The client was silent for the idle time.
    is_silent: bool,
}

/// The turn of a thread: while it has it, no other one receives a request. A thread is counted as idle in its turn.
struct HeldTurn<'a> {
    service: &'a Arc<Service>,
    guard: Cell<Option<MutexGuard<'a, Turn>>>,
}

impl<'a> HeldTurn<'a> {
    fn new(service: &'a Arc<Service>) -> Self {
        Self { service, guard: Cell::default() }
    }

    /// The turn of this thread. Waits for it, unless it has not ended.
    fn begin(&self) -> MutexGuard<'a, Turn> {
        self.guard.take().unwrap_or_else(|| {
            self.service.idle_threads.fetch_add(1, SeqCst);
            self.service.turn.lock()
        })
    }

    /// Ends the turn, if it has not ended yet, so that another thread receives the next request.
    fn end(&self) {
        if let Some(guard) = self.guard.take() {
            self.service.idle_threads.fetch_sub(1, SeqCst);
            drop(guard);
            self.service.start_thread_if_all_are_busy();
        }
    }
}

/// A request that was read, or why there is none.
enum Received<'a> {
    Request(Reserved<'a>),
    Idle,
    Closed,
}

/// Starts a thread that serves a client. The connection is closed if that is not possible.
pub(crate) fn start(
    shared: &Arc<Shared>,
    connection: Arc<Connection>,
    membership: Membership<Connection>,
) {
    let service = Arc::new(Service {
        shared: Arc::clone(shared),
        connection,
        turn: Mutex::default(),
        share: ConnectionShare::default(),
        threads: AtomicUsize::new(1),
        idle_threads: AtomicUsize::new(0),
        _membership: membership,
    });
    service.spawn(|service| {
        if service.set_up().is_ok() {
            service.take_turns();
        }
    });
}

impl Drop for Service {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Service {
    /// Starts a thread. On a failure the caller's reference to the service is gone, as at the end of the thread.
    fn spawn(self: Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) -> bool {
        let thread = std::thread::Builder::new().name("nfs".to_owned());
        thread.spawn(move || work(&self)).is_ok()
    }

    fn set_up(&self) -> io::Result<()> {
        let (core, connection) = (&self.shared.core, &self.connection);
        let stall_timeout = core.options.stall_timeout;
        tcp::configure(&connection.stream, stall_timeout)?;
        connection.stream.set_read_timeout(Some(stall_timeout.min(IDLE_TIME)))?;
        let is_known = core.table.read().admits(connection.address);
        if !is_known {
            // its name may lead to this address since a short time
            core.hosts.look_up_again(connection.address.ip(), LOOKUP_WAIT);
        }
        Ok(())
    }

    /// The loop of each thread: read a request, carry it out, answer.
    fn take_turns(self: &Arc<Self>) {
        let (mut record, mut answer) = (Vec::new(), Vec::new());
        let held = HeldTurn::new(self);
        loop {
            let mut guard = held.begin();
            let Some(reserved) = self.receive(&mut guard, &mut record) else { return };
            held.guard.set(Some(guard));
            answer.clear();
            let (sent, buffer) = self.answer(&record, answer, &|| held.end());
            answer = buffer;
            self.connection.in_flight.fetch_sub(1, SeqCst);
            drop(reserved);
            if sent.is_err() {
                self.connection.abort();
            }
            for buffer in [&mut record, &mut answer] {
                buffer.truncate(KEPT_BUFFER_BYTES);
                buffer.shrink_to(KEPT_BUFFER_BYTES);
            }
        }
    }

    /// Carries out a request and sends the answer. `buffer` is empty; it is returned with the answer in it. `end_turn` is
    /// called before a wait.
    fn answer(
        &self,
        record: &[u8],
        buffer: Vec<u8>,
        end_turn: &dyn Fn(),
    ) -> (io::Result<()>, Vec<u8>) {
        let connection = &self.connection;
        if let Some(xid) = reply_xid(record) {
            connection.take_reply(xid, record);
            return (Ok(()), buffer);
        }
        let mut writer = Writer::from_bytes(buffer);
        let mark = writer.placeholder();
        let mut counters = Counters::default();
        let (address, usage) = (connection.address, &connection.usage);
        let local = connection.stream.local_addr().ok().map(|local| local.ip());
        let channel = Channel::Connection(connection);
        let origin = Origin { address, local, channel, usage, end_turn };
        let answer = dispatch::execute(&self.shared, &origin, record, &mut writer, &mut counters);
        connection.counters.add(&counters);
        self.shared.core.totals.add(&counters);
        let sent = match answer {
            Response::Send { version } => {
                connection.version.store(version, SeqCst);
                let stall_timeout = self.shared.core.options.stall_timeout;
                connection.send(&mut writer, mark, stall_timeout, end_turn)
            }
            Response::None => Ok(()),
            Response::Close => Err(io::Error::other("the client does not speak ONC RPC")),
        };
        (sent, writer.into_bytes())
    }

    fn start_thread_if_all_are_busy(self: &Arc<Self>) {
        let limit = self.shared.core.options.threads_per_connection;
        let next = |count: usize| (count < limit).then(|| count + 1);
        if self.idle_threads.load(SeqCst) > 0
            || self.threads.fetch_update(SeqCst, SeqCst, next).is_err()
        {
            return;
        }
        if !Arc::clone(self).spawn(Self::take_turns) {
            // the threads that there are go on
            self.threads.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for a request in this thread's turn. None: the thread ends, and is no longer counted as idle.
    fn receive<'a>(
        self: &'a Arc<Self>,
        turn: &mut Turn,
        record: &mut Vec<u8>,
    ) -> Option<Reserved<'a>> {
        loop {
            let received = self.receive_with(turn, record);
            turn.is_silent = matches!(received, Ok(Received::Idle));
            match received {
                Ok(Received::Request(reserved)) => {
                    self.connection.in_flight.fetch_add(1, SeqCst);
                    return Some(reserved);
                }
                Ok(Received::Idle) if self.leave(turn) => return None,
                Ok(Received::Idle) => (),
                // a client that breaks the protocol, or stalls, is not told why
                Ok(Received::Closed) | Err(_) => {
                    self.idle_threads.fetch_sub(1, SeqCst);
                    self.connection.is_ended.store(true, SeqCst);
                    return None;
                }
            }
        }
    }

    fn receive_with(&self, turn: &mut Turn, record: &mut Vec<u8>) -> io::Result<Received<'_>> {
        if self.connection.is_ended.load(SeqCst) {
            return Ok(Received::Closed);
        }
        // one thread waits for the end of the silence
        if turn.is_silent && self.idle_threads.load(SeqCst) > 1 {
            return Ok(Received::Idle);
        }
        let options = &self.shared.core.options;
        let most = options.max_record_bytes();
        let new =
            || Incoming::new(Arc::clone(&self.connection.stream), most, options.stall_timeout);
        let incoming = turn.incoming.get_or_insert_with(new);
        let mark = match incoming.wait_for_record()? {
            AwaitedRecord::Begun(mark) => mark,
            AwaitedRecord::Idle => return Ok(Received::Idle),
            AwaitedRecord::Closed => return Ok(Received::Closed),
        };
        // the answer needs memory as well: both are reserved at once, so that no two requests wait for each other
        let reserve = |bytes| self.shared.budget.reserve(&self.share, bytes + most);
        if mark.is_last && mark.length <= SMALL_RECORD_BYTES {
            incoming.read_record(mark, record)?;
            return Ok(Received::Request(reserve(mark.length)));
        }
        let reserved = reserve(if mark.is_last { mark.length.min(most) } else { most });
        incoming.read_record(mark, record)?;
        Ok(Received::Request(reserved))
    }

    /// Ends the turn of a thread that has nothing to do, unless it is the only one that can read the next request. The
    /// last thread leaves the connection to `tcp::IdleConnections`.
    fn leave(self: &Arc<Self>, turn: &mut Turn) -> bool {
        // threads that wait for their turn cannot cease to do so: this one has the lock
        if self.idle_threads.load(SeqCst) > 1 {
            self.idle_threads.fetch_sub(1, SeqCst);
            self.threads.fetch_sub(1, SeqCst);
            return true;
        }
        // only threads that are counted start others: of one that is alone, there is no other one to come
        if self.threads.load(SeqCst) > 1 {
            return false;
        }
        self.idle_threads.fetch_sub(1, SeqCst);
        turn.incoming = None;
        turn.is_silent = false;
        let service = Arc::clone(self);
        // the thread of the next request is the one that is counted
        let resume = move || _ = service.spawn(Self::take_turns);
        if self.shared.idle.park(&self.connection.stream, resume).is_ok() {
            return true;
        }
        self.idle_threads.fetch_add(1, SeqCst);
        false
    }
}
