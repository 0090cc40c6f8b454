//! One client: the handshake, then threads that take turns at reading requests.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tcp::{ConnectionShare, Incoming, Reserved, Transport};
use tls::ServerStream;

use crate::encryption::EncryptedTransport;
use crate::export::Export;
use crate::negotiation::{Negotiation, Session, Step, reply_error};
use crate::request::{Reply, byte_length};
use crate::server::Shared;
use crate::status::{ClientStatus, SharedCounters};
use crate::wire::handshake::{ClientFlags, OptionHeader, greeting};
use crate::wire::option::OptionError;
use crate::wire::request::{Command, Request};

/// Bytes of the largest option. Larger ones are skipped and refused.
const MAX_OPTION_BYTES: usize = 64 << 10;
/// The time after which a request to a suspended pool is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the largest read that the reading thread answers, and of delayed replies above which they are sent.
const MAX_SHORT_READ: u32 = 64 << 10;
const MAX_DELAYED: usize = 128 << 10;
/// Bytes of a buffer that a thread keeps between requests.
const KEPT_BUFFER_BYTES: usize = 256 << 10;

/// A connected client, as the server knows it.
pub(crate) struct Client {
    address: SocketAddr,
    since: Instant,
    stream: Arc<TcpStream>,
    /// The export, once the transmission starts, and its size as the client was told.
    serving: Mutex<Option<(Arc<Export>, u64)>>,
    is_ended: AtomicBool,
    in_flight: AtomicU64,
    counters: SharedCounters,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, stream: TcpStream) -> Self {
        Self {
            address,
            since: Instant::now(),
            stream: Arc::new(stream),
            serving: Mutex::default(),
            is_ended: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
            counters: SharedCounters::default(),
        }
    }

    /// The export that is served to the client, and its size as the client was told.
    pub(crate) fn serving(&self) -> Option<(Arc<Export>, u64)> {
        self.serving.lock().clone()
    }

    /// The address that the client connects from.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.ip()
    }

    /// Ends the connection after the requests that were read are answered. Does not wait.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, SeqCst);
        // fails if the client has closed the connection already
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Ends the connection at once. Does not wait.
    pub(crate) fn abort(&self) {
        self.is_ended.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn status(&self) -> ClientStatus {
        ClientStatus {
            address: self.address,
            export: self.serving().map(|(export, _)| export.name.clone()),
            connected: self.since.elapsed(),
            in_flight: self.in_flight.load(SeqCst),
            counters: self.counters.load(),
        }
    }
}

/// Serves a client until its connection ends.
pub(crate) fn serve(shared: &Shared, client: &Client) {
    let negotiated = tcp::configure(&client.stream, shared.options.stall_timeout)
        .and_then(|()| Handshake::new(shared, client).run());
    if let Ok(Some((session, channel))) = negotiated {
        // the export may have changed before this client was known to have it
        let is_current = shared.exports.read().serves(&session.export, client.address())
            && session.export.unit.geometry().size() >= session.size;
        if is_current {
            Transmission::new(shared, client, session, channel).run();
        }
    }
    client.abort();
}

/// Both directions of a connection, encrypted or not.
struct Channel {
    transport: Arc<dyn Transport>,
    incoming: Incoming,
}

impl Channel {
    fn new(transport: Arc<dyn Transport>) -> Self {
        Self { incoming: Incoming::new(Arc::clone(&transport)), transport }
    }
}

/// The handshake of one client.
struct Handshake<'a> {
    shared: &'a Shared,
    client: &'a Client,
    channel: Channel,
    /// The time is for the whole handshake: a client has no reason to wait in it.
    deadline: Instant,
}

