//! The threads that read /dev/fuse, one set for all mounts of the process.
//!
//! The devices of all mounts are polled together. Each event goes to one thread, which reads one
//! request, re-arms the poll, and handles the request. Whenever the last idle thread gets a
//! request, another thread is started first. So slow requests (on a suspended pool, say) never
//! block those of another mount, however many there are. A mount's own are limited by the session,
//! which leaves its device unpolled for a while. Threads that have been idle for some time end.
//!
//! Where requests come by rings, the device only brings FORGET messages, one at a time. More of
//! them gather while the device is left unpolled for a moment, so that fewer reads fetch them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

use crate::device::{self, Received, RequestMessage};
use crate::reply::{Reply, ReplyBody};
use crate::request;
use crate::session::{DataTarget, Lane, ReplyData, Session, free_scratch};

/// Threads that stay although they are idle, while something is mounted.
const RESIDENT: usize = 2;
/// How long a thread is idle before it frees its memory, and ends if there are others.
const IDLE: Duration = Duration::from_secs(5);
/// How long forgotten nodes gather in the kernel: some bytes each.
const GATHER: Duration = Duration::from_millis(20);

static READERS: OnceLock<Readers> = OnceLock::new();

/// The reader threads of the process.
pub(crate) struct Readers {
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By token.
    sessions: HashMap<u64, Arc<Session>>,
    threads: usize,
    /// The number of threads that wait for an event.
    idle: usize,
    /// Tokens of sessions whose devices are polled again at that time, the earliest first. Some idle thread waits
    /// no longer than that: the one that added it last.
    deferred: VecDeque<(Instant, u64)>,
}

impl Readers {
    /// Those of this process.
    pub(crate) fn of_process() -> io::Result<&'static Self> {
        if let Some(readers) = READERS.get() {
            return Ok(readers);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(READERS.get_or_init(|| Self { epoll, state: Mutex::default() }))
    }

