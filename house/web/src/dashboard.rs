//! The dashboard: its users, their sessions, and the links that set passwords.

use std::net::IpAddr;
use std::sync::Arc;

use api::{DashboardUser, FIRST_USER, Role, SetUpDashboard};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::Backend;
use crate::accounts::{self, Account, Accounts};
use crate::answers::Answers;
use crate::password::{self, MAX_BYTES, NO_HASH, SALT_BYTES};
use crate::sessions::{Secret, Sessions};
use crate::setup::{SetupLinks, SetupTarget};
use crate::throttle::Throttle;
use crate::totp;

/// The minutes for which a setup link holds.
pub const SETUP_MINUTES: u64 = 15;
/// The passwords that are compared at the same time: each takes a core and 19 MiB.
const PARALLEL_HASHES: usize = 1;

/// The dashboard of a daemon.
pub struct Dashboard {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) answers: Answers,
    state: Mutex<State>,
    hashing: Semaphore,
}

struct State {
    sessions: Sessions,
    throttle: Throttle,
    setup: SetupLinks,
    /// Without any the dashboard is off.
    accounts: Accounts,
}

/// The session of a request: the user, the user's rights, and the token for forms.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) user: String,
    pub(crate) role: Role,
    pub(crate) csrf: Secret,
    pub(crate) has_totp: bool,
}

/// The fields of the login.
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) password: String,
    /// The one-time code; empty without one.
    pub(crate) code: String,
}

