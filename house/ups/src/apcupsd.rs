//! A client of apcupsd's network information server (NIS).
//!
//! ```text
//! message       offset size field                        (both ways, TCP port 3551)
//!                    0    2 length of the text, big endian; 0 ends an answer
//!                    2    n text
//! request       "status"
//! answer        "STATUS   : ONBATT LOWBATT\n"            one message a field
//!               "BCHARGE  : 87.0 Percent\n"
//!               "TIMELEFT : 23.4 Minutes\n"
//!               length 0
//! ```

use std::collections::BTreeMap;

use crate::connection::Connection;
use crate::reading::whole_number;
use crate::{PowerSource, Reading, UpsError};

/// The most fields of a reply.
const MAX_FIELDS: usize = 500;
/// The longest field in bytes.
const MAX_FIELD: u16 = 4096;
const REQUEST: &[u8] = b"\x00\x06status";

/// A connection to apcupsd.
#[derive(Debug)]
pub struct ApcupsdClient {
    connection: Connection,
}

impl ApcupsdClient {
    /// Connects.
    pub fn connect(host: &str, port: u16) -> Result<Self, UpsError> {
        Connection::open(host, port).map(|connection| Self { connection })
    }

    /// Reads the state of the UPS.
    pub fn read(&mut self) -> Result<Reading, UpsError> {
        self.connection.send(REQUEST)?;
        let mut fields = BTreeMap::new();
        for _ in 0..=MAX_FIELDS {
            let mut length = [0; 2];
            self.connection.read_exact(&mut length)?;
            let length = u16::from_be_bytes(length);
            if length == 0 {
                return to_reading(&fields, &self.connection.server);
            }
            if length > MAX_FIELD {
                return Err(self.connection.malformed("a field is too long"));
            }
            let mut text = vec![0; usize::from(length)];
            self.connection.read_exact(&mut text)?;
            let text = String::from_utf8_lossy(&text);
            let Some((name, value)) = text.split_once(':') else {
                return Err(self.connection.malformed(text.trim()));
            };
            fields.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        Err(self.connection.malformed("the list of fields does not end"))
    }
}

fn to_reading(fields: &BTreeMap<String, String>, server: &str) -> Result<Reading, UpsError> {
    let status = fields.get("STATUS").cloned().unwrap_or_default();
    let has = |word: &str| status.split_whitespace().any(|it| it == word);
    if has("COMMLOST") {
        return Err(UpsError::Stale { server: server.to_owned() });
    }
    // "SHUTTING DOWN": apcupsd shuts its own machine down
    let is_forced_shutdown = has("SHUTTING");
    let is_calibrating = has("CAL");
    let source = match (has("ONBATT"), has("ONLINE")) {
        _ if is_calibrating => PowerSource::Line,
        (true, _) => PowerSource::Battery,
        (false, true) => PowerSource::Line,
        (false, false) if is_forced_shutdown => PowerSource::Line,
        (false, false) => return Err(UpsError::NoPowerSource { status }),
    };
    let number = |name: &str| fields.get(name).and_then(|value| whole_number(value));
    Ok(Reading {
        source,
        is_battery_low: has("LOWBATT") && !is_calibrating,
        is_forced_shutdown,
        needs_battery: has("REPLACEBATT"),
        charge: number("BCHARGE"),
        runtime: fields.get("TIMELEFT").and_then(|value| seconds_of_minutes(value)),
        load: number("LOADPCT"),
        model: fields.get("MODEL").filter(|model| !model.is_empty()).cloned(),
        status,
    })
}

/// The seconds of "23.4 Minutes".
fn seconds_of_minutes(text: &str) -> Option<u64> {
    let number = text.split_whitespace().next()?;
    let (minutes, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenth: u64 = tenths.get(..1)?.parse().ok()?;
    minutes.parse::<u64>().ok()?.checked_mul(60)?.checked_add(tenth * 6)
}
