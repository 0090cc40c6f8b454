//! The dashboard: its sessions, its password and the link that sets it.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::Backend;
use crate::password::{self, MAX_BYTES, SALT_BYTES};
use crate::sessions::{Secret, Sessions};
use crate::setup::SetupLink;
use crate::throttle::Throttle;

/// The minutes for which a setup link holds.
pub const SETUP_MINUTES: u64 = 15;
/// The passwords that are compared at the same time: each takes a core and 19 MiB.
const PARALLEL_HASHES: usize = 1;

/// The dashboard of a daemon.
pub struct Dashboard {
    pub(crate) backend: Arc<dyn Backend>,
    state: Mutex<State>,
    hashing: Semaphore,
}

struct State {
    sessions: Sessions,
    throttle: Throttle,
    setup: SetupLink,
    /// The hash of the password; none: the dashboard is off.
    password: Option<String>,
}

/// Why a login failed.
pub(crate) enum LoginError {
    /// The address has to wait this many seconds.
    TooEarly(u64),
    /// The password is wrong.
    WrongPassword,
    /// Something of the daemon failed.
    Failed(String),
}

/// Why a password could not be set.
pub(crate) enum SetupError {
    /// The link does not hold.
    NoLink,
    /// The password is refused; the link still holds.
    Refused(String),
    /// Something of the daemon failed.
    Failed(String),
}

impl Dashboard {
    /// The dashboard with the password that the backend has.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Arc<Self>, String> {
        let state = State {
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            setup: SetupLink::default(),
            password: backend.load_password()?,
        };
        let (state, hashing) = (Mutex::new(state), Semaphore::new(PARALLEL_HASHES));
        Ok(Arc::new(Self { backend, state, hashing }))
    }

    /// Makes a setup link, and ends the one before. Returns its path.
    pub fn make_setup_link(&self) -> Result<String, String> {
        let token = self.random_secret()?;
        let path = format!("/setup/{}", token.0);
        let end = self.backend.monotonic_seconds() + SETUP_MINUTES * 60;
        self.state.lock().setup.set(token, end);
        Ok(path)
    }

    /// Forgets the password, and ends all sessions and the setup link.
    pub fn turn_off(&self) -> Result<(), String> {
        self.backend.save_password(None)?;
        let mut state = self.state.lock();
        state.password = None;
        state.sessions.close_all();
        state.setup = SetupLink::default();
        Ok(())
    }

    /// Whether a password is set.
    pub fn is_on(&self) -> bool {
        self.state.lock().password.is_some()
    }

    /// The number of open sessions.
    pub fn session_count(&self) -> usize {
        self.state.lock().sessions.count()
    }

    /// The token for the forms of a session; none if the session does not exist.
    pub(crate) fn session(&self, cookie: &str, is_use: bool) -> Option<Secret> {
        let now = self.backend.monotonic_seconds();
        self.state.lock().sessions.csrf(cookie, now, is_use)
    }

    /// Ends a session.
    pub(crate) fn close_session(&self, cookie: &str) {
        self.state.lock().sessions.close(cookie);
    }

    /// Checks a password, and opens a session. Returns its cookie.
    pub(crate) async fn log_in(
        self: &Arc<Self>,
        address: IpAddr,
        password: String,
    ) -> Result<Secret, LoginError> {
        let now = self.backend.monotonic_seconds();
        let stored = {
            let mut state = self.state.lock();
            state.throttle.begin(address, now).map_err(LoginError::TooEarly)?;
            state.password.clone().unwrap_or_default()
        };
        let is_right = if password.len() > MAX_BYTES {
            false
        } else {
            let compared = stored.clone();
            let hashed = self.hash(move || password::matches(&password, &compared)).await;
            hashed.map_err(LoginError::Failed)?
        };
        if !is_right {
            self.backend.log(&format!("dashboard: a login from {address} failed"));
            return Err(LoginError::WrongPassword);
        }
        let session = self.open_session(Some(&stored)).map_err(LoginError::Failed)?;
        self.state.lock().throttle.succeed(address);
        self.backend.log(&format!("dashboard: a session from {address} begins"));
        // the password was changed meanwhile
        session.ok_or(LoginError::WrongPassword)
    }

    /// Whether a setup link holds.
    pub(crate) fn holds_setup_link(&self, token: &str) -> bool {
        self.state.lock().setup.holds(token, self.backend.monotonic_seconds())
    }

    /// Sets the password by a setup link, which ends, as all sessions do. Opens a session and returns its
    /// cookie.
    pub(crate) async fn set_up(
        self: &Arc<Self>,
        token: &str,
        password: String,
        repeated: &str,
    ) -> Result<Secret, SetupError> {
        if !self.holds_setup_link(token) {
            return Err(SetupError::NoLink);
        }
        password::check_new(&password, repeated).map_err(SetupError::Refused)?;
        let mut salt = [0; SALT_BYTES];
        self.backend.fill_random(&mut salt).map_err(SetupError::Failed)?;
        let hashed = self.hash(move || password::hash(&password, &salt)).await;
        let hash = hashed.and_then(|hash| hash).map_err(SetupError::Failed)?;
        {
            let mut state = self.state.lock();
            if !state.setup.take(token, self.backend.monotonic_seconds()) {
                return Err(SetupError::NoLink);
            }
            self.backend.save_password(Some(&hash)).map_err(SetupError::Failed)?;
            state.password = Some(hash.clone());
            state.sessions.close_all();
        }
        self.backend.log("dashboard: a password was set by the setup link");
        let session = self.open_session(Some(&hash)).map_err(SetupError::Failed)?;
        session.ok_or(SetupError::NoLink)
    }

    /// Opens a session if the password is still the one that was compared.
    fn open_session(&self, password: Option<&str>) -> Result<Option<Secret>, String> {
        let (cookie, csrf) = (self.random_secret()?, self.random_secret()?);
        let now = self.backend.monotonic_seconds();
        let mut state = self.state.lock();
        if state.password.as_deref() != password {
            return Ok(None);
        }
        state.sessions.open(&cookie, csrf, now);
        Ok(Some(cookie))
    }

    fn random_secret(&self) -> Result<Secret, String> {
        let mut bytes = [0; 32];
        self.backend.fill_random(&mut bytes)?;
        Ok(Secret::from_bytes(&bytes))
    }

    /// Runs a computation that takes long, one at a time.
    async fn hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let _permit = self.hashing.acquire().await.map_err(|why| why.to_string())?;
        tokio::task::spawn_blocking(work).await.map_err(|why| why.to_string())
    }
}
