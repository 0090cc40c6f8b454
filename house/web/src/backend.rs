//! The daemon as the dashboard sees it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use api::{Call, DriveDetails, EncodedCall, Method, Overview};

/// The address of a client, which the server adds to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The server adds it to requests that came by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsEncrypted;

/// A call of the API that is ready to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// Path, query string and body.
    pub encoded: EncodedCall,
    /// The command line for the history of the pool, without "poolhouse".
    pub command: String,
}

impl ApiRequest {
    /// A call, and the command that does the same.
    pub fn new<C: Call>(call: &C, command: &str) -> Result<Self, String> {
        let encoded = api::encode(call)?;
        Ok(Self { method: C::METHOD, encoded, command: command.to_owned() })
    }
}

/// The reply to an [`ApiRequest`]: the JSON of the answer, or a sentence.
pub type ApiReply = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>>;

/// The daemon. Errors are sentences for the user.
pub trait Backend: Send + Sync + 'static {
    /// The latest overview, from memory.
    fn overview(&self) -> Arc<Overview>;

    /// A drive with its history, from memory.
    fn drive(&self, drive: &str) -> Result<DriveDetails, String>;

    /// Makes a call of the API with the rights of the daemon's owner. The future may wait for a drive.
    fn call(&self, request: ApiRequest) -> ApiReply;

    /// Loads the users as [`Self::save_users`] got them; none: the dashboard is off.
    fn load_users(&self) -> Result<Option<String>, String>;

    /// Replaces the users, in a file that only the daemon can read; none removes them. May block.
    fn save_users(&self, users: Option<&str>) -> Result<(), String>;

    /// The root certificate of the daemon's own CA, in PEM; none: it has no CA.
    fn root_certificate(&self) -> Option<String>;

    /// Random bytes for sessions and salts.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), String>;

    /// Seconds since some point in the past, from a clock that is never set.
    fn monotonic_seconds(&self) -> u64;

    /// Seconds since 1970.
    fn unix_seconds(&self) -> u64;

    /// Writes a line to the daemon's log.
    fn log(&self, line: &str);
}
