//! The login: the initiator's identity, its target, and the parameters of its session. No socket.
//!
//! A login goes through the security stage, where the initiator may have to prove its name, and the operational
//! stage to the full feature phase. Each request carries keys, and the answer to them is sent in the response.

mod chap;
mod parameters;

use std::net::IpAddr;
use std::sync::Arc;

use crate::target::{ActiveTarget, Chap, Discovery, MAX_NAME, PORTAL_GROUP, TargetTable};
use crate::wire::request::{LoginRequest, Stage};
use crate::wire::response::LoginStatus;
use crate::wire::text::Text;

use chap::{CHALLENGE_SIZE, Challenge};
pub(crate) use parameters::{MAX_DATA_SEGMENT, Parameters};

/// Bytes of a text that comes in several requests.
const MAX_TEXT: usize = 64 << 10;
/// Requests of one login.
const MAX_REQUESTS: usize = 64;

/// A source of random bytes.
pub(crate) type RandomBytes = fn(&mut [u8]) -> std::io::Result<()>;

/// The result of a step of the login.
pub(crate) enum Step {
    /// The answer, and the stage that both sides go to.
    Respond(Text, Option<Stage>),
    /// The last answer; the session begins.
    Finish(Text, Box<NewSession>),
    /// The login fails.
    Refuse(LoginStatus),
}

/// The session that a login leads to.
pub(crate) struct NewSession {
    pub(crate) initiator: String,
    pub(crate) isid: [u8; 6],
    /// None: a discovery session.
    pub(crate) target: Option<Arc<ActiveTarget>>,
    pub(crate) parameters: Parameters,
}

/// A login in progress.
pub(crate) struct Login {
    targets: TargetTable,
    discovery: Discovery,
    /// The names that the initiator gave of itself and of the target.
    names: (String, Option<String>),
    address: IpAddr,
    random: RandomBytes,
    stage: Option<Stage>,
    requests: usize,
    /// The text so far, if it comes in several requests.
    pending: Vec<u8>,
    identity: Option<Identity>,
    security: Security,
    parameters: Parameters,
    has_declared: bool,
}

/// The initiator and the target of a login.
struct Identity {
    initiator: String,
    isid: [u8; 6],
    target: Option<Arc<ActiveTarget>>,
    /// The required proof.
    chap: Option<Chap>,
}

enum Security {
    Start,
    /// CHAP is chosen, and the initiator names its algorithms.
    Chosen,
    Challenged(Challenge),
    Done,
}

impl Login {
    pub(crate) fn new(
        (targets, discovery): (TargetTable, Discovery),
        address: IpAddr,
        random: RandomBytes,
    ) -> Self {
        Self {
            targets,
            discovery,
            names: (String::new(), None),
            address,
            random,
            stage: None,
            requests: 0,
            pending: Vec::new(),
            identity: None,
            security: Security::Start,
            parameters: Parameters::default(),
            has_declared: false,
        }
    }

    /// The names that the initiator gave of itself and of the target, without control characters.
    pub(crate) fn names(&self) -> (String, Option<String>) {
        self.names.clone()
    }

    /// Answers a login request with its data segment.
    pub(crate) fn answer(&mut self, request: &LoginRequest, data: &[u8]) -> Step {
        match self.step(request, data) {
            Ok(step) => step,
            Err(status) => Step::Refuse(status),
        }
    }

