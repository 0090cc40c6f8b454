//! The daemon as the dashboard sees it.

use std::net::IpAddr;
use std::sync::Arc;

use api::{DriveDetails, Overview};

/// The address of a client, which the server adds to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The daemon. Errors are sentences for the user. Methods other than [`Self::overview`] may block; they run on
/// threads that may.
pub trait Backend: Send + Sync + 'static {
    /// The latest overview, from memory.
    fn overview(&self) -> Arc<Overview>;

    /// A drive with its history, from memory.
    fn drive(&self, drive: &str) -> Result<DriveDetails, String>;

    /// Starts or stops a scrub. `command` is for the history of the pool.
    fn scrub(&self, pool: &str, stop: bool, command: &str) -> Result<(), String>;

    /// Notes the findings of a drive.
    fn note_drive(&self, drive: &str) -> Result<(), String>;

    /// Lets the light of a drive blink for a minute.
    fn locate_drive(&self, drive: &str) -> Result<(), String>;

    /// The hash of the password; none: the dashboard is off.
    fn load_password(&self) -> Result<Option<String>, String>;

    /// Replaces the hash of the password, or removes it.
    fn save_password(&self, hash: Option<&str>) -> Result<(), String>;

    /// Random bytes for sessions and salts.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), String>;

    /// Seconds since some point in the past, from a clock that is never set.
    fn monotonic_seconds(&self) -> u64;

    /// Seconds since 1970.
    fn unix_seconds(&self) -> u64;

    /// Writes a line to the daemon's log.
    fn log(&self, line: &str);
}