/// Why a login failed.
pub(crate) enum LoginError {
    /// The address has to wait this many seconds.
    TooEarly(u64),
    /// The name, the password or the code is wrong.
    Wrong,
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
    /// The dashboard with the users that the backend has.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Arc<Self>, String> {
        let state = State {
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            setup: SetupLinks::default(),
            accounts: Accounts::parse(backend.load_users()?.as_deref())?,
        };
        let (state, hashing) = (Mutex::new(state), Semaphore::new(PARALLEL_HASHES));
        Ok(Arc::new(Self { backend, answers: Answers::default(), state, hashing }))
    }

    /// Makes a setup link, and ends the one before of the same user. Returns its path.
    pub fn make_setup_link(&self, call: &SetUpDashboard) -> Result<String, String> {
        let name = call.user.clone().unwrap_or_else(|| FIRST_USER.to_owned());
        accounts::check_name(&name)?;
        let token = self.random_secret()?;
        let path = format!("/setup/{}", token.0);
        let end = self.backend.monotonic_seconds() + SETUP_MINUTES * 60;
        let mut state = self.state.lock();
        let usual = if name == FIRST_USER { Role::Administer } else { Role::Look };
        let role = state.accounts.find(&name).map_or(usual, |account| account.role);
        let target = SetupTarget { name, role: call.role.unwrap_or(role) };
        state.setup.add(token, target, end);
        Ok(path)
    }

    /// Removes all users, and ends all sessions and setup links.
    pub fn turn_off(&self) -> Result<(), String> {
        self.backend.save_users(None)?;
        let mut state = self.state.lock();
        state.accounts = Accounts::default();
        state.sessions.close_all();
        state.setup.end_all();
        Ok(())
    }

    /// Whether there is a user.
    pub fn is_on(&self) -> bool {
        !self.state.lock().accounts.all().is_empty()
    }

    /// The number of open sessions.
    pub fn session_count(&self) -> usize {
        self.state.lock().sessions.count()
    }

    /// The users.
    pub fn users(&self) -> Vec<DashboardUser> {
        let state = self.state.lock();
        let user = |account: &Account| DashboardUser {
            name: account.name.clone(),
            role: account.role,
            has_totp: account.totp.is_some(),
            sessions: state.sessions.count_of(&account.name),
        };
        state.accounts.all().iter().map(user).collect()
    }

    /// Removes a user, and ends the user's sessions and setup link. The last user that administers stays.
    pub fn remove_user(&self, name: &str) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut accounts = state.accounts.clone();
        if !accounts.remove(name) {
            return Err(format!("the dashboard has no user '{name}'"));
        }
        if !state.accounts.has_other_administrator(name) {
            return Err(format!(
                "'{name}' is the last user that administers; to turn the dashboard off: poolhouse web off"
            ));
        }
        self.backend.save_users(accounts.to_text()?.as_deref())?;
        state.accounts = accounts;
        state.sessions.close_user(name, None);
        state.setup.end_for(name);
        Ok(())
    }

    /// The session of a cookie; none if it does not exist. A background request is no use of the session.
    pub(crate) fn visit(&self, cookie: &str, is_use: bool) -> Option<Visit> {
        let now = self.backend.monotonic_seconds();
        let mut state = self.state.lock();
        let (user, csrf) = state.sessions.find(cookie, now, is_use)?;
        let account = state.accounts.find(&user)?;
        let (role, has_totp) = (account.role, account.totp.is_some());
        Some(Visit { user, role, csrf, has_totp })
    }

    /// Ends a session.
    pub(crate) fn close_session(&self, cookie: &str) {
        self.state.lock().sessions.close(cookie);
    }

    /// Checks a login, and opens a session. Returns its cookie.
    pub(crate) async fn log_in(
        self: &Arc<Self>,
        address: IpAddr,
        login: Login,
    ) -> Result<Secret, LoginError> {
        let now = self.backend.monotonic_seconds();
        let stored = {
            let mut state = self.state.lock();
            state.throttle.begin(address, now).map_err(LoginError::TooEarly)?;
            state.accounts.find(&login.name).map(|account| account.password.clone())
        };
        let Login { name, password, code } = login;
        let is_right = password.len() <= MAX_BYTES && {
            // an unknown name takes as long as a known one
            let compared = stored.clone().unwrap_or_else(|| NO_HASH.to_owned());
            let hashed = self.hash(move || password::matches(&password, &compared)).await;
            hashed.map_err(LoginError::Failed)?
        };
        let session = match stored.filter(|_| is_right) {
            Some(stored) => self.open_session(&name, &stored, Some(&code)),
            None => Ok(None),
        };
        let Some(cookie) = session.map_err(LoginError::Failed)? else {
            self.backend.log(&format!("dashboard: a login from {address} failed"));
            return Err(LoginError::Wrong);
        };
        self.state.lock().throttle.succeed(address);
        self.backend.log(&format!("dashboard: a session of '{name}' from {address} begins"));
        Ok(cookie)
    }

    /// The user that a setup link is for; none: the link does not hold.
    pub(crate) fn setup_target(&self, token: &str) -> Option<SetupTarget> {
        self.state.lock().setup.find(token, self.backend.monotonic_seconds()).cloned()
    }

    /// Sets a password by a setup link, which ends, as the user's sessions do. Opens a session and returns its
    /// cookie.
    pub(crate) async fn set_up(
        self: &Arc<Self>,
        token: &str,
        password: String,
        repeated: &str,
    ) -> Result<Secret, SetupError> {
        if self.setup_target(token).is_none() {
            return Err(SetupError::NoLink);
        }
        let hash = self.hash_new(password, repeated).await?;
        let name = {
            let mut state = self.state.lock();
            let taken = state.setup.redeem(token, self.backend.monotonic_seconds());
            let SetupTarget { name, role } = taken.ok_or(SetupError::NoLink)?;
            let (password, totp) = (hash.clone(), None);
            let account = Account { name: name.clone(), role, password, totp, totp_step: 0 };
            self.store(&mut state, account).map_err(SetupError::Failed)?;
            state.sessions.close_user(&name, None);
            name
        };
        self.backend.log(&format!("dashboard: '{name}' set a password by the setup link"));
        let session = self.open_session(&name, &hash, None).map_err(SetupError::Failed)?;
        session.ok_or(SetupError::NoLink)
    }

    /// Sets the password of a user that is logged in. The user's other sessions end.
    pub(crate) async fn change_password(
        self: &Arc<Self>,
        visit: &Visit,
        cookie: &str,
        password: String,
        repeated: &str,
    ) -> Result<(), SetupError> {
        let hash = self.hash_new(password, repeated).await?;
        let mut state = self.state.lock();
        let account = state.accounts.find(&visit.user).cloned().ok_or(SetupError::NoLink)?;
        let account = Account { password: hash, ..account };
        self.store(&mut state, account).map_err(SetupError::Failed)?;
        state.sessions.close_user(&visit.user, Some(cookie));
        Ok(())
    }

    /// Turns one-time codes of a user on, once a code shows that the app has the secret.
    pub(crate) fn turn_totp_on(&self, user: &str, secret: &str, code: &str) -> Result<(), String> {
        let now = self.backend.unix_seconds();
        let step = totp::verify(secret, code, 0, now).ok_or(
            "The code is wrong. Compare the clocks of the phone and of this machine, and try the next code.",
        )?;
        let mut state = self.state.lock();
        let account = state.accounts.find(user).cloned().ok_or("The user was removed.")?;
        let account = Account { totp: Some(secret.to_owned()), totp_step: step, ..account };
        self.store(&mut state, account)
    }

    /// Turns one-time codes of a user off, once a code shows that the user has the app.
    pub(crate) fn turn_totp_off(&self, user: &str, code: &str) -> Result<(), String> {
        let mut state = self.state.lock();
        let account = state.accounts.find(user).cloned().ok_or("The user was removed.")?;
        if !self.spend_code(&mut state, &account, code)? {
            return Err("The code is wrong.".to_owned());
        }
        self.store(&mut state, Account { totp: None, totp_step: 0, ..account })
    }

    /// A new secret for one-time codes.
    pub(crate) fn new_totp_secret(&self) -> Result<String, String> {
        let mut bytes = [0; totp::SECRET_BYTES];
        self.backend.fill_random(&mut bytes)?;
        Ok(totp::encode_secret(&bytes))
    }

    /// Opens a session if the user's password is still the one that was compared, and the code is right. No code:
    /// a setup link led here.
    fn open_session(
        &self,
        name: &str,
        password: &str,
        code: Option<&str>,
    ) -> Result<Option<Secret>, String> {
        let (cookie, csrf) = (self.random_secret()?, self.random_secret()?);
        let now = self.backend.monotonic_seconds();
        let mut state = self.state.lock();
        let Some(account) = state.accounts.find(name).cloned() else { return Ok(None) };
        if account.password != password {
            return Ok(None);
        }
        if let Some(code) = code
            && !self.spend_code(&mut state, &account, code)?
        {
            return Ok(None);
        }
        state.sessions.open(name, &cookie, csrf, now);
        Ok(Some(cookie))
    }

    /// Whether a one-time code is right, or none is needed. A right one is spent before it counts.
    fn spend_code(&self, state: &mut State, account: &Account, code: &str) -> Result<bool, String> {
        let Some(secret) = &account.totp else { return Ok(true) };
        let now = self.backend.unix_seconds();
        let Some(totp_step) = totp::verify(secret, code, account.totp_step, now) else {
            return Ok(false);
        };
        self.store(state, Account { totp_step, ..account.clone() })?;
        Ok(true)
    }

    /// Replaces a user, in the file first.
    fn store(&self, state: &mut State, account: Account) -> Result<(), String> {
        let mut accounts = state.accounts.clone();
        accounts.insert(account)?;
        self.backend.save_users(accounts.to_text()?.as_deref())?;
        state.accounts = accounts;
        Ok(())
    }

    async fn hash_new(
        self: &Arc<Self>,
        password: String,
        repeated: &str,
    ) -> Result<String, SetupError> {
        password::check_new(&password, repeated).map_err(SetupError::Refused)?;
        let mut salt = [0; SALT_BYTES];
        self.backend.fill_random(&mut salt).map_err(SetupError::Failed)?;
        let hashed = self.hash(move || password::hash(&password, &salt)).await;
        hashed.and_then(|hash| hash).map_err(SetupError::Failed)
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