    fn step(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Step, LoginStatus> {
        self.requests += 1;
        if request.least_version > 0 {
            return Err(LoginStatus::UnsupportedVersion);
        }
        let is_backwards = self.stage.is_some_and(|stage| request.stage != stage);
        let is_forwards = request.next.is_none_or(|next| next as u8 > request.stage as u8);
        if self.requests > MAX_REQUESTS
            || self.pending.len() + data.len() > MAX_TEXT
            || is_backwards
            || !is_forwards
            || request.stage == Stage::FullFeature
        {
            return Err(LoginStatus::InitiatorError);
        }
        self.stage = Some(request.stage);
        self.pending.extend_from_slice(data);
        if request.continues {
            return Ok(Step::Respond(Text::default(), None));
        }
        let text = std::mem::take(&mut self.pending);
        let keys = Text::parse(&text).map_err(|_| LoginStatus::InitiatorError)?;
        let mut answer = Text::default();
        if self.identity.is_none() {
            self.identity = Some(self.identify(request, &keys, &mut answer)?);
        }
        match request.stage {
            Stage::Security => self.authenticate(&keys, &mut answer)?,
            _ => self.require_authentication()?,
        }
        for (key, value) in keys.iter().filter(|(key, _)| !is_login_key(key)) {
            self.parameters.negotiate(key, value, &mut answer);
        }
        if request.stage == Stage::Operational && !self.has_declared {
            self.has_declared = true;
            answer.push("MaxRecvDataSegmentLength", &MAX_DATA_SEGMENT);
        }
        self.go_on(request, answer)
    }

    fn go_on(&mut self, request: &LoginRequest, answer: Text) -> Result<Step, LoginStatus> {
        let Some(next) = request.next else { return Ok(Step::Respond(answer, None)) };
        if self.require_authentication().is_err() {
            // the initiator wants to continue, and has not answered the challenge yet
            return Ok(Step::Respond(answer, None));
        }
        self.security = Security::Done;
        if next == Stage::FullFeature {
            let identity = self.identity.take().ok_or(LoginStatus::InitiatorError)?;
            let Identity { initiator, isid, target, .. } = identity;
            let session = NewSession { initiator, isid, target, parameters: self.parameters };
            return Ok(Step::Finish(answer, Box::new(session)));
        }
        self.stage = Some(next);
        Ok(Step::Respond(answer, Some(next)))
    }

    /// The names of the first request.
    fn identify(
        &mut self,
        request: &LoginRequest,
        keys: &Text,
        answer: &mut Text,
    ) -> Result<Identity, LoginStatus> {
        // a session has one connection, and does not outlast it
        if request.tsih != 0 {
            return Err(LoginStatus::NoSuchSession);
        }
        let initiator = keys.value("InitiatorName").ok_or(LoginStatus::MissingParameter)?;
        if initiator.is_empty()
            || initiator.len() > MAX_NAME
            || initiator.contains(char::is_control)
        {
            return Err(LoginStatus::InitiatorError);
        }
        let (initiator, isid) = (initiator.to_owned(), request.isid);
        self.names.0.clone_from(&initiator);
        match keys.value("SessionType").unwrap_or("Normal") {
            "Discovery" => {
                let chap = match &self.discovery {
                    Discovery::Open => None,
                    Discovery::Chap(chap) => Some(chap.clone()),
                    Discovery::Closed => return Err(LoginStatus::ServiceUnavailable),
                };
                Ok(Identity { initiator, isid, target: None, chap })
            }
            "Normal" => {
                let name = keys.value("TargetName").ok_or(LoginStatus::MissingParameter)?;
                let target = self.targets.find(name, self.address).ok_or(LoginStatus::NotFound)?;
                self.names.1 = Some(target.name.clone());
                let access = target.access();
                if !access.admits_name(&initiator) {
                    return Err(LoginStatus::AuthorizationFailure);
                }
                answer.push("TargetPortalGroupTag", &PORTAL_GROUP);
                if !access.alias.is_empty() {
                    answer.push("TargetAlias", &access.alias);
                }
                let target = Some(Arc::clone(target));
                Ok(Identity { initiator, isid, target, chap: access.chap })
            }
            _ => Err(LoginStatus::SessionType),
        }
    }

    fn chap(&self) -> Option<&Chap> {
        self.identity.as_ref().and_then(|identity| identity.chap.as_ref())
    }

    /// Refuses the next stage without a required proof.
    fn require_authentication(&self) -> Result<(), LoginStatus> {
        if self.chap().is_none() || matches!(self.security, Security::Done) {
            return Ok(());
        }
        Err(LoginStatus::AuthenticationFailure)
    }

    fn authenticate(&mut self, keys: &Text, answer: &mut Text) -> Result<(), LoginStatus> {
        let failed = LoginStatus::AuthenticationFailure;
        if let Some(methods) = keys.value("AuthMethod") {
            if !matches!(self.security, Security::Start) {
                return Err(LoginStatus::InitiatorError);
            }
            let wanted = if self.chap().is_some() { "CHAP" } else { "None" };
            if !methods.split(',').any(|method| method == wanted) {
                return Err(failed);
            }
            answer.push("AuthMethod", wanted);
            self.security = if self.chap().is_some() { Security::Chosen } else { Security::Done };
        }
        let security = std::mem::replace(&mut self.security, Security::Start);
        self.security = match (security, keys.value("CHAP_A")) {
            (Security::Chosen, Some(list)) => {
                let mut bytes = [0; CHALLENGE_SIZE + 1];
                (self.random)(&mut bytes).map_err(|_| LoginStatus::OutOfResources)?;
                let [identifier, challenge @ ..] = bytes;
                let sent = Challenge::send(list, (identifier, challenge), answer);
                Security::Challenged(sent.map_err(|_| failed)?)
            }
            (Security::Challenged(challenge), None) => {
                let chap = self.chap().ok_or(failed)?;
                challenge.check(chap, keys, answer).map_err(|_| failed)?;
                Security::Done
            }
            (security @ (Security::Start | Security::Chosen | Security::Done), None) => security,
            (_, Some(_)) => return Err(failed),
        };
        Ok(())
    }
}

/// Keys that the login itself takes.
fn is_login_key(key: &str) -> bool {
    matches!(key, "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod")
        || key.starts_with("CHAP_")
}
