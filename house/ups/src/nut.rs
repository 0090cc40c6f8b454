//! A client of NUT's server, upsd.
//!
//! ```text
//! request                  answer                              (lines, TCP port 3493)
//! STARTTLS                 OK STARTTLS                        with trusted servers only: the rest is encrypted
//! LIST VAR cellar          BEGIN LIST VAR cellar
//!                          VAR cellar ups.status "OB DISCHRG"  one line a variable; \ before " and \
//!                          END LIST VAR cellar
//! USERNAME monitor         OK
//! PASSWORD secret          OK
//! LOGIN cellar             OK               the server counts this machine among those that the UPS feeds
//! GET NUMLOGINS cellar     NUMLOGINS cellar 2
//! PRIMARY cellar           OK PRIMARY-GRANTED             MASTER before NUT 2.8
//! FSD cellar               OK FSD-SET                     every machine shuts down
//! LOGOUT                   OK Goodbye
//! any                      ERR DATA-STALE
//! ```

use std::collections::BTreeMap;

use tls::TrustedServers;

use crate::connection::Connection;
use crate::reading::whole_number;
use crate::{PowerSource, Reading, UpsError};

/// The variables of one UPS, at most.
const MAX_VARIABLES: usize = 2000;

/// The account of a machine at upsd, from its `upsd.users`.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password, which can be read on the network unless the connection is encrypted.
    pub password: String,
}

/// A connection to upsd about one UPS.
#[derive(Debug)]
pub struct NutClient {
    connection: Connection,
    ups: String,
}

impl NutClient {
    /// Connects. With trusted servers the connection is encrypted before anything else is sent, or fails. With a login
    /// the server counts this machine until the connection ends.
    pub fn connect(
        host: &str,
        port: u16,
        ups: &str,
        login: Option<&Login>,
        servers: Option<&TrustedServers>,
    ) -> Result<Self, UpsError> {
        let connection = Connection::open(host, port)?;
        let mut client = Self { connection, ups: ups.to_owned() };
        if let Some(servers) = servers {
            let answer = client.request("the encryption", "STARTTLS")?;
            if answer != "OK STARTTLS" {
                return Err(client.connection.malformed(&answer));
            }
            client.connection = client.connection.encrypt(servers, host)?;
        }
        if let Some(Login { user, password }) = login {
            client.request("the user", &format!("USERNAME {}", quote(user)))?;
            client.request("the password", &format!("PASSWORD {}", quote(password)))?;
            client.request("the login", &format!("LOGIN {ups}"))?;
        }
        Ok(client)
    }

    /// Reads the state of the UPS.
    pub fn read(&mut self) -> Result<Reading, UpsError> {
        let first = self.request("the list of variables", &format!("LIST VAR {}", self.ups))?;
        if !first.starts_with("BEGIN LIST VAR ") {
            return Err(self.connection.malformed(&first));
        }
        let mut variables = BTreeMap::new();
        for _ in 0..=MAX_VARIABLES {
            let line = self.connection.read_line()?;
            if line.starts_with("END LIST VAR ") {
                return to_reading(&variables);
            }
            let Some((name, value)) = parse_variable(&line, &self.ups) else {
                return Err(self.connection.malformed(&line));
            };
            variables.insert(name, value);
        }
        Err(self.connection.malformed("the list of variables does not end"))
    }

    /// The number of machines that are logged in, this one included.
    pub fn login_count(&mut self) -> Result<u64, UpsError> {
        let line = self.request("the login count", &format!("GET NUMLOGINS {}", self.ups))?;
        let count = line.rsplit(' ').next().and_then(|count| count.parse().ok());
        count.ok_or_else(|| self.connection.malformed(&line))
    }

    /// Makes every machine that the UPS feeds shut down. Only the primary may do that.
    pub fn force_shutdown(&mut self) -> Result<(), UpsError> {
        let primary = "the role of the primary";
        let granted = self.request(primary, &format!("PRIMARY {}", self.ups));
        if granted.is_err() {
            // NUT before 2.8 has only the old word
            self.request(primary, &format!("MASTER {}", self.ups))?;
        }
        self.request("the forced shutdown", &format!("FSD {}", self.ups)).map(drop)
    }

    /// Ends the login: the primary no longer waits for this machine.
    pub fn log_out(mut self) {
        // the server drops the login with the connection in any case
        let _ = self.request("the logout", "LOGOUT");
    }

    /// Sends a line and reads the first line of the answer.
    fn request(&mut self, what: &'static str, line: &str) -> Result<String, UpsError> {
        self.connection.send(format!("{line}\n").as_bytes())?;
        let answer = self.connection.read_line()?;
        let Some(code) = answer.strip_prefix("ERR ") else { return Ok(answer) };
        let server = self.connection.server.clone();
        Err(match code.split(' ').next() {
            Some("DATA-STALE") => UpsError::Stale { server },
            code => {
                UpsError::Refused { server, request: what, code: code.unwrap_or("").to_owned() }
            }
        })
    }
}

/// A word of a request. A line break would begin another request.
fn quote(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace(['\r', '\n'], ""))
}

/// The name and value of a line `VAR ups name "value"`.
fn parse_variable(line: &str, ups: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix("VAR ")?.strip_prefix(ups)?.strip_prefix(' ')?;
    let (name, quoted) = rest.split_once(' ')?;
    let quoted = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        value.push(if c == '\\' { chars.next()? } else { c });
    }
    Some((name.to_owned(), value))
}

fn to_reading(variables: &BTreeMap<String, String>) -> Result<Reading, UpsError> {
    let text = |name: &str| variables.get(name).map(|value| value.trim().to_owned());
    let number = |name: &str| variables.get(name).and_then(|value| whole_number(value));
    let status = text("ups.status").unwrap_or_default();
    let has = |word: &str| status.split_whitespace().any(|it| it == word);
    let is_calibrating = has("CAL");
    let source = match (has("OB"), has("OL")) {
        _ if is_calibrating => PowerSource::Line,
        (true, _) => PowerSource::Battery,
        (false, true) => PowerSource::Line,
        // a forced shutdown counts without a power source
        (false, false) if has("FSD") => PowerSource::Line,
        (false, false) => return Err(UpsError::NoPowerSource { status }),
    };
    let names =
        [text("device.mfr").or(text("ups.mfr")), text("device.model").or(text("ups.model"))];
    let model = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
    Ok(Reading {
        source,
        is_battery_low: has("LB") && !is_calibrating,
        is_forced_shutdown: has("FSD"),
        needs_battery: has("RB"),
        charge: number("battery.charge"),
        runtime: number("battery.runtime"),
        load: number("ups.load"),
        model: (!model.is_empty()).then_some(model),
        status,
    })
}
