//! The login of one connection: PDUs in and out, until the session begins or the login fails.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcp::Incoming;

use crate::login::{Login, Step};
use crate::server::{FailedLogin, Shared};
use crate::session::{Client, Session};
use crate::wire::header::{HEADER_SIZE, Header};
use crate::wire::padding;
use crate::wire::request::{LoginRequest, Request, Stage};
use crate::wire::response::{LoginStatus, Numbers, Response};
use crate::wire::text::Text;

/// Bytes of the largest data segment of a login.
const MAX_LOGIN_DATA: usize = 64 << 10;
/// StatSN of the first response.
const FIRST_STAT_SN: u32 = 1;
/// The time between two looks at the end of a connection.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// One login.
pub(crate) struct Handshake<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) incoming: &'a mut Incoming,
    /// The time is for the whole login: an initiator has no reason to wait in it.
    deadline: Instant,
    stat_sn: u32,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(shared: &'a Shared, client: &'a Client, incoming: &'a mut Incoming) -> Self {
        let deadline = Instant::now() + shared.options.stall_timeout;
        Self { shared, client, incoming, deadline, stat_sn: FIRST_STAT_SN }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Logs an initiator in. Returns its session and StatSN of the next response; none: the login failed.
    pub(crate) fn run(mut self) -> io::Result<Option<(Arc<Session>, u32)>> {
        let targets = self.shared.targets.read().clone();
        let discovery = self.shared.discovery.read().clone();
        let mut login = Login::new((targets, discovery), self.client.address(), random_bytes);
        loop {
            let (request, data) = self.read_request()?;
            match login.answer(&request, &data) {
                Step::Respond(text, next) => {
                    self.respond(&request, next, 0, LoginStatus::Success, &text)?;
                }
                Step::Finish(text, new) => {
                    let started = self.shared.start_session(self.client, *new, request.cmd_sn);
                    let session = match started {
                        Ok(session) => session,
                        Err(status) => {
                            self.refuse(&request, status)?;
                            return Ok(None);
                        }
                    };
                    // TSIH is not 0 in the end; a session is found by its nexus here
                    let tsih = u16::try_from(session.id % 0xffff).expect("16 bits") + 1;
                    let next = Some(Stage::FullFeature);
                    self.respond(&request, next, tsih, LoginStatus::Success, &text)?;
                    return Ok(Some((session, self.stat_sn)));
                }
                Step::Refuse(status) => {
                    self.shared.count_failed_login();
                    let lacks_proof = status == LoginStatus::AuthenticationFailure;
                    if lacks_proof || status == LoginStatus::AuthorizationFailure {
                        // the pause bounds the lines in the log, too
                        self.pause();
                        let (initiator, target) = login.names();
                        let address = self.client.peer();
                        let failed = FailedLogin { address, initiator, target, lacks_proof };
                        self.shared.report_failed_login(&failed);
                    }
                    self.refuse(&request, status)?;
                    return Ok(None);
                }
            }
        }
    }

    /// One login fails at a time, and each takes a while, so that secrets are not tried quickly.
    fn pause(&self) {
        let turn = loop {
            match self.shared.failed_logins_turn.try_lock_for(LOOK_PAUSE) {
                Some(turn) => break turn,
                None if self.client.is_ended() => return,
                None => {}
            }
        };
        tcp::wait_for_hangup(&self.client.stream, self.shared.options.failed_login_pause);
        drop(turn);
    }

    fn read_request(&mut self) -> io::Result<(LoginRequest, Vec<u8>)> {
        let mut bytes = [0; HEADER_SIZE];
        let time = self.time_left();
        self.incoming.read_exact(&mut bytes, time)?;
        let header = Header(bytes);
        let Ok(Request::Login(request)) = Request::parse(&header) else {
            return Err(io::Error::other("no login request"));
        };
        let length = header.data_length();
        if length > MAX_LOGIN_DATA || header.ahs_length() > 0 {
            return Err(io::Error::other("a login request is too long"));
        }
        let mut data = vec![0; length + padding(length)];
        let time = self.time_left();
        self.incoming.read_exact(&mut data, time)?;
        data.truncate(length);
        Ok((request, data))
    }

    fn refuse(&mut self, request: &LoginRequest, status: LoginStatus) -> io::Result<()> {
        self.respond(request, None, 0, status, &Text::default())
    }

    fn respond(
        &mut self,
        request: &LoginRequest,
        next: Option<Stage>,
        tsih: u16,
        status: LoginStatus,
        text: &Text,
    ) -> io::Result<()> {
        let (stage, isid, tag) = (request.stage, request.isid, request.tag);
        let response = Response::Login { stage, next, isid, tsih, tag, status };
        let window = u32::try_from(self.shared.options.max_commands).expect("checked");
        let numbers = Numbers {
            status: self.stat_sn,
            expected_command: request.cmd_sn,
            last_command: request.cmd_sn.wrapping_add(window).wrapping_sub(1),
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        let mut data = text.encode();
        let header = response.encode(&numbers, data.len());
        data.resize(data.len() + padding(data.len()), 0);
        let slices = &mut [IoSlice::new(&header), IoSlice::new(&data)];
        tcp::send(&self.client.stream, slices, self.time_left())
    }
}

fn random_bytes(into: &mut [u8]) -> io::Result<()> {
    let mut rest = into;
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())?;
        rest = &mut rest[count..];
    }
    Ok(())
}