impl<'a> Handshake<'a> {
    fn new(shared: &'a Shared, client: &'a Client) -> Self {
        let socket: Arc<TcpStream> = Arc::clone(&client.stream);
        let deadline = Instant::now() + shared.options.stall_timeout;
        Self { shared, client, channel: Channel::new(socket), deadline }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        tcp::send(&self.channel.transport, &mut [IoSlice::new(bytes)], self.time_left())
    }

    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.channel.incoming.read_exact_until(into, self.deadline)
    }

    /// None: the client ended it, or requested a missing export by the old option.
    fn run(mut self) -> io::Result<Option<(Session, Channel)>> {
        self.send(&greeting())?;
        let mut flags = [0; ClientFlags::SIZE];
        self.read_exact(&mut flags)?;
        let Ok(flags) = ClientFlags::parse(flags) else { return Ok(None) };
        let (most, encryption) = (self.shared.max_request_bytes(), self.shared.encryption_state());
        let mut negotiation = Negotiation::new(flags, most, encryption);
        loop {
            let mut header = [0; OptionHeader::SIZE];
            self.read_exact(&mut header)?;
            let Ok(header) = OptionHeader::parse(&header) else { return Ok(None) };
            let length = byte_length(header.length);
            let mut replies = Vec::new();
            if length > MAX_OPTION_BYTES {
                let time = self.time_left();
                self.channel.incoming.skip(length, time)?;
                let message = "the option has more than 64 KiB";
                reply_error(header.code, OptionError::TooBig, message, &mut replies);
                self.send(&replies)?;
                continue;
            }
            let mut payload = vec![0; length];
            self.read_exact(&mut payload)?;
            let exports = self.shared.exports.read().visible_from(self.client.address());
            let step = negotiation.answer(&exports, (header.code, &payload), &mut replies);
            if let Step::Transmit(session) = &step {
                *self.client.serving.lock() = Some((Arc::clone(&session.export), session.size));
            }
            self.send(&replies)?;
            match step {
                Step::NextOption => {}
                Step::StartTls => {
                    self.start_tls()?;
                    negotiation = negotiation.encrypted();
                }
                Step::Transmit(session) => return Ok(Some((*session, self.channel))),
                Step::Close => return Ok(None),
            }
        }
    }

    /// Continues in TLS.
    fn start_tls(&mut self) -> io::Result<()> {
        // bytes that came before the encryption may be another sender's
        if self.channel.incoming.has_unread_bytes() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(encryption) = &self.shared.encryption else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let certificate = (encryption.certificate)().map_err(io::Error::other)?;
        let socket = Arc::clone(&self.client.stream);
        let deadline = self.deadline;
        let stream = ServerStream::accept(socket, certificate, || Instant::now() >= deadline)?;
        self.channel = Channel::new(Arc::new(EncryptedTransport(stream)));
        Ok(())
    }
}

/// The transmission of one client.
struct Transmission<'a> {
    shared: &'a Shared,
    client: &'a Client,
    session: Session,
    transport: Arc<dyn Transport>,
    /// Locked by the thread that reads a request.
    incoming: Mutex<Incoming>,
    /// Locked by the thread that sends a reply: replies that wait for more, so that one system call sends many.
    outgoing: Mutex<Vec<u8>>,
    share: ConnectionShare,
    threads: AtomicUsize,
    /// Threads that read a request, or wait for their turn.
    idle_threads: AtomicUsize,
}

impl<'a> Transmission<'a> {
    fn new(shared: &'a Shared, client: &'a Client, session: Session, channel: Channel) -> Self {
        let Channel { transport, incoming } = channel;
        Self {
            shared,
            client,
            session,
            transport,
            incoming: Mutex::new(incoming),
            outgoing: Mutex::default(),
            share: ConnectionShare::default(),
            threads: AtomicUsize::new(1),
            idle_threads: AtomicUsize::new(0),
        }
    }

    /// Returns when the connection ended and all its requests are answered.
    fn run(&self) {
        std::thread::scope(|scope| self.take_turns(scope));
    }

    /// The loop of each thread: read a request, carry it out, reply.
    fn take_turns<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut buffer = Vec::new();
        while let Some((request, reserved)) = self.receive(scope, &mut buffer) {
            self.start_thread_if_all_are_busy(scope);
            buffer.resize(self.session.buffer_bytes(&request), 0);
            let reply = self.execute(&request, &mut buffer);
            self.conclude(&reply, &[&buffer], false, &mut || ());
            drop(reserved);
            buffer.truncate(KEPT_BUFFER_BYTES);
            buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
    }

    /// Answers a read whose data is in memory, without a copy of it. Returns whether it has done so.
    fn answer_from_memory(&self, request: &Request, on_wait: &mut dyn FnMut()) -> bool {
        let Some((reply, parts)) = self.session.read_in_memory(request) else { return false };
        let is_delayed = request.length <= MAX_SHORT_READ;
        self.conclude(&reply, &parts.slices().collect::<Vec<_>>(), is_delayed, on_wait);
        true
    }

    /// Sends a reply and counts it.
    fn conclude(&self, reply: &Reply, data: &[&[u8]], is_delayed: bool, on_wait: &mut dyn FnMut()) {
        self.client.counters.add(&reply.counters);
        self.shared.totals.add(&reply.counters);
        let sent = self.send(reply, data, is_delayed, on_wait);
        self.client.in_flight.fetch_sub(1, SeqCst);
        if sent.is_err() {
            self.client.abort();
        }
    }

    /// Carries out a request. On a suspended pool with failmode=wait the client waits, as programs do on a mounted
    /// file system, until the pool continues or the connection ends.
    fn execute(&self, request: &Request, buffer: &mut [u8]) -> Reply {
        loop {
            let reply = self.session.execute(request, buffer);
            if !reply.should_repeat || tcp::wait_for_hangup(&self.client.stream, RETRY_PAUSE) {
                return reply;
            }
        }
    }

