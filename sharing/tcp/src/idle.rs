//! Idle connections: one thread waits for the next request of all of them, so that none has a thread of its own.
//!
//! A server parks a connection that has been silent for a while, with a function that resumes its service. The thread
//! calls that function when bytes arrive, when a side closes the connection, and when it breaks.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

/// Events that one system call returns.
const BATCH: usize = 64;
/// The number of the event that ends the thread; connections have numbers from 1 on.
const WAKE: u64 = 0;
/// The pause after the kernel failed to report events.
const ERROR_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// The idle connections of a server, and the thread that watches them. The thread stops when this is dropped.
pub struct IdleConnections {
    watch: Arc<Watch>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the thread shares with those that park connections.
struct Watch {
    epoll: OwnedFd,
    waker: OwnedFd,
    parked: Mutex<Parked>,
}

#[derive(Default)]
struct Parked {
    by_number: HashMap<u64, Entry>,
    last: u64,
    is_closed: bool,
}

struct Entry {
    stream: Arc<TcpStream>,
    resume: Box<dyn FnOnce() + Send>,
}

impl IdleConnections {
    /// Starts a thread of this name.
    pub fn start(thread_name: &str) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &waker, EventData::new_u64(WAKE), EventFlags::IN)?;
        let watch = Arc::new(Watch { epoll, waker, parked: Mutex::default() });
        let watching = Arc::clone(&watch);
        let thread = std::thread::Builder::new().name(thread_name.to_owned());
        let thread = thread.spawn(move || watching.run())?;
        Ok(Self { watch, thread: Mutex::new(Some(thread)) })
    }

    /// Watches a connection. `resume` is called once, and must not wait. On an error it is dropped, and the caller keeps
    /// the connection. After [`Self::stop`] it is dropped as well, and the connection with it.
    pub fn park(
        &self,
        stream: &Arc<TcpStream>,
        resume: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let entry = Entry { stream: Arc::clone(stream), resume: Box::new(resume) };
        let mut parked = self.watch.parked.lock();
        if parked.is_closed {
            // what it drops may be the last owner of this
            drop(parked);
            drop(entry);
            return Ok(());
        }
        parked.last += 1;
        let number = parked.last;
        // the thread looks for the entry as soon as the socket is watched, and waits for the lock
        let data = EventData::new_u64(number);
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        let added = epoll::add(&self.watch.epoll, &**stream, data, flags);
        match added {
            Ok(()) => _ = parked.by_number.insert(number, entry),
            Err(why) => {
                drop(parked);
                drop(entry);
                return Err(why.into());
            }
        }
        Ok(())
    }

    /// The number of connections that are parked now.
    pub fn count(&self) -> usize {
        self.watch.parked.lock().by_number.len()
    }

    /// Ends the thread, waits for it, and drops the connections that are parked still.
    pub fn stop(&self) {
        self.watch.close();
        let thread = self.thread.lock().take();
        // a thread that panicked has printed why
        let _ = thread.map(JoinHandle::join);
        let left = std::mem::take(&mut self.watch.parked.lock().by_number);
        drop(left);
    }
}

/// Does not wait for the thread: it may itself drop this, with the last connection of a server.
impl Drop for IdleConnections {
    fn drop(&mut self) {
        self.watch.close();
    }
}

impl Watch {
    fn close(&self) {
        self.parked.lock().is_closed = true;
        // fails only if the counter is full, and then the thread is awake already
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(BATCH);
        while !self.parked.lock().is_closed {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(_) => std::thread::sleep(ERROR_PAUSE),
            }
            for event in &events {
                self.resume(event.data.u64());
            }
        }
    }

    fn resume(&self, number: u64) {
        let Some(entry) = self.parked.lock().by_number.remove(&number) else { return };
        // fails only if the socket is not watched, which is what is wanted
        let _ = epoll::delete(&self.epoll, &*entry.stream);
        (entry.resume)();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(listener.accept().unwrap().0), client)
    }

    #[test]
    fn parked_connections_resume_when_used_or_closed() {
        let idle = IdleConnections::start("test-idle").unwrap();
        let (resumed, order) = mpsc::channel();
        let pairs: Vec<_> = (0..200).map(|_| pair()).collect();
        let park = |number: usize| {
            let resumed = resumed.clone();
            idle.park(&pairs[number].0, move || resumed.send(number).unwrap()).unwrap();
        };
        (0..200).for_each(park);
        assert_eq!(idle.count(), 200);
        assert!(order.recv_timeout(Duration::from_millis(50)).is_err());
        let next = || order.recv_timeout(Duration::from_mins(1)).unwrap();
        (&pairs[7].1).write_all(b"request").unwrap();
        assert_eq!(next(), 7);
        // what is not read yet counts
        park(7);
        assert_eq!(next(), 7);
        pairs[8].1.shutdown(Shutdown::Both).unwrap();
        assert_eq!(next(), 8);
        // the server itself ends a connection
        pairs[9].0.shutdown(Shutdown::Read).unwrap();
        assert_eq!(next(), 9);
        assert_eq!(idle.count(), 197);
        idle.stop();
        assert_eq!(idle.count(), 0);
        park(1);
        assert_eq!(idle.count(), 0);
        drop(resumed);
    }
}
