//! One connection: threads that take turns at reading requests, and calls of the server to the client.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tcp::{ConnectionShare, Reserved};
use vfs::Waiter;

use crate::dispatch::{self, Channel, Origin, Response};
use crate::request::ExportUsage;
use crate::server::Shared;
use crate::socket::{self, Incoming, MARK_LEN};
use crate::status::{ConnectionStatus, Counters, SharedCounters};
use crate::wire::rpc::{LAST_FRAGMENT, reply_xid};
use crate::wire::xdr::{Placeholder, Writer};

/// Bytes of a buffer that a thread keeps between requests.
const KEPT_BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a record that is read before its memory is reserved, so that a client that stalls in a small request holds
/// nothing that others need.
const SMALL_RECORD_BYTES: usize = 64 << 10;

/// The time that a client waits for a lookup of the host names in rules, if no rule fits its address.
const LOOKUP_WAIT: Duration = Duration::from_secs(3);

/// A connected client, as the server knows it.
pub(crate) struct Connection {
    address: SocketAddr,
    since: Instant,
    stream: Arc<TcpStream>,
    is_ended: AtomicBool,
    version: AtomicU32,
    in_flight: AtomicU64,
    counters: SharedCounters,
    usage: ExportUsage,
    /// Locked by the thread that sends an answer or a call.
    outgoing: Mutex<()>,
    callbacks: Callbacks,
}

/// Calls of the server to the client.
#[derive(Default)]
struct Callbacks {
    /// By number of the call its reply; none: the client has not replied yet.
    replies: Mutex<HashMap<u32, Option<Vec<u8>>>>,
    /// Wakes the threads that wait for a reply.
    changed: Condvar,
    next_xid: AtomicU32,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr, stream: TcpStream) -> Self {
        Self {
            address,
            since: Instant::now(),
            stream: Arc::new(stream),
            is_ended: AtomicBool::new(false),
            version: AtomicU32::new(0),
            in_flight: AtomicU64::new(0),
            counters: SharedCounters::default(),
            usage: ExportUsage::default(),
            outgoing: Mutex::default(),
            callbacks: Callbacks::default(),
        }
    }

    /// Whether the client can be called.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_ended.load(SeqCst)
    }

    /// Calls the client, and waits for its reply. `write` writes the call with its number. None: there is no reply in
    /// `time`.
    pub(crate) fn call(
        &self,
        time: Duration,
        write: impl FnOnce(&mut Writer, u32),
    ) -> Option<Vec<u8>> {
        let deadline = Instant::now() + time;
        let Callbacks { replies, changed, next_xid } = &self.callbacks;
        let xid = next_xid.fetch_add(1, SeqCst);
        let mut writer = Writer::default();
        let mark = writer.placeholder();
        write(&mut writer, xid);
        replies.lock().insert(xid, None);
        let sent = self.send(&mut writer, mark, time);
        let mut replies = replies.lock();
        while sent.is_ok()
            && self.is_open()
            && replies.get(&xid).is_some_and(Option::is_none)
            && !changed.wait_until(&mut replies, deadline).timed_out()
        {}
        replies.remove(&xid).flatten()
    }

    /// Takes a reply to a call. A reply that nobody waits for is dropped.
    fn take_reply(&self, xid: u32, message: &[u8]) {
        if let Some(reply) = self.callbacks.replies.lock().get_mut(&xid) {
            *reply = Some(message.to_vec());
        }
        self.callbacks.changed.notify_all();
    }

    /// Sends a record, whose mark is set here.
    fn send(
        &self,
        record: &mut Writer,
        mark: Placeholder,
        stall_timeout: Duration,
    ) -> io::Result<()> {
        let length = u32::try_from(record.len() - MARK_LEN).expect("a limit of 16 MiB");
        record.set(mark, LAST_FRAGMENT | length);
        let _turn = self.outgoing.lock();
        socket::send(&self.stream, record.as_bytes(), stall_timeout)
    }

    /// Ends the connection after the requests that were read are answered. Does not wait.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, SeqCst);
        // fails if the client has closed the connection already
        let _ = self.stream.shutdown(Shutdown::Read);
        self.callbacks.changed.notify_all();
    }

    /// Ends the connection at once. Does not wait.
    pub(crate) fn abort(&self) {
        self.is_ended.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.callbacks.changed.notify_all();
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            address: self.address,
            connected: self.since.elapsed(),
            version: Some(self.version.load(SeqCst)).filter(|version| *version > 0),
            exports: self.usage.paths(),
            in_flight: self.in_flight.load(SeqCst),
            counters: self.counters.load(),
        }
    }
}

