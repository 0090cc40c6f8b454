//! The connection to the UPS server. It is kept between looks, since the server counts this machine as long as it
//! lasts.

use std::time::{Duration, Instant};

use tls::TrustedServers;

use ::ups::{ApcupsdClient, Login, NutClient, Reading, Role, ServerAddress, ServerKind, UpsConfig};

/// The time between two looks whether the other machines logged out.
const LOGIN_INTERVAL: Duration = Duration::from_millis(500);

/// The connection to the UPS server, if there is one.
#[derive(Default)]
pub(super) struct Source {
    client: Option<Client>,
    /// The configuration of the connection.
    config: UpsConfig,
    /// Whether the server no longer counts this machine: its pools are closed.
    is_released: bool,
}

enum Client {
    Nut(NutClient),
    Apcupsd(ApcupsdClient),
}

impl Source {
    /// Reads the UPS. After an error the next look connects again.
    pub(super) fn read(&mut self, config: &UpsConfig) -> Result<Reading, String> {
        if self.config != *config {
            self.log_out();
            self.config = config.clone();
        }
        let client = match &mut self.client {
            Some(client) => client,
            None => self.client.insert(connect(config, !self.is_released)?),
        };
        let read = match client {
            Client::Nut(client) => client.read(),
            // apcupsd ends a connection that it hears nothing from for a while
            Client::Apcupsd(client) => client.read(),
        };
        read.map_err(|why| {
            self.client = None;
            why.to_string()
        })
    }

    /// Makes the other machines shut down, if this one is the primary.
    pub(super) fn force_shutdown(&mut self) -> Result<(), String> {
        match &mut self.client {
            Some(Client::Nut(client)) if self.config.role == Role::Primary => {
                client.force_shutdown().map_err(|why| why.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Waits until the other machines logged out, or the time is over.
    pub(super) fn wait_for_secondaries(&mut self) {
        let Some(Client::Nut(client)) = &mut self.client else { return };
        if self.config.role != Role::Primary {
            return;
        }
        let own = u64::from(self.config.user.is_some());
        let last = Instant::now() + Duration::from_secs(self.config.secondaries_wait);
        while Instant::now() < last && client.login_count().is_ok_and(|count| count > own) {
            std::thread::sleep(LOGIN_INTERVAL);
        }
    }

    /// Ends the login: the primary no longer waits for this machine. Later looks only read.
    pub(super) fn release(&mut self) {
        self.is_released = true;
        self.log_out();
    }

    /// Logs in again at the next look.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.is_released) {
            self.log_out();
        }
    }

    fn log_out(&mut self) {
        if let Some(Client::Nut(client)) = self.client.take() {
            client.log_out();
        }
    }
}

/// Connects; with a login the server counts this machine.
fn connect(config: &UpsConfig, logs_in: bool) -> Result<Client, String> {
    let Some(ServerAddress { kind, host, port }) = &config.server else {
        return Err("no UPS is configured".to_owned());
    };
    let sentence = |why: ::ups::UpsError| why.to_string();
    match kind {
        ServerKind::Apcupsd => {
            ApcupsdClient::connect(host, *port).map(Client::Apcupsd).map_err(sentence)
        }
        ServerKind::Nut(ups) => {
            let login = if logs_in { login(config)? } else { None };
            let servers = trusted_servers(config)?;
            let client = NutClient::connect(host, *port, ups, login.as_ref(), servers.as_ref());
            client.map(Client::Nut).map_err(sentence)
        }
    }
}

/// The servers that are trusted; none: the connection is not encrypted. The file is read at each connection.
fn trusted_servers(config: &UpsConfig) -> Result<Option<TrustedServers>, String> {
    let Some(path) = &config.ca_file else { return Ok(None) };
    let failed = |why: String| {
        format!("the certificates of the UPS server in '{}' cannot be used: {why}", path.display())
    };
    let pem = std::fs::read(path).map_err(|why| failed(engine::error::io_error_text(&why)))?;
    TrustedServers::from_pem(&pem).map(Some).map_err(|why| failed(why.to_string()))
}

/// The account at upsd. The password is read at each connection, so that it can be changed.
fn login(config: &UpsConfig) -> Result<Option<Login>, String> {
    let Some(user) = config.user.clone() else { return Ok(None) };
    let Some(path) = &config.password_file else {
        return Err("ups.user needs ups.password_file in config.toml".to_owned());
    };
    let text = std::fs::read_to_string(path).map_err(|why| {
        let why = engine::error::io_error_text(&why);
        format!("the password of the UPS server in '{}' cannot be read: {why}", path.display())
    })?;
    Ok(Some(Login { user, password: text.trim_end_matches(['\r', '\n']).to_owned() }))
}