    fn start_thread_if_all_are_busy<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let limit = self.shared.options.threads_per_connection;
        let next = |count: usize| (count < limit).then(|| count + 1);
        if self.idle_threads.load(SeqCst) > 0
            || self.threads.fetch_update(SeqCst, SeqCst, next).is_err()
        {
            return;
        }
        let thread = std::thread::Builder::new().name("nbd".to_owned());
        if thread.spawn_scoped(scope, || self.take_turns(scope)).is_err() {
            // the threads that there are continue
            self.threads.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for this thread's turn and for a request, whose data is in `buffer` then. None: the connection ends.
    ///
    /// The thread itself answers reads whose data is in memory, so that no other thread has to wake up for them.
    fn receive<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        buffer: &mut Vec<u8>,
    ) -> Option<(Request, Reserved<'scope>)> {
        let mut turn = self.begin_turn();
        let received = loop {
            let Ok(Some((request, reserved))) = self.receive_with(&mut turn, buffer) else {
                break None;
            };
            self.client.in_flight.fetch_add(1, SeqCst);
            // A client that takes no reply may first want to send more requests: another thread receives them then.
            let mut own_turn = Some(turn);
            let mut end_turn = || {
                if own_turn.take().is_some() {
                    self.idle_threads.fetch_sub(1, SeqCst);
                    self.start_thread_if_all_are_busy(scope);
                }
            };
            let is_answered = self.answer_from_memory(&request, &mut end_turn);
            turn = own_turn.unwrap_or_else(|| self.begin_turn());
            if !is_answered {
                break Some((request, reserved));
            }
        };
        // the requests behind this one may be long in coming
        let sent = self.send_delayed();
        self.idle_threads.fetch_sub(1, SeqCst);
        if sent.is_err() {
            self.client.abort();
        }
        if received.is_some() {
            return received;
        }
        // a client that breaks the protocol, or stalls, is not told why
        self.client.is_ended.store(true, SeqCst);
        None
    }

    /// Waits until this thread may read requests.
    fn begin_turn(&self) -> MutexGuard<'_, Incoming> {
        self.idle_threads.fetch_add(1, SeqCst);
        self.incoming.lock()
    }

    fn receive_with(
        &self,
        incoming: &mut Incoming,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<(Request, Reserved<'_>)>> {
        if self.client.is_ended.load(SeqCst) {
            return Ok(None);
        }
        if incoming.unread_bytes() < Request::SIZE {
            // the client may wait for these before it sends more
            self.send_delayed()?;
        }
        let Some(bytes) = incoming.read_message(self.shared.options.stall_timeout)? else {
            return Ok(None);
        };
        let request = Request::parse(&bytes).map_err(io::Error::other)?;
        if request.command == Command::Disconnect {
            return Ok(None);
        }
        let bytes = self.session.buffer_bytes(&request);
        let reserved = self.shared.budget.reserve(&self.share, bytes);
        let payload = byte_length(request.payload_length());
        let time = self.allowance(payload);
        if incoming.unread_bytes() < payload {
            self.send_delayed()?;
        }
        if payload > 0 {
            buffer.resize(bytes, 0);
        }
        if payload > bytes {
            incoming.skip(payload, time)?;
        } else {
            incoming.read_exact(&mut buffer[..payload], time)?;
        }
        Ok(Some((request, reserved)))
    }

    /// Sends a reply, whose data are in slices one after the other, at once or with later ones. Only the thread that
    /// receives may delay one; `on_wait` is called when the client takes nothing, and ends its turn.
    fn send(
        &self,
        reply: &Reply,
        data: &[&[u8]],
        mut is_delayed: bool,
        on_wait: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let mut outgoing = self.outgoing.try_lock_for(tcp::SEND_WAIT).unwrap_or_else(|| {
            on_wait();
            is_delayed = false;
            self.outgoing.lock()
        });
        if is_delayed && outgoing.len() < MAX_DELAYED {
            reply.for_each_slice(data, |slice| outgoing.extend_from_slice(slice));
            return Ok(());
        }
        let delayed = std::mem::take(&mut *outgoing);
        let mut slices = vec![IoSlice::new(&delayed)];
        reply.for_each_slice(data, |slice| slices.push(IoSlice::new(slice)));
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        tcp::send_or_wait(&self.transport, &mut slices, self.allowance(bytes), on_wait)
    }

    /// Sends the replies that wait. If another thread sends, it has taken them already.
    fn send_delayed(&self) -> io::Result<()> {
        let Some(mut outgoing) = self.outgoing.try_lock() else { return Ok(()) };
        if outgoing.is_empty() {
            return Ok(());
        }
        let time = self.allowance(outgoing.len());
        let sent = tcp::send(&self.transport, &mut [IoSlice::new(&outgoing)], time);
        outgoing.clear();
        sent
    }

    fn allowance(&self, bytes: usize) -> Duration {
        tcp::allowance(self.shared.options.stall_timeout, bytes)
    }
}