    /// Reads the requests of a session from now on.
    pub(crate) fn add(&'static self, session: &Arc<Session>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.idle == 0 {
            self.start_thread(&mut state)?;
        }
        let (data, flags) = (epoll::EventData::new_u64(session.token), armed());
        epoll::add(&self.epoll, session.device(), data, flags)?;
        state.sessions.insert(session.token, Arc::clone(session));
        Ok(())
    }

    /// A session whose file system is unmounted, or cannot be read.
    fn remove(&self, session: &Session) {
        session.set_unmounted();
        let _ = epoll::delete(&self.epoll, session.device());
        let removed = self.state.lock().sessions.remove(&session.token);
        // it may be the last reference, and what ends with it takes its time
        drop(removed);
    }

    fn start_thread(&'static self, state: &mut State) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("fuse reader".to_owned());
        thread.spawn(|| self.run())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    /// Reports the next event of the session's device.
    fn poll(&self, session: &Session) {
        let data = epoll::EventData::new_u64(session.token);
        // it fails where the session was removed meanwhile
        let _ = epoll::modify(&self.epoll, session.device(), data, armed());
    }

    /// The loop of a thread.
    fn run(&'static self) {
        let (mut buffer, mut idle_since) = (Vec::new(), Instant::now());
        loop {
            if let Some(token) = self.wait() {
                let busy = Busy::begin(self);
                self.poll_deferred(None);
                self.serve(token, &mut buffer);
                drop(busy);
                idle_since = Instant::now();
                continue;
            }
            self.poll_deferred(Some(Instant::now()));
            if idle_since.elapsed() >= IDLE {
                if self.retire() {
                    return;
                }
                buffer = Vec::new();
                free_scratch();
                idle_since = Instant::now();
            }
        }
    }

    /// Waits for an event; returns the token of its session, or none after a while.
    fn wait(&self) -> Option<u64> {
        let due = self.state.lock().deferred.front().map(|(due, _)| *due);
        let most = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
        let timeout = Timespec::try_from(most).ok();
        let mut events = [MaybeUninit::uninit()];
        let (found, _) = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).ok()?;
        found.first().map(|event| event.data.u64())
    }

    /// Polls the devices again that are due at `now`; without a time, all.
    fn poll_deferred(&self, now: Option<Instant>) {
        let is_due = |at: Instant| now.is_none_or(|now| at <= now);
        loop {
            let mut state = self.state.lock();
            let Some((_, token)) = state.deferred.pop_front_if(|(at, _)| is_due(*at)) else {
                return;
            };
            let session = state.sessions.get(&token).cloned();
            drop(state);
            if let Some(session) = session {
                self.poll(&session);
            }
        }
    }

    /// Whether an idle thread ends now; then it is not counted any more.
    fn retire(&self) -> bool {
        let mut state = self.state.lock();
        let resident = if state.sessions.is_empty() { 0 } else { RESIDENT };
        let ends = state.threads > resident && (state.idle > 1 || state.sessions.is_empty());
        if ends {
            state.threads -= 1;
            state.idle -= 1;
        }
        ends
    }

    /// Reads a message of a session and handles it.
    fn serve(&self, token: u64, buffer: &mut Vec<u8>) {
        let session = self.state.lock().sessions.get(&token).cloned();
        let Some(session) = session else { return };
        if buffer.is_empty() {
            *buffer = device::buffer();
        }
        match device::receive(session.device(), buffer, session.init_flags()) {
            Ok(Received::Message(message)) if !request::has_no_reply(message.header.opcode) => {
                let request = DeviceRequest::begin(self, &session);
                request.answer(&message);
            }
            Ok(Received::Message(message)) if session.has_rings() => {
                session.handle_notice(&message);
                self.state.lock().deferred.push_back((Instant::now() + GATHER, token));
            }
            Ok(Received::Message(message)) => {
                // freeing large objects may take time
                let _request = DeviceRequest::begin(self, &session);
                session.handle_notice(&message);
            }
            Ok(Received::Nothing) => self.poll(&session),
            Ok(Received::Ended) | Err(_) => self.remove(&session),
        }
    }
}

/// One-shot: the device is polled again only on request.
fn armed() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}

/// A thread that has an event, while it is not idle. At least one other is.
struct Busy(&'static Readers);

impl Busy {
    fn begin(readers: &'static Readers) -> Self {
        let mut state = readers.state.lock();
        state.idle -= 1;
        if state.idle == 0 {
            // where none can be started, those there are continue as they become idle
            let _ = readers.start_thread(&mut state);
        }
        Self(readers)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if std::thread::panicking() {
            state.threads -= 1;
        } else {
            state.idle += 1;
        }
    }
}

/// A request that came by the device, while it is handled.
struct DeviceRequest<'a> {
    readers: &'a Readers,
    session: &'a Session,
}

impl<'a> DeviceRequest<'a> {
    fn begin(readers: &'a Readers, session: &'a Session) -> Self {
        if session.begin_request() {
            readers.poll(session);
        }
        Self { readers, session }
    }

    fn answer(&self, message: &RequestMessage<'_>) {
        let (device, unique) = (self.session.device(), message.header.unique);
        let mut out = ReplyData(DataTarget::Device { device, unique });
        let parts = (message.body, message.payload);
        match self.session.handle_ring_request(self, &message.header, parts, &mut out) {
            Ok(Reply(ReplyBody::Bytes(bytes))) => device::write_reply(device, unique, Ok(&bytes)),
            Ok(Reply(ReplyBody::Sent)) => {}
            Err(why) => device::write_reply(device, unique, Err(why)),
        }
    }
}

impl Lane for DeviceRequest<'_> {
    fn pause(&self) {
        if self.session.end_request() {
            self.readers.poll(self.session);
        }
    }

    fn resume(&self) {
        self.session.resume_request();
    }
}

impl Drop for DeviceRequest<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}
