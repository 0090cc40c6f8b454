//! One connection: its facts for the status, what is sent by it, and calls of the server to the client.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use vfs::Waiter;

use crate::request::ExportUsage;
use crate::socket::{self, MARK_LEN};
use crate::status::{ConnectionStatus, SharedCounters};
use crate::wire::rpc::LAST_FRAGMENT;
use crate::wire::xdr::{Placeholder, Writer};

/// A connected client, as the server knows it.
pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    since: Instant,
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) is_ended: AtomicBool,
    pub(crate) version: AtomicU32,
    pub(crate) in_flight: AtomicU64,
    pub(crate) counters: SharedCounters,
    pub(crate) usage: ExportUsage,
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
        let sent = self.send(&mut writer, mark, time, &|| ());
        let mut replies = replies.lock();
        while sent.is_ok()
            && self.is_open()
            && replies.get(&xid).is_some_and(Option::is_none)
            && !changed.wait_until(&mut replies, deadline).timed_out()
        {}
        replies.remove(&xid).flatten()
    }

    /// Takes a reply to a call. A reply that nobody waits for is dropped.
    pub(crate) fn take_reply(&self, xid: u32, message: &[u8]) {
        if let Some(reply) = self.callbacks.replies.lock().get_mut(&xid) {
            *reply = Some(message.to_vec());
        }
        self.callbacks.changed.notify_all();
    }

    /// Sends a record, whose mark is set here. `on_wait` is called when the client takes nothing.
    pub(crate) fn send(
        &self,
        record: &mut Writer,
        mark: Placeholder,
        stall_timeout: Duration,
        on_wait: &dyn Fn(),
    ) -> io::Result<()> {
        let length = u32::try_from(record.message_len_from(MARK_LEN)).expect("a limit of 16 MiB");
        record.set(mark, LAST_FRAGMENT | length);
        let _turn = self.outgoing.try_lock_for(tcp::SEND_WAIT).unwrap_or_else(|| {
            on_wait();
            self.outgoing.lock()
        });
        socket::send(&self.stream, &record.slices(), stall_timeout, on_wait)
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
