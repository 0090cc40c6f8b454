//! A session of an initiator, as the server and its connection know it.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lun::Nexus;

use crate::login::{NewSession, Parameters};
use crate::notices::NoticeQueue;
use crate::options::ServerOptions;
use crate::scsi::SessionId;
use crate::status::{SessionStatus, SharedCounters};
use crate::target::{self, ActiveTarget};
use crate::tasks::TaskSet;

/// A connected initiator.
pub(crate) struct Client {
    address: SocketAddr,
    since: Instant,
    pub(crate) stream: Arc<TcpStream>,
    session: OnceLock<Arc<Session>>,
    is_ended: AtomicBool,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, stream: TcpStream) -> Self {
        Self {
            address,
            since: Instant::now(),
            stream: Arc::new(stream),
            session: OnceLock::new(),
            is_ended: AtomicBool::new(false),
        }
    }

    /// The address and port that the initiator connects from.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.address
    }

    /// The address that the initiator connects from.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.ip()
    }

    /// The session, after the login.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.get()
    }

    /// Sets the session. A connection logs in once.
    pub(crate) fn set_session(&self, session: &Arc<Session>) {
        let set = self.session.set(Arc::clone(session));
        assert!(set.is_ok(), "a connection logs in once");
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(SeqCst)
    }

    /// Ends the connection after the commands that were read are answered. Does not wait.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, SeqCst);
        // fails if the initiator has closed the connection already
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Ends the connection at once. Does not wait.
    pub(crate) fn abort(&self) {
        self.is_ended.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The state of the session, after the login.
    pub(crate) fn status(&self) -> Option<SessionStatus> {
        let session = self.session()?;
        let units = session.target.as_ref().map(|target| target.units());
        let volumes = units.iter().flat_map(|units| units.values());
        Some(SessionStatus {
            address: self.address,
            initiator: session.initiator.clone(),
            target: session.target.as_ref().map(|target| target.name.clone()),
            volumes: volumes.map(|unit| unit.volume.clone()).collect(),
            digests: (session.parameters.digests.header, session.parameters.digests.data),
            connected: self.since.elapsed(),
            in_flight: u64::try_from(session.tasks.count()).expect("usize has 64 bits at most"),
            counters: session.counters.load(),
        })
    }
}

/// A session. It ends with its connection.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) initiator: String,
    pub(crate) nexus: Nexus,
    /// None: a discovery session.
    pub(crate) target: Option<Arc<ActiveTarget>>,
    pub(crate) parameters: Parameters,
    pub(crate) tasks: TaskSet,
    pub(crate) notices: NoticeQueue,
    pub(crate) counters: SharedCounters,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        new: NewSession,
        first_cmd_sn: u32,
        options: &ServerOptions,
    ) -> Self {
        let NewSession { initiator, isid, target, parameters } = new;
        let target_name = target.as_ref().map_or("", |target| target.name.as_str());
        Self {
            id,
            nexus: target::nexus(&initiator, isid, target_name),
            initiator,
            target,
            parameters,
            tasks: TaskSet::new(first_cmd_sn, options.max_commands, options.max_write_bytes),
            notices: NoticeQueue::default(),
            counters: SharedCounters::default(),
        }
    }

    /// Whether another login is of the same initiator port to the same target.
    pub(crate) fn is_same_nexus(&self, other: &Self) -> bool {
        self.target.is_some() && other.target.is_some() && self.nexus == other.nexus
    }

    /// Releases the session's state in the units.
    pub(crate) fn leave_units(&self) {
        let units = self.target.as_ref().map(|target| target.units());
        for unit in units.iter().flat_map(|units| units.values()) {
            unit.remove_session(self.id);
        }
    }
}
