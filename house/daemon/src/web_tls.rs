//! The certificate of the dashboard, of the API on TCP and of NBD: the user's own files, or one of the daemon's own CA; and
//! that of a public CA for the names of `[acme]`.
//!
//! ```text
//! [web] certificate, key    files in PEM, read again every hour: they are renewed from outside
//! otherwise                 web-ca.json holds root and key, limited to the names of this machine and to private
//!                           networks; a certificate for all of its names and addresses within these limits is issued
//!                           for 90 days, in memory, and again after 30
//! ```

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::IssuedCertificate;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use parking_lot::Mutex;
use tls::{Authority, Date, NamedCertificate, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::log::Log;
use crate::services::WebConfig;
use crate::{Error, Result, StateDir, state_file};

/// The interval at which the user's files are read again.
const FILE_INTERVAL: Duration = Duration::from_hours(1);
/// The interval at which a certificate of our own is issued again.
const ISSUE_INTERVAL: Duration = Duration::from_hours(30 * 24);
/// The days for which a certificate of our own holds.
const ISSUE_DAYS: i64 = 90;

/// The certificate of the daemon's listeners.
pub(crate) struct WebTls {
    state_dir: StateDir,
    log: Arc<Log>,
    current: Mutex<Option<Loaded>>,
    /// The certificate of a public CA, for clients that ask for its names.
    named: Mutex<Option<IssuedCertificate>>,
}

struct Loaded {
    config: WebConfig,
    acceptor: TlsAcceptor,
    since: Instant,
}

impl WebTls {
    pub(crate) fn new(state_dir: &StateDir, log: &Arc<Log>) -> Self {
        Self {
            state_dir: state_dir.clone(),
            log: Arc::clone(log),
            current: Mutex::default(),
            named: Mutex::default(),
        }
    }

    /// Shows a certificate of a public CA to clients that ask for its names, from their next connection on.
    pub(crate) fn show_named(&self, named: Option<IssuedCertificate>) {
        let mut shown = self.named.lock();
        if *shown != named {
            *shown = named;
            drop(shown);
            *self.current.lock() = None;
        }
    }

    /// The acceptor of connections by TLS. A certificate that cannot be renewed stays in use.
    pub(crate) fn acceptor(&self, config: &WebConfig) -> Result<TlsAcceptor> {
        let mut current = self.current.lock();
        let interval = if config.certificate.is_some() { FILE_INTERVAL } else { ISSUE_INTERVAL };
        if let Some(loaded) = current.as_mut()
            && loaded.config == *config
        {
            if loaded.since.elapsed() < interval {
                return Ok(loaded.acceptor.clone());
            }
            loaded.since = Instant::now();
            match self.load(config) {
                Ok(acceptor) => loaded.acceptor = acceptor,
                Err(why) => self.log.write_line(&format!("the certificate of [web] stays: {why}")),
            }
            return Ok(loaded.acceptor.clone());
        }
        let acceptor = self.load(config)?;
        let (config, since) = (config.clone(), Instant::now());
        *current = Some(Loaded { config, acceptor: acceptor.clone(), since });
        Ok(acceptor)
    }

    /// The certificate for servers that do not use tokio.
    pub(crate) fn server_config(&self, config: &WebConfig) -> Result<Arc<ServerConfig>> {
        Ok(Arc::clone(self.acceptor(config)?.config()))
    }

    /// The root certificate of the daemon's own CA in PEM; none: it has none.
    pub(crate) fn root_certificate(&self) -> Result<Option<String>> {
        let authority = load_authority(&self.state_dir.web_authority())?;
        Ok(authority.map(|authority| authority.certificate().to_owned()))
    }

    fn load(&self, config: &WebConfig) -> Result<TlsAcceptor> {
        let (chain, key, origin) = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => {
                (read(certificate)?, read(key)?, certificate.display().to_string())
            }
            (None, None) => {
                let (chain, key) = self.issue(config)?;
                (chain.into_bytes(), key.into_bytes(), "the own certificate".to_owned())
            }
            _ => {
                let why =
                    "web.certificate and web.key name two files together; one of them is missing";
                return Err(Error::refused_error(why));
            }
        };
        let named = self.named.lock().clone();
        let loaded = match &named {
            None => tls::server_config(&chain, &key),
            Some(IssuedCertificate { names, chain: named, key: named_key, .. }) => {
                let (named, named_key) = (named.as_bytes(), named_key.as_bytes());
                let named = NamedCertificate { names, chain: named, key: named_key };
                tls::server_config_by_name(&chain, &key, named)
            }
        };
        let loaded = loaded.map_err(|why| Error::refused_error(format!("'{origin}': {why}")))?;
        Ok(TlsAcceptor::from(loaded))
    }

    /// A certificate of our own CA, which is made when it is needed first.
    fn issue(&self, config: &WebConfig) -> Result<(String, String)> {
        let failed = |why: tls::AuthorityError| Error::refused_error(why.to_string());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let names = own_names(&host, config);
        let authority = self.authority(&host, &names, config)?;
        let (permitted, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| authority.permits(name));
        if !others.is_empty() {
            let others = others.join(", ");
            self.log.write_line(&format!(
                "the certificate leaves out {others}: the root is limited to other addresses; browsers reach this \
                 machine by its name"
            ));
        }
        authority.issue(&permitted, date_in(-1)?, date_in(ISSUE_DAYS)?).map_err(failed)
    }

    /// The own CA. The root that exists is replaced if it does not cover a name of this machine: then browsers need the
    /// new one. Addresses change too often for that.
    fn authority(&self, host: &str, names: &[String], config: &WebConfig) -> Result<Authority> {
        let path = self.state_dir.web_authority();
        let found = load_authority(&path)?;
        let covers = |authority: &Authority| {
            config
                .names
                .iter()
                .map(String::as_str)
                .chain([host])
                .all(|name| authority.permits(name))
        };
        let what = match found {
            Some(authority) if covers(&authority) => return Ok(authority),
            Some(_) => "this machine has another name: its certificate authority was made anew",
            None => "a certificate authority for the dashboard was made",
        };
        let failed = |why: tls::AuthorityError| Error::refused_error(why.to_string());
        let authority = Authority::new(host, names, date_in(-1)?).map_err(failed)?;
        let text =
            serde_json::to_vec(&authority).map_err(|why| Error::file_error(&path, &why.into()))?;
        state_file::replace(&path, &text)?;
        self.log.write_line(&format!("{what}; its root: poolhouse web certificate"));
        Ok(authority)
    }
}

