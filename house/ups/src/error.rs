//! The reasons why a UPS could not be read.

/// The reason why a UPS could not be read or controlled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpsError {
    /// No server listens at the address.
    #[error("the UPS server {server} cannot be reached: {why}")]
    Unreachable {
        /// The host and port.
        server: String,
        /// The system's reason.
        why: String,
    },
    /// The server answered with an error.
    #[error("the UPS server {server} refused {request}: {}", explain_code(code))]
    Refused {
        /// The host and port.
        server: String,
        /// The request, without secrets.
        request: &'static str,
        /// The server's error code.
        code: String,
    },
    /// The server has no current values of the UPS.
    #[error("the UPS server {server} has no contact with its UPS; check the cable and the driver")]
    Stale {
        /// The host and port.
        server: String,
    },
    /// The connection cannot be encrypted, and no password was sent.
    #[error("the connection to the UPS server {server} cannot be encrypted: {why}")]
    NotEncrypted {
        /// The host and port.
        server: String,
        /// The reason of TLS.
        why: String,
    },
    /// The answer does not follow the protocol.
    #[error("the UPS server {server} sent an answer that is not understood: {what}")]
    Malformed {
        /// The host and port.
        server: String,
        /// The part that is wrong.
        what: String,
    },
    /// The status has no word for the power source.
    #[error("the UPS status '{status}' does not tell whether it has line power")]
    NoPowerSource {
        /// The status words.
        status: String,
    },
}

/// The sentence for an error code of upsd.
fn explain_code(code: &str) -> String {
    let sentence = match code {
        "ACCESS-DENIED" => {
            "wrong user or password, or the user lacks the right; see upsd.users on that host"
        }
        "FEATURE-NOT-CONFIGURED" | "FEATURE-NOT-SUPPORTED" | "UNKNOWN-COMMAND" => {
            "it does not encrypt: give upsd a certificate (CERTFILE or CERTPATH in upsd.conf), or remove ups.ca_file here"
        }
        "UNKNOWN-UPS" => "it has no UPS of that name; list them with upsc -l HOST",
        "DRIVER-NOT-CONNECTED" => {
            "the driver of the UPS does not run; start it with upsdrvctl start"
        }
        _ => return code.to_owned(),
    };
    format!("{sentence} ({code})")
}