/// A request to a suspended pool waits until its connection ends.
impl Waiter for Connection {
    fn is_cancelled(&self) -> bool {
        self.is_ended.load(SeqCst) || tcp::wait_for_hangup(&self.stream, Duration::ZERO)
    }

    fn run_blocking(&self, work: &mut dyn FnMut()) {
        work();
    }
}

/// Serves a client until its connection ends.
pub(crate) fn serve(shared: &Shared, connection: &Arc<Connection>) {
    let options = &shared.core.options;
    if tcp::configure(&connection.stream, options.stall_timeout).is_ok() {
        let is_known = shared.core.table.read().admits(connection.address);
        if !is_known {
            // its name may lead to this address since a short time
            shared.core.hosts.look_up_again(LOOKUP_WAIT);
        }
        let stream = Arc::clone(&connection.stream);
        let incoming = Incoming::new(stream, options.max_record_bytes(), options.stall_timeout);
        let service = Service {
            shared,
            connection,
            incoming: Mutex::new(incoming),
            share: ConnectionShare::default(),
            threads: AtomicUsize::new(1),
            idle_threads: AtomicUsize::new(0),
        };
        std::thread::scope(|scope| service.take_turns(scope));
    }
    connection.abort();
}

/// The service of one connection.
struct Service<'a> {
    shared: &'a Shared,
    connection: &'a Arc<Connection>,
    /// Locked by the thread that reads a request.
    incoming: Mutex<Incoming>,
    share: ConnectionShare,
    threads: AtomicUsize,
    /// Threads that read a request, or wait for their turn.
    idle_threads: AtomicUsize,
}

impl Service<'_> {
    /// The loop of each thread: read a request, carry it out, answer.
    fn take_turns<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let (mut record, mut answer) = (Vec::new(), Vec::new());
        while let Some(reserved) = self.receive(&mut record) {
            self.start_thread_if_all_are_busy(scope);
            answer.clear();
            let (sent, buffer) = self.answer(&record, answer);
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

    /// Carries out a request and sends the answer. `buffer` is empty; it is returned with the answer in it.
    fn answer(&self, record: &[u8], buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let connection = self.connection;
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
        let origin = Origin { address, local, channel, usage };
        let answer = dispatch::execute(self.shared, &origin, record, &mut writer, &mut counters);
        connection.counters.add(&counters);
        self.shared.core.totals.add(&counters);
        let sent = match answer {
            Response::Send { version } => {
                connection.version.store(version, SeqCst);
                let stall_timeout = self.shared.core.options.stall_timeout;
                connection.send(&mut writer, mark, stall_timeout)
            }
            Response::None => Ok(()),
            Response::Close => Err(io::Error::other("the client does not speak ONC RPC")),
        };
        (sent, writer.into_bytes())
    }

    fn start_thread_if_all_are_busy<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let limit = self.shared.core.options.threads_per_connection;
        let next = |count: usize| (count < limit).then(|| count + 1);
        if self.idle_threads.load(SeqCst) > 0
            || self.threads.fetch_update(SeqCst, SeqCst, next).is_err()
        {
            return;
        }
        let thread = std::thread::Builder::new().name("nfs".to_owned());
        if thread.spawn_scoped(scope, || self.take_turns(scope)).is_err() {
            // the threads that there are go on
            self.threads.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for this thread's turn and for a request. None: the connection ends.
    fn receive(&self, record: &mut Vec<u8>) -> Option<Reserved<'_>> {
        self.idle_threads.fetch_add(1, SeqCst);
        let mut incoming = self.incoming.lock();
        let received = self.receive_with(&mut incoming, record);
        self.idle_threads.fetch_sub(1, SeqCst);
        if let Ok(Some(reserved)) = received {
            self.connection.in_flight.fetch_add(1, SeqCst);
            return Some(reserved);
        }
        // a client that breaks the protocol, or stalls, is not told why
        self.connection.is_ended.store(true, SeqCst);
        None
    }

    fn receive_with(
        &self,
        incoming: &mut Incoming,
        record: &mut Vec<u8>,
    ) -> io::Result<Option<Reserved<'_>>> {
        if self.connection.is_ended.load(SeqCst) {
            return Ok(None);
        }
        let Some(mark) = incoming.wait_for_record()? else { return Ok(None) };
        // the answer needs memory as well: both are reserved at once, so that no two requests wait for each other
        let most = self.shared.core.options.max_record_bytes();
        let reserve = |bytes| self.shared.budget.reserve(&self.share, bytes + most);
        if mark.is_last && mark.length <= SMALL_RECORD_BYTES {
            incoming.read_record(mark, record)?;
            return Ok(Some(reserve(mark.length)));
        }
        let reserved = reserve(if mark.is_last { mark.length.min(most) } else { most });
        incoming.read_record(mark, record)?;
        Ok(Some(reserved))
    }
}