fn load_authority(path: &Path) -> Result<Option<Authority>> {
    match std::fs::read(path) {
        Ok(text) => {
            let parsed = serde_json::from_slice(&text);
            parsed.map(Some).map_err(|why| Error::file_error(path, &why.into()))
        }
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Error::file_error(path, &why)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|why| Error::file_error(path, &why))
}

/// The names and addresses by which browsers reach this machine.
fn own_names(host: &str, config: &WebConfig) -> Vec<String> {
    let mut names = vec![host.to_owned(), format!("{host}.local"), "localhost".to_owned()];
    names.extend(config.names.iter().cloned());
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    names.extend(interfaces.iter().map(|interface| interface.ip().to_string()));
    let listened = config.listen.addresses();
    names.extend(
        listened
            .iter()
            .map(SocketAddr::ip)
            .filter(|ip| !ip.is_unspecified())
            .map(|ip| ip.to_string()),
    );
    names.sort();
    names.dedup();
    // the first name is shown by browsers
    names.sort_by_key(|name| name != host);
    names
}

/// The day that is some days from now, or the 28th if it is later in its month.
fn date_in(days: i64) -> Result<Date> {
    let wrong = |why: jiff::Error| {
        Error::refused_error(format!("the clock of this machine is wrong: {why}"))
    };
    let day = Timestamp::now().to_zoned(TimeZone::UTC).checked_add(days.days()).map_err(wrong)?;
    let part =
        |number: i8| u8::try_from(number).map_err(|why| Error::refused_error(why.to_string()));
    Ok(Date {
        year: i32::from(day.year()),
        month: part(day.month())?,
        day: part(day.day().min(28))?,
    })
}
