//! A made-up daemon, and a client that keeps a cookie as a browser does.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Drive, DriveDetails, DriveList, Overview, Role, SetUpDashboard};
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use parking_lot::Mutex;
use web::{ApiReply, ApiRequest, Backend, ClientAddress, Dashboard, IsEncrypted};

pub(crate) const PASSWORD: &str = "correct horse battery";
/// The time at which the made-up daemon starts, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;

#[derive(Default)]
pub(crate) struct Daemon {
    pub(crate) overview: Mutex<Arc<Overview>>,
    users: Mutex<Option<String>>,
    /// The answers of the API, by the beginning of the target; else an empty list.
    pub(crate) answers: Mutex<Vec<(&'static str, String)>>,
    pub(crate) clock: AtomicU64,
    random: AtomicU64,
    /// The commands of the changes that were made.
    pub(crate) done: Mutex<Vec<String>>,
    pub(crate) log: Mutex<Vec<String>>,
}

impl Backend for Daemon {
    fn overview(&self) -> Arc<Overview> {
        Arc::clone(&self.overview.lock())
    }

    fn drive(&self, drive: &str) -> Result<DriveDetails, String> {
        let found = self.overview().drives.drives.iter().find(|it| it.matches(drive)).cloned();
        let drive = found.ok_or_else(|| format!("there is no drive '{drive}'"))?;
        Ok(DriveDetails { drive, ..DriveDetails::default() })
    }

    fn call(&self, request: ApiRequest) -> ApiReply {
        let ApiRequest { method, encoded, command } = request;
        if method != api::Method::Get {
            self.done.lock().push(command.clone());
        }
        if command.contains("busy") {
            return Box::pin(async { Err("pool 'busy' is being resilvered".to_owned()) });
        }
        let answers = self.answers.lock();
        let found = answers.iter().find(|(target, _)| encoded.target.starts_with(target));
        let usual = if method == api::Method::Get { "[]" } else { "null" };
        let value = found.map_or_else(|| usual.to_owned(), |(_, answer)| answer.clone());
        let reply = format!("{{\"value\": {value}}}").into_bytes();
        Box::pin(async move { Ok(reply) })
    }

    fn load_users(&self) -> Result<Option<String>, String> {
        Ok(self.users.lock().clone())
    }

    fn save_users(&self, users: Option<&str>) -> Result<(), String> {
        *self.users.lock() = users.map(str::to_owned);
        Ok(())
    }

    fn root_certificate(&self) -> Option<String> {
        Some("-----BEGIN CERTIFICATE-----".to_owned())
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), String> {
        // different each time
        let number = self.random.fetch_add(1, Ordering::Relaxed) + 1;
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = number.wrapping_mul(0x9e37_79b9).to_le_bytes()[at % 8];
        }
        Ok(())
    }

    fn monotonic_seconds(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn unix_seconds(&self) -> u64 {
        NOW + self.clock.load(Ordering::Relaxed)
    }

    fn log(&self, line: &str) {
        self.log.lock().push(line.to_owned());
    }
}

/// An answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The token in the forms of a page.
    pub(crate) fn csrf(&self) -> &str {
        let (_, rest) = self.body.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split_once('"').unwrap().0
    }
}

/// A browser.
pub(crate) struct Browser {
    pub(crate) dashboard: Arc<Dashboard>,
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) cookie: Option<String>,
    pub(crate) address: IpAddr,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) is_encrypted: bool,
}

impl Browser {
    /// A browser and a dashboard that is off.
    pub(crate) fn new() -> Self {
        let daemon = Arc::new(Daemon::default());
        let dashboard = Dashboard::new(Arc::clone(&daemon) as Arc<_>).unwrap();
        let (cookie, address) = (None, Ipv4Addr::LOCALHOST.into());
        Self { dashboard, daemon, cookie, address, headers: Vec::new(), is_encrypted: false }
    }

    /// A browser with a session, which set the password.
    pub(crate) async fn logged_in() -> Self {
        let mut browser = Self::new();
        let link = browser.dashboard.make_setup_link(&SetUpDashboard::default()).unwrap();
        let form = format!("password={PASSWORD}&repeated={PASSWORD}");
        assert_eq!(browser.post(&link, &form).await.status, 303);
        assert!(browser.cookie.is_some());
        browser
    }

    /// Another browser at the same dashboard, without a cookie.
    pub(crate) fn other(&self) -> Self {
        Self {
            dashboard: Arc::clone(&self.dashboard),
            daemon: Arc::clone(&self.daemon),
            cookie: None,
            address: self.address,
            headers: Vec::new(),
            is_encrypted: false,
        }
    }

    /// Another browser with a session of a new user.
    pub(crate) async fn invited(&self, name: &str, role: Role) -> Self {
        let mut browser = self.other();
        let call = SetUpDashboard { user: Some(name.to_owned()), role: Some(role) };
        let link = browser.dashboard.make_setup_link(&call).unwrap();
        let form = format!("password={PASSWORD}&repeated={PASSWORD}");
        assert_eq!(browser.post(&link, &form).await.status, 303);
        browser
    }

    /// The token of the session's forms.
    pub(crate) async fn csrf(&mut self) -> String {
        self.get("/").await.csrf().to_owned()
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, "").await
    }

    pub(crate) async fn post(&mut self, path: &str, form: &str) -> Response {
        self.request("POST", path, form).await
    }

    pub(crate) async fn request(&mut self, method: &str, path: &str, body: &str) -> Response {
        let mut request = Request::builder().method(method).uri(path).header("host", "nas:8080");
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", format!("poolhouse_session={cookie}"));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        if self.is_encrypted {
            request = request.extension(IsEncrypted);
        }
        let request = request.extension(ClientAddress(self.address));
        let request = request.body(Body::from(body.replace(' ', "+"))).unwrap();
        let response = Arc::clone(&self.dashboard).answer(request).await;
        let (head, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(bytes.to_vec()).unwrap();
        let answer = Response { status: head.status.as_u16(), headers: head.headers, body };
        if let Some((_, value)) = answer.header("set-cookie").split_once('=') {
            let value = value.split(';').next().unwrap();
            self.cookie = (!value.is_empty()).then(|| value.to_owned());
        }
        answer
    }
}

/// A drive with a name that tries to be HTML.
pub(crate) fn hostile_overview() -> Overview {
    let drive = Drive {
        name: "sda".to_owned(),
        serial: Some("../\"><script>alert(1)</script>".to_owned()),
        ..Drive::default()
    };
    Overview {
        host: "<script>".to_owned(),
        time: NOW,
        drives: DriveList { drives: vec![drive], ..DriveList::default() },
        ..Overview::default()
    }
}
