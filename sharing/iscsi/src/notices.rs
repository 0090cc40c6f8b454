//! Asynchronous messages of a session: changes that an initiator learns of without a command.
//!
//! Units and the server add notices and never wait. A thread of the connection sends them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::scsi::Sense;
use crate::wire::response::{AsyncEvent, Response};

/// Notices that wait for one session. Further ones are dropped: a unit attention tells of the change, too.
const MAX_NOTICES: usize = 16;

/// A message to an initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// A unit, by its encoded LUN, has changed.
    Unit {
        /// The encoded LUN.
        lun: [u8; 8],
        /// The change, as the unit attention has it.
        sense: Sense,
    },
    /// The server stops: the connection will be closed.
    Shutdown,
}

impl Notice {
    /// The PDU of a notice, and its data segment.
    pub(crate) fn encode(self) -> (Response, Vec<u8>) {
        match self {
            Self::Unit { lun, sense } => {
                let bytes = sense.encode();
                let length = u16::try_from(bytes.len()).expect("sense data is short");
                let data = [&length.to_be_bytes()[..], &bytes].concat();
                (Response::Async { event: AsyncEvent::Scsi { lun } }, data)
            }
            Self::Shutdown => {
                (Response::Async { event: AsyncEvent::ConnectionsDropped }, Vec::new())
            }
        }
    }
}

/// The notices of one session. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct NoticeQueue(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Notice>,
    is_closed: bool,
}

impl NoticeQueue {
    /// Adds a notice, unless the same one waits. Does not wait.
    pub(crate) fn push(&self, notice: Notice) {
        let mut state = self.0.state.lock();
        let is_new = !state.is_closed && !state.waiting.contains(&notice);
        if is_new && state.waiting.len() < MAX_NOTICES {
            state.waiting.push_back(notice);
            self.0.changed.notify_one();
        }
    }

    /// Waits for the next notice. None: the session ended, and all were returned.
    pub(crate) fn wait(&self) -> Option<Notice> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(notice) = state.waiting.pop_front() {
                return Some(notice);
            }
            if state.is_closed {
                return None;
            }
            self.0.changed.wait(&mut state);
        }
    }

    /// Ends the queue: no notice is added from now on.
    pub(crate) fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}
